"""A backtest for a terminal, with one row for each policy, and the texts that it shares with the page."""

from collections.abc import Container, Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.policy_costs import (
    COST_AXES,
    REFERENCE_POLICIES,
    PolicyCost,
    SlackReduction,
    compute_policy_cost,
    compute_slack_reduction_from_vpa,
    find_dominated_policies,
    find_rank_changes_at_varied_prices,
    rank_by_cost,
)
from cruise.domain.backtest import AutoscalingScore, BacktestResult, ObjectivePrices, PolicyScore
from cruise.domain.policy import DEFAULT_RULES
from cruise.domain.prices import format_money
from cruise.interfaces.backtest.report import COST_NOTE, BacktestReport, ReplayParameters, compute_monthly_cost
from cruise.interfaces.text import format_cores, format_count, format_memory, format_percent, format_rate, join_words

_UNKNOWN = "–"


def format_cost_cells(cost: PolicyCost, currency: str) -> Sequence[str]:
    """Return the cost of 1,000 container-days, and the share of each cause in percent, `–` if the cost is zero."""
    total = cost.total
    shares = (format_percent(part / total) if total > 0 else _UNKNOWN for part in cost.by_cause.values())
    return (format_money(total, currency), *shares)


def format_slack_reduction(reduction: SlackReduction | None) -> Sequence[str]:
    """Return the slack reduction in percent, for CPU and for memory."""
    shares = (reduction.cpu, reduction.memory) if reduction is not None else (None, None)
    return tuple(_UNKNOWN if share is None else format_percent(share) for share in shares)


def describe_cost_ranking(result: BacktestResult, prices: ObjectivePrices, currency: str) -> Iterator[str]:
    """Yield sentences about the order of policies by cost, and the prices that would change it."""
    order = rank_by_cost(result.policies, prices)
    if len(order) < 2:
        return
    cheapest = compute_policy_cost(result.policies[order[0]], prices).total
    cost = format_money(cheapest, currency)
    yield f"By cost: {', '.join(order)}. The first costs {cost} for 1,000 container-days."
    changes = find_rank_changes_at_varied_prices(result.policies, prices)
    for change in changes:
        swaps = "; ".join(f"{cheaper} before {dearer}" for cheaper, dearer in change.swaps)
        yield f"With price_{change.price} {format_factor(change.factor)}: {swaps}."
    unchanged = "No other price" if changes else "No price"
    yield f"{unchanged} × 3 or ÷ 3 changes the order."


def describe_cost(prices: ObjectivePrices) -> str:
    """Return the causes of the cost and their prices."""
    return (
        "Cost: slack, starvation, OOM kills, evictions by sizing and resizes of 1,000 container-days, at "
        f"{format_objective_prices(prices)}"
    )


def format_factor(factor: float) -> str:
    """Write a factor: `× 3`, `÷ 3`."""
    return f"× {factor:g}" if factor >= 1 else f"÷ {1 / factor:.3g}"


def format_objective_prices(prices: ObjectivePrices) -> str:
    """Write the objective prices."""
    return (
        f"{prices.core_hour:g} for a core-hour, {prices.gibibyte_hour:g} for a GiB-hour, {prices.starved_minute:g} "
        f"for a starved container-minute, {prices.oom_kill:g} for a kill, {prices.eviction:g} for an eviction, "
        f"{prices.resize:g} for a resize"
    )


DEFINITIONS = (
    "Slack: the share of the requests that was not used. Starved: the share of container-minutes in which a container "
    "used more CPU than it requested while its node's usage was above its allocatable. Short: the share of the nodes' "
    "intervals in which usage exceeded the requests. OOM kills are per 1,000 container-days (C·D), resizes per one, "
    "evictions per 1,000 pod-days (P·D). Reversed: resizes that undo the previous one. Evictions: those of the policy "
    "itself. Consolidation moves: evictions of consolidation, which drains a node if its pods fit on other nodes "
    "as they "
    "would be created. Nodes by requests: the mean if consolidation uses the pods' present requests."
)
SLACK_REDUCTION_NOTE = (
    "Slack reduction: the share of the way from VPA's slack to the clairvoyant's. 100 % is the slack of pods that "
    "share "
    "a node if the future is known and they are resized every 4 hours"
)
_INSTALLED, _BEFORE = "cruise", "as-requested"


def describe_dominated_mark() -> str:
    """Return the meaning of the mark of a dominated policy."""
    axes = list(COST_AXES)
    return (
        f"another policy (except the bounds {join_words(sorted(REFERENCE_POLICIES))}) is at least as good on "
        f"{', '.join(axes[:-1])} and {axes[-1]}, and better on one of them"
    )


def describe_recording(result: BacktestResult) -> str:
    """Return the size of a recording, and of the nodes that it is replayed on."""
    cpu, memory = result.node.cpu_millicores, result.node.memory_bytes
    length = f"{result.days:.3g} days" if result.days >= 2 else f"{result.days * 24:.3g} hours"
    cores = format_cores(cpu).removesuffix(".0")
    size = format_memory(memory).replace(".0Gi", "Gi")
    return (
        f"{format_count(result.containers, 'container')}, {length}, a sample every "
        f"{format_seconds(result.step_seconds)}; "
        f"nodes of {cores} cores and {size}"
    )


def describe_parameters(terms: ReplayParameters) -> str:
    """Return the parameters of a replay."""
    created = "with their first sample" if terms.pod_creation == "first-sample" else "at the start"
    half = {None: "", "tune": "; only the half of the series for tuning"}.get(
        terms.half, "; only the half of the series for reports"
    )
    hpas = {None: "", "snapshot": "; HPAs of the snapshot"}.get(terms.hpa, f"; HPAs at {terms.hpa} of CPU")
    rules = "" if terms.rules == DEFAULT_RULES.name else f"; rules {terms.rules}"
    return (
        f"a pass every {format_seconds(terms.pass_seconds)}; pods are created {created}; "
        f"seed {terms.seed}, risk {terms.risk:g}{rules}{hpas}{half}"
    )


def format_seconds(seconds: int) -> str:
    """Write a short time: `45 s`, `5 min`."""
    return f"{seconds // 60} min" if seconds >= 60 and not seconds % 60 else f"{seconds} s"


def summarize_backtest(result: BacktestResult) -> str | None:
    """Compare the installed policy with the original requests in one sentence, None if one of them is missing."""
    before, after = result.policies.get(_BEFORE), result.policies.get(_INSTALLED)
    if before is None or after is None:
        return None
    slack = [f"CPU slack {format_percent(before.cpu.relative_slack)} % → {format_percent(after.cpu.relative_slack)} %"]
    if before.memory is not None and after.memory is not None:
        memory_before, memory_after = before.memory.relative_slack, after.memory.relative_slack
        slack.append(f"memory slack {format_percent(memory_before)} % → {format_percent(memory_after)} %")
    nodes = f"{format_rate(before.nodes_mean)} → {format_rate(after.nodes_mean)} nodes on average"
    return f"{_BEFORE} → {_INSTALLED}: {nodes}, {', '.join(slack)}."


def list_warnings(result: BacktestResult, shown_node: str | None = None) -> Iterator[str]:
    """Yield the limitations of the figures."""
    if any(score.memory is None for score in result.policies.values()):
        yield "memory was not recorded: it has no figures, and only CPU limits the pods of a node"
    if result.capped_containers:
        one = result.capped_containers == 1
        yield (
            f"{format_count(result.capped_containers, 'container')} requested more than a node has, and "
            f"{'is' if one else 'are'} replayed as if {'it' if one else 'they'} had requested a whole node"
        )
    delayed = [name for name, score in result.policies.items() if score.pending_pod_minutes > 0]
    if delayed:
        minutes = max(result.policies[name].pending_pod_minutes for name in delayed)
        yield f"pods were pending under {join_words(delayed)}, for at most {minutes:,.0f} pod-minutes in total"
    if shown_node is not None and not any(map(has_time_line, result.policies.values())):
        yield f"no pod ran on node {shown_node}"


def has_time_line(score: PolicyScore) -> bool:
    """Return whether a pod ran on the node of the time line."""
    line = score.time_line
    return line is not None and bool(line.requested_cpu_millicores.any() or line.peak_cpu_millicores.any())


DOMINATED_MARK = "×"
_STYLES = {"cruise": "bold", **dict.fromkeys(REFERENCE_POLICIES, "italic")}
# Headings in two lines.
_HEADINGS = (
    "CPU\nSLACK %",
    "MEMORY\nSLACK %",
    "CPU\nSTARVED %",
    "CPU\nSHORT %",
    "MEMORY\nSHORT %",
    "OOM KILLS\n/1,000 C·D",
    "RESIZES\n/C·D",
    "REVERSED\n%",
    "EVICTIONS\n/1,000 P·D",
    "MOVES\n/1,000 P·D",
    "NODES\nMEAN",
    "NODES\nPEAK",
    "NODES BY\nREQUESTS",
)
_COST_HEADINGS = (
    "COST\n/1,000 C·D",
    "CPU SLACK,\n% OF COST",
    "MEMORY SLACK,\n% OF COST",
    "STARVED,\n% OF COST",
    "KILLS,\n% OF COST",
    "EVICTIONS,\n% OF COST",
    "RESIZES,\n% OF COST",
    "CPU SLACK\nREDUCTION %",
    "MEMORY SLACK\nREDUCTION %",
)


def render_backtest_table(
    report: BacktestReport, console: Console, shown_node: str | None = None
) -> Iterator[RenderableType]:
    """Yield the parts of the report; `shown_node` is the node whose time line the user asked for."""
    width = console.width
    any_dominated, terms = False, report.parameters
    for index, result in enumerate(report.results):
        dominated = find_dominated_policies(result.policies)
        any_dominated = any_dominated or bool(dominated)
        yield Text.assemble("\n" if index else "", (result.trace, "bold"), f": {describe_recording(result)}.")
        summary = summarize_backtest(result)
        if summary is not None:
            yield Text(summary)
        yield from _build_tables(result, dominated, terms.currency if report.has_costs else None, width)
        yield from _build_cost_tables(result, terms, dominated, width)
        if has_autoscaling(result):
            yield from _build_autoscaling_tables(result, width)
        for line in describe_cost_ranking(result, terms.objective_prices, terms.currency):
            yield Text(line)
        for warning in list_warnings(result, shown_node):
            yield Text(f"Note: {warning}.", style="yellow")
    yield from _build_notes(report, any_dominated)


def _build_tables(
    result: BacktestResult, dominated: Mapping[str, str], currency: str | None, width: int
) -> Iterator[RenderableType]:
    """Yield the tables; with a currency, they have the costs of nodes."""
    headings = (*_HEADINGS, "COST\n/MONTH") if currency is not None else _HEADINGS
    rows = []
    for name, score in result.policies.items():
        label = f"{name} {DOMINATED_MARK}" if name in dominated else name
        cost = [] if currency is None else [format_monthly_cost(score, result, currency) or _UNKNOWN]
        rows.append(([label, *format_policy_figures(score), *cost], _get_style(name, dominated)))
    return _split_into_tables(headings, rows, width)


def _build_cost_tables(
    result: BacktestResult, terms: ReplayParameters, dominated: Mapping[str, str], width: int
) -> Iterator[RenderableType]:
    reductions = compute_slack_reduction_from_vpa(result.policies)
    rows = []
    for name, score in result.policies.items():
        cost = format_cost_cells(compute_policy_cost(score, terms.objective_prices), terms.currency)
        rows.append(([name, *cost, *format_slack_reduction(reductions.get(name))], _get_style(name, dominated)))
    return _split_into_tables(_COST_HEADINGS, rows, width)


def _build_autoscaling_tables(result: BacktestResult, width: int) -> Iterator[RenderableType]:
    rows = [([name, *format_autoscaling(score)], _get_style(name)) for name, score in result.policies.items()]
    return _split_into_tables(AUTOSCALING_HEADINGS, rows, width)


def _get_style(name: str, dominated: Container[str] = ()) -> str:
    return "dim" if name in dominated else _STYLES.get(name, "")


def _split_into_tables(
    headings: Sequence[str], rows: Sequence[tuple[Sequence[str], str]], width: int
) -> Iterator[RenderableType]:
    """Yield tables below one another, each with the policies and as many of the columns as fit.

    A row has the policy and a cell for each heading, and its style.
    """
    widths = [
        max(map(len, (*heading.split("\n"), *(cells[index] for cells, _ in rows))))
        for index, heading in enumerate(("\nPOLICY", *headings))
    ]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= width else 1
    shown: list[int] = []
    for index in range(1, len(widths)):
        if shown and widths[0] + sum(gap + widths[one] for one in (*shown, index)) > width:
            yield from _build_table(headings, rows, shown, gap)
            shown = []
        shown.append(index)
    yield from _build_table(headings, rows, shown, gap)


def _build_table(
    headings: Sequence[str], rows: Sequence[tuple[Sequence[str], str]], shown: Sequence[int], gap: int
) -> Iterator[RenderableType]:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    table.add_column(_two_lines("\nPOLICY"), overflow="fold", header_style="dim")
    for index in shown:
        table.add_column(_two_lines(headings[index - 1]), justify="right", no_wrap=True, header_style="dim")
    for cells, style in rows:
        table.add_row(*(Text(cells[index]) for index in (0, *shown)), style=style)
    yield ""
    yield table


def _two_lines(heading: str) -> Group:
    return Group(*heading.split("\n"))


def format_policy_figures(score: PolicyScore) -> Sequence[str]:
    """Return a policy's figures as text, in the order of the columns; `–` if not recorded."""
    memory = score.memory
    return (
        format_percent(score.cpu.relative_slack),
        format_percent(memory.relative_slack) if memory is not None else _UNKNOWN,
        format_percent(score.cpu.starved_share),
        format_percent(score.cpu.short_share),
        format_percent(memory.short_share) if memory is not None else _UNKNOWN,
        format_rate(score.oom_per_1000_container_days) if memory is not None else _UNKNOWN,
        format_rate(score.resizes_per_container_day),
        format_percent(score.resize_reversal_share),
        format_rate(score.own_evictions_per_1000_pod_days),
        format_rate(score.moves_per_1000_pod_days),
        format_rate(score.nodes_mean),
        f"{score.nodes_peak:,}",
        format_rate(score.nodes_mean_by_requests) if score.nodes_mean_by_requests is not None else _UNKNOWN,
    )


def format_monthly_cost(score: PolicyScore, result: BacktestResult, currency: str) -> str | None:
    """Write the cost of a month, None if prices are unknown."""
    cost = compute_monthly_cost(score, result)
    return format_money(cost, currency) if cost is not None else None


def _build_notes(report: BacktestReport, any_dominated: bool) -> Iterator[Text]:
    yield Text(f"\nReplayed with {describe_parameters(report.parameters)}.", style="dim")
    if any_dominated:
        yield Text(f"{DOMINATED_MARK} dominated: {describe_dominated_mark()}.", style="dim")
    bounds = sorted({name for result in report.results for name in result.policies if name in REFERENCE_POLICIES})
    if bounds:
        yield Text(f"Bounds, which know the future and cannot be installed: {join_words(bounds)}.", style="dim")
    yield Text(DEFINITIONS, style="dim")
    if any(map(has_autoscaling, report.results)):
        yield Text(f"{AUTOSCALING_NOTE}.", style="dim")
    yield Text(f"{describe_cost(report.parameters.objective_prices)}.", style="dim")
    if any(compute_slack_reduction_from_vpa(result.policies) for result in report.results):
        yield Text(f"{SLACK_REDUCTION_NOTE}.", style="dim")
    if report.has_costs:
        yield Text(f"Cost a month is {COST_NOTE}.", style="dim")


AUTOSCALING_HEADINGS = (
    "CPU RECLAIMED\nAT MINIMUM %",
    "POD-HOURS\n",
    "POD-HOURS\nUNCHANGED",
    "SCALE\nEVENTS",
    "SCALE EVENTS\nUNCHANGED",
    "OTHER REPLICAS,\nMINUTES",
    "OTHER REPLICAS,\n% OF TIME",
    "WITHOUT A NEW\nMAXIMUM, MINUTES",
)
AUTOSCALING_NOTE = (
    "HPAs: each workload has one on CPU utilization, which divides by the requests that the policy sets. CPU reclaimed "
    "at minimum: of the requests while the HPA would be at its minimum with the requests as they were. Unchanged: with "
    "the requests as they were. Other replicas: minutes of workloads with another number of replicas than unchanged; "
    "without a new maximum: those that did not begin within an hour of use above all of the 7 days before"
)


def has_autoscaling(result: BacktestResult) -> bool:
    """Return whether the workloads of a replay had HPAs."""
    return any(score.autoscaling is not None for score in result.policies.values())


def format_autoscaling(score: PolicyScore) -> Sequence[str]:
    """Return what HPAs did as text, in the order of the headings."""
    one = score.autoscaling or AutoscalingScore()
    share = one.differing_minutes / one.workload_minutes if one.workload_minutes else 0.0
    return (
        format_percent(one.reclaimed_share_at_minimum),
        f"{one.replica_minutes / 60:,.0f}",
        f"{one.unchanged_replica_minutes / 60:,.0f}",
        f"{one.scale_events:,}",
        f"{one.unchanged_scale_events:,}",
        f"{one.differing_minutes:,.0f}",
        format_percent(share),
        f"{one.unexplained_minutes:,.0f}",
    )
