"""What a listener takes of a client before it knows who that is, and what it turned away."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from cruise.interfaces.http.figures import ListenerFigures
from cruise.settings import Settings


class TurnedAway(StrEnum):
    """Why a connection was ended before its request was answered."""

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
class ListenerBounds:
    """The most that one listener takes; `body_bytes` are those of all bodies under way together.

    The times are for a TLS handshake, for the head of a request from its first byte (of a connection: from its
    beginning), for a body, and for a client to take an answer; `idle_seconds` is between two requests.
    """

    header_bytes: int = 32 << 10
    headers: int = 100
    connections: int = 512
    body_bytes: int = 32 << 20
    handshake_seconds: float = 5.0
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    # Go clients keep idle connections for 90 s. A server that closes first loses the request that is just being sent,
    # so closing is left to them.
    idle_seconds: int = 120


@dataclass(slots=True)
class ListenerTally:
    """What a listener holds now, and how often it turned clients away since the process began."""

    connections: int = 0
    body_bytes: int = 0
    turned_away: Counter[TurnedAway] = field(default_factory=Counter)


def listener_figures(tally: ListenerTally) -> ListenerFigures:
    """Return the tally as the metrics page shows it."""
    turned_away = {why.value: tally.turned_away[why] for why in TurnedAway}
    return ListenerFigures(tally.connections, tally.body_bytes, turned_away)


def bounds_of(settings: Settings) -> ListenerBounds:
    """Return the bounds that settings state."""
    return ListenerBounds(
        settings.http_max_header_bytes,
        settings.http_max_headers,
        settings.http_max_connections,
        settings.http_max_body_bytes,
        settings.http_handshake_timeout.total_seconds(),
        settings.http_header_timeout.total_seconds(),
        settings.http_body_timeout.total_seconds(),
        int(settings.http_idle_timeout.total_seconds()),
    )
