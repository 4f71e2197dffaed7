"""A backtest for people at a terminal: one table a recording, one row a policy."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cruise.decisions.bound_progress import bound_progress
from cruise.decisions.pareto import NEVER_RIVALS, find_dominated
from cruise.decisions.policy_costs import cost_of
from cruise.domain.backtest import BacktestResult, PolicyScore
from cruise.domain.prices import BacktestPrices
from cruise.interfaces.amounts import money_text, percent_text, rate_text
from cruise.interfaces.backtest.costs import cost_figures, cost_note, order_lines, progress_figures
from cruise.interfaces.backtest.report import COST_NOTE, BacktestReport, cost_a_month
from cruise.interfaces.backtest.words import (
    DEFINITIONS,
    PROGRESS_NOTE,
    dominated_note,
    names_text,
    recording_line,
    terms_line,
    verdict,
    warnings,
)

DOMINATED = "×"
_UNKNOWN = "–"
_WIDE_COLUMNS = 152
_STYLES = {"cruise": "bold", **dict.fromkeys(NEVER_RIVALS, "italic")}
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


def backtest_table(report: BacktestReport, console: Console, watched: str | None = None) -> Iterator[RenderableType]:
    """Yield the parts of the report; `watched` is the node whose time line is wanted."""
    wide = console.width >= _WIDE_COLUMNS
    dominated = False
    for at, result in enumerate(report.results):
        losers = find_dominated(result.policies)
        dominated = dominated or bool(losers)
        yield Text.assemble("\n" if at else "", (result.trace, "bold"), f": {recording_line(result)}.")
        sentence = verdict(result)
        if sentence is not None:
            yield Text(sentence)
        yield ""
        yield _table(result, losers, wide, report.have_cost)
        yield ""
        yield _cost_table(result, report.terms.objective_prices, losers, wide)
        for line in order_lines(result, report.terms.objective_prices):
            yield Text(line)
        costs = None if wide else _costs(result)
        if costs is not None:
            yield costs
        for warning in warnings(result, watched):
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
        label = Text(f"{name} {DOMINATED}" if name in losers else name)
        cells = [cell for cell, (_, short) in zip(figures(score), _HEADINGS, strict=True) if wide or short]
        if wide and cost:
            cells.append(_money(score, result))
        table.add_row(label, *cells, style=style)
    return table


def _cost_table(result: BacktestResult, prices: BacktestPrices, losers: Mapping[str, str], wide: bool) -> Table:
    progress = bound_progress(result.policies)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0) if wide else (0, 1, 0, 0))
    table.add_column(_two_lines("\nPOLICY"), overflow="fold", header_style="dim")
    for long, short in _COST_HEADINGS:
        table.add_column(_two_lines(long if wide else short), justify="right", no_wrap=True, header_style="dim")
    for name, score in result.policies.items():
        cells = (*cost_figures(cost_of(score, prices)), *progress_figures(progress.get(name)))
        table.add_row(Text(name), *cells, style="dim" if name in losers else _STYLES.get(name, ""))
    return table


def _two_lines(heading: str) -> Group:
    return Group(*heading.split("\n"))


def figures(score: PolicyScore) -> Sequence[str]:
    """Return a policy's figures in words, in the order of every table; what was not recorded is `–`."""
    memory = score.memory
    return (
        percent_text(score.cpu.relative_slack),
        percent_text(memory.relative_slack) if memory is not None else _UNKNOWN,
        percent_text(score.cpu.starved_share),
        percent_text(score.cpu.short_share),
        percent_text(memory.short_share) if memory is not None else _UNKNOWN,
        rate_text(score.oom_per_1000_container_days) if memory is not None else _UNKNOWN,
        rate_text(score.resizes_per_container_day),
        percent_text(score.resize_reversal_share),
        rate_text(score.own_evictions_per_1000_pod_days),
        rate_text(score.moves_per_1000_pod_days),
        rate_text(score.nodes_mean),
        f"{score.nodes_peak:,}",
        rate_text(score.nodes_mean_by_requests) if score.nodes_mean_by_requests is not None else _UNKNOWN,
    )


def _money(score: PolicyScore, result: BacktestResult) -> str:
    cost = cost_a_month(score, result)
    return money_text(cost) if cost is not None else _UNKNOWN


def _costs(result: BacktestResult) -> Text | None:
    """Say in a line what a table of few columns has no room for."""
    known = [(name, score) for name, score in result.policies.items() if score.cost is not None]
    if not known:
        return None
    return Text(f"Cost a month: {', '.join(f'{name} {_money(score, result)}' for name, score in known)}.")


def _notes(report: BacktestReport, dominated: bool) -> Iterator[Text]:
    yield Text(f"\nReplayed with {terms_line(report.terms)}.", style="dim")
    if dominated:
        yield Text(f"{DOMINATED} dominated: {dominated_note()}.", style="dim")
    bounds = sorted({name for result in report.results for name in result.policies if name in NEVER_RIVALS})
    if bounds:
        yield Text(
            f"With knowledge of the future, so a bound and nothing to choose: {names_text(bounds)}.", style="dim"
        )
    yield Text(DEFINITIONS, style="dim")
    yield Text(f"{cost_note(report.terms.objective_prices)}.", style="dim")
    if any(bound_progress(result.policies) for result in report.results):
        yield Text(f"{PROGRESS_NOTE}.", style="dim")
    if report.have_cost:
        yield Text(f"Cost a month is {COST_NOTE}.", style="dim")
