"""Two configurations compared: as documents for programs, a table for people, and Markdown for a pull request."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum

import msgspec
import yaml
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.domain.backtest import RATIO_METRICS, BoundResult, ComparedMetric, ConfigurationComparison, MetricComparison
from cruise.domain.policy import Policy, RuleSet
from cruise.interfaces.backtest.report import ReplayTerms, build_result_document, round_figure
from cruise.interfaces.backtest.table import describe_recording, describe_terms, format_seconds
from cruise.interfaces.text import JsonValue, convert_to_camel_case, format_count, format_percent, format_rate

# What figures that two configurations are compared by are called, and how their values are written.

METRIC_NAMES: Mapping[ComparedMetric, str] = {
    ComparedMetric.CPU_SLACK: "CPU slack %",
    ComparedMetric.MEMORY_SLACK: "memory slack %",
    ComparedMetric.CPU_STARVED: "CPU starved %",
    ComparedMetric.OOM_KILLS: "OOM kills /1,000 c·d",
    ComparedMetric.RESIZES: "writes /c·d",
    ComparedMetric.OWN_EVICTIONS: "own evictions /1,000 p·d",
    ComparedMetric.NODES: "nodes, mean",
}
BOUND_RESULTS: Mapping[BoundResult, str] = {
    BoundResult.WITHIN_BOUND: "holds",
    BoundResult.INCONCLUSIVE: "open",
    BoundResult.EXCEEDED: "BROKEN",
    BoundResult.NOT_RECORDED: "NOT RECORDED",
}
COMPARISON_HEADINGS = ("figure", "against", "here", "Δ", "95 % interval", "bound", "verdict", "forecasts held")
_UNKNOWN = "–"
# Shorter recordings hold no two weeks, or not even two days, that could differ.
_FEW_HOURS = 96


def build_comparison_rows(difference: ConfigurationComparison) -> Iterator[Sequence[str]]:
    """Yield a row for each figure, and for each bound on what was not recorded."""
    for figure, found in difference.metrics.items():
        judged = difference.bounds.get(figure)
        yield (
            METRIC_NAMES[figure],
            format_metric(figure, found.reference),
            format_metric(figure, found.current),
            format_delta(figure, found.delta),
            format_interval(figure, found),
            f"≤ {format_delta(figure, judged.bound)}" if judged is not None else "",
            BOUND_RESULTS[judged.result] if judged is not None else "",
            f"{found.confirmed_forecasts} of {found.forecasts}" if found.forecasts else _UNKNOWN,
        )
    for figure, judged in difference.bounds.items():
        if figure not in difference.metrics:
            bound = f"≤ {format_delta(figure, judged.bound)}"
            yield (METRIC_NAMES[figure], *[_UNKNOWN] * 4, bound, BOUND_RESULTS[judged.result], _UNKNOWN)


def format_delta(figure: ComparedMetric, delta: float) -> str:
    """Write a difference with its sign: in percentage points where the figure is a share."""
    size = format_metric(figure, abs(delta))
    return size if size == "0" else f"{'+' if delta > 0 else '−'}{size}"


def format_interval(figure: ComparedMetric, found: MetricComparison) -> str:
    """Write an interval: `−1.20 … +0.31`."""
    return f"{format_delta(figure, found.low)} … {format_delta(figure, found.high)}"


def format_metric(figure: ComparedMetric, value: float) -> str:
    """Write a figure: shares in percent."""
    return format_percent(value) if figure in RATIO_METRICS else format_rate(value)


def find_changed_settings(here: Policy, against: Policy) -> Sequence[tuple[str, str, str]]:
    """Return the settings of decisions that differ: name, value against, value here."""
    return [
        (entry.name, _setting(getattr(against, entry.name)), _setting(getattr(here, entry.name)))
        for entry in fields(Policy)
        if entry.name != "mode" and getattr(here, entry.name) != getattr(against, entry.name)
    ]


def _setting(value: object) -> str:
    match value:
        case None:
            return "none"
        case timedelta():
            return format_seconds(round(value.total_seconds()))
        case RuleSet():
            return value.name
        case Enum():
            return str(value.value)
        case frozenset():
            return ", ".join(sorted(map(str, value))) or "none"
    return str(value)


def describe_changed_settings(changed: Sequence[tuple[str, str, str]]) -> str:
    """Say in a sentence what differs."""
    if not changed:
        return "Both have the same settings of decisions."
    told = (f"{name} is {here} here, {against} there" for name, against, here in changed)
    return f"What differs: {'; '.join(told)}."


def describe_bound(difference: ConfigurationComparison, figure: ComparedMetric) -> str:
    """Say in a line how a bound is broken, or may be."""
    judged, found = difference.bounds[figure], difference.metrics.get(figure)
    name, bound = METRIC_NAMES[figure], format_delta(figure, judged.bound)
    if found is None:
        return f"{difference.result.trace}: {name} was not recorded, so its bound of {bound} cannot be judged"
    return (
        f"{difference.result.trace}: {name} changes by {format_delta(figure, found.delta)} "
        f"({format_interval(figure, found)}), {'beyond' if judged.result is BoundResult.EXCEEDED else 'perhaps beyond'} "
        f"the bound of {bound}"
    )


def describe_caveats(difference: ConfigurationComparison) -> Iterator[str]:
    """Say what a reader should know of the intervals of one recording."""
    hours = difference.result.days * 24
    if hours < _FEW_HOURS:
        yield (
            f"{difference.result.trace} has {hours:.3g} hours: how a day differs from the next is not in its intervals"
        )
    elif difference.skipped_hours:
        yield f"the first {format_count(difference.skipped_hours, 'hour')} of {difference.result.trace} are left out"


METHOD = (
    "Δ is this configuration's figure less the other's: less is better everywhere. The interval is where the Δ of as "
    "much time again is expected in 95 of 100 cases, by a bootstrap of blocks of hours, the same for both; shares "
    "differ by percentage points. Forecasts held: of those made from a first part of the recording, how many had what "
    "came next within their interval."
)

_STYLES = {"BROKEN": "bold red", "NOT RECORDED": "bold red", "open": "yellow", "holds": "green"}
_NARROW_WITHOUT = 1  # the last column: how forecasts did
_WIDE_COLUMNS = 100


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """What was found for each recording; `other` is what the other configuration is called."""

    differences: Sequence[ConfigurationComparison]
    terms: ReplayTerms
    current: Policy
    reference: Policy
    other: str
    whole_interval: bool

    def find_exceeded_bounds(self) -> list[str]:
        """Return a line for each bound that is broken."""
        return [
            describe_bound(difference, one)
            for difference in self.differences
            for one in difference.find_exceeded_bounds(self.whole_interval)
        ]


def render_comparison_json(report: ComparisonReport) -> bytes:
    """Return the report as one JSON document: that of the recording, or `traces` with one for each of several."""
    return msgspec.json.encode(_document(report)) + b"\n"


def render_comparison_yaml(report: ComparisonReport) -> bytes:
    """Return the report as one YAML document."""
    return yaml.dump(_document(report), Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=160).encode()


def render_comparison_csv(report: ComparisonReport) -> bytes:
    """Return one line for each figure of each recording; what is not known stays empty."""
    text = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for difference in report.differences:
        for name, figures in _figures(difference).items():
            line = {"trace": difference.result.trace, "figure": name, **figures}
            if writer is None:
                writer = csv.DictWriter(text, list(line), lineterminator="\n")
                writer.writeheader()
            writer.writerow(line)
    return text.getvalue().encode()


def _document(report: ComparisonReport) -> JsonValue:
    documents: list[JsonValue] = [_difference(difference, report) for difference in report.differences]
    return documents[0] if len(documents) == 1 else {"traces": documents}


def _difference(difference: ConfigurationComparison, report: ComparisonReport) -> JsonValue:
    changed = find_changed_settings(report.current, report.reference)
    return {
        **build_result_document(difference.result, report.terms),
        "difference": {
            "against": report.other,
            "settings": [{"setting": name, "against": before, "here": now} for name, before, now in changed],
            "skippedHours": difference.skipped_hours,
            "figures": dict(_figures(difference)),
            "broken": [
                convert_to_camel_case(one.replace("-", "_"))
                for one in difference.find_exceeded_bounds(report.whole_interval)
            ],
        },
    }


def _figures(difference: ConfigurationComparison) -> dict[str, dict[str, JsonValue]]:
    return {
        convert_to_camel_case(name.replace("-", "_")): _figure(difference, name)
        for name in ComparedMetric
        if name in difference.metrics or name in difference.bounds
    }


def _figure(difference: ConfigurationComparison, name: ComparedMetric) -> dict[str, JsonValue]:
    found, judged = difference.metrics.get(name), difference.bounds.get(name)
    return {
        "against": round_figure(found.reference) if found is not None else None,
        "here": round_figure(found.current) if found is not None else None,
        "delta": round_figure(found.delta) if found is not None else None,
        "low": round_figure(found.low) if found is not None else None,
        "high": round_figure(found.high) if found is not None else None,
        "bound": round_figure(judged.bound) if judged is not None else None,
        "verdict": str(judged.result) if judged is not None else None,
        "blockHours": difference.block_hours.get(name),
        "forecasts": found.forecasts if found is not None else 0,
        "forecastsHeld": found.confirmed_forecasts if found is not None else 0,
    }


def render_comparison_table(report: ComparisonReport, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report for a terminal."""
    wide = console.width >= _WIDE_COLUMNS
    shown = len(COMPARISON_HEADINGS) - (0 if wide else _NARROW_WITHOUT)
    yield Text(describe_changed_settings(find_changed_settings(report.current, report.reference)))
    for difference in report.differences:
        yield Text.assemble("\n", (difference.result.trace, "bold"), f": {describe_recording(difference.result)}.\n")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0) if wide else (0, 1, 0, 0))
        for at, heading in enumerate(COMPARISON_HEADINGS[:shown]):
            table.add_column(heading.upper(), justify="right" if at else "left", no_wrap=True, header_style="dim")
        for row in build_comparison_rows(difference):
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row[:shown]))
        yield table
        for caveat in describe_caveats(difference):
            yield Text(f"Note: {caveat}.", style="yellow")
    yield Text(f"\nHere: this configuration; against: {report.other}. {METHOD}", style="dim")
    yield Text(f"Replayed with {describe_terms(report.terms)}.", style="dim")


def render_comparison_markdown(report: ComparisonReport) -> bytes:
    """Return the report as a comment for a pull request."""
    return ("\n".join(_lines(report)) + "\n").encode()


def _lines(report: ComparisonReport) -> Iterator[str]:
    changed = find_changed_settings(report.current, report.reference)
    broken = report.find_exceeded_bounds()
    yield "### cruise backtest: what this change of settings does"
    yield ""
    if any(difference.bounds for difference in report.differences):
        yield f"**{'A bound is broken.' if broken else 'No bound is broken.'}**"
        yield from (f"- {_plain(line)}" for line in broken)
        yield ""
    if changed:
        yield from _table(("setting", "against", "here"), [tuple(f"`{cell}`" for cell in row) for row in changed])
    else:
        yield describe_changed_settings(changed)
    for difference in report.differences:
        yield ""
        yield f"**{_plain(difference.result.trace)}**: {describe_recording(difference.result)}."
        yield ""
        yield from _table(COMPARISON_HEADINGS, [_marked(row) for row in build_comparison_rows(difference)])
        yield from (f"\nNote: {_plain(caveat)}." for caveat in describe_caveats(difference))
    yield ""
    yield f"<sub>{METHOD} Replayed with {describe_terms(report.terms)}.</sub>"


def _marked(row: Sequence[str]) -> Sequence[str]:
    return [f"**{cell}**" if cell in ("BROKEN", "NOT RECORDED") else cell for cell in row]


def _table(headings: Sequence[str], found: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'|'.join(['---', *['---:'] * (len(headings) - 1)])}|"
    for row in found:
        yield f"| {' | '.join(map(_plain, row))} |"


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, in one line."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
