"""A backtest as one self-contained HTML page without scripts, with its chart over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from cruise import __version__
from cruise.decisions.policy_costs import compute_policy_cost, compute_slack_reduction_from_vpa, find_dominated_policies
from cruise.domain.arrays import Int64Array
from cruise.domain.backtest import BacktestResult, ContainerScore, NodeTimeLine, PolicyScore
from cruise.interfaces.backtest.pareto_chart import (
    KILLS,
    STARVATION,
    AxisScale,
    ParetoChart,
    build_pareto_chart,
    choose_round_step,
    compute_radius,
    create_linear_scale,
)
from cruise.interfaces.backtest.report import COST_NOTE, BacktestReport, ReplayParameters
from cruise.interfaces.backtest.table import (
    AUTOSCALING_HEADINGS,
    AUTOSCALING_NOTE,
    DEFINITIONS,
    SLACK_REDUCTION_NOTE,
    describe_cost,
    describe_cost_ranking,
    describe_dominated_mark,
    describe_parameters,
    describe_recording,
    format_autoscaling,
    format_cost_cells,
    format_monthly_cost,
    format_policy_figures,
    format_slack_reduction,
    has_autoscaling,
    list_warnings,
    summarize_backtest,
)
from cruise.interfaces.text import format_cores, format_gibibytes, load_template

MAX_COLUMNS = 600
CHART_HEIGHT = 1000
_HOUR, _DAY = 3600, 86_400
_MAX_TICKS = 6


@dataclass(frozen=True, slots=True)
class TimeSeriesPath:
    """One series: its label and path, a band from the minimum to the maximum of each column, usage from zero."""

    kind: str
    label: str
    path: str


@dataclass(frozen=True, slots=True)
class AxisLabel:
    """A label of an axis, at a position in percent from the left or the top."""

    percent: float
    text: str


@dataclass(frozen=True, slots=True)
class NodeTimeChart:
    """One resource of a node over time; paths are in a frame of MAX_COLUMNS × CHART_HEIGHT."""

    title: str
    unit: str
    description: str
    lines: Sequence[TimeSeriesPath]
    x_labels: Sequence[AxisLabel]
    y_labels: Sequence[AxisLabel]


def build_node_charts(line: NodeTimeLine, memory: bool = True) -> Sequence[NodeTimeChart]:
    """Return the charts of CPU and, if it was recorded, memory."""
    if not len(line.times):
        return ()
    cpu = _Amounts(
        line.allocatable.cpu_millicores,
        line.requested_cpu_millicores,
        line.peak_cpu_millicores,
        line.base_cpu_millicores,
        line.headroom_cpu_millicores,
    )
    charts = [_build_chart("CPU", "cores", 1000, cpu, line)]
    if memory:
        amounts = _Amounts(
            line.allocatable.memory_bytes,
            line.requested_memory_bytes,
            line.peak_memory_bytes,
            line.base_memory_bytes,
            line.headroom_memory_bytes,
        )
        charts.append(_build_chart("Memory", "GiB", 1 << 30, amounts, line))
    return charts


def format_start(line: NodeTimeLine) -> str:
    """Write the start of the time line."""
    return f"{datetime.fromtimestamp(int(line.times[0]), UTC):%Y-%m-%d %H:%M} UTC"


def downsample(values: Int64Array, max_columns: int = MAX_COLUMNS) -> tuple[Int64Array, Int64Array]:
    """Return the minimum and the maximum of each column of consecutive values."""
    if len(values) <= max_columns:
        return values, values
    starts = np.arange(max_columns, dtype=np.int64) * len(values) // max_columns
    return np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)


@dataclass(frozen=True, slots=True)
class _Amounts:
    allocatable: int
    requested: Int64Array
    peak: Int64Array
    base: Int64Array | None
    headroom: Int64Array | None


def _build_chart(title: str, unit: str, unit_size: int, amounts: _Amounts, line: NodeTimeLine) -> NodeTimeChart:
    allocatable = np.full(len(line.times), amounts.allocatable, dtype=np.int64)
    series = [("peak", "maximum used", amounts.peak)]
    if amounts.base is not None:
        series.append(("base", "base", amounts.base))
        if amounts.headroom is not None:
            series.append(("headroom", "base and headroom", amounts.base + amounts.headroom))
    series += [("requested", "requested", amounts.requested), ("allocatable", "allocatable", allocatable)]
    maximum = max(float(values.max()) for _, _, values in series)
    write = format_cores if unit == "cores" else format_gibibytes
    scale = create_linear_scale([maximum / unit_size], lambda value: f"{value:g}", ticks=4)
    description = (
        f"{title} of {line.node}, {unit}: at most {write(int(amounts.peak.max()))} used "
        f"and {write(int(amounts.requested.max()))} requested of {write(amounts.allocatable)}"
    )
    return NodeTimeChart(
        title,
        unit,
        description,
        [
            TimeSeriesPath(kind, label, _build_path(values, scale, unit_size, kind == "peak"))
            for kind, label, values in series
        ],
        _build_time_labels(line.times),
        [AxisLabel(round(100 * (1 - scale.place(value)), 2), text) for value, text in scale.ticks],
    )


def _build_path(values: Int64Array, scale: AxisScale, unit_size: int, from_zero: bool) -> str:
    """Return the path along the maximum of each column, and back along the minimum or zero."""
    low, high = downsample(values)
    x_step = MAX_COLUMNS / max(len(high) - 1, 1)

    def write_point(column: int, value: int) -> str:
        return f"{column * x_step:.0f} {CHART_HEIGHT * (1 - scale.place(value / unit_size)):.0f}"

    upper = list(enumerate(high.tolist()))
    if len(upper) == 1:
        upper.append((1, upper[0][1]))
    if from_zero:
        lower = [(upper[-1][0], 0), (0, 0)]
    else:
        lower = list(enumerate(low.tolist()))[::-1] if len(values) > len(low) else []
    points = [write_point(column, value) for column, value in _drop_level_points(upper) + _drop_level_points(lower)]
    return f"M{'L'.join(points)}" + ("Z" if lower else "")


def _drop_level_points(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the points without those inside a level stretch."""
    return [
        point
        for index, point in enumerate(points)
        if index in (0, len(points) - 1) or not points[index - 1][1] == point[1] == points[index + 1][1]
    ]


def _build_time_labels(times: Int64Array) -> Sequence[AxisLabel]:
    """Return labels at whole hours or days from the start."""
    length = int(times[-1] - times[0])
    if length <= 0:
        return ()
    unit, name = (_DAY, "d") if length > 2 * _DAY else (_HOUR, "h")
    step = max(1, round(choose_round_step(length / unit / _MAX_TICKS)))
    return [AxisLabel(round(100 * n * unit / length, 2), f"{n} {name}") for n in range(0, length // unit + 1, step)]


_DEFAULT = "cruise"
# Text has the same size on every screen, so each chart has two layouts, and the page shows one of them.
_SIZES = (("wide", 580.0, 380.0), ("narrow", 350.0, 340.0))


@dataclass(frozen=True, slots=True)
class _PolicyRow:
    name: str
    figures: Sequence[str]
    slack_reduction: Sequence[str]
    objective: Sequence[str]
    cost: str | None
    autoscaling: Sequence[str]
    dominated_by: str | None


@dataclass(frozen=True, slots=True)
class _PolicySection:
    """The details of one policy; `since` is None without a time line."""

    name: str
    is_open: bool
    node: str | None
    since: str | None
    charts: Sequence[NodeTimeChart]
    worst_containers: Sequence[ContainerScore]


@dataclass(frozen=True, slots=True)
class _RecordingSection:
    trace: str
    description: str
    summary: str | None
    warnings: Sequence[str]
    rows: Sequence[_PolicyRow]
    cost_ranking: Sequence[str]
    pareto_charts: Sequence[tuple[str, ParetoChart]]
    policies: Sequence[_PolicySection]
    has_memory: bool
    has_autoscaling: bool


def render_backtest_html(report: BacktestReport, shown_node: str | None = None) -> bytes:
    """Return the page; `shown_node` is the node whose time line the user asked for."""
    page = load_template("backtest.html.j2").render(
        sections=[_build_section(result, report.parameters, shown_node) for result in report.results],
        terms=describe_parameters(report.parameters),
        have_cost=report.has_costs,
        cost_note=COST_NOTE,
        definitions=DEFINITIONS,
        slack_reduction_note=SLACK_REDUCTION_NOTE,
        objective_note=describe_cost(report.parameters.objective_prices),
        autoscaling_headings=[heading.replace("\n", " ").strip().capitalize() for heading in AUTOSCALING_HEADINGS],
        autoscaling_note=AUTOSCALING_NOTE if any(map(has_autoscaling, report.results)) else None,
        dominated_note=describe_dominated_mark(),
        columns=MAX_COLUMNS,
        height=CHART_HEIGHT,
        sizes=[(resizes, compute_radius(resizes)) for resizes in (1, 10, 100)],
        version=__version__,
        cores=lambda amount: format_cores(round(amount)),
        gib=lambda amount: format_gibibytes(round(amount)),
    )
    return page.encode()


def _build_section(result: BacktestResult, terms: ReplayParameters, shown_node: str | None) -> _RecordingSection:
    dominated, reductions = find_dominated_policies(result.policies), compute_slack_reduction_from_vpa(result.policies)
    has_memory = any(score.memory is not None for score in result.policies.values())
    pairs = (STARVATION, KILLS) if has_memory else (STARVATION,)
    charts = [
        (size, build_pareto_chart(result.policies, dominated, pair, width, height))
        for pair in pairs
        for size, width, height in _SIZES
    ]
    first = _DEFAULT if _DEFAULT in result.policies else next(iter(result.policies), None)
    return _RecordingSection(
        trace=result.trace,
        description=describe_recording(result),
        summary=summarize_backtest(result),
        warnings=list(list_warnings(result, shown_node)),
        rows=[
            _PolicyRow(
                name,
                format_policy_figures(score),
                format_slack_reduction(reductions.get(name)),
                format_cost_cells(compute_policy_cost(score, terms.objective_prices), terms.currency),
                format_monthly_cost(score, result, terms.currency),
                format_autoscaling(score) if score.autoscaling is not None else (),
                dominated.get(name),
            )
            for name, score in result.policies.items()
        ],
        cost_ranking=list(describe_cost_ranking(result, terms.objective_prices, terms.currency)),
        pareto_charts=[(size, chart) for size, chart in charts if chart is not None],
        policies=[_build_policy_section(name, score, name == first) for name, score in result.policies.items()],
        has_memory=has_memory,
        has_autoscaling=has_autoscaling(result),
    )


def _build_policy_section(name: str, score: PolicyScore, is_open: bool) -> _PolicySection:
    line = score.time_line if score.time_line is not None and len(score.time_line.times) else None
    return _PolicySection(
        name=name,
        is_open=is_open,
        node=line.node if line is not None else None,
        since=format_start(line) if line is not None else None,
        charts=build_node_charts(line, score.memory is not None) if line is not None else (),
        worst_containers=score.worst_containers,
    )
