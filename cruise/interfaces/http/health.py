"""The endpoints /healthz, /readyz and /metrics in front of a server's other routes, as raw ASGI."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from cruise.interfaces.text import escape_text

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

SINGLE_RESPONSE = "cruise.whole_answer"
"""The ASGI extension that writes a response with its head in one piece; see `LimitedConnection`."""

METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_PLAIN = b"text/plain; charset=utf-8"
_PATHS = ("/healthz", "/readyz", "/metrics")


def create_health_app(ready: Callable[[], Iterable[str]], metrics: Callable[[], bytes], inner: AsgiApp) -> AsgiApp:
    """Answer /healthz, /readyz and /metrics, and pass all other requests to `inner`.

    `ready` returns the reasons why the process is not ready, one a line of the 503 response. A process that answers is
    alive: a restart does not help if Prometheus, the API server or the database is unavailable.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path not in _PATHS:
            await inner(scope, receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            await send_response(scope, send, 405, b"this path accepts GET only\n", extra=((b"allow", b"GET, HEAD"),))
        elif path == "/metrics":
            await send_response(scope, send, 200, metrics(), METRICS_TYPE)
        else:
            reasons = list(ready()) if path == "/readyz" else []
            lines = "".join(f"{escape_text(' '.join(reason.split()))}\n" for reason in reasons) or "ok\n"
            await send_response(scope, send, 503 if reasons else 200, lines.encode())

    return app


async def send_response(
    scope: Scope,
    send: Send,
    status: int,
    body: bytes,
    content_type: bytes = _PLAIN,
    extra: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send one complete response; without its body for HEAD."""
    headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    headers += [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
