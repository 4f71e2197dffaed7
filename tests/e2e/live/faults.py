"""Proxies for HTTP and sockets between cruise and its dependencies, with injected faults."""

import http.client
import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import unquote_plus, urlsplit

_CHUNK = 1 << 16


class FaultAnswers(Enum):
    """The faults of a proxy in front of Prometheus."""

    WHOLE = "whole"
    NONE = "none"  # the connection is closed without an answer
    CUT = "cut"  # the body breaks off half-way
    HALF_OF_THE_SERIES = "half of the series"
    OLD = "old"  # without samples of the last `age_seconds`


class _Listening:
    """An HTTP server on a free loopback port within a context."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class PrometheusProxy(_Listening):
    """A Prometheus server with the faults of `answers`; `asked` counts queries.

    Queries that contain `refused` get no answer, and each answer takes `delay_seconds` longer.
    """

    def __init__(self, target: str) -> None:
        self.answers = FaultAnswers.WHOLE
        self.age_seconds = 0
        self.refused = ""
        self.delay_seconds = 0.0
        self.asked = 0
        self._target = urlsplit(target).netloc
        super().__init__(self._handler())

    def body(self, body: bytes) -> bytes:
        """Return the rest of a response."""
        if self.answers not in (FaultAnswers.HALF_OF_THE_SERIES, FaultAnswers.OLD):
            return body
        document = json.loads(body)
        result = document.get("data", {}).get("result", []) if isinstance(document.get("data"), dict) else []
        if self.answers is FaultAnswers.HALF_OF_THE_SERIES:
            document["data"]["result"] = result[1::2]
        else:
            newest = time.time() - self.age_seconds  # noqa: TID251  samples bear the time of the world
            for one in result:
                one["values"] = [sample for sample in one.get("values", ()) if sample[0] <= newest]
            document["data"]["result"] = [one for one in result if one["values"]]
        return json.dumps(document).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._forward(None)

            def do_POST(self) -> None:
                self._forward(self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def _forward(self, sent: bytes | None) -> None:
                proxy.asked += 1
                time.sleep(proxy.delay_seconds)
                query = unquote_plus(self.path + (sent or b"").decode())
                if proxy.answers is FaultAnswers.NONE or (proxy.refused and proxy.refused in query):
                    self.close_connection = True
                    return
                headers = {"Content-Type": self.headers.get("Content-Type", ""), "Accept-Encoding": "identity"}
                upstream = http.client.HTTPConnection(proxy._target, timeout=30)
                upstream.request(self.command, self.path, sent, headers)
                answer = upstream.getresponse()
                body = proxy.body(answer.read())
                upstream.close()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.getheader("Content-Type") or "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if proxy.answers is FaultAnswers.CUT:
                    body = body[: len(body) // 2]
                    self.close_connection = True
                with suppress(OSError):
                    self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

        return Handler


class ApiServerProxy(_Listening):
    """An API server without TLS that answers 429 to everything while `storm` is set; `refused` counts these answers.

    Each request except a watch is forwarded after `delay_seconds`. Paths that end with `late` are forwarded once
    `released` is set; the responses of paths that end with `unanswered` are discarded, and `lost` counts them.
    """

    def __init__(self, target: str, ca_file: Path) -> None:
        self.storm = False
        self.delay_seconds = 0.0
        self.late = ""
        self.unanswered = ""
        self.lost = 0
        self.released = threading.Event()
        self.refused = 0
        self.connections: set[socket.socket] = set()
        self.target = urlsplit(target).netloc
        self.tls = ssl.create_default_context(cafile=str(ca_file))
        super().__init__(type("Handler", (_ApiHandler,), {"proxy": self}))

    def cut(self) -> None:
        """Break the open connections."""
        for one in list(self.connections):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def kubeconfig(self, path: Path) -> Path:
        """Change a kubeconfig to use this proxy."""
        document = json.loads(path.read_text())
        for one in document["clusters"]:
            one["cluster"] = {"server": self.address}
        path.write_text(json.dumps(document))
        return path


class _ApiHandler(BaseHTTPRequestHandler):
    proxy: "ApiServerProxy"
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Begin a connection."""
        super().setup()
        self.proxy.connections.add(self.connection)

    def finish(self) -> None:
        """End it."""
        self.proxy.connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self._forward()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _forward(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
        if self.proxy.storm:
            self.proxy.refused += 1
            self._answer(429, {"Retry-After": "1", "Content-Type": "text/plain"}, b"slow down")
            return
        if "watch=" not in self.path:
            time.sleep(self.proxy.delay_seconds)
        if self.proxy.late and self.path.partition("?")[0].endswith(self.proxy.late):
            self.proxy.released.wait(600)
        upstream = http.client.HTTPSConnection(self.proxy.target, timeout=600, context=self.proxy.tls)
        headers = {name: text for name, text in self.headers.items() if name.lower() != "host"}
        upstream.request(self.command, self.path, sent, headers)
        answer = upstream.getresponse()
        kind = {"Content-Type": answer.getheader("Content-Type") or "application/json"}
        if self.proxy.unanswered and self.path.partition("?")[0].endswith(self.proxy.unanswered):
            answer.read()
            self.proxy.lost += 1
            self.proxy.released.wait(600)
            self.close_connection = True
        elif "watch=" not in self.path:
            self._answer(answer.status, kind, answer.read())
        else:
            self._stream(answer, kind)
        upstream.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, text in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, text)
        # The client may have closed the connection.
        with suppress(OSError):
            self.end_headers()
            self.wfile.write(body)

    def _stream(self, answer: http.client.HTTPResponse, headers: dict[str, str]) -> None:
        """Forward a response piece by piece, until either end closes."""
        self.close_connection = True
        self.send_response(answer.status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Connection", "close")
        self.end_headers()
        with suppress(OSError, http.client.HTTPException):
            while piece := answer.read1(_CHUNK):
                self.wfile.write(piece)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


class SocketProxy:
    """A Unix socket in front of another one; `gone` breaks and refuses connections, `delay_seconds` delays responses.

    `fail_over` simulates a cloud database's failover: open connections stay open without data, and new ones work.
    """

    def __init__(self, target: Path, directory: Path) -> None:
        self.directory = directory
        self.delay_seconds = 0.0
        self._target = target
        self._gone = False
        self._open: set[socket.socket] = set()
        self._silenced: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / target.name))
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def gone(self) -> bool:
        """Whether connections are refused."""
        return self._gone

    @gone.setter
    def gone(self, gone: bool) -> None:
        with self._lock:
            self._gone = gone
            broken = list(self._open) if gone else []
            self._open -= set(broken)
        for one in broken:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def fail_over(self) -> None:
        """Forward no more data on open connections."""
        with self._lock:
            self._silenced |= self._open

    def close(self) -> None:
        """Break every connection and stop listening."""
        self.gone = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._gone:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._target))
            with self._lock:
                self._open |= {client, server}
            for source, sink, slowed in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pump, args=(source, sink, slowed), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, slowed: bool) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if source in self._silenced:
                    continue
                if slowed and self.delay_seconds:
                    time.sleep(self.delay_seconds)
                sink.sendall(chunk)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied_database(url: str) -> Iterator[tuple[str, SocketProxy]]:
    """Yield the URL of a database behind a proxy, and the proxy."""
    location, _, server = url.partition("?host=")
    with tempfile.TemporaryDirectory(prefix="cruise-proxy-", dir="/tmp") as directory:
        proxy = SocketProxy(Path(server) / ".s.PGSQL.5432", Path(directory))
        try:
            yield f"{location}?host={directory}", proxy
        finally:
            proxy.close()
