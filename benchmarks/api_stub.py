"""Stands in for an API server with very many objects, in a separate process: paged lists, and watches without events.

It serves plain HTTP without authorization.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from benchmarks.apart import serve_in_process
from cruise.adapters.kube.kinds import ALL_KINDS
from cruise.kube_json.reading.json_list import ItemListReader

Json = dict[str, Any]

_PAGE = 500
_CHUNK_BYTES = 1 << 21
_VERSION = "1000"
_BOOKMARK_SECONDS = 20.0
_PATHS = {str(kind.shape.__struct_config__.tag): kind.path for kind in ALL_KINDS}


class _Peek(msgspec.Struct):
    kind: str


@contextmanager
def running_api_stub(snapshot: Path) -> Iterator[str]:
    """Serve the objects of a snapshot file; yield the address."""
    with serve_in_process(_serve, snapshot) as address:
        yield address


def kubeconfig(address: str) -> str:
    """Return a kubeconfig for the stand-in."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "stub", "cluster": {"server": address}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "bench"}}],
        "current-context": "stub",
    }
    return msgspec.json.encode(document).decode()


def _serve(snapshot: Path, pipe: Connection) -> None:
    pages = _pages(snapshot)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(asked.query).items()}
            if "watch" in query:
                self._watch()
                return
            body = _DISCOVERY.get(asked.path)
            if body is None:
                of_kind = pages.get(asked.path) or [_list([], "")]
                body = of_kind[int(query.get("continue", 0))]
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _watch(self) -> None:
            self.close_connection = True
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": _VERSION}}}
            with suppress(OSError):
                while True:
                    self.wfile.write(msgspec.json.encode(bookmark) + b"\n")
                    time.sleep(_BOOKMARK_SECONDS)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(f"http://127.0.0.1:{server.server_address[1]}")
    pipe.recv()


def _pages(snapshot: Path) -> dict[str, list[bytes]]:
    """Return the bodies of all pages by path."""
    items: dict[str, list[msgspec.Raw]] = defaultdict(list)
    decoder = msgspec.json.Decoder(list[msgspec.Raw])
    peek = msgspec.json.Decoder(_Peek)
    with snapshot.open("rb") as file:
        for _, raw in ItemListReader(iter(lambda: file.read(_CHUNK_BYTES), b"")).read_runs(
            lambda text: decoder.decode(bytes(text))
        ):
            for item in raw or ():
                items[_PATHS.get(peek.decode(item).kind, "")].append(item)
    pages = {}
    for path, all_of_kind in items.items():
        starts = range(0, len(all_of_kind), _PAGE)
        pages[path] = [
            _list(all_of_kind[at : at + _PAGE], str(number + 1) if number + 1 < len(starts) else "")
            for number, at in enumerate(starts)
        ]
    return pages


def _list(items: list[msgspec.Raw], following: str) -> bytes:
    metadata = {"resourceVersion": _VERSION} | ({"continue": following} if following else {})
    return msgspec.json.encode({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})


def _resources(*names: str) -> bytes:
    verbs = ["create", "get", "list", "patch", "update", "watch"]
    return msgspec.json.encode({"resources": [{"name": name, "verbs": verbs} for name in names]})


_DISCOVERY = {
    "/version": msgspec.json.encode({"major": "1", "minor": "36", "gitVersion": "v1.36.3"}),
    "/api/v1": _resources("pods", "pods/resize", "pods/eviction", "nodes", "namespaces", "limitranges"),
}
