"""What the world can refuse, translated once at the edge.

CruiseError
├── BadInput                a file, a setting or an answer that cannot be used: exit 2
├── Conflict                the object changed since it was read
│   └── HistoryChanged      the database is not at the state that was stored
├── Expired                 the resource version is too old: list anew
├── NotFound                the object is gone
├── Refused                 the server or the kubelet said no for good, with its reason
├── Throttled               try again after `retry_after_seconds`
└── Unavailable             nothing answered, or too late
    └── Unreachable         no connection was made
"""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder of JSON raises for text that is none, is no UTF-8, or is nested too deeply."""


class CruiseError(Exception):
    """The root of every failure that cruise expects from the world."""


class BadInput(CruiseError):
    """Input that cannot be used; the message names the place and the fix."""


class Conflict(CruiseError):
    """The object changed since it was read."""


class HistoryChanged(Conflict):
    """The database has another history than the one that this process has stored."""


class Expired(CruiseError):
    """The resource version asked for is too old to go on from: list anew."""


class NotFound(CruiseError):
    """The object is gone."""


class Refused(CruiseError):
    """A write that was refused for good; `cause` is the server's machine-readable cause, such as NodeCapacity."""

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class Throttled(CruiseError):
    """Too many requests; `retry_after_seconds` is None where the server gave no time.

    `cause` is the server's machine-readable cause where it gave one, such as DisruptionBudget for an eviction.
    """

    def __init__(self, message: str, retry_after_seconds: float | None = None, cause: str = "") -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.cause = cause


class Unavailable(CruiseError):
    """Nothing answered, or too late."""


class Unreachable(Unavailable):
    """No connection was made: the server is away, or the address is wrong."""


@contextmanager
def one_refusal() -> Iterator[None]:
    """Raise a task group's first CruiseError in place of the group, unless something else failed as well."""
    try:
        yield
    except ExceptionGroup as failures:
        refusals, others = failures.split(CruiseError)
        if refusals is None or others is not None:
            raise
        raise refusals.exceptions[0] from failures
