"""One HTTP server on the running loop: bound when it is entered, stopped without dropping requests in flight."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from uvicorn import Config, Server

from cruise.errors import BadInput
from cruise.interfaces.http.health import AsgiApp

# Go clients keep idle connections for 90 s. A server that closes first loses the request that is just being sent, so
# closing is left to them.
_KEEP_ALIVE_SECONDS = 120
_BACKLOG = 2048
_IDLE_SECONDS = 0.5


@asynccontextmanager
async def serve_http(
    app: AsgiApp, host: str, port: int, *, tls: ssl.SSLContext | None = None, stop_seconds: int = 10
) -> AsyncIterator[int]:
    """Serve `app` for as long as the `with` lasts, and give the port, which port 0 leaves to the kernel.

    At the end no connection is accepted any more, and requests under way are answered within `stop_seconds`. Signals
    are left to the caller. Raises BadInput for an address that cannot be listened on.
    """
    sockets = await _listen(host, port)
    config = Config(
        cast(Any, app),
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=stop_seconds,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )
    config.load()
    server = Server(config)
    # What `Server.serve` does besides is to take over the process's signals and to write dates into headers.
    server.lifespan = config.lifespan_class(config)
    try:
        await server.startup(sockets=sockets)
        yield int(sockets[0].getsockname()[1])
    finally:
        asyncio.get_running_loop().call_later(_IDLE_SECONDS, _drop_idle, server)
        await server.shutdown(sockets=sockets)
        for connection in list(server.server_state.connections):
            connection.transport.abort()


def _drop_idle(server: Server) -> None:
    """Drop idle connections: a closed one lingers until the client closes as well."""
    for connection in list(server.server_state.connections):
        cycle: Any = getattr(connection, "cycle", None)
        if cycle is None or cycle.response_complete:
            connection.transport.abort()


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Bind every address of `host`, all to the same port."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise BadInput(f"{host}:{port}: the host is not known ({error.strerror}); write e.g. 0.0.0.0:{port}") from error
    bound: list[socket.socket] = []
    try:
        for family, _, _, _, place in dict.fromkeys(found):
            address = (place[0], bound[0].getsockname()[1] if bound else port)
            bound.append(socket.create_server(address, family=family, backlog=_BACKLOG))
    except OSError as error:
        for listener in bound:
            listener.close()
        raise BadInput(f"{host}:{port}: {_why_not(error)}") from error
    for listener in bound:
        listener.setblocking(False)
    return bound


def _why_not(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process listens there already; stop it, or choose another port"
    if error.errno == errno.EACCES:
        return "this user may not listen there; choose a port from 1024 on"
    if error.errno == errno.EADDRNOTAVAIL:
        return "no interface of this machine has that address; write e.g. 0.0.0.0"
    return f"cannot listen there: {error.strerror}"
