"""One finding of a preflight."""

from collections.abc import Iterable, Sized
from dataclasses import dataclass
from enum import StrEnum

_MOST_NAMED = 3


class Level(StrEnum):
    """How bad a finding is: red keeps cruise from doing in this mode what it is there for."""

    OK = "ok"
    WARN = "warn"
    RED = "red"


@dataclass(frozen=True, slots=True)
class CheckItem:
    """What was looked at, what was found, and what to do about it (empty where nothing is to be done)."""

    area: str
    name: str
    level: Level
    finding: str
    fix: str = ""


def count_of(things: Sized, noun: str) -> str:
    """Return how many there are, with their noun."""
    return f"{len(things):,} {noun}{'' if len(things) == 1 else 's'}"


def named(names: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _MOST_NAMED:,} more" if len(listed) > _MOST_NAMED else ""
    return ", ".join(listed[:_MOST_NAMED]) + more
