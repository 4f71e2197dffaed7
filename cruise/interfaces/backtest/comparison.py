"""The comparison of two configurations as JSON, YAML, CSV, a table, and Markdown for a pull request."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.domain.backtest import RATIO_METRICS, BoundResult, ComparedMetric, ConfigurationComparison, MetricComparison
from cruise.domain.policy import EnabledRules, Policy
from cruise.interfaces.backtest.report import ReplayParameters, build_recording_document, round_figure
from cruise.interfaces.backtest.table import describe_parameters, describe_recording, format_seconds
from cruise.interfaces.text import (
    JsonValue,
    convert_to_camel_case,
    format_count,
    format_percent,
    format_rate,
    render_csv,
)

METRIC_NAMES: Mapping[ComparedMetric, str] = {
    ComparedMetric.CPU_SLACK: "CPU slack %",
    ComparedMetric.MEMORY_SLACK: "memory slack %",
    ComparedMetric.CPU_STARVED: "CPU starved %",
    ComparedMetric.OOM_KILLS: "OOM kills /1,000 c·d",
    ComparedMetric.RESIZES: "resizes /c·d",
    ComparedMetric.OWN_EVICTIONS: "evictions /1,000 p·d",
    ComparedMetric.NODES: "nodes, mean",
}
BOUND_RESULTS: Mapping[BoundResult, str] = {
    BoundResult.WITHIN_BOUND: "within",
    BoundResult.INCONCLUSIVE: "unclear",
    BoundResult.EXCEEDED: "EXCEEDED",
    BoundResult.NOT_RECORDED: "NOT RECORDED",
}
COMPARISON_HEADINGS = (
    "metric",
    "reference",
    "current",
    "Δ",
    "95 % interval",
    "bound",
    "result",
    "forecasts confirmed",
)
_UNKNOWN = "–"
# Shorter recordings do not have enough days that could differ.
_SHORT_RECORDING_HOURS = 96


def build_comparison_rows(comparison: ConfigurationComparison) -> Iterator[Sequence[str]]:
    """Yield a row for each metric, and for each bound on a metric that was not recorded."""
    for metric, values in comparison.metrics.items():
        bound = comparison.bounds.get(metric)
        yield (
            METRIC_NAMES[metric],
            format_metric(metric, values.reference),
            format_metric(metric, values.current),
            format_metric_difference(metric, values.delta),
            format_interval(metric, values),
            f"≤ {format_metric_difference(metric, bound.bound)}" if bound is not None else "",
            BOUND_RESULTS[bound.result] if bound is not None else "",
            f"{values.confirmed_forecasts} of {values.forecasts}" if values.forecasts else _UNKNOWN,
        )
    for metric, bound in comparison.bounds.items():
        if metric not in comparison.metrics:
            limit = f"≤ {format_metric_difference(metric, bound.bound)}"
            yield (METRIC_NAMES[metric], *[_UNKNOWN] * 4, limit, BOUND_RESULTS[bound.result], _UNKNOWN)


def format_metric_difference(metric: ComparedMetric, delta: float) -> str:
    """Write a difference with its sign, for a share in percentage points."""
    size = format_metric(metric, abs(delta))
    return size if size == "0" else f"{'+' if delta > 0 else '−'}{size}"


def format_interval(metric: ComparedMetric, values: MetricComparison) -> str:
    """Write an interval: `−1.20 … +0.31`."""
    return f"{format_metric_difference(metric, values.low)} … {format_metric_difference(metric, values.high)}"


def format_metric(metric: ComparedMetric, value: float) -> str:
    """Write the value of a metric, a share in percent."""
    return format_percent(value) if metric in RATIO_METRICS else format_rate(value)


def find_changed_settings(current: Policy, reference: Policy) -> Sequence[tuple[str, str, str]]:
    """Return the settings of decisions that differ: name, reference value, current value."""
    return [
        (entry.name, _format_setting(getattr(reference, entry.name)), _format_setting(getattr(current, entry.name)))
        for entry in fields(Policy)
        if entry.name != "mode" and getattr(current, entry.name) != getattr(reference, entry.name)
    ]


def _format_setting(value: object) -> str:
    match value:
        case None:
            return "none"
        case timedelta():
            return format_seconds(round(value.total_seconds()))
        case EnabledRules():
            return value.name
        case Enum():
            return str(value.value)
        case frozenset():
            return ", ".join(sorted(map(str, value))) or "none"
    return str(value)


def describe_changed_settings(changed: Sequence[tuple[str, str, str]]) -> str:
    """Return the changed settings as one sentence."""
    if not changed:
        return "Both configurations have the same settings of decisions."
    changes = (f"{name} is {current}, {reference} in the reference" for name, reference, current in changed)
    return f"Changed settings: {'; '.join(changes)}."


def describe_bound(comparison: ConfigurationComparison, metric: ComparedMetric) -> str:
    """Return how a bound is exceeded, or may be."""
    bound, values = comparison.bounds[metric], comparison.metrics.get(metric)
    name, limit = METRIC_NAMES[metric], format_metric_difference(metric, bound.bound)
    if values is None:
        return f"{comparison.result.trace}: {name} was not recorded, so its bound of {limit} cannot be checked"
    return (
        f"{comparison.result.trace}: {name} changes by {format_metric_difference(metric, values.delta)} "
        f"({format_interval(metric, values)}), {'above' if bound.result is BoundResult.EXCEEDED else 'perhaps above'} "
        f"the bound of {limit}"
    )


def describe_caveats(comparison: ConfigurationComparison) -> Iterator[str]:
    """Yield the limitations of the intervals of one recording."""
    trace, hours = comparison.result.trace, comparison.result.days * 24
    if hours < _SHORT_RECORDING_HOURS:
        yield f"{trace} has {hours:.3g} hours: its intervals do not include differences between days"
    elif comparison.skipped_hours:
        yield f"the first {format_count(comparison.skipped_hours, 'hour')} of {trace} are left out"


METHOD = (
    "Δ is the current configuration's value less the reference's; less is better for every metric. The interval is "
    "expected to hold the Δ over as much time again in 95 of 100 cases, by a bootstrap of blocks of hours, the "
    "same for "
    "both; shares differ by percentage points. Forecasts confirmed: how many forecasts from a first part of the "
    "recording "
    "had the next part within their interval."
)

_STYLES = {"EXCEEDED": "bold red", "NOT RECORDED": "bold red", "unclear": "yellow", "within": "green"}
# The last column, the forecasts, is left out of a narrow table.
_NARROW_COLUMNS = len(COMPARISON_HEADINGS) - 1
_WIDE_COLUMNS = 110


@dataclass(frozen=True, slots=True)
class ComparisonReport:
    """The comparison for each recording; `reference_name` names the reference configuration."""

    comparisons: Sequence[ConfigurationComparison]
    parameters: ReplayParameters
    current: Policy
    reference: Policy
    reference_name: str
    by_interval: bool

    def find_exceeded_bounds(self) -> list[str]:
        """Return a line for each exceeded bound."""
        return [
            describe_bound(comparison, metric)
            for comparison in self.comparisons
            for metric in comparison.find_exceeded_bounds(self.by_interval)
        ]


def render_comparison_csv(report: ComparisonReport) -> bytes:
    """Return one line for each metric of each recording; unknown values are empty."""
    lines: list[Mapping[str, JsonValue]] = [
        {"trace": comparison.result.trace, "figure": name, **values}
        for comparison in report.comparisons
        for name, values in _build_metrics(comparison).items()
    ]
    return render_csv(lines[0] if lines else (), lines)


def build_comparison_document(report: ComparisonReport) -> JsonValue:
    """Return the report for JSON and YAML: that of the recording, or `traces` with one for each of several."""
    documents: list[JsonValue] = [_build_comparison(comparison, report) for comparison in report.comparisons]
    return documents[0] if len(documents) == 1 else {"traces": documents}


def _build_comparison(comparison: ConfigurationComparison, report: ComparisonReport) -> JsonValue:
    changed = find_changed_settings(report.current, report.reference)
    return {
        **build_recording_document(comparison.result, report.parameters),
        "difference": {
            "reference": report.reference_name,
            "settings": [
                {"setting": name, "reference": reference, "current": current} for name, reference, current in changed
            ],
            "skippedHours": comparison.skipped_hours,
            "figures": dict(_build_metrics(comparison)),
            "exceeded": [
                convert_to_camel_case(metric.replace("-", "_"))
                for metric in comparison.find_exceeded_bounds(report.by_interval)
            ],
        },
    }


def _build_metrics(comparison: ConfigurationComparison) -> dict[str, dict[str, JsonValue]]:
    return {
        convert_to_camel_case(metric.replace("-", "_")): _build_metric(comparison, metric)
        for metric in ComparedMetric
        if metric in comparison.metrics or metric in comparison.bounds
    }


def _build_metric(comparison: ConfigurationComparison, metric: ComparedMetric) -> dict[str, JsonValue]:
    values, bound = comparison.metrics.get(metric), comparison.bounds.get(metric)
    return {
        "reference": round_figure(values.reference) if values is not None else None,
        "current": round_figure(values.current) if values is not None else None,
        "delta": round_figure(values.delta) if values is not None else None,
        "low": round_figure(values.low) if values is not None else None,
        "high": round_figure(values.high) if values is not None else None,
        "bound": round_figure(bound.bound) if bound is not None else None,
        "result": str(bound.result) if bound is not None else None,
        "blockHours": comparison.block_hours.get(metric),
        "forecasts": values.forecasts if values is not None else 0,
        "forecastsConfirmed": values.confirmed_forecasts if values is not None else 0,
    }


def render_comparison_table(report: ComparisonReport, console: Console) -> Iterator[RenderableType]:
    """Yield the parts of the report for a terminal."""
    wide = console.width >= _WIDE_COLUMNS
    columns = len(COMPARISON_HEADINGS) if wide else _NARROW_COLUMNS
    yield Text(describe_changed_settings(find_changed_settings(report.current, report.reference)))
    for comparison in report.comparisons:
        yield Text.assemble("\n", (comparison.result.trace, "bold"), f": {describe_recording(comparison.result)}.\n")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0) if wide else (0, 1, 0, 0))
        for index, heading in enumerate(COMPARISON_HEADINGS[:columns]):
            table.add_column(heading.upper(), justify="right" if index else "left", no_wrap=True, header_style="dim")
        for row in build_comparison_rows(comparison):
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row[:columns]))
        yield table
        for caveat in describe_caveats(comparison):
            yield Text(f"Note: {caveat}.", style="yellow")
    yield Text(f"\nReference: {report.reference_name}. {METHOD}", style="dim")
    yield Text(f"Replayed with {describe_parameters(report.parameters)}.", style="dim")


def render_comparison_markdown(report: ComparisonReport) -> bytes:
    """Return the report as a comment for a pull request."""
    return ("\n".join(_build_markdown(report)) + "\n").encode()


def _build_markdown(report: ComparisonReport) -> Iterator[str]:
    changed = find_changed_settings(report.current, report.reference)
    exceeded = report.find_exceeded_bounds()
    yield "### cruise backtest: the effect of this change of settings"
    yield ""
    if any(comparison.bounds for comparison in report.comparisons):
        yield f"**{'A bound is exceeded.' if exceeded else 'No bound is exceeded.'}**"
        yield from (f"- {_escape_markdown(line)}" for line in exceeded)
        yield ""
    if changed:
        rows = [tuple(f"`{cell}`" for cell in row) for row in changed]
        yield from _build_markdown_table(("setting", "reference", "current"), rows)
    else:
        yield describe_changed_settings(changed)
    for comparison in report.comparisons:
        yield ""
        yield f"**{_escape_markdown(comparison.result.trace)}**: {describe_recording(comparison.result)}."
        yield ""
        rows = [tuple(_emphasize(cell) for cell in row) for row in build_comparison_rows(comparison)]
        yield from _build_markdown_table(COMPARISON_HEADINGS, rows)
        yield from (f"\nNote: {_escape_markdown(caveat)}." for caveat in describe_caveats(comparison))
    yield ""
    yield f"<sub>{METHOD} Replayed with {describe_parameters(report.parameters)}.</sub>"


def _emphasize(cell: str) -> str:
    return f"**{cell}**" if cell in ("EXCEEDED", "NOT RECORDED") else cell


def _build_markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'|'.join(['---', *['---:'] * (len(headings) - 1)])}|"
    for row in rows:
        yield f"| {' | '.join(map(_escape_markdown, row))} |"


def _escape_markdown(text: str) -> str:
    """Return text that Markdown shows unchanged, in one line."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
