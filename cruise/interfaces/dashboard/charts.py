"""Time charts as data for the page's script, and the output of commands as HTML."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from typing import Annotated

import msgspec
from fastapi import Query
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cruise.domain.resources import ResourceName
from cruise.interfaces.text import escape_text, format_cpu, format_memory

_MAX_ROWS = 24
CHART_PERIODS = {"1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30), "90d": timedelta(days=90)}
ChartPeriodParameter = Annotated[str, Query(pattern=f"^({'|'.join(CHART_PERIODS)})$", description="A time range.")]


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line: an amount in millicores or bytes at each time, None if unknown.

    `role` selects its colour: `used`, `requested`, `allocatable`, `limit`, `peak` or `saved`.
    """

    name: str
    role: str
    values: Sequence[float | None]
    area: bool = False
    step: bool = False


@dataclass(frozen=True, slots=True)
class ChartEvent:
    """An event; `kind` is `kill`, `resize` or `evict`."""

    at: datetime
    kind: str
    label: str


@dataclass(frozen=True, slots=True)
class TimeChart:
    """Lines of one resource over time, with events."""

    title: str
    resource: ResourceName
    times: Sequence[datetime]
    lines: Sequence[ChartLine]
    events: Sequence[ChartEvent] = ()

    @property
    def script_data(self) -> str:
        """The chart as JSON for the page's script, safe inside an HTML element."""
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
            "events": [
                {"at": _milliseconds(one.at), "kind": one.kind, "label": escape_text(one.label)} for one in self.events
            ],
        }
        # No tag in it can end the element.
        return msgspec.json.encode(document).decode().replace("<", "\\u003c")

    @property
    def rows(self) -> Sequence[tuple[datetime, Sequence[str]]]:
        """At most 24 rows for a table of the values, evenly spaced, the newest first."""
        every = max(1, -(-len(self.times) // _MAX_ROWS))
        indexes = range(len(self.times) - 1, -1, -every)
        return [(self.times[index], [self._format(one.values[index]) for one in self.lines]) for index in indexes]

    def _format(self, value: float | None) -> str:
        if value is None:
            return "–"
        return format_cpu(round(value)) if self.resource is ResourceName.CPU else format_memory(round(value))


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def render_html(parts: Iterable[RenderableType]) -> str:
    """Return the output of a command as HTML: texts as paragraphs, bold texts as headings, tables as tables."""
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
        raise TypeError(f"{type(part).__name__} cannot be shown on a page")


def _rows(table: Table) -> Iterator[str]:
    numbers = [" class=n" if column.justify == "right" else "" for column in table.columns]
    cells_of_rows = zip(*(column.cells for column in table.columns), strict=True)
    for row, cells in zip(table.rows, cells_of_rows, strict=True):
        texts = [cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells]
        if any(text.plain.strip() for text in texts):
            row_cells = (f"<td{number}>{_spans(text)}</td>" for number, text in zip(numbers, texts, strict=True))
            yield f"<tr{_class(str(row.style or ''))}>{''.join(row_cells)}</tr>"


def _spans(text: Text) -> str:
    """Return a text as HTML, with its styles as classes."""
    pieces = []
    for part in text.split("\n") if "\n" in text.plain.strip() else [text]:
        position = 0
        for span in sorted(part.spans):
            if span.start < position or span.start >= span.end:
                continue
            pieces.append(_escape(part.plain[position : span.start]))
            pieces.append(f"<span{_class(str(span.style))}>{_escape(part.plain[span.start : span.end])}</span>")
            position = span.end
        pieces.append(_escape(part.plain[position:]))
    html = "".join(pieces).strip()
    return f"<span{_class(str(text.style))}>{html}</span>" if str(text.style) else html


def _class(style: str) -> str:
    names = [name for name in style.split() if name.isalpha()]
    return f' class="{" ".join(names)}"' if names else ""


def _escape(text: str) -> str:
    return escape(escape_text(text.strip("\n")))
