"""One HTTP connection with limits: uvicorn's protocol alone accepts endless headers and waits without a timeout.

httptools collects a header until it is complete, so bytes are counted before they are parsed: a client can send at most
one read (256 KiB) above the limit without progress.
"""

import http
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from functools import partial
from typing import Any

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from cruise.interfaces.http.figures import ListenerFigures
from cruise.interfaces.http.health import SINGLE_RESPONSE
from cruise.settings import Settings

# No known client sends a request before the previous one was answered; each pending one takes memory.
_MOST_PIPELINED = 8
# How long the last bytes of a connection may take to reach the client.
_FAREWELL_SECONDS = 2.0


class ConnectionRejection(StrEnum):
    """Why a connection was closed before its request was answered."""

    CONNECTIONS = "connections"
    HANDSHAKE = "handshake"
    HEADER_BYTES = "header-bytes"
    HEADERS = "headers"
    HEADER_TIME = "header-time"
    BODY_TIME = "body-time"
    BODY_BYTES = "body-bytes"
    PIPELINE = "pipeline"
    SLOW_READER = "slow-reader"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """The limits of one listener; `body_bytes` is for all bodies in progress together.

    The timeouts are for a TLS handshake, for the head of a request from its first byte (for a connection: from its
    start), for a body, and for a client to accept an answer; `idle_seconds` is between two requests.
    """

    header_bytes: int = 32 << 10
    headers: int = 100
    connections: int = 512
    body_bytes: int = 32 << 20
    handshake_seconds: float = 5.0
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    # Go clients keep idle connections for 90 s. A server that closes first may lose a request that is being sent,
    # so the client should close.
    idle_seconds: int = 120


@dataclass(slots=True)
class ListenerCounts:
    """The present connections and bytes of a listener, and its rejections since the process started."""

    connections: int = 0
    body_bytes: int = 0
    rejected: Counter[ConnectionRejection] = field(default_factory=Counter)


def get_listener_figures(counts: ListenerCounts) -> ListenerFigures:
    """Return the counts for the metrics page."""
    turned_away = {reason.value: counts.rejected[reason] for reason in ConnectionRejection}
    return ListenerFigures(counts.connections, counts.body_bytes, turned_away)


def get_listener_limits(settings: Settings) -> ListenerLimits:
    """Return the limits of the settings."""
    return ListenerLimits(
        settings.http_max_header_bytes,
        settings.http_max_headers,
        settings.http_max_connections,
        settings.http_max_body_bytes,
        settings.http_handshake_timeout.total_seconds(),
        settings.http_header_timeout.total_seconds(),
        settings.http_body_timeout.total_seconds(),
        int(settings.http_idle_timeout.total_seconds()),
    )


_STATUS = {
    ConnectionRejection.HEADER_BYTES: 431,
    ConnectionRejection.HEADERS: 431,
    ConnectionRejection.HEADER_TIME: 408,
    ConnectionRejection.BODY_TIME: 408,
    ConnectionRejection.BODY_BYTES: 503,
    ConnectionRejection.CONNECTIONS: 503,
    ConnectionRejection.PIPELINE: 400,
    ConnectionRejection.MALFORMED: 400,
}


class ConnectionPhase(Enum):
    """What a connection waits for: its client, except in the last two phases."""

    HEAD = auto()
    BODY = auto()
    IDLE = auto()
    ANSWER = auto()
    CLOSING = auto()


class _LimitExceeded(Exception):
    """Stops the parser; the connection has the reason."""


class LimitedConnection(HttpToolsProtocol):
    """A connection that is closed if its client exceeds a limit; `since` is its phase's start, by the loop's clock.

    `on_connected` is called after the handshake, `on_body_limit` if bodies take more than their common limit.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        bounds: ListenerLimits,
        counts: ListenerCounts,
        *,
        on_connected: Callable[[], object],
        on_body_limit: Callable[[], None],
    ) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self.phase = ConnectionPhase.HEAD
        self.since = self._now = self.loop.time()
        self.answered = False
        self.held_bytes = 0
        self._bounds = bounds
        self._counts = counts
        self._arrived = on_connected
        self._crowded = on_body_limit
        self._stuck_since = math.inf
        self._fruitless_bytes = 0
        self._has_begun = False
        self._why: ConnectionRejection | None = None
        self._extensions: dict[str, Any] = {}

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - uvloop's transports are none by inheritance
        """Start the connection, after its handshake."""
        super().connection_made(transport)
        self._arrived()
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self._extensions = {"tls": {"client_cert_name": _common_name(certificate)}}
        self.since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection's resources."""
        super().connection_lost(exc)
        self._release()

    def data_received(self, data: bytes) -> None:
        """Parse data, unless the connection is being closed."""
        if self.phase is ConnectionPhase.CLOSING:
            return
        self._now = self.loop.time()
        self._fruitless_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Protocol upgrades are not supported: the request is answered as plain HTTP.
            return
        except httptools.HttpParserError:
            self.reject(self._why or ConnectionRejection.MALFORMED)
        if self._fruitless_bytes > self._bounds.header_bytes:
            self.reject(ConnectionRejection.HEADER_BYTES)

    def on_message_begin(self) -> None:
        """Start a request, which waits for earlier ones of the connection."""
        if len(self.pipeline) >= _MOST_PIPELINED:
            self._stop(ConnectionRejection.PIPELINE)
        super().on_message_begin()
        self._has_begun = True
        self.phase, self.since = ConnectionPhase.HEAD, self._now

    def on_headers_complete(self) -> None:
        """Pass the request to the application."""
        if len(self.headers) > self._bounds.headers:
            self._stop(ConnectionRejection.HEADERS)
        size = len(self.url)
        for name, value in self.headers:
            size += len(name) + len(value)
        if size > self._bounds.header_bytes:
            self._stop(ConnectionRejection.HEADER_BYTES)
        self._fruitless_bytes = 0
        self.phase, self.since = ConnectionPhase.BODY, self._now
        super().on_headers_complete()
        whole = partial(self._answer_whole, self.cycle)
        self.cycle.scope["extensions"] = {**self._extensions, SINGLE_RESPONSE: {"write": whole}}

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body, within the limits."""
        super().on_body(body)
        self._fruitless_bytes = 0
        if self.cycle.response_complete:
            return
        self.held_bytes += len(body)
        self._counts.body_bytes += len(body)
        if self._counts.body_bytes > self._bounds.body_bytes:
            self._crowded()
            if self.phase is ConnectionPhase.CLOSING:
                raise _LimitExceeded

    def on_message_complete(self) -> None:
        """Finish the body."""
        super().on_message_complete()
        self._fruitless_bytes = 0
        self.phase = ConnectionPhase.IDLE if self.cycle.response_complete else ConnectionPhase.ANSWER
        self.since = self._now

    def on_response_complete(self) -> None:
        """Release the request's memory, and start the next one; idle time is measured here, without a timer."""
        self.answered = True
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._release()
            self.phase, self.since = ConnectionPhase.CLOSING, self.loop.time()
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            task = self.loop.create_task(cycle.run_asgi(app))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
            return
        self._release()
        if self.phase is ConnectionPhase.ANSWER:
            self.phase, self.since = ConnectionPhase.IDLE, self.loop.time()

    def _answer_whole(self, cycle: RequestResponseCycle, answer: bytes) -> bool:
        """Write the head and body of an answer in one piece, which is faster than two.

        Return False if it must be sent the usual way: the client accepts no data now, or the connection closes after
        it.
        """
        if self.flow.write_paused or cycle.disconnected or not cycle.keep_alive:
            return False
        cycle.response_started = cycle.response_complete = True
        self.transport.write(answer)
        self.on_response_complete()
        return True

    def pause_writing(self) -> None:
        """Record since when the client accepts no data."""
        super().pause_writing()
        self._stuck_since = self.loop.time()

    def resume_writing(self) -> None:
        """Record that the client accepts data again."""
        super().resume_writing()
        self._stuck_since = math.inf

    def check_timeouts(self, now: float) -> None:
        """Close the connection if its client exceeds a timeout."""
        bounds, seconds = self._bounds, now - self.since
        if now - self._stuck_since > bounds.body_seconds:
            self.drop(ConnectionRejection.SLOW_READER)
            return
        match self.phase:
            case ConnectionPhase.HEAD if seconds > bounds.header_seconds:
                self.reject(ConnectionRejection.HEADER_TIME)
            case ConnectionPhase.BODY if seconds > bounds.body_seconds:
                self.reject(ConnectionRejection.BODY_TIME)
            case ConnectionPhase.IDLE if seconds > bounds.idle_seconds:
                self.transport.close()
            case ConnectionPhase.CLOSING if seconds > _FAREWELL_SECONDS:
                self.transport.abort()

    def drop(self, reason: ConnectionRejection) -> None:
        """Close the connection immediately."""
        self._counts.rejected[reason] += 1
        self.phase, self.since = ConnectionPhase.CLOSING, self.loop.time()
        self.transport.abort()

    def reject(self, reason: ConnectionRejection) -> None:
        """Answer with the reason, unless another answer is being sent, and close."""
        if self.phase is ConnectionPhase.CLOSING:
            return
        self._counts.rejected[reason] += 1
        # It is unset before the first request.
        cycle: RequestResponseCycle | None = self.cycle
        speaks = cycle is not None and cycle.response_started and not cycle.response_complete
        silent = self.phase is ConnectionPhase.IDLE or not self._has_begun
        if not speaks and not silent and not self.transport.is_closing():
            self.transport.write(_build_rejection(_STATUS[reason], reason))
        self.phase, self.since = ConnectionPhase.CLOSING, self.loop.time()
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        self._release()
        self.transport.close()

    def _stop(self, reason: ConnectionRejection) -> None:
        self._why = reason
        raise _LimitExceeded

    def _release(self) -> None:
        self._counts.body_bytes -= self.held_bytes
        self.held_bytes = 0


def _common_name(certificate: dict[str, Any]) -> str:
    """Return the common name of a verified certificate, empty if it has none."""
    named = (value for part in certificate.get("subject", ()) for key, value in part if key == "commonName")
    return next(named, "")


def _build_rejection(status: int, reason: ConnectionRejection) -> bytes:
    body = f"{reason.value}\n"
    head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
