"""The webhook's certificate over time: made, published, renewed and reloaded without a connection lost.

A renewal has two steps, so that no API server is ever shown a certificate that it does not trust yet: the next one is
stored beside the one in use and its authority published beside the old; only after the time that API servers need to
read it is the next one put in use. All replicas share the place and take part; writes are optimistic.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from cruise.adapters.webhook_tls.certificates import (
    KeyPair,
    check_validity,
    create_server_context,
    is_issued_by,
    load_certificate,
    make_key_pair,
    read_key_pair,
    split_bundle,
)
from cruise.errors import BadInputError, ConflictError, CruiseError, NotFoundError, UnavailableError

log = structlog.get_logger()

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"
CERTIFICATE_FILES = (CERTIFICATE, KEY, AUTHORITIES, NEXT_CERTIFICATE, NEXT_KEY)
LIFETIME = timedelta(days=30)
# kube-apiserver reads a new caBundle within moments; several of them may be busy.
_LEARNING_TIME = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    """What is kept now, by file name, and the version to write against."""

    files: Mapping[str, bytes]
    version: str

    @property
    def empty(self) -> bool:
        """Tell whether there is neither a certificate nor a key."""
        return not self.files.get(CERTIFICATE) and not self.files.get(KEY)


class CertificateStorage(Protocol):
    """Where certificates are kept: `kube.tls_secret.TlsSecret`, `tls_directory.TlsDirectory`."""

    name: str

    async def read(self) -> StoredCertificate:
        """Return what is kept; nothing is no error. Raises BadInputError, Refused, Throttled, Unavailable."""
        ...

    async def write(self, files: Mapping[str, bytes], version: str) -> None:
        """Replace what is kept. Raises Conflict where it is no longer `version`, else as `read`."""
        ...


class CertificateKeeper:
    """Serves the certificate of a place, and renews it there if cruise made it.

    `publish` gives API servers the authorities to trust (PEM); a certificate from elsewhere is published elsewhere.
    Without it the place is read and nothing else: another process makes, renews and publishes.
    `now` is given to each step; `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        place: CertificateStorage,
        names: Sequence[str],
        publish: Callable[[bytes], Awaitable[object]] | None,
        clock: Callable[[], float],
        *,
        lifetime: timedelta = LIFETIME,
        learning_time: timedelta = _LEARNING_TIME,
    ) -> None:
        self.context: ssl.SSLContext = create_server_context()
        self._place = place
        self._names = names
        self._publish = publish
        self._clock = clock
        self._lifetime = lifetime
        self._learning_seconds = learning_time.total_seconds()
        self._served: KeyPair | None = None
        self._published: tuple[bytes, float] | None = None
        self._problem = ""

    @property
    def expires_at(self) -> datetime | None:
        """When the certificate in use ends."""
        return None if self._served is None else self._served.not_after

    @property
    def unpublished_reason(self) -> str | None:
        """Why API servers cannot trust the certificate yet; None once it was published, or is not cruise's task."""
        published = self._publish is None or self._published is not None
        if self._served is None or (self._served.is_own and not published):
            return self._problem or "the certificate is not published yet"
        return None

    async def start(self, now: datetime) -> None:
        """Put a certificate in use. Raises BadInputError for one that cannot be, else what the place raises.

        Raises Unavailable where another is to make it and has not yet.
        """
        kept = await self._brought_up_to_date(now)
        pair = self._read(kept)
        check_validity(pair, self._place.name, now)
        if self._names[0] not in pair.names:
            log.warning("certificate for other names", place=self._place.name, names=pair.names, wanted=self._names[0])
        self._serve(pair)
        self._log(await self._publish_authorities(kept))

    async def step(self, now: datetime) -> None:
        """Do what is due: renew, publish, put in use. A refusal is logged, and tried again next time."""
        try:
            kept = await self._brought_up_to_date(now)
            pair = self._read(kept)
            self._serve(pair)
            problem = await self._publish_authorities(kept)
            await self._promote_next(kept)
            check_validity(pair, self._place.name, now)
        except CruiseError as error:
            problem = str(error)
        self._log(problem)

    async def _brought_up_to_date(self, now: datetime) -> StoredCertificate:
        """Make a certificate where there is none, and stage the next one where it is due."""
        kept = await self._place.read()
        if self._publish is None:
            if kept.empty:
                raise UnavailableError(f"{self._place.name}: there is no {CERTIFICATE} and no {KEY} yet")
            return kept
        if kept.empty:
            return await self._replaced(kept, self._made(now))
        pair = self._read(kept)
        if not pair.is_own:
            return kept
        if now >= pair.not_after:
            # No API server trusts it any more, so there is nothing to be careful about.
            return await self._replaced(kept, self._made(now))
        due = now >= pair.renewal_due or not set(self._names) <= set(pair.names)
        if due and NEXT_CERTIFICATE not in kept.files:
            return await self._replaced(kept, self._staged(kept, pair, now))
        return kept

    def _read(self, kept: StoredCertificate) -> KeyPair:
        files, place = kept.files, self._place.name
        for name in (CERTIFICATE, KEY):
            if not files.get(name):
                raise BadInputError(f"{place}: there is no {name}; put it there, or remove the other files")
        return read_key_pair(files[CERTIFICATE], files[KEY], place)

    def _made(self, now: datetime) -> dict[str, bytes]:
        pair, authority = make_key_pair(self._names, now, self._lifetime)
        return {CERTIFICATE: pair.certificate, KEY: pair.key, AUTHORITIES: authority}

    def _staged(self, kept: StoredCertificate, pair: KeyPair, now: datetime) -> dict[str, bytes]:
        following, authority = make_key_pair(self._names, now, self._lifetime)
        trusted = [one for one in split_bundle(kept.files.get(AUTHORITIES, b"")) if is_issued_by(one, pair)]
        return {
            CERTIFICATE: pair.certificate,
            KEY: pair.key,
            AUTHORITIES: b"".join([*trusted, authority]),
            NEXT_CERTIFICATE: following.certificate,
            NEXT_KEY: following.key,
        }

    async def _promote_next(self, kept: StoredCertificate) -> None:
        """Put the staged certificate in use where its authority has been public for long enough."""
        files = kept.files
        if NEXT_CERTIFICATE not in files or self._published is None:
            return
        bundle, since = self._published
        if bundle != files.get(AUTHORITIES) or self._clock() - since < self._learning_seconds:
            return
        following = StoredCertificate(
            {CERTIFICATE: files[NEXT_CERTIFICATE], KEY: files[NEXT_KEY], AUTHORITIES: bundle}, ""
        )
        self._read(following)
        self._serve(self._read(await self._replaced(kept, following.files)))

    async def _replaced(self, kept: StoredCertificate, files: Mapping[str, bytes]) -> StoredCertificate:
        """Write, or find what another wrote meanwhile; return what is kept then."""
        try:
            await self._place.write(files, kept.version)
        except ConflictError:
            log.info("certificate renewed by another", place=self._place.name)
        return await self._place.read()

    async def _publish_authorities(self, kept: StoredCertificate) -> str:
        """Publish the authorities, each time anew: the configuration may have been replaced.

        Return what kept them from being published, empty if nothing did.
        """
        served = self._served
        bundle = kept.files.get(AUTHORITIES)
        if self._publish is None or served is None or not served.is_own or bundle is None:
            return ""
        problem = ""
        try:
            await self._publish(bundle)
        except NotFoundError as error:
            # Without a configuration no API server calls.
            problem = str(error)
        except CruiseError as error:
            return str(error)
        if self._published is None or self._published[0] != bundle:
            self._published = (bundle, self._clock())
        return problem

    def _serve(self, pair: KeyPair) -> None:
        served = self._served
        if served is not None and (served.certificate, served.key) == (pair.certificate, pair.key):
            return
        load_certificate(self.context, pair)
        self._served = pair
        log.info("certificate in use", place=self._place.name, until=pair.not_after.isoformat(), own=pair.is_own)

    def _log(self, problem: str) -> None:
        """Log a problem once, for as long as it is the same."""
        if problem and problem != self._problem:
            log.warning("certificate", problem=problem)
        self._problem = problem
