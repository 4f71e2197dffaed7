"""Where the webhook's certificate is stored (a directory or a Secret), and how its CA is published."""

import os
import tempfile
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.client import STRATEGIC_MERGE, KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.adapters.webhook_tls.certificate_keeper import CERTIFICATE_FILES, KEY, NEXT_KEY, StoredCertificate
from cruise.errors import BadInputError, ConflictError, NotFoundError

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
        files = {name: text for name in CERTIFICATE_FILES if (text := self._read(name))}
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
    digest = sha256()
    for name in CERTIFICATE_FILES:
        digest.update(b"%d:" % len(files.get(name, b"")) + files.get(name, b""))
    return digest.hexdigest()


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
