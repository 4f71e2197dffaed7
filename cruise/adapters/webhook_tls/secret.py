"""The webhook's certificate in a Secret, shared by all replicas."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping

import msgspec

from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.webhook_tls.keeping import FILES, Kept
from cruise.errors import BadInput, NotFound


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


class TlsSecret:
    """One Secret; what it holds besides cruise's files stays. Its version is the server's, empty where it is absent."""

    def __init__(self, client: KubeClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = name
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self.name = f"Secret {namespace}/{name}"

    async def read(self) -> Kept:
        try:
            answer = await self._client.get(f"{self._collection}/{self._secret}")
        except NotFound:
            return Kept({}, "")
        found = msgspec.json.decode(answer, type=_Secret)
        data = found.data or {}
        try:
            files = {name: b64decode(data[name]) for name in FILES if data.get(name)}
        except (ValueError, NotBase64) as error:
            raise BadInput(f"{self.name} holds what is not base64: {error}") from error
        return Kept(files, found.metadata.resource_version)

    async def write(self, files: Mapping[str, bytes], version: str) -> None:
        data = {name: b64encode(files[name]).decode("ascii") if name in files else None for name in FILES}
        if version:
            # With the version in it a patch is refused after any other write.
            body = {"metadata": {"resourceVersion": version}, "data": data}
            path = f"{self._collection}/{self._secret}"
            await self._client.send("PATCH", path, body, content_type="application/merge-patch+json")
            return
        metadata = {"namespace": self._namespace, "name": self._secret}
        body = {"metadata": metadata, "type": "Opaque", "data": {name: text for name, text in data.items() if text}}
        await self._client.send("POST", self._collection, {"apiVersion": "v1", "kind": "Secret", **body})
