"""A backtest as one self-contained page: no script, style or picture comes from elsewhere, and it has no script."""

from collections.abc import Sequence
from dataclasses import dataclass

from cruise import __version__
from cruise.decisions.bound_progress import bound_progress
from cruise.decisions.pareto import find_dominated
from cruise.decisions.policy_costs import cost_of
from cruise.domain.backtest import BacktestResult, ContainerScore, PolicyScore
from cruise.domain.prices import BacktestPrices
from cruise.interfaces.amounts import cores_text, gibibytes_text, money_text
from cruise.interfaces.backtest.costs import cost_figures, cost_note, order_lines, progress_figures
from cruise.interfaces.backtest.pareto import KILLS, STARVATION, ParetoPicture, pareto_picture, radius_of
from cruise.interfaces.backtest.report import COST_NOTE, BacktestReport, cost_a_month
from cruise.interfaces.backtest.table import figures
from cruise.interfaces.backtest.time_lines import COLUMNS, HEIGHT, NodePicture, node_pictures, start_text
from cruise.interfaces.backtest.words import (
    DEFINITIONS,
    PROGRESS_NOTE,
    dominated_note,
    recording_line,
    terms_line,
    verdict,
    warnings,
)
from cruise.interfaces.page_template import page_template

_DEFAULT = "cruise"
# Letters keep their size on every screen, so a picture is laid out for each of two widths, and the page shows one.
_SIZES = (("wide", 580.0, 380.0), ("narrow", 350.0, 340.0))


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    figures: Sequence[str]
    progress: Sequence[str]
    objective: Sequence[str]
    cost: str | None
    dominated_by: str | None


@dataclass(frozen=True, slots=True)
class _Policy:
    """What is shown of one policy alone; `since` is None without a time line."""

    name: str
    open: bool
    node: str | None
    since: str | None
    pictures: Sequence[NodePicture]
    worst: Sequence[ContainerScore]


@dataclass(frozen=True, slots=True)
class _Section:
    """One recording."""

    trace: str
    about: str
    verdict: str | None
    warnings: Sequence[str]
    rows: Sequence[_Row]
    order: Sequence[str]
    paretos: Sequence[tuple[str, ParetoPicture]]
    policies: Sequence[_Policy]
    memory: bool


def backtest_html(report: BacktestReport, watched: str | None = None) -> bytes:
    """Return the page; `watched` is the node whose time line is wanted."""
    page = page_template("backtest.html.j2").render(
        sections=[_section(result, report.terms.objective_prices, watched) for result in report.results],
        terms=terms_line(report.terms),
        have_cost=report.have_cost,
        cost_note=COST_NOTE,
        definitions=DEFINITIONS,
        progress_note=PROGRESS_NOTE,
        objective_note=cost_note(report.terms.objective_prices),
        dominated_note=dominated_note(),
        columns=COLUMNS,
        height=HEIGHT,
        sizes=[(resizes, radius_of(resizes)) for resizes in (1, 10, 100)],
        version=__version__,
        cores=lambda amount: cores_text(round(amount)),
        gib=lambda amount: gibibytes_text(round(amount)),
    )
    return page.encode()


def _section(result: BacktestResult, prices: BacktestPrices, watched: str | None) -> _Section:
    dominated, progress = find_dominated(result.policies), bound_progress(result.policies)
    memory = any(score.memory is not None for score in result.policies.values())
    pairs = (STARVATION, KILLS) if memory else (STARVATION,)
    drawn = [
        (size, pareto_picture(result.policies, dominated, pair, width, height))
        for pair in pairs
        for size, width, height in _SIZES
    ]
    first = _DEFAULT if _DEFAULT in result.policies else next(iter(result.policies), None)
    return _Section(
        trace=result.trace,
        about=recording_line(result),
        verdict=verdict(result),
        warnings=list(warnings(result, watched)),
        rows=[
            _Row(
                name,
                figures(score),
                progress_figures(progress.get(name)),
                cost_figures(cost_of(score, prices)),
                _cost(score, result),
                dominated.get(name),
            )
            for name, score in result.policies.items()
        ],
        order=list(order_lines(result, prices)),
        paretos=[(size, picture) for size, picture in drawn if picture is not None],
        policies=[_policy(name, score, name == first) for name, score in result.policies.items()],
        memory=memory,
    )


def _cost(score: PolicyScore, result: BacktestResult) -> str | None:
    cost = cost_a_month(score, result)
    return money_text(cost) if cost is not None else None


def _policy(name: str, score: PolicyScore, is_open: bool) -> _Policy:
    line = score.time_line if score.time_line is not None and len(score.time_line.times) else None
    return _Policy(
        name=name,
        open=is_open,
        node=line.node if line is not None else None,
        since=start_text(line) if line is not None else None,
        pictures=node_pictures(line, score.memory is not None) if line is not None else (),
        worst=score.worst,
    )
