"""One HTTP connection, bounded: uvicorn's protocol, which by itself takes headers without end and waits for good.

httptools gathers a header until it is whole, so bytes are counted before they are parsed: what a client sends without
its request getting on is at most one read (256 KiB) above the bound.
"""

import http
import math
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Any

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from cruise.app.http_bounds import ListenerBounds, ListenerTally, TurnedAway
from cruise.interfaces.http.health import WHOLE_ANSWER

# No client that is known sends a request before the one before it was answered; each that waits takes memory.
_MOST_PIPELINED = 8
# How long the last words of a connection may take to reach the client.
_FAREWELL_SECONDS = 2.0
_STATUS = {
    TurnedAway.HEADER_BYTES: 431,
    TurnedAway.HEADERS: 431,
    TurnedAway.HEADER_TIME: 408,
    TurnedAway.BODY_TIME: 408,
    TurnedAway.BODY_BYTES: 503,
    TurnedAway.CONNECTIONS: 503,
    TurnedAway.PIPELINE: 400,
    TurnedAway.MALFORMED: 400,
}


class Phase(Enum):
    """What the connection waits for: for its client in all but the last two."""

    HEAD = auto()
    BODY = auto()
    IDLE = auto()
    ANSWER = auto()
    CLOSING = auto()


class _TooMuch(Exception):
    """Stops the parser; the reason is with the connection."""


class BoundedConnection(HttpToolsProtocol):
    """A connection that ends where its client keeps to no bound; `since` is when its phase began, by the loop's clock.

    `arrived` is called once its handshake is over, `crowded` where bodies take more than all of them together may.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        bounds: ListenerBounds,
        tally: ListenerTally,
        *,
        arrived: Callable[[], object],
        crowded: Callable[[], None],
    ) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self.phase = Phase.HEAD
        self.since = self._now = self.loop.time()
        self.answered = False
        self.held_bytes = 0
        self._bounds = bounds
        self._tally = tally
        self._arrived = arrived
        self._crowded = crowded
        self._stuck_since = math.inf
        self._fruitless_bytes = 0
        self._has_begun = False
        self._why: TurnedAway | None = None
        self._extensions: dict[str, Any] = {}

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - uvloop's transports are none by inheritance
        """Take the connection, whose handshake is over."""
        super().connection_made(transport)
        self._arrived()
        certificate = transport.get_extra_info("peercert")
        if certificate:
            self._extensions = {"tls": {"client_cert_name": _common_name(certificate)}}
        self.since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what the connection held."""
        super().connection_lost(exc)
        self._release()

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless it leads nowhere."""
        if self.phase is Phase.CLOSING:
            return
        self._now = self.loop.time()
        self._fruitless_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nothing here is spoken but HTTP: the request is answered as it is.
            return
        except httptools.HttpParserError:
            self.turn_away(self._why or TurnedAway.MALFORMED)
        if self._fruitless_bytes > self._bounds.header_bytes:
            self.turn_away(TurnedAway.HEADER_BYTES)

    def on_message_begin(self) -> None:
        """Begin a request, which waits where others of the connection do."""
        if len(self.pipeline) >= _MOST_PIPELINED:
            self._stop(TurnedAway.PIPELINE)
        super().on_message_begin()
        self._has_begun = True
        self.phase, self.since = Phase.HEAD, self._now

    def on_headers_complete(self) -> None:
        """Hand the request to the application. Where a head is not complete, its bytes lead nowhere."""
        if len(self.headers) > self._bounds.headers:
            self._stop(TurnedAway.HEADERS)
        size = len(self.url)
        for name, value in self.headers:
            size += len(name) + len(value)
        if size > self._bounds.header_bytes:
            self._stop(TurnedAway.HEADER_BYTES)
        self._fruitless_bytes = 0
        self.phase, self.since = Phase.BODY, self._now
        super().on_headers_complete()
        whole = partial(self._answer_whole, self.cycle)
        self.cycle.scope["extensions"] = {**self._extensions, WHOLE_ANSWER: {"write": whole}}

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body, as long as there is room for it."""
        super().on_body(body)
        self._fruitless_bytes = 0
        if self.cycle.response_complete:
            return
        self.held_bytes += len(body)
        self._tally.body_bytes += len(body)
        if self._tally.body_bytes > self._bounds.body_bytes:
            self._crowded()
            if self.phase is Phase.CLOSING:
                raise _TooMuch

    def on_message_complete(self) -> None:
        """Leave the rest to the application."""
        super().on_message_complete()
        self._fruitless_bytes = 0
        self.phase = Phase.IDLE if self.cycle.response_complete else Phase.ANSWER
        self.since = self._now

    def on_response_complete(self) -> None:
        """Give back what the request held, and go on to the next; idle time is counted here, without a timer."""
        self.answered = True
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._release()
            self.phase, self.since = Phase.CLOSING, self.loop.time()
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            task = self.loop.create_task(cycle.run_asgi(app))
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)
            return
        self._release()
        if self.phase is Phase.ANSWER:
            self.phase, self.since = Phase.IDLE, self.loop.time()

    def _answer_whole(self, cycle: RequestResponseCycle, answer: bytes) -> bool:
        """Write an answer, head and body, as the application has it: two pieces take longer.

        Return False where it is to be sent as usual: the client takes nothing now, or the connection ends with it.
        """
        if self.flow.write_paused or cycle.disconnected or not cycle.keep_alive:
            return False
        cycle.response_started = cycle.response_complete = True
        self.transport.write(answer)
        self.on_response_complete()
        return True

    def pause_writing(self) -> None:
        """Note since when the client takes nothing."""
        super().pause_writing()
        self._stuck_since = self.loop.time()

    def resume_writing(self) -> None:
        """Note that it took something."""
        super().resume_writing()
        self._stuck_since = math.inf

    def look(self, now: float) -> None:
        """End the connection where its client is late."""
        bounds, seconds = self._bounds, now - self.since
        if now - self._stuck_since > bounds.body_seconds:
            self.drop(TurnedAway.SLOW_READER)
            return
        match self.phase:
            case Phase.HEAD if seconds > bounds.header_seconds:
                self.turn_away(TurnedAway.HEADER_TIME)
            case Phase.BODY if seconds > bounds.body_seconds:
                self.turn_away(TurnedAway.BODY_TIME)
            case Phase.IDLE if seconds > bounds.idle_seconds:
                self.transport.close()
            case Phase.CLOSING if seconds > _FAREWELL_SECONDS:
                self.transport.abort()

    def drop(self, why: TurnedAway) -> None:
        """End the connection at once."""
        self._tally.turned_away[why] += 1
        self.phase, self.since = Phase.CLOSING, self.loop.time()
        self.transport.abort()

    def turn_away(self, why: TurnedAway) -> None:
        """Say why, where nothing else is being said, and close."""
        if self.phase is Phase.CLOSING:
            return
        self._tally.turned_away[why] += 1
        # There is none before the first request.
        cycle: RequestResponseCycle | None = self.cycle
        speaks = cycle is not None and cycle.response_started and not cycle.response_complete
        silent = self.phase is Phase.IDLE or not self._has_begun
        if not speaks and not silent and not self.transport.is_closing():
            self.transport.write(_refusal(_STATUS[why], why))
        self.phase, self.since = Phase.CLOSING, self.loop.time()
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        self._release()
        self.transport.close()

    def _stop(self, why: TurnedAway) -> None:
        self._why = why
        raise _TooMuch

    def _release(self) -> None:
        self._tally.body_bytes -= self.held_bytes
        self.held_bytes = 0


def _common_name(certificate: dict[str, Any]) -> str:
    """Return the name that a verified certificate is for, empty where it has none."""
    named = (value for part in certificate.get("subject", ()) for key, value in part if key == "commonName")
    return next(named, "")


def _refusal(status: int, why: TurnedAway) -> bytes:
    body = f"{why.value}\n"
    head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
