"""What commands print, as a page shows it: the same words, with classes in place of a terminal's colours."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

import msgspec
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cruise.domain.resources import ResourceName
from cruise.interfaces.text import escape_text, format_cpu, format_memory

# Charts as data: the script draws them, and without it the same figures stand in a table below.

_MOST_ROWS = 24


@dataclass(frozen=True, slots=True)
class ChartLine:
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
class ChartEvent:
    """Something that happened: `kind` is `kill`, `resize` or `evict`."""

    at: datetime
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class TimeChart:
    """Lines of one resource over time, with marks; `title` says what they show."""

    title: str
    resource: ResourceName
    times: Sequence[datetime]
    lines: Sequence[ChartLine]
    events: Sequence[ChartEvent] = ()

    @property
    def to_script_data(self) -> str:
        """The chart for the script, as JSON that may stand inside of an element."""
        document = {
            "unit": self.resource.value,
            "times": [_milliseconds(at) for at in self.times],
            "lines": [
                {
                    "name": escape_text(one.name),
                    "role": one.role,
                    "values": one.values,
                    "area": one.area,
                    "step": one.step,
                }
                for one in self.lines
            ],
            "marks": [
                {"at": _milliseconds(one.at), "kind": one.kind, "words": escape_text(one.label)} for one in self.events
            ],
        }
        # Nothing in it ends the element that it stands in.
        return msgspec.json.encode(document).decode().replace("<", "\\u003c")

    @property
    def to_rows(self) -> Sequence[tuple[datetime, Sequence[str]]]:
        """The newest figures in words, newest first, evenly chosen where there are many."""
        every = max(1, -(-len(self.times) // _MOST_ROWS))
        return [(self.times[at], [self._text(one.values[at]) for one in self.lines]) for at in self._places(every)]

    def _places(self, every: int) -> Sequence[int]:
        return list(range(len(self.times) - 1, -1, -every))

    def _text(self, value: float | None) -> str:
        if value is None:
            return "–"
        return format_cpu(round(value)) if self.resource is ResourceName.CPU else format_memory(round(value))


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def render_html(parts: Iterable[RenderableType]) -> str:
    """Return the parts as HTML: each text a paragraph, one in bold a heading, each table a table."""
    return "\n".join(html for part in parts for html in _html(part))


def _html(part: RenderableType) -> Iterator[str]:
    if isinstance(part, Text):
        is_heading = part.plain.startswith("\n") or str(part.style) == "bold"
        name = "h3" if is_heading else "p"
        yield f"<{name}{_class(str(part.style)) if not is_heading else ''}>{_spans(part)}</{name}>"
    elif isinstance(part, Table):
        yield '<div class="scroll" tabindex="0"><table class="steps">'
        yield from _rows(part)
        yield "</table></div>"
    elif isinstance(part, Padding):
        yield from _html(part.renderable)
    else:
        raise TypeError(f"{type(part).__name__} has no shape on a page")


def _rows(table: Table) -> Iterator[str]:
    numbers = [" class=n" if column.justify == "right" else "" for column in table.columns]
    cells_of_rows = zip(*(column.cells for column in table.columns), strict=True)
    for row, cells in zip(table.rows, cells_of_rows, strict=True):
        texts = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells]
        if any(text.plain.strip() for text in texts):
            found = (f"<td{number}>{_spans(text)}</td>" for number, text in zip(numbers, texts, strict=True))
            yield f"<tr{_class(str(row.style or ''))}>{''.join(found)}</tr>"


def _spans(text: Text) -> str:
    """Return a text with its styles as classes; a style of the whole is the element's."""
    found = []
    for part in text.split("\n") if "\n" in text.plain.strip() else [text]:
        begun = 0
        for span in sorted(part.spans):
            if span.start < begun or span.start >= span.end:
                continue
            found.append(_escaped(part.plain[begun : span.start]))
            found.append(f"<span{_class(str(span.style))}>{_escaped(part.plain[span.start : span.end])}</span>")
            begun = span.end
        found.append(_escaped(part.plain[begun:]))
    whole = "".join(found).strip()
    return f"<span{_class(str(text.style))}>{whole}</span>" if str(text.style) else whole


def _class(style: str) -> str:
    names = [name for name in style.split() if name.isalpha()]
    return f' class="{" ".join(names)}"' if names else ""


def _escaped(text: str) -> str:
    return escape(escape_text(text.strip("\n")))
