"""Charts as data: the script draws them, and without it the same figures stand in a table below."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from cruise.domain.resources import ResourceName
from cruise.interfaces.amounts import cpu_text, memory_text
from cruise.interfaces.plain_text import plain

_MOST_ROWS = 24


@dataclass(frozen=True, slots=True)
class Line:
    """One line: an amount in millicores or bytes at each time, None where it is unknown.

    `role` is one of the names for which the style has a colour: `used`, `requested`, `allocatable`, `limit`, `peak`,
    `saved`.
    """

    name: str
    role: str
    values: Sequence[float | None]
    area: bool = False
    step: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened: `kind` is `kill`, `resize` or `evict`."""

    at: datetime
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines of one resource over time, with marks; `title` says what they show."""

    title: str
    resource: ResourceName
    times: Sequence[datetime]
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()

    @property
    def drawn(self) -> str:
        """The chart for the script, as JSON that may stand inside of an element."""
        document = {
            "unit": self.resource.value,
            "times": [_milliseconds(at) for at in self.times],
            "lines": [
                {"name": plain(one.name), "role": one.role, "values": one.values, "area": one.area, "step": one.step}
                for one in self.lines
            ],
            "marks": [{"at": _milliseconds(one.at), "kind": one.kind, "words": plain(one.words)} for one in self.marks],
        }
        # Nothing in it ends the element that it stands in.
        return msgspec.json.encode(document).decode().replace("<", "\\u003c")

    @property
    def rows(self) -> Sequence[tuple[datetime, Sequence[str]]]:
        """The newest figures in words, newest first, evenly chosen where there are many."""
        every = max(1, -(-len(self.times) // _MOST_ROWS))
        return [(self.times[at], [self._text(one.values[at]) for one in self.lines]) for at in self._places(every)]

    def _places(self, every: int) -> Sequence[int]:
        return list(range(len(self.times) - 1, -1, -every))

    def _text(self, value: float | None) -> str:
        if value is None:
            return "–"
        return cpu_text(round(value)) if self.resource is ResourceName.CPU else memory_text(round(value))


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)
