"""Cards and time charts as data for pages and their script, and the output of commands as HTML."""

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

from cruise.decisions.scan.waste import RealizedSavings
from cruise.domain.prices import HOURS_A_MONTH, ResourcePrices, format_money, format_prices
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources
from cruise.interfaces.coverage import CoverageRow
from cruise.interfaces.http.audit import RecentActions
from cruise.interfaces.text import (
    GIBIBYTE,
    escape_text,
    format_cores,
    format_count,
    format_gibibytes,
    format_share,
)

_MAX_ROWS = 24
# From so much on the values are shown in cores, as in the chart.
_CORES_FROM_MILLICORES = 10_000
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
    def unit(self) -> str:
        """The unit of the table of values."""
        if self.resource is ResourceName.CPU:
            return "millicores" if self._largest < _CORES_FROM_MILLICORES else "cores"
        return "MiB" if self._largest < GIBIBYTE else "GiB"

    @property
    def _largest(self) -> float:
        return max((value for one in self.lines for value in one.values if value is not None), default=0)

    @property
    def rows(self) -> Sequence[tuple[datetime, Sequence[str]]]:
        """At most 24 rows for a table of the values, evenly spaced, the newest first."""
        every = max(1, -(-len(self.times) // _MAX_ROWS))
        indexes = range(len(self.times) - 1, -1, -every)
        return [(self.times[index], [self._format(one.values[index]) for one in self.lines]) for index in indexes]

    def _format(self, value: float | None) -> str:
        if value is None:
            return "–"
        match self.unit:
            case "millicores":
                return f"{value:,.0f}"
            case "cores":
                return format_cores(round(value))
            case "MiB":
                return f"{value / MEBIBYTE:,.0f}"
            case _:
                return format_gibibytes(round(value))


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def convert_output_to_html(parts: Iterable[RenderableType]) -> str:
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


_SAVED = "What pods requested before cruise, minus what they request now. Below zero, they needed more."
_RECLAIMABLE = "Requested minus target. What some workloads need more of is subtracted; below zero, more is needed."
_COVERAGE = "The share of all requested {} that cruise sizes. The rest is skipped, for the reasons in the table below."
_PRICES_ARE_UNKNOWN = "Money appears once price_core_hour and price_gibibyte_hour, or node_prices, are set."


@dataclass(frozen=True, slots=True)
class CardFigure:
    """A number with its unit, and what it means."""

    value: str
    unit: str
    explanation: str


@dataclass(frozen=True, slots=True)
class FigureCard:
    """A card with one to three figures and a line below them; `page` is where their parts are shown."""

    title: str
    figures: Sequence[CardFigure]
    note: str
    page: str = ""


def build_saved_card(savings: RealizedSavings, prices: ResourcePrices | None) -> FigureCard:
    """Return the card of what is saved."""
    if not savings.pods:
        figures = [CardFigure("–", "", f"{_SAVED} No pod on these nodes is resized yet.")]
        return FigureCard("Saved", figures, "no pod is resized yet", "actions")
    pods = format_count(savings.pods, "resized pod")
    note = f"{pods}, compared with before cruise"
    if prices is None:
        return FigureCard("Saved", _list_amounts(savings.saved, _SAVED, prices), note, "actions")
    note = f"{_format_amounts(savings.saved)} of {pods}"
    return FigureCard("Saved", _list_amounts(savings.saved, _SAVED, prices), note, "actions")


def build_reclaimable_card(
    reclaimable: Resources, requested: Resources, prices: ResourcePrices | None, page: str
) -> FigureCard:
    """Return the card of what is still reclaimable."""
    figures = _list_amounts(reclaimable, _RECLAIMABLE, prices)
    note = f"of {_format_amounts(requested)} requested"
    if prices is not None:
        note = f"{_format_amounts(reclaimable)} {note}"
        needs_more = prices.compute_monthly_cost(reclaimable) < 0
    else:
        needs_more = reclaimable.cpu_millicores < 0 or reclaimable.memory_bytes < 0
    if needs_more:
        note = f"below zero: requests will grow by so much; {note}"
    return FigureCard("Reclaimable", figures, note, page)


def build_coverage_card(sized: CoverageRow) -> FigureCard:
    """Return the card of the coverage."""
    shares = [
        CardFigure(
            format_share(sized.group.requested.get(resource), sized.total.get(resource)), name, _COVERAGE.format(name)
        )
        for resource, name in ((ResourceName.CPU, "CPU"), (ResourceName.MEMORY, "memory"))
    ]
    return FigureCard("Coverage", shares, "of the requests are sized", "#coverage")


def build_recent_actions_card(recent: RecentActions, page: str = "actions") -> FigureCard:
    """Return the card of what cruise did in the last 24 hours."""
    causes = ", ".join(f"{number:,} {cause}" for cause, number in recent.causes.items())
    figures = [
        CardFigure(
            f"{recent.resizes:,}",
            "resize" if recent.resizes == 1 else "resizes",
            f"Pods resized in place in the last 24 hours{f', by cause: {causes}' if causes else ''}.",
        ),
        CardFigure(
            f"{recent.evictions:,}",
            "eviction" if recent.evictions == 1 else "evictions",
            "Pods evicted in the last 24 hours, because their node could not hold all its pods or after an OOM kill.",
        ),
        CardFigure(
            f"{recent.oom_kills_answered:,}",
            "OOM kill answered" if recent.oom_kills_answered == 1 else "OOM kills answered",
            "OOM kills in the last 24 hours after which cruise resized or evicted the pod.",
        ),
    ]
    refused = f"{recent.refused:,} refused or failed" if recent.refused else "none refused"
    return FigureCard("Last 24 hours", figures, refused, page)


def _list_amounts(amount: Resources, explanation: str, prices: ResourcePrices | None) -> Sequence[CardFigure]:
    if prices is None:
        words = f"{explanation} {_PRICES_ARE_UNKNOWN}"
        return [
            CardFigure(_format_sign(format_cores(amount.cpu_millicores)), "cores", words),
            CardFigure(_format_sign(format_gibibytes(amount.memory_bytes)), "GiB", words),
        ]
    month = (
        f"{explanation} At {format_prices(prices)}, for a month of {HOURS_A_MONTH} hours: an estimate, because nodes "
        "are what is billed."
    )
    return [
        CardFigure(_format_sign(format_money(prices.compute_monthly_cost(amount), prices.currency)), "a month", month)
    ]


def _format_amounts(amount: Resources) -> str:
    cores, gib = format_cores(amount.cpu_millicores), format_gibibytes(amount.memory_bytes)
    return _format_sign(f"{cores} cores and {gib} GiB")


def _format_sign(text: str) -> str:
    return text.replace("-", "−")
