"""One HTTP server on the running event loop, which answers requests in progress before it stops.

Connections are accepted here, because asyncio's own server does not report TLS handshakes in progress: it would accept
any number of them, each for a minute.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import structlog
from uvicorn import Config, Server

from cruise.app.http_connection import (
    ConnectionPhase,
    ConnectionRejection,
    LimitedConnection,
    ListenerCounts,
    ListenerLimits,
)
from cruise.errors import BadInputError
from cruise.interfaces.http.health import AsgiApp

log = structlog.get_logger()

_BACKLOG = 2048
_IDLE_SECONDS = 0.5
_LOOK_SECONDS = 0.25
# If the process has no free file descriptor, wait before trying again.
_ACCEPT_AGAIN_SECONDS = 0.2
_TLS_SHUTDOWN_SECONDS = 2.0
_DEFAULT_BOUNDS = ListenerLimits()
_WAITING = frozenset({ConnectionPhase.HEAD, ConnectionPhase.BODY, ConnectionPhase.IDLE})


@asynccontextmanager
async def serve_http(
    app: AsgiApp,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    stop_seconds: int = 10,
    bounds: ListenerLimits = _DEFAULT_BOUNDS,
    counts: ListenerCounts | None = None,
) -> AsyncIterator[int]:
    """Serve `app` within the context, and yield the port, which the kernel chooses for port 0.

    At the end no connection is accepted, and requests in progress are answered within `stop_seconds`. Signals are left
    to the caller. Raises BadInputError if the address cannot be bound.
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
        timeout_keep_alive=bounds.idle_seconds,
        timeout_graceful_shutdown=stop_seconds,
    )
    config.load()
    server = Server(config)
    # `Server.serve` also listens, installs signal handlers and updates date headers.
    server.lifespan = config.lifespan_class(config)
    server.servers = []
    acceptor = _ConnectionAcceptor(server, tls, bounds, counts or ListenerCounts())
    loop = asyncio.get_running_loop()
    # A task group would wrap the exceptions of the caller's block. If these tasks fail, probes fail.
    opened = [loop.create_task(running) for running in (acceptor.check_timeouts(), *map(acceptor.accept, sockets))]
    try:
        yield int(sockets[0].getsockname()[1])
    finally:
        for task in (*opened, *acceptor.handshakes):
            task.cancel()
        loop.call_later(_IDLE_SECONDS, _drop_idle, server)
        await server.shutdown(sockets=sockets)
        for connection in list(server.server_state.connections):
            connection.transport.abort()


class _ConnectionAcceptor:
    """Accepts connections up to a limit; above it, the client that was waited for longest is dropped."""

    def __init__(
        self, server: Server, tls: ssl.SSLContext | None, bounds: ListenerLimits, counts: ListenerCounts
    ) -> None:
        self.handshakes: dict[asyncio.Task[None], float] = {}
        """Handshakes under way and when they began, the oldest first."""
        self._server = server
        self._tls = tls
        self._bounds = bounds
        self._counts = counts
        self._loop = asyncio.get_running_loop()

    async def accept(self, listener: socket.socket) -> None:
        """Accept connections until cancelled, one in each iteration of the event loop."""
        while True:
            try:
                client, _ = await self._loop.sock_accept(listener)
            except OSError as error:
                log.warning("connection not accepted", problem=error.strerror)
                await asyncio.sleep(_ACCEPT_AGAIN_SECONDS)
                continue
            if self._open() >= self._bounds.connections and not self._drop_slowest_client():
                self._counts.rejected[ConnectionRejection.CONNECTIONS] += 1
                client.close()
            else:
                task = self._loop.create_task(self._start_connection(client))
                self.handshakes[task] = self._loop.time()
                task.add_done_callback(lambda done: self.handshakes.pop(done, None))
            await asyncio.sleep(0)

    async def check_timeouts(self) -> None:
        """Close connections of slow clients, until cancelled."""
        while True:
            now = self._loop.time()
            for connection in self._connections():
                connection.check_timeouts(now)
            self._counts.connections = self._open()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _start_connection(self, client: socket.socket) -> None:
        times: dict[str, float] = {}
        if self._tls is not None:
            times["ssl_handshake_timeout"] = self._bounds.handshake_seconds
            times["ssl_shutdown_timeout"] = _TLS_SHUTDOWN_SECONDS
        try:
            # asyncio does not set this for accepted sockets: the body of an answer would wait for the client's
            # acknowledgement of the head, which is delayed by 40 ms.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            await self._loop.connect_accepted_socket(self._create_connection, client, ssl=self._tls, **times)
        except OSError:
            self._counts.rejected[ConnectionRejection.HANDSHAKE] += 1

    def _create_connection(self) -> LimitedConnection:
        server, task = self._server, cast(asyncio.Task[None], asyncio.current_task())
        return LimitedConnection(
            server.config,
            server.server_state,
            self._bounds,
            self._counts,
            on_connected=lambda: self.handshakes.pop(task, None),
            on_body_limit=self._reject_largest_bodies,
        )

    def _connections(self) -> list[LimitedConnection]:
        return cast(list[LimitedConnection], list(self._server.server_state.connections))

    def _open(self) -> int:
        closing = sum(one.phase is ConnectionPhase.CLOSING for one in self._connections())
        return len(self.handshakes) + len(self._server.server_state.connections) - closing

    def _drop_slowest_client(self) -> bool:
        """Drop the client that is idle longest, without a complete request first; return whether one was dropped.

        A client whose request is being answered is not dropped.
        """
        waiting = [one for one in self._connections() if one.phase in _WAITING]
        slowest = min(waiting, key=lambda one: (one.answered, one.since), default=None)
        handshake, began = next(iter(self.handshakes.items()), (None, 0.0))
        if handshake is not None and (slowest is None or slowest.answered or began < slowest.since):
            self._counts.rejected[ConnectionRejection.CONNECTIONS] += 1
            self.handshakes.pop(handshake)
            handshake.cancel()
        elif slowest is not None:
            slowest.drop(ConnectionRejection.CONNECTIONS)
        return handshake is not None or slowest is not None

    def _reject_largest_bodies(self) -> None:
        """Reject the clients that have sent most of a body but not all, until the other bodies fit."""
        while self._counts.body_bytes > self._bounds.body_bytes:
            unfinished = [one for one in self._connections() if one.phase is ConnectionPhase.BODY and one.held_bytes]
            if not unfinished:
                return
            max(unfinished, key=lambda one: one.held_bytes).reject(ConnectionRejection.BODY_BYTES)


def _drop_idle(server: Server) -> None:
    """Drop idle connections: a closed one would remain until the client closes it as well."""
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
        raise BadInputError(
            f"{host}:{port}: the host is not known ({error.strerror}); write e.g. 0.0.0.0:{port}"
        ) from error
    bound: list[socket.socket] = []
    try:
        for family, _, _, _, place in dict.fromkeys(found):
            address = (place[0], bound[0].getsockname()[1] if bound else port)
            bound.append(socket.create_server(address, family=family, backlog=_BACKLOG))
    except OSError as error:
        for listener in bound:
            listener.close()
        raise BadInputError(f"{host}:{port}: {_describe_bind_error(error)}") from error
    for listener in bound:
        listener.setblocking(False)
    return bound


def _describe_bind_error(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another process listens there already; stop it, or choose another port"
    if error.errno == errno.EACCES:
        return "this user may not listen there; choose a port from 1024 on"
    if error.errno == errno.EADDRNOTAVAIL:
        return "no interface of this machine has that address; write e.g. 0.0.0.0"
    return f"cannot listen there: {error.strerror}"
