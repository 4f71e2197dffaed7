"""A small HTTP server on a free loopback port, for responses that real servers rarely send."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs


@dataclass(frozen=True)
class ReceivedHttpRequest:
    """A request as it came in: its path with the query, headers and body, as a form and as text, and its method."""

    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str]
    text: str = ""
    method: str = "POST"

    def get(self, name: str) -> str:
        """Return a header, whatever its spelling; empty if it was not sent."""
        return next((value for header, value in self.headers.items() if header.lower() == name.lower()), "")


@dataclass(frozen=True)
class HttpAnswer:
    """What to send back. `length` is what the header claims; None sends nothing at all and hangs up."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = -1


@contextmanager
def answering(respond: Callable[[ReceivedHttpRequest], HttpAnswer], certificate: Path | None = None) -> Iterator[str]:
    """Serve every GET and POST with the result of `respond`; yields the server's address.

    With a `certificate`, a file with its key, the server speaks TLS.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            form = {name: values[0] for name, values in parse_qs(text).items()}
            answer = respond(ReceivedHttpRequest(self.path, dict(self.headers), form, text, self.command))
            if answer.length is None:
                self.close_connection = True
                return
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            length = len(answer.body) if answer.length < 0 else answer.length
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = length != len(answer.body)

        do_GET = do_POST

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *arguments: object) -> None:
            """Say nothing: some clients here are meant to hang up."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
