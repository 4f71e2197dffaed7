"""The HTTPS port of kubelets, with metrics for callers that a real API server authenticates and authorizes.

The API server connects with its client certificate, as to every kubelet, and may read everything.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.client_certificates import ClientFiles
from tests.controlplane.api import Api, Json

# The response of a kubelet, by its address and the path.
Tell = Callable[[str, str], bytes | None]


@contextmanager
def kubelet_endpoint(
    api: Api, names: Mapping[str, str], files: Mapping[str, ClientFiles], client_ca: Path, tell: Tell
) -> Iterator[int]:
    """Serve the nodes `names`, by loopback address, with their certificates; yields the port.

    As a kubelet does by default, it asks the API server to authenticate tokens and to authorize nodes/metrics.
    Clients with a certificate of `client_ca` may.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = self.connection.getsockname()[0]
            vouched = bool(self.connection.getpeercert())
            code = 200 if vouched else _refusal(api, self.headers.get("Authorization", ""), names[address])
            body = tell(address, self.path) if code == 200 else b"no\n"
            self.send_response(code if body is not None else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

    servers: list[ThreadingHTTPServer] = []
    threads: list[Thread] = []
    port = 0
    try:
        for address in names:
            server = ThreadingHTTPServer((address, port), Handler)
            port = server.server_address[1]
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(files[address].certificate, files[address].key)
            tls.verify_mode = ssl.CERT_OPTIONAL
            tls.load_verify_locations(client_ca)
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            server.daemon_threads = True
            servers.append(server)
            threads.append(Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="kubelet"))
            threads[-1].start()
        yield port
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


def _refusal(api: Api, authorization: str, node: str) -> int:
    """Return 401 for unknown callers, 403 for those that may not read a node's metrics, otherwise 200."""
    shown = authorization.removeprefix("Bearer ")
    review = _reviewed(api, "authentication.k8s.io/v1", "TokenReview", {"token": shown}) if shown else {}
    if not review.get("authenticated"):
        return 401
    user = review["user"]
    wanted = {"verb": "get", "resource": "nodes", "subresource": "metrics", "name": node}
    spec = {"user": user["username"], "groups": user.get("groups", []), "resourceAttributes": wanted}
    allowed = _reviewed(api, "authorization.k8s.io/v1", "SubjectAccessReview", spec).get("allowed")
    return 200 if allowed else 403


def _reviewed(api: Api, version: str, kind: str, spec: Json) -> Json:
    path = f"/apis/{version}/{kind.lower()}s"
    status: Json = api.request("POST", path, {"apiVersion": version, "kind": kind, "spec": spec})["status"]
    return status
