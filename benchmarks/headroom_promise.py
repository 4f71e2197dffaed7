"""Whether a stated risk is kept from the first hour on, where the prior has never seen the place.

    python -m benchmarks.headroom_promise TRACE…

Each trace in turn is a cluster that is new: its nodes are judged with what cruise ships of the traces of other sources,
and without a prior. Asked against observed share of short intervals for hours 1 to 168, and after a week; what is
passed most often, for what was asked, comes first. Traces of one source begin with the same word.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.headroom_outcomes import DAY_SECONDS, PASS_SECONDS, Outcomes, Tally, outcomes_of
from benchmarks.headroom_prior import DAYS, NODES
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.prior import Prior, prior_of
from cruise.decisions.sizing.headroom.risk import Risk
from cruise.domain.headroom import PlaceScores
from cruise.domain.policy import HeadroomStart
from cruise.domain.resources import ResourceName
from cruise.runtime.sizing.score_history import ScoreHistory
from cruise.runtime.sizing.shipped_scores import shipped_scores

WEEK_SECONDS = 7 * DAY_SECONDS
EARLY, LATE = "hours 1-168", "after a week"
# What is asked in the first week, and after it.
ASKED: Mapping[str, tuple[float, ...]] = {EARLY: (7e-2, 1e-2, 1e-3), LATE: (1e-2, 1e-3, 1e-4)}
OF_A_CLUSTER = 20


Key = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One trace that was left out, one resource, one span of time and one risk: with the prior, without, and before."""

    trace: str
    resource: ResourceName
    span: str
    asked: float
    prior: Tally
    own: Tally
    largest: Tally

    @property
    def times_asked(self) -> float:
        """How many times of what was asked was observed with the prior."""
        return self.prior.share / self.asked


def rows_of(everything: Sequence[Outcomes], places: Sequence[PlaceScores], size: int = OF_A_CLUSTER) -> list[Row]:
    """Judge each trace with a prior made of other places, and without one: the worst first."""
    rows = [row for outcomes in everything for row in _of_place(outcomes, places, size)]
    return sorted(rows, key=lambda row: (-row.times_asked, row.trace, row.resource.value, row.asked))


def _of_place(outcomes: Outcomes, places: Sequence[PlaceScores], size: int) -> Iterator[Row]:
    others = [one for one in places if _source(one.place) != _source(outcomes.trace)]
    prior = prior_of(others, outcomes.resource)
    with_prior: dict[Key, Tally] = {}
    without: dict[Key, Tally] = {}
    largest: dict[Key, Tally] = {}
    for first in range(0, outcomes.base.shape[1], size):
        cluster = outcomes.of_nodes(slice(first, first + size))
        _judge(cluster, prior, HeadroomStart.PRIOR, with_prior)
        _judge(cluster, None, HeadroomStart.SUM_OF_PEAKS, without)
        for number, at in enumerate(cluster.at.tolist()):
            for asked in ASKED[_span(cluster, at)]:
                tally = largest.setdefault((_span(cluster, at), asked), Tally())
                tally.add(cluster.single[number], cluster, number)
    for (span, asked), tally in with_prior.items():
        key = (span, asked)
        yield Row(outcomes.trace, outcomes.resource, span, asked, tally, without[key], largest[key])


def _judge(cluster: Outcomes, prior: Prior | None, start: HeadroomStart, tallies: dict[Key, Tally]) -> None:
    resource = cluster.resource
    scores = ScoreHistory(priors={resource: prior})
    for number, at in enumerate(cluster.at.tolist()):
        span = _span(cluster, at)
        for asked in ASKED[span]:
            margins = scores.margins(at, partial(_as_asked, asked))
            model = Risk(PastDemand.empty(0), margins, start)
            base, extras = cluster.base[number], cluster.extras[number]
            headroom = model.of_nodes(resource, base, cluster.single[number], extras)
            tallies.setdefault((span, asked), Tally()).add(headroom, cluster, number)
        scores.add(resource, at + PASS_SECONDS, cluster.scores(number))


def _span(cluster: Outcomes, at: int) -> str:
    return EARLY if at - cluster.start < WEEK_SECONDS else LATE


def _source(trace: str) -> str:
    return trace.partition("-")[0]


def _as_asked(risk: float, _: ResourceName) -> float:
    return risk


def table_of(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a Markdown table: observed share, and slack."""
    yield "| left out | span | asked | intervals | with the prior | times asked | without | largest single headroom |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        cells = [f"{one.share:.5f} / {one.slack:.3f}" for one in (row.prior, row.own, row.largest)]
        yield (
            f"| {row.trace} {row.resource.value} | {row.span} | {row.asked:g} | {row.prior.intervals:,} | {cells[0]} "
            f"| {row.times_asked:.2f} | {cells[1]} | {cells[2]} |"
        )


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description="Judge the promise of the first week, leaving one trace out.")
    arguments.add_argument("traces", type=Path, nargs="+")
    arguments.add_argument("--days", type=int, default=2 * DAYS, help="how much of a trace is judged")
    arguments.add_argument("--size", type=int, default=OF_A_CLUSTER, help="nodes of a cluster")
    arguments.add_argument("--half", type=int, choices=(0, 1), help="every other series; 1: not tuned on")
    asked = arguments.parse_args()
    found = [one for trace in asked.traces for one in outcomes_of(trace, NODES, asked.days, asked.half)]
    print("\n".join(table_of(rows_of(found, shipped_scores(), asked.size))))


if __name__ == "__main__":
    main()
