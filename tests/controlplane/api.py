"""A small synchronous client of the Kubernetes API, for tests that set up and inspect a cluster.

Resources have the names of kubectl: `pods`, `deployments.apps`. Objects are the server's JSON, unchanged.
"""

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import yaml

from tests.controlplane.watching import ApiWatch

Json = dict[str, Any]
PatchKind = Literal["strategic", "merge", "json", "apply"]
T = TypeVar("T")

# In seconds, between two looks at what is waited for.
SHORTEST_PAUSE = 0.02

PATCH_TYPES: Mapping[PatchKind, str] = {
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """An error response; `causes` are the reasons in its details, such as NodeCapacity."""

    def __init__(self, status: int, body: Any, retry_after: str | None = None) -> None:
        told: Json = body if isinstance(body, dict) else {"message": str(body)}
        self.status = status
        self.body = told
        self.reason: str = told.get("reason", "")
        self.message: str = told.get("message", "")
        self.causes = [cause.get("reason", "") for cause in (told.get("details") or {}).get("causes") or ()]
        self.retry_after = retry_after
        super().__init__(f"{status} {self.reason}: {self.message}")


class Api:
    """A client of one server for one user. Threads share it; each has its own connection."""

    def __init__(self, address: str, ca_file: Path, token: str, user_agent: str = "cruise-tests") -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port
        self._tls = ssl.create_default_context(cafile=str(ca_file))
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": user_agent, "Accept": "application/json"}
        self._local = threading.local()
        self._versions: dict[str, str] = {"": "v1"}
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    def impersonating(self, user: str, group: str) -> "Api":
        """Return a client that impersonates another user, in one group."""
        other = copy(self)
        other._headers = {**self._headers, "Impersonate-User": user, "Impersonate-Group": group}
        other._local = threading.local()
        return other

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Send one request and return the decoded response. Raises ApiError; OSError if the server is unreachable."""
        sent = None if body is None else msgspec.json.encode(body)
        headers = self._headers if sent is None else {**self._headers, "Content-Type": content_type}
        answer = self._answer(method, path, sent, headers)
        text = answer.read()
        is_json = (answer.getheader("Content-Type") or "").startswith("application/json")
        decoded: Any = msgspec.json.decode(text) if is_json else text.decode()
        # Some refusals of the eviction subresource have a success status.
        failed = isinstance(decoded, dict) and decoded.get("kind") == "Status" and decoded.get("status") == "Failure"
        if answer.status >= 400 or failed:
            status = decoded.get("code", answer.status) if failed else answer.status
            raise ApiError(status, decoded, answer.getheader("Retry-After"))
        return decoded

    def get(self, path: str) -> Any:
        """Read a path of the server."""
        return self.request("GET", path)

    def path(
        self, resource: str, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the path of a resource's objects, of one of them, or of its subresource."""
        plural, _, group = resource.partition(".")
        path = f"/apis/{group}/{self._version(group)}" if group else "/api/v1"
        for part in (*(("namespaces", namespace) if namespace else ()), plural, name, subresource):
            path += f"/{quote(part)}" if part else ""
        return path

    def create(self, manifest: Json) -> Json:
        """Create an object, in its namespace or in `default`."""
        made: Json = self.request("POST", self._path_of(manifest, named=False), manifest)
        return made

    def apply(self, manifest: Json, manager: str = "cruise-tests") -> Json:
        """Apply an object (server-side apply)."""
        path = f"{self._path_of(manifest, named=True)}?{urlencode({'fieldManager': manager, 'force': 'true'})}"
        applied: Json = self.request("PATCH", path, manifest, PATCH_TYPES["apply"])
        return applied

    def apply_file(self, path: Path) -> list[Json]:
        """Apply every document of a YAML file, in order."""
        return [self.apply(manifest) for manifest in yaml.safe_load_all(path.read_text()) if manifest]

    def read(self, resource: str, namespace: str | None, name: str) -> Json:
        """Read one object."""
        found: Json = self.get(self.path(resource, namespace, name))
        return found

    def items(self, resource: str, namespace: str | None = None, labels: str = "") -> list[Json]:
        """List the objects of one namespace or of all, by a label selector."""
        query = f"?{urlencode({'labelSelector': labels})}" if labels else ""
        items: list[Json] = self.get(self.path(resource, namespace) + query)["items"]
        return items

    def patch(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        body: Any,
        kind: PatchKind = "strategic",
        subresource: str | None = None,
    ) -> Json:
        """Patch one object or its subresource."""
        path = self.path(resource, namespace, name, subresource)
        patched: Json = self.request("PATCH", path, body, PATCH_TYPES[kind])
        return patched

    def delete(
        self, resource: str, namespace: str | None, name: str, grace: int | None = None, uid: str | None = None
    ) -> None:
        """Delete one object, with that uid if one is given, and then its dependants."""
        options = _delete_options(grace)
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        self.request("DELETE", self.path(resource, namespace, name), options)

    def delete_all(self, resource: str, namespace: str | None, grace: int | None = None) -> None:
        """Delete every object of a namespace, and then their dependants."""
        for again in (True, True, False):
            try:
                self.request("DELETE", self.path(resource, namespace), _delete_options(grace))
            except ApiError as refused:
                # A busy server deletes thousands of objects in more than the minute that a request may take.
                if refused.status != 504 or not again:
                    raise
            else:
                return

    def resize(self, namespace: str, pod: str, containers: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Json:
        """Resize a pod in place: container to `requests` and `limits`, by strategic merge."""
        listed = [{"name": name, "resources": resources} for name, resources in containers.items()]
        return self.patch("pods", namespace, pod, {"spec": {"containers": listed}}, subresource="resize")

    def evict(self, namespace: str, pod: str, uid: str | None = None) -> None:
        """Evict a pod, with that uid if one is given."""
        body: Json = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": pod},
        }
        if uid is not None:
            body["deleteOptions"] = {"preconditions": {"uid": uid}}
        self.request("POST", self.path("pods", namespace, pod, "eviction"), body)

    def service_account_token(self, namespace: str, name: str, seconds: int = 24 * 3600) -> str:
        """Request a token of a ServiceAccount, which outlives an hour of churn; the shortest lifetime is 10 minutes."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        told = self.request("POST", self.path("serviceaccounts", namespace, name, "token"), body)
        token: str = told["status"]["token"]
        return token

    def watch(self, resource: str, namespace: str | None = None, **parameters: str) -> ApiWatch:
        """Open a watch from a `resourceVersion`. Raises ApiError; the events may contain an ERROR."""
        query = urlencode({"watch": "true", "allowWatchBookmarks": "true", **parameters})
        connection = self._connect()
        connection.request("GET", f"{self.path(resource, namespace)}?{query}", headers=self._headers)
        # If the server closes the connection after the response, the response owns the socket.
        socket = connection.sock
        answer = connection.getresponse()
        if answer.status >= 400:
            body = msgspec.json.decode(answer.read())
            connection.close()
            raise ApiError(answer.status, body, answer.getheader("Retry-After"))
        return ApiWatch(connection, socket, answer)

    def close(self) -> None:
        """Close this thread's connection."""
        kept: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if kept is not None:
            kept.close()

    def _connect(self) -> http.client.HTTPSConnection:
        # The API server's own timeout is 60 s: deleting 2,000 pods took over 30 s on a busy machine.
        return http.client.HTTPSConnection(self._host, self._port, timeout=70, context=self._tls)

    def _answer(self, method: str, path: str, sent: bytes | None, headers: Json) -> http.client.HTTPResponse:
        kept: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if kept is not None and kept.sock is not None:
            try:
                return _exchange(kept, method, path, sent, headers)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                # The server had closed an idle connection, as after a restart, and did not receive this request.
                pass
        self._local.connection = connection = self._connect()
        return _exchange(connection, method, path, sent, headers)

    def _version(self, group: str) -> str:
        if group not in self._versions:
            self._versions[group] = self.get(f"/apis/{group}")["preferredVersion"]["version"]
        return self._versions[group]

    def _path_of(self, manifest: Json, named: bool) -> str:
        version, metadata = manifest["apiVersion"], manifest["metadata"]
        start = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, manifest["kind"]) not in self._plurals:
            for one in self.get(start)["resources"]:
                if "/" not in one["name"]:
                    self._plurals[version, one["kind"]] = (one["name"], one["namespaced"])
        plural, namespaced = self._plurals[version, manifest["kind"]]
        namespace = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        return f"{start}{namespace}/{plural}" + (f"/{metadata['name']}" if named else "")


def _exchange(
    connection: http.client.HTTPSConnection, method: str, path: str, sent: bytes | None, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    """Send a request and receive the response; after a failure the connection is not used again."""
    try:
        connection.request(method, path, sent, headers)
        return connection.getresponse()
    except BaseException:
        connection.close()
        raise


def _delete_options(grace: int | None) -> Json:
    options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    return options if grace is None else {**options, "gracePeriodSeconds": grace}


def wait_until(check: Callable[[], T | None], what: str, seconds: float = 240, longest_pause: float = 0.25) -> T:
    """Wait until `check` returns a true value, and return it; fails with `what` after the time limit.

    By default that is longer than anything takes on a busy machine. A shorter one is stated only where it distinguishes
    two behaviours: how fast something is, benchmarks tell. Checks slow down the system under test: the longer a check
    takes, the longer the pauses between checks.
    """
    began = time.monotonic()
    while True:
        found = check()
        if found:
            return found
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds:.0f} s: {what}"
        time.sleep(min(max(SHORTEST_PAUSE, waited / 20), longest_pause))


def conditions(thing: Json) -> dict[str, Json]:
    """Return the conditions of an object's status by type."""
    return {one["type"]: one for one in thing.get("status", {}).get("conditions") or ()}


def by_name(things: Iterable[Json] | Sequence[Json] | None) -> dict[str, Json]:
    """Return containers or container statuses by name."""
    return {one["name"]: one for one in things or ()}
