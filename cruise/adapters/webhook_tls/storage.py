"""A certificate in files: mounted by others, or kept there by cruise itself."""

import base64
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

# The CA by which the API server knows cruise's webhook, kept up to date in cruise's own configuration.

_TRIES = 3


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
    """Give every webhook of one MutatingWebhookConfiguration this CA (PEM); tell whether any had another.

    Raises NotFoundError where there is no such configuration, Conflict, Refused, Throttled, Unavailable.
    """
    path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{quote(name)}"
    wanted = base64.b64encode(ca_bundle).decode("ascii")
    for attempt in range(_TRIES):
        found = decode_answer(await client.get(path), _PublishedConfiguration, f"webhook configuration {name}")
        stale = [webhook.name for webhook in found.webhooks or () if webhook.client_config.ca_bundle != wanted]
        if not stale:
            return False
        patch = {
            # Others may rewrite the list meanwhile, and a name that is gone from it would be added anew.
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "webhooks": [{"name": webhook, "clientConfig": {"caBundle": wanted}} for webhook in stale],
        }
        try:
            await client.send("PATCH", path, patch, content_type=STRATEGIC_MERGE)
        except ConflictError:
            if attempt + 1 == _TRIES:
                raise
        else:
            return True
    raise AssertionError


_LARGEST_FILE = 1 << 20


class TlsDirectory:
    """The files tls.crt, tls.key and ca.crt of one directory, which is made when something is to be kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.expanduser().absolute()
        self.name = str(self._directory)

    async def read(self) -> StoredCertificate:
        files = {name: text for name in CERTIFICATE_FILES if (text := self._read(name))}
        return StoredCertificate(files, _version(files))

    async def write(self, files: Mapping[str, bytes], version: str) -> None:
        if (await self.read()).version != version:
            raise ConflictError(f"{self.name} was written to by another")
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in CERTIFICATE_FILES:
                if name in files:
                    self._replace(name, files[name])
                else:
                    (self._directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise BadInputError(
                f"{self.name}: no certificate can be kept there ({error.strerror}); "
                "put tls.crt and tls.key there, or set tls_dir to a directory that this user may write to"
            ) from error

    def _read(self, name: str) -> bytes:
        path = self._directory / name
        try:
            with path.open("rb") as file:
                return file.read(_LARGEST_FILE)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise BadInputError(f"{path} cannot be read: {error.strerror}") from error

    def _replace(self, name: str, text: bytes) -> None:
        """Write a file so that a reader sees the old text or the new one; a key only for its owner."""
        descriptor, draft = tempfile.mkstemp(dir=self._directory, prefix=f".{name}-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            if name not in (KEY, NEXT_KEY):
                os.fchmod(file.fileno(), 0o644)
        Path(draft).replace(self._directory / name)


def _version(files: Mapping[str, bytes]) -> str:
    digest = sha256()
    for name in CERTIFICATE_FILES:
        digest.update(b"%d:" % len(files.get(name, b"")) + files.get(name, b""))
    return digest.hexdigest()


# The webhook's certificate in a Secret, shared by all replicas.


class _SecretMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct):
    metadata: _SecretMetadata
    data: dict[str, str] | None = None


class TlsSecret:
    """One Secret; what it holds besides cruise's files stays. Its version is the server's, empty where it is absent."""

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
            raise BadInputError(f"{self.name} holds what is not base64: {error}") from error
        return StoredCertificate(files, found.metadata.resource_version)

    async def write(self, files: Mapping[str, bytes], version: str) -> None:
        data = {name: b64encode(files[name]).decode("ascii") if name in files else None for name in CERTIFICATE_FILES}
        if version:
            # With the version in it a patch is refused after any other write.
            body = {"metadata": {"resourceVersion": version}, "data": data}
            path = f"{self._collection}/{self._secret}"
            await self._client.send("PATCH", path, body, content_type="application/merge-patch+json")
            return
        metadata = {"namespace": self._namespace, "name": self._secret}
        body = {"metadata": metadata, "type": "Opaque", "data": {name: text for name, text in data.items() if text}}
        await self._client.send("POST", self._collection, {"apiVersion": "v1", "kind": "Secret", **body})
