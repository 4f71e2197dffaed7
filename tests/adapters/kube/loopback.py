"""A fake API server on loopback with paginated lists, watches and injected faults."""

import asyncio
import json
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.cluster import KubernetesCluster
from cruise.adapters.kube.kinds import ALL_KINDS
from cruise.adapters.kube.watching import WatchTiming
from tests.adapters.kube.followed import SHORT

Json = dict[str, Any]
Fault = Callable[["LoopbackServer", web.Request], Awaitable[web.StreamResponse]]

PODS, NODES, REPLICA_SETS = "/api/v1/pods", "/api/v1/nodes", "/apis/apps/v1/replicasets"


class LoopbackServer:
    """Objects by path and key, their events, and the requests received. `faults` are used up one by one.

    Faults are due by path and verb, `list` or `watch`.
    """

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[str, Json]] = {kind.path: {} for kind in ALL_KINDS}
        self.faults: dict[tuple[str, str], deque[Fault]] = defaultdict(deque)
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.oldest = 0
        self._events: dict[str, list[tuple[int, bytes]]] = defaultdict(list)

    def verbs(self, path: str) -> list[str]:
        """The verbs of the requests to a path, in order."""
        return [verb for asked, verb, _ in self.asked if asked == path]

    async def put(self, path: str, document: Json) -> None:
        """Create or change an object."""
        await self.put_all(path, [document])

    async def put_all(self, path: str, documents: list[Json]) -> None:
        """Create or change objects, all before the first event is sent."""
        for document in documents:
            key = _key(document)
            kind = "MODIFIED" if key in self.objects[path] else "ADDED"
            self.version += 1
            document = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self.version)}}
            self.objects[path][key] = document
            self._note(path, kind, document)

    async def remove(self, path: str, document: Json, silently: bool = False) -> None:
        """Delete an object; silently, no watch ever hears of it."""
        gone = self.objects[path].pop(_key(document))
        self.version += 1
        if not silently:
            self._note(
                path, "DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
            )

    async def say(self, path: str, line: Json) -> None:
        """Send a line to all watches of a path."""
        self.version += 1
        self._events[path].append((self.version, json.dumps(line).encode() + b"\n"))

    def forget_history(self) -> None:
        """Expire every version up to now."""
        self.version += 1
        self.oldest = self.version
        self._events.clear()

    def events_of(self, path: str) -> list[tuple[int, bytes]]:
        """Return the versions and lines that watches of a path receive."""
        return self._events[path]

    def _note(self, path: str, kind: str, document: Json) -> None:
        line = json.dumps({"type": kind, "object": document}).encode() + b"\n"
        self._events[path].append((self.version, line))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        path, query = request.path, dict(request.query)
        verb = "watch" if query.get("watch") else "list" if path in self.objects else "get"
        self.asked.append((path, verb, query))
        due = self.faults.get((path, verb))
        if due:
            return await due.popleft()(self, request)
        if verb == "get":
            base, _, name = path.rpartition("/")
            namespace = base.split("/")[4] if "/namespaces/" in base else ""
            found = self.objects[PODS if base.endswith("pods") else NODES].get(f"{namespace}/{name}")
            return web.json_response(found) if found else failure(404, "NotFoundError")
        return await (self.watch(request) if verb == "watch" else self.list(request))

    async def list(self, request: web.Request) -> web.StreamResponse:
        """Answer a list, page by page."""
        items = [item for _, item in sorted(self.objects[request.path].items())]
        start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or len(items) or 1)
        metadata: Json = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return web.json_response({"kind": "List", "metadata": metadata, "items": items[start : start + limit]})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        """Answer a watch until its time is over, with a bookmark as the last line."""
        told = int(request.query["resourceVersion"])
        if told < self.oldest:
            return failure(410, "Expired", "too old resource version")
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + int(request.query["timeoutSeconds"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while loop.time() < ends_at:
            events = self._events[request.path]
            fresh = events[bisect_right(events, told, key=itemgetter(0)) :]
            for version, line in fresh:
                await response.write(line)
                told = version
            if not fresh:
                await asyncio.sleep(0.01)
        await response.write(bookmark(self.version))
        return response


def bookmark(version: int) -> bytes:
    """A bookmark as servers write it: an object with nothing but its version."""
    document = {"kind": "Pod", "metadata": {"resourceVersion": str(version)}, "spec": {"containers": None}}
    return json.dumps({"type": "BOOKMARK", "object": document}).encode() + b"\n"


def failure(code: int, reason: str, message: str = "no", headers: dict[str, str] | None = None) -> web.Response:
    """Return a Status as the API server writes it."""
    status = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}
    return web.json_response(status, status=code, headers=headers)


def refuse(code: int, reason: str, headers: dict[str, str] | None = None) -> Fault:
    """Refuse one request."""

    async def fault(server: LoopbackServer, request: web.Request) -> web.StreamResponse:
        message = 'it is forbidden: User "somebody" cannot list resource "it"' if code == 403 else "no"
        return failure(code, reason, message, headers)

    return fault


async def close_connection(server: LoopbackServer, request: web.Request) -> web.StreamResponse:
    """Break the connection before there is an answer."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)
    return web.Response()


async def stop_sending(server: LoopbackServer, request: web.Request) -> web.StreamResponse:
    """Open the watch, and then send nothing for a long time."""
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.sleep(60)
    return response


async def end_immediately(server: LoopbackServer, request: web.Request) -> web.StreamResponse:
    """Open the watch and end it properly, without an event."""
    response = web.StreamResponse()
    await response.prepare(request)
    return response


def answer_with(*lines: Json) -> Fault:
    """Open the watch, say these lines and end it."""

    async def fault(server: LoopbackServer, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(json.dumps(line).encode() + b"\n")
        return response

    return fault


EXPIRED_LINE: Json = {
    "type": "ERROR",
    "object": {"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410},
}


@asynccontextmanager
async def run_loopback_server(server: LoopbackServer, directory: Path) -> AsyncIterator[KubernetesSettings]:
    """Serve, and yield what a client connects by."""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    config = directory / "kubeconfig"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "it",
                "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "it", "user": {"token": "none"}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            }
        )
    )
    try:
        yield KubernetesSettings(config, requests_per_second=10_000, burst=10_000)
    finally:
        await runner.cleanup()


@asynccontextmanager
async def watch_loopback(
    server: LoopbackServer, directory: Path, timing: WatchTiming = SHORT, synced: bool = True, **more: Any
) -> AsyncIterator[KubernetesCluster]:
    """Serve, and yield a cluster that follows."""
    async with run_loopback_server(server, directory) as settings, connect_to_kubernetes(settings) as client:
        cluster = KubernetesCluster(client, timing=timing, **more)
        running = asyncio.ensure_future(cluster.run())
        try:
            if synced:
                await asyncio.wait_for(cluster.wait_until_synced(), 120)
            yield cluster
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _key(document: Json) -> str:
    metadata = document["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
