"""A backtest as one self-contained HTML page without scripts."""

from collections.abc import Sequence
from dataclasses import dataclass

from cruise import __version__
from cruise.decisions.policy_costs import compute_policy_cost, compute_slack_reduction, find_dominated_policies
from cruise.domain.backtest import BacktestResult, ContainerScore, ObjectivePrices, PolicyScore
from cruise.interfaces.backtest.pareto_chart import KILLS, STARVATION, ParetoChart, build_pareto_chart, compute_radius
from cruise.interfaces.backtest.report import COST_NOTE, BacktestReport, compute_monthly_cost
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
    format_cost,
    format_figures,
    format_slack_reduction,
    has_autoscaling,
    list_warnings,
    summarize_backtest,
)
from cruise.interfaces.backtest.time_line_chart import (
    CHART_HEIGHT,
    MAX_COLUMNS,
    NodeTimeChart,
    build_node_charts,
    format_start,
)
from cruise.interfaces.text import format_cores, format_gibibytes, format_money, load_template

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
        sections=[_build_section(result, report.parameters.objective_prices, shown_node) for result in report.results],
        terms=describe_parameters(report.parameters),
        have_cost=report.has_costs,
        cost_note=COST_NOTE,
        definitions=DEFINITIONS,
        slack_reduction_note=SLACK_REDUCTION_NOTE,
        objective_note=describe_cost(report.parameters.objective_prices),
        autoscaling_headings=[long.replace("\n", " ").strip().capitalize() for long, _ in AUTOSCALING_HEADINGS],
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


def _build_section(result: BacktestResult, prices: ObjectivePrices, shown_node: str | None) -> _RecordingSection:
    dominated, reductions = find_dominated_policies(result.policies), compute_slack_reduction(result.policies)
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
                format_figures(score),
                format_slack_reduction(reductions.get(name)),
                format_cost(compute_policy_cost(score, prices)),
                _format_monthly_cost(score, result),
                format_autoscaling(score) if score.autoscaling is not None else (),
                dominated.get(name),
            )
            for name, score in result.policies.items()
        ],
        cost_ranking=list(describe_cost_ranking(result, prices)),
        pareto_charts=[(size, chart) for size, chart in charts if chart is not None],
        policies=[_build_policy_section(name, score, name == first) for name, score in result.policies.items()],
        has_memory=has_memory,
        has_autoscaling=has_autoscaling(result),
    )


def _format_monthly_cost(score: PolicyScore, result: BacktestResult) -> str | None:
    cost = compute_monthly_cost(score, result)
    return format_money(cost) if cost is not None else None


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
