"""One finding of a preflight."""

from dataclasses import dataclass
from enum import StrEnum


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
