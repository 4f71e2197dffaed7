"""The webhook's certificate over time: issued, published, renewed and reloaded without dropping a connection.

A renewal has two steps, so that no API server receives a certificate that it does not trust yet. First the next
certificate is stored next to the current one, and its CA is published next to the current CA. The next certificate is
used only after API servers had time to read its CA. All replicas share the storage, and write to it optimistically.
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
# kube-apiserver reads a new caBundle within moments, unless it is busy.
_PROPAGATION_TIME = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    """The stored files by name, and the version to write against."""

    files: Mapping[str, bytes]
    version: str

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a certificate nor a key."""
        return not self.files.get(CERTIFICATE) and not self.files.get(KEY)


class CertificateStorage(Protocol):
    """A storage of certificates: `storage.TlsSecret` or `storage.TlsDirectory`."""

    name: str

    async def read(self) -> StoredCertificate:
        """Return the stored files, which may be none.

        Raises BadInputError, RefusedError, ThrottledError and UnavailableError.
        """
        ...

    async def write(self, files: Mapping[str, bytes], version: str) -> None:
        """Replace the stored files. Raises ConflictError if `version` is outdated, else as `read` does."""
        ...


class CertificateKeeper:
    """Serves the stored certificate, and renews it if cruise issued it.

    `publish` gives API servers the CAs to trust (PEM); cruise does not publish certificates of other issuers. Without
    `publish` the storage is only read, because another process issues, renews and publishes. `now` is given to each
    step; `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        storage: CertificateStorage,
        names: Sequence[str],
        publish: Callable[[bytes], Awaitable[object]] | None,
        clock: Callable[[], float],
        *,
        lifetime: timedelta = LIFETIME,
        propagation_time: timedelta = _PROPAGATION_TIME,
    ) -> None:
        self.context: ssl.SSLContext = create_server_context()
        self._storage = storage
        self._names = names
        self._publish = publish
        self._clock = clock
        self._lifetime = lifetime
        self._propagation_seconds = propagation_time.total_seconds()
        self._served: KeyPair | None = None
        self._published: tuple[bytes, float] | None = None
        self._problem = ""

    @property
    def expires_at(self) -> datetime | None:
        """When the certificate in use expires."""
        return None if self._served is None else self._served.not_after

    @property
    def unpublished_reason(self) -> str | None:
        """Why API servers cannot trust the certificate yet; None if they can, or if publishing is not cruise's task."""
        published = self._publish is None or self._published is not None
        if self._served is None or (self._served.is_own and not published):
            return self._problem or "the certificate is not published yet"
        return None

    async def start(self, now: datetime) -> None:
        """Start to serve the certificate.

        Raises BadInputError if it is not valid, UnavailableError if another process must issue it and has not yet, and
        what the storage raises.
        """
        stored = await self._refresh(now)
        pair = self._read(stored)
        check_validity(pair, self._storage.name, now)
        if self._names[0] not in pair.names:
            log.warning(
                "certificate does not have the webhook's name",
                storage=self._storage.name,
                names=pair.names,
                expected=self._names[0],
            )
        self._serve(pair)
        self._log(await self._publish_authorities(stored))

    async def step(self, now: datetime) -> None:
        """Renew, publish and replace the certificate if due; log errors and try again in the next step."""
        try:
            stored = await self._refresh(now)
            pair = self._read(stored)
            self._serve(pair)
            problem = await self._publish_authorities(stored)
            await self._promote_next(stored)
            check_validity(pair, self._storage.name, now)
        except CruiseError as error:
            problem = str(error)
        self._log(problem)

    async def _refresh(self, now: datetime) -> StoredCertificate:
        """Issue a certificate if there is none, and stage the next one if it is due."""
        stored = await self._storage.read()
        if self._publish is None:
            if stored.is_empty:
                raise UnavailableError(f"{self._storage.name}: {CERTIFICATE} and {KEY} are missing")
            return stored
        if stored.is_empty:
            return await self._replace(stored, self._issue(now))
        pair = self._read(stored)
        if not pair.is_own:
            return stored
        if now >= pair.not_after:
            # No API server trusts an expired certificate, so it is replaced immediately.
            return await self._replace(stored, self._issue(now))
        is_due = now >= pair.renewal_due or not set(self._names) <= set(pair.names)
        if is_due and NEXT_CERTIFICATE not in stored.files:
            return await self._replace(stored, self._stage_next(stored, pair, now))
        return stored

    def _read(self, stored: StoredCertificate) -> KeyPair:
        files, location = stored.files, self._storage.name
        for name in (CERTIFICATE, KEY):
            if not files.get(name):
                raise BadInputError(f"{location}: {name} is missing; add it, or remove the other files")
        return read_key_pair(files[CERTIFICATE], files[KEY], location)

    def _issue(self, now: datetime) -> dict[str, bytes]:
        pair, authority = make_key_pair(self._names, now, self._lifetime)
        return {CERTIFICATE: pair.certificate, KEY: pair.key, AUTHORITIES: authority}

    def _stage_next(self, stored: StoredCertificate, pair: KeyPair, now: datetime) -> dict[str, bytes]:
        next_pair, authority = make_key_pair(self._names, now, self._lifetime)
        trusted = [one for one in split_bundle(stored.files.get(AUTHORITIES, b"")) if is_issued_by(one, pair)]
        return {
            CERTIFICATE: pair.certificate,
            KEY: pair.key,
            AUTHORITIES: b"".join([*trusted, authority]),
            NEXT_CERTIFICATE: next_pair.certificate,
            NEXT_KEY: next_pair.key,
        }

    async def _promote_next(self, stored: StoredCertificate) -> None:
        """Use the staged certificate if its CA has been published for long enough."""
        files = stored.files
        if NEXT_CERTIFICATE not in files or self._published is None:
            return
        bundle, since = self._published
        if bundle != files.get(AUTHORITIES) or self._clock() - since < self._propagation_seconds:
            return
        next_files = StoredCertificate(
            {CERTIFICATE: files[NEXT_CERTIFICATE], KEY: files[NEXT_KEY], AUTHORITIES: bundle}, ""
        )
        self._read(next_files)
        self._serve(self._read(await self._replace(stored, next_files.files)))

    async def _replace(self, stored: StoredCertificate, files: Mapping[str, bytes]) -> StoredCertificate:
        """Write the files, unless another replica did; return the stored files."""
        try:
            await self._storage.write(files, stored.version)
        except ConflictError:
            log.info("certificate renewed by another replica", storage=self._storage.name)
        return await self._storage.read()

    async def _publish_authorities(self, stored: StoredCertificate) -> str:
        """Publish the CAs in every step, because the configuration may have been replaced.

        Return the problem, empty if there is none.
        """
        served = self._served
        bundle = stored.files.get(AUTHORITIES)
        if self._publish is None or served is None or not served.is_own or bundle is None:
            return ""
        problem = ""
        try:
            await self._publish(bundle)
        except NotFoundError as error:
            # Without a configuration no API server calls the webhook.
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
        log.info("certificate in use", storage=self._storage.name, until=pair.not_after.isoformat(), own=pair.is_own)

    def _log(self, problem: str) -> None:
        """Log a problem once until it changes."""
        if problem and problem != self._problem:
            log.warning("certificate", problem=problem)
        self._problem = problem
