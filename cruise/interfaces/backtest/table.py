"""A backtest for people at a terminal: one table a recording, one row a policy."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.policy_costs import (
    COST_AXES,
    REFERENCE_POLICIES,
    PolicyCost,
    SlackReduction,
    compute_policy_cost,
    compute_slack_reduction,
    find_dominated_policies,
    find_rank_changes,
    rank_by_cost,
)
from cruise.domain.backtest import BacktestResult, ObjectivePrices, PolicyScore
from cruise.domain.policy import DEFAULT_RULES
from cruise.interfaces.backtest.report import COST_NOTE, BacktestReport, ReplayTerms, compute_monthly_cost
from cruise.interfaces.text import format_cores, format_count, format_memory, format_money, format_percent, format_rate

# The cost of policies and their way to the bound, for people: a row a policy, and how far the order can be trusted.

_UNKNOWN = "–"


def format_cost(cost: PolicyCost) -> Sequence[str]:
    """Return what 1,000 container-days cost, and the share of each cause in percent: none where nothing is paid."""
    total = cost.total
    shares = (format_percent(part / total) if total > 0 else _UNKNOWN for part in cost.by_cause.values())
    return (format_money(total), *shares)


def format_slack_reduction(progress: SlackReduction | None) -> Sequence[str]:
    """Return the way to the bound in percent, for CPU and for memory."""
    shares = (progress.cpu, progress.memory) if progress is not None else (None, None)
    return tuple(_UNKNOWN if share is None else format_percent(share) for share in shares)


def describe_cost_ranking(result: BacktestResult, prices: ObjectivePrices) -> Iterator[str]:
    """Say in sentences which policy costs least, and which prices would change the order."""
    order = rank_by_cost(result.policies, prices)
    if len(order) < 2:
        return
    cheapest = compute_policy_cost(result.policies[order[0]], prices).total
    yield f"By cost: {', '.join(order)}. The first costs {format_money(cheapest)} for 1,000 container-days."
    changes = find_rank_changes(result.policies, prices)
    for change in changes:
        swaps = "; ".join(f"{cheaper} before {dearer}" for cheaper, dearer in change.swaps)
        yield f"With price_{change.price} {format_factor(change.factor)}: {swaps}."
    unchanged = "No other price" if changes else "No price"
    yield f"{unchanged} × 3 or ÷ 3 changes the order."


def describe_cost(prices: ObjectivePrices) -> str:
    """Say what the cost is made of."""
    return (
        f"Cost: slack, starvation, kills, own evictions and resizes of 1,000 container-days, at {format_prices(prices)}"
    )


def format_factor(factor: float) -> str:
    """Write a factor: `× 3`, `÷ 3`."""
    return f"× {factor:g}" if factor >= 1 else f"÷ {1 / factor:.3g}"


def format_prices(prices: ObjectivePrices) -> str:
    """Write all prices."""
    return (
        f"{prices.core_hour:g} for a core-hour, {prices.gibibyte_hour:g} for a GiB-hour, {prices.starved_minute:g} "
        f"for a starved container-minute, {prices.oom_kill:g} for a kill, {prices.eviction:g} for an eviction, "
        f"{prices.resize:g} for a resize"
    )


# What a backtest's figures are called, for people: headings, units, and what is said beside them.

DEFINITIONS = (
    "Slack: the share of what was requested that was not used. Starved: the share of container-minutes in which a "
    "container used more CPU than it requested while its node's use was over its allocatable. Short: the share of "
    "nodes' intervals in which use passed the requests. Kills are for 1,000 container-days (C·D), resizes for one, "
    "evictions for 1,000 pod-days (P·D); reversed are the resizes that undo the one before. Evictions are those that "
    "the policy wanted; moves are the evictions of consolidation, which empties a node where its pods have room "
    "elsewhere as they would be created; nodes by requests: the mean where it judges by the requests that they "
    "have."
)
PROGRESS_NOTE = (
    "Way to the bound: how much of the way from VPA's slack to the clairvoyant's a policy has come. 100 % is what pods "
    "that share a node can reach when the future is known and they are resized every 4 hours"
)
_INSTALLED, _BEFORE = "cruise", "as-requested"


def describe_dominated_mark() -> str:
    """Say what the mark of a dominated policy means."""
    axes = list(COST_AXES)
    return (
        f"another policy (the bounds {format_names(sorted(REFERENCE_POLICIES))} apart) is as good or better on "
        f"{', '.join(axes[:-1])} and {axes[-1]}, and better on one of them"
    )


def describe_recording(result: BacktestResult) -> str:
    """Say what was replayed, and on what."""
    cpu, memory = result.node.cpu_millicores, result.node.memory_bytes
    length = f"{result.days:.3g} days" if result.days >= 2 else f"{result.days * 24:.3g} hours"
    cores = format_cores(cpu).removesuffix(".0")
    size = format_memory(memory).replace(".0Gi", "Gi")
    return (
        f"{format_count(result.containers, 'container')}, {length}, a sample every {format_seconds(result.step_seconds)}; "
        f"nodes of {cores} cores and {size}"
    )


def describe_terms(terms: ReplayTerms) -> str:
    """Say under which terms."""
    arrivals = "their first sample" if terms.arrivals == "first-sample" else "the start"
    half = {None: "", "tune": "; only the half of the series to tune on"}.get(
        terms.half, "; only the half of the series to report on"
    )
    rules = "" if terms.rules == DEFAULT_RULES.name else f"; rules {terms.rules}"
    return (
        f"a pass every {format_seconds(terms.pass_seconds)}; pods arrive with {arrivals}; "
        f"seed {terms.seed}, risk {terms.risk:g}{rules}{half}"
    )


def format_seconds(seconds: int) -> str:
    """Write a short time: `45 s`, `5 min`."""
    return f"{seconds // 60} min" if seconds >= 60 and not seconds % 60 else f"{seconds} s"


def summarize_backtest(result: BacktestResult) -> str | None:
    """Say in a sentence what the installed policy does beside what was requested, None without both."""
    now, after = result.policies.get(_BEFORE), result.policies.get(_INSTALLED)
    if now is None or after is None:
        return None
    slack = [f"CPU slack {format_percent(now.cpu.relative_slack)} % → {format_percent(after.cpu.relative_slack)} %"]
    if now.memory is not None and after.memory is not None:
        before, then = now.memory.relative_slack, after.memory.relative_slack
        slack.append(f"memory slack {format_percent(before)} % → {format_percent(then)} %")
    nodes = f"{format_rate(now.nodes_mean)} → {format_rate(after.nodes_mean)} nodes on average"
    return f"{_BEFORE} → {_INSTALLED}: {nodes}, {', '.join(slack)}."


def list_warnings(result: BacktestResult, watched: str | None = None) -> Iterator[str]:
    """Yield what a reader has to know before the figures are believed."""
    if any(score.memory is None for score in result.policies.values()):
        yield "memory was not recorded: nothing is said about it, and a node is full when its CPU is"
    if result.capped_containers:
        one = result.capped_containers == 1
        yield (
            f"{format_count(result.capped_containers, 'container')} requested more than a node has, and "
            f"{'is' if one else 'are'} replayed as if {'it' if one else 'they'} had requested a whole one"
        )
    late = [name for name, score in result.policies.items() if score.pending_pod_minutes > 0]
    if late:
        minutes = max(result.policies[name].pending_pod_minutes for name in late)
        yield f"pods waited for a node under {format_names(late)}, at most {minutes:,.0f} pod-minutes in all"
    if watched is not None and not any(map(is_shown, result.policies.values())):
        yield f"nothing ever ran on a node {watched}"


def is_shown(score: PolicyScore) -> bool:
    """Tell whether a pod ever ran on the node whose time line is wanted."""
    line = score.time_line
    return line is not None and bool(line.requested_cpu_millicores.any() or line.peak_cpu_millicores.any())


def format_names(names: Sequence[str]) -> str:
    """Write names as a list in words."""
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


DOMINATED_MARK = "×"
_WIDE_COLUMNS = 152
_STYLES = {"cruise": "bold", **dict.fromkeys(REFERENCE_POLICIES, "italic")}
# Heading in a wide and in a narrow table; two lines each, the unit below.
_HEADINGS = (
    ("CPU\nSLACK %", "SLACK\nCPU%"),
    ("MEMORY\nSLACK %", "SLACK\nMEM%"),
    ("CPU\nSTARVED %", "STARV\nCPU%"),
    ("CPU\nSHORT %", "SHORT\nCPU%"),
    ("MEMORY\nSHORT %", "SHORT\nMEM%"),
    ("OOM KILLS\n/1,000 C·D", "OOM\n/1k"),
    ("RESIZES\n/C·D", "RESIZ\n/day"),
    ("REVERSED\n%", ""),
    ("EVICTIONS\n/1,000 P·D", "EVICT\n/1k"),
    ("MOVES\n/1,000 P·D", "MOVES\n/1k"),
    ("NODES\nMEAN", "NODES\nMEAN"),
    ("\nPEAK", ""),
    ("\nBY REQ.", ""),
)

# The same of what policies cost, and of how far they are on the way from VPA to the clairvoyant.
_COST_HEADINGS = (
    ("COST\n/1,000 C·D", "COST\n/1k"),
    ("CPU SLACK,\n% OF COST", "SLACK\nCPU%"),
    ("MEMORY\nSLACK %", "SLACK\nMEM%"),
    ("\nSTARVED %", "STARV\n%"),
    ("\nKILLS %", "OOM\n%"),
    ("\nEVICTIONS %", "EVICT\n%"),
    ("\nRESIZES %", "RESIZ\n%"),
    ("WAY TO THE BOUND,\nCPU %", "BOUND\nCPU%"),
    ("\nMEMORY %", "BOUND\nMEM%"),
)


def render_backtest_table(
    report: BacktestReport, console: Console, watched: str | None = None
) -> Iterator[RenderableType]:
    """Yield the parts of the report; `watched` is the node whose time line is wanted."""
    wide = console.width >= _WIDE_COLUMNS
    dominated = False
    for at, result in enumerate(report.results):
        losers = find_dominated_policies(result.policies)
        dominated = dominated or bool(losers)
        yield Text.assemble("\n" if at else "", (result.trace, "bold"), f": {describe_recording(result)}.")
        sentence = summarize_backtest(result)
        if sentence is not None:
            yield Text(sentence)
        yield ""
        yield _table(result, losers, wide, report.has_costs)
        yield ""
        yield _cost_table(result, report.terms.objective_prices, losers, wide)
        for line in describe_cost_ranking(result, report.terms.objective_prices):
            yield Text(line)
        costs = None if wide else _costs(result)
        if costs is not None:
            yield costs
        for warning in list_warnings(result, watched):
            yield Text(f"Note: {warning}.", style="yellow")
    yield from _notes(report, dominated)


def _table(result: BacktestResult, losers: Mapping[str, str], wide: bool, cost: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0) if wide else (0, 1, 0, 0))
    table.add_column(_two_lines("\nPOLICY"), overflow="fold", header_style="dim")
    for long, short in _HEADINGS:
        if wide or short:
            table.add_column(_two_lines(long if wide else short), justify="right", no_wrap=True, header_style="dim")
    if wide and cost:
        table.add_column(_two_lines("COST\n/MONTH"), justify="right", no_wrap=True, header_style="dim")
    for name, score in result.policies.items():
        style = "dim" if name in losers else _STYLES.get(name, "")
        label = Text(f"{name} {DOMINATED_MARK}" if name in losers else name)
        cells = [cell for cell, (_, short) in zip(format_figures(score), _HEADINGS, strict=True) if wide or short]
        if wide and cost:
            cells.append(_money(score, result))
        table.add_row(label, *cells, style=style)
    return table


def _cost_table(result: BacktestResult, prices: ObjectivePrices, losers: Mapping[str, str], wide: bool) -> Table:
    progress = compute_slack_reduction(result.policies)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0) if wide else (0, 1, 0, 0))
    table.add_column(_two_lines("\nPOLICY"), overflow="fold", header_style="dim")
    for long, short in _COST_HEADINGS:
        table.add_column(_two_lines(long if wide else short), justify="right", no_wrap=True, header_style="dim")
    for name, score in result.policies.items():
        cells = (*format_cost(compute_policy_cost(score, prices)), *format_slack_reduction(progress.get(name)))
        table.add_row(Text(name), *cells, style="dim" if name in losers else _STYLES.get(name, ""))
    return table


def _two_lines(heading: str) -> Group:
    return Group(*heading.split("\n"))


def format_figures(score: PolicyScore) -> Sequence[str]:
    """Return a policy's figures in words, in the order of every table; what was not recorded is `–`."""
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


def _money(score: PolicyScore, result: BacktestResult) -> str:
    cost = compute_monthly_cost(score, result)
    return format_money(cost) if cost is not None else _UNKNOWN


def _costs(result: BacktestResult) -> Text | None:
    """Say in a line what a table of few columns has no room for."""
    known = [(name, score) for name, score in result.policies.items() if score.cost is not None]
    if not known:
        return None
    return Text(f"Cost a month: {', '.join(f'{name} {_money(score, result)}' for name, score in known)}.")


def _notes(report: BacktestReport, dominated: bool) -> Iterator[Text]:
    yield Text(f"\nReplayed with {describe_terms(report.terms)}.", style="dim")
    if dominated:
        yield Text(f"{DOMINATED_MARK} dominated: {describe_dominated_mark()}.", style="dim")
    bounds = sorted({name for result in report.results for name in result.policies if name in REFERENCE_POLICIES})
    if bounds:
        yield Text(
            f"With knowledge of the future, so a bound and nothing to choose: {format_names(bounds)}.", style="dim"
        )
    yield Text(DEFINITIONS, style="dim")
    yield Text(f"{describe_cost(report.terms.objective_prices)}.", style="dim")
    if any(compute_slack_reduction(result.policies) for result in report.results):
        yield Text(f"{PROGRESS_NOTE}.", style="dim")
    if report.has_costs:
        yield Text(f"Cost a month is {COST_NOTE}.", style="dim")
