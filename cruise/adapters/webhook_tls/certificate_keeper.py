"""The webhook's certificate over time: issued, published, renewed and reloaded without dropping a connection.

A renewal has two steps, so that no API server receives a certificate that it does not trust yet. First the next
certificate is stored next to the current one, and its CA is published next to the current CA. The next certificate is
used only after API servers had time to read its CA. All replicas share the storage, and write to it optimistically.
"""

import asyncio
import os
import ssl
import tempfile
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec
import structlog

from cruise.adapters.kube.client import STRATEGIC_MERGE, KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.adapters.webhook_tls.certificates import (
    KeyPair,
    check_validity,
    create_server_context_without_certificate,
    is_issued_by,
    make_key_pair,
    read_key_pair,
    set_served_certificate,
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

    async def write(self, files: Mapping[str, bytes], version: str) -> None:
        """Replace the stored files. Raises ConflictError if `version` is outdated, else as `read` does."""


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
        self.context: ssl.SSLContext = create_server_context_without_certificate()
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
        set_served_certificate(self.context, pair)
        self._served = pair
        log.info("certificate in use", storage=self._storage.name, until=pair.not_after.isoformat(), own=pair.is_own)

    def _log(self, problem: str) -> None:
        """Log a problem once until it changes."""
        if problem and problem != self._problem:
            log.warning("certificate", problem=problem)
        self._problem = problem


_ATTEMPTS = 3


class _PublishedClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str | None = None


class _PublishedWebhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: _PublishedClientConfig = _PublishedClientConfig()


class _PublishedMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _PublishedConfiguration(msgspec.Struct, frozen=True):
    metadata: _PublishedMetadata
    webhooks: tuple[_PublishedWebhook, ...] | None = None


async def publish_ca(client: KubernetesClient, name: str, ca_bundle: bytes) -> bool:
    """Set this CA bundle (PEM) for every webhook of a MutatingWebhookConfiguration; return whether any had another.

    Raises NotFoundError without such a configuration, ConflictError, RefusedError, ThrottledError and UnavailableError.
    """
    path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{quote(name)}"
    encoded = b64encode(ca_bundle).decode("ascii")
    for attempt in range(_ATTEMPTS):
        found = decode_answer(await client.get(path), _PublishedConfiguration, f"webhook configuration {name}")
        stale = [webhook.name for webhook in found.webhooks or () if webhook.client_config.ca_bundle != encoded]
        if not stale:
            return False
        patch = {
            # Without the version, the patch would add a webhook that was removed meanwhile.
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "webhooks": [{"name": webhook, "clientConfig": {"caBundle": encoded}} for webhook in stale],
        }
        try:
            await client.send("PATCH", path, patch, content_type=STRATEGIC_MERGE)
        except ConflictError:
            if attempt + 1 == _ATTEMPTS:
                raise
        else:
            return True
    raise AssertionError


_MAX_FILE_BYTES = 1 << 20


class TlsDirectory:
    """The certificate files in one directory, which is created at the first write."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.expanduser().absolute()
        self.name = str(self._directory)

    async def read(self) -> StoredCertificate:
        for seconds in (0.5, 0.5, 0.0):  # Another process may be writing the files, one after the other.
            files = {name: text for name in CERTIFICATE_FILES if (text := self._read(name))}
            if (CERTIFICATE in files) == (KEY in files):
                break
            await asyncio.sleep(seconds)
        return StoredCertificate(files, _version(files))

    async def write(self, files: Mapping[str, bytes], version: str) -> None:
        if (await self.read()).version != version:
            raise ConflictError(f"{self.name} was changed by another process")
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in CERTIFICATE_FILES:
                if name in files:
                    self._replace(name, files[name])
                else:
                    (self._directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise BadInputError(
                f"{self.name}: no certificate can be stored ({error.strerror}); "
                "add tls.crt and tls.key, or set tls_dir to a directory that this user may write to"
            ) from error

    def _read(self, name: str) -> bytes:
        path = self._directory / name
        try:
            with path.open("rb") as file:
                return file.read(_MAX_FILE_BYTES)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise BadInputError(f"{path} cannot be read: {error.strerror}") from error

    def _replace(self, name: str, text: bytes) -> None:
        """Replace a file atomically; only the owner may read a key."""
        descriptor, temporary = tempfile.mkstemp(dir=self._directory, prefix=f".{name}-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            if name not in (KEY, NEXT_KEY):
                os.fchmod(file.fileno(), 0o644)
        Path(temporary).replace(self._directory / name)


def _version(files: Mapping[str, bytes]) -> str:
    texts = [files.get(name, b"") for name in CERTIFICATE_FILES]
    return sha256(b"".join(b"%d:" % len(text) + text for text in texts)).hexdigest()


class _SecretMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct):
    metadata: _SecretMetadata
    data: dict[str, str] | None = None


class TlsSecret:
    """A Secret shared by all replicas; its other keys stay. The version is its resourceVersion, or empty."""

    def __init__(self, client: KubernetesClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = name
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self.name = f"Secret {namespace}/{name}"

    async def read(self) -> StoredCertificate:
        try:
            answer = await self._client.get(f"{self._collection}/{self._secret}")
        except NotFoundError:
            return StoredCertificate({}, "")
        found = msgspec.json.decode(answer, type=_Secret)
        data = found.data or {}
        try:
            files = {name: b64decode(data[name]) for name in CERTIFICATE_FILES if data.get(name)}
        except (ValueError, NotBase64) as error:
            raise BadInputError(f"{self.name} contains invalid base64: {error}") from error
        return StoredCertificate(files, found.metadata.resource_version)

    async def write(self, files: Mapping[str, bytes], version: str) -> None:
        data = {name: b64encode(files[name]).decode("ascii") if name in files else None for name in CERTIFICATE_FILES}
        if version:
            # With the version, the server rejects the patch after any other write.
            body = {"metadata": {"resourceVersion": version}, "data": data}
            path = f"{self._collection}/{self._secret}"
            await self._client.send("PATCH", path, body, content_type="application/merge-patch+json")
            return
        metadata = {"namespace": self._namespace, "name": self._secret}
        body = {"metadata": metadata, "type": "Opaque", "data": {name: text for name, text in data.items() if text}}
        await self._client.send("POST", self._collection, {"apiVersion": "v1", "kind": "Secret", **body})
