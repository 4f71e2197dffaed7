"""Two configurations over one recording, figure by figure, with intervals and how such intervals did before."""

from collections.abc import Iterator, Mapping

import numpy as np

from cruise.backtest.difference.blocks import block_length, draw_hours, few_blocks_factor
from cruise.backtest.difference.ratios import Ratio, ratios_of
from cruise.domain.arrays import Float64Array
from cruise.domain.backtest import BacktestResult, PolicyScore
from cruise.domain.backtest_difference import Difference, Figure, FigureDifference, Judged, Verdict

CONFIDENCE = 0.95
_DRAWS = 1000
_DAY_HOURS = 24
# A controller that runs has had its first day; a shorter recording has nothing else to tell of.
_FIRST_DAY_COUNTS_BELOW = 4 * _DAY_HOURS
_CUTS = (0.3, 0.4, 0.5, 0.6, 0.7)
_FEWEST_HOURS = 6


def difference_of(
    result: BacktestResult, here: str, against: str, bounds: Mapping[Figure, float], seed: int
) -> Difference:
    """Compare two rows of a result that have cells: `here` less `against`.

    An interval is where the difference of as much time again is expected with 95 %: two samples of the hours are drawn
    in blocks, one in place of what was seen, one of what comes, both with the same hours for both configurations. Where
    such intervals from parts of the hours were too narrow for what came next, it is wider by as much.
    """
    ratios, others = (_ratios(result.policies[name]) for name in (here, against))
    hours = len(next(iter(ratios.values())).below)
    first = _DAY_HOURS if hours >= _FIRST_DAY_COUNTS_BELOW else 0
    figures, blocks = {}, {}
    for figure, ratio in ratios.items():
        pair = _Pair(ratio, others[figure], seed)
        blocks[figure] = pair.block(first, hours)
        figures[figure] = pair.difference(first, hours)
    return Difference(
        result=result,
        figures=figures,
        block_hours=blocks,
        skipped_hours=first,
        bounds={figure: Judged(bound, _verdict(figures.get(figure), bound)) for figure, bound in bounds.items()},
    )


def _ratios(score: PolicyScore) -> Mapping[Figure, Ratio]:
    if score.cells is None:
        raise ValueError(f"{score.policy} was replayed without cells")
    return ratios_of(score.cells)


def _verdict(found: FigureDifference | None, bound: float) -> Verdict:
    if found is None:
        return Verdict.NOT_RECORDED
    if found.delta > bound:
        return Verdict.BROKEN
    return Verdict.OPEN if found.high > bound else Verdict.HOLDS


class _Pair:
    """One figure under both configurations."""

    def __init__(self, here: Ratio, against: Ratio, seed: int) -> None:
        self._here = here
        self._against = against
        self._seed = seed
        self._hourly = _hourly(here) - _hourly(against)

    def difference(self, first: int, end: int) -> FigureDifference:
        """Compare some hours."""
        low, high = self._interval(first, end, end - first)
        forecasts, held = self._walk_forward(first, end)
        return FigureDifference(
            here=self._here.between(first, end),
            against=self._against.between(first, end),
            delta=self._delta(first, end),
            low=low,
            high=high,
            forecasts=forecasts,
            held=held,
        )

    def block(self, first: int, end: int) -> int:
        """Return how many hours a block has."""
        return block_length(self._hourly[first:end])

    def _delta(self, first: int, end: int) -> float:
        return self._here.between(first, end) - self._against.between(first, end)

    def _interval(self, first: int, end: int, ahead: int) -> tuple[float, float]:
        """Return where the difference of so many hours ahead is expected, from what some hours showed.

        Hours drawn anew know no drift: what use does more of from week to week shows in how far off intervals were.
        """
        delta, (low, high) = self._delta(first, end), self._bootstrapped(first, end, ahead)
        wider = max((self._off(first, cut, later) for cut, later in _cuts(first, end)), default=1.0)
        return delta + max(wider, 1.0) * (low - delta), delta + max(wider, 1.0) * (high - delta)

    def _off(self, first: int, cut: int, ahead: int) -> float:
        """Return how far what came after some hours was from what they showed, in halves of their interval."""
        low, high = self._bootstrapped(first, cut, ahead)
        missed = abs(self._delta(cut, cut + ahead) - self._delta(first, cut))
        return 2 * missed / (high - low) if high > low else 0.0

    def _bootstrapped(self, first: int, end: int, ahead: int) -> tuple[float, float]:
        delta = self._delta(first, end)
        if not self._hourly[first:end].any():
            return delta, delta
        rng, block = np.random.default_rng(self._seed), self.block(first, end)
        seen, coming = (
            self._drawn(draw_hours(rng, end - first, drawn, block, _DRAWS), first, end)
            for drawn in (end - first, ahead)
        )
        low, high = np.quantile(coming - seen, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
        wider = few_blocks_factor((end - first) / block, CONFIDENCE)
        return delta + wider * float(low), delta + wider * float(high)

    def _drawn(self, weights: Float64Array, first: int, end: int) -> Float64Array:
        found: Float64Array = self._here.weighted(weights, first, end) - self._against.weighted(weights, first, end)
        return found

    def _walk_forward(self, first: int, end: int) -> tuple[int, int]:
        """Return how many forecasts could be made within the hours, and how many held."""
        made = held = 0
        for cut, ahead in _cuts(first, end):
            low, high = self._interval(first, cut, ahead)
            made += 1
            held += _within(low, self._delta(cut, cut + ahead), high)
        return made, held


def _cuts(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where hours are cut into what was known and what came next, and how many of the latter are looked at."""
    for cut in (first + round((end - first) * share) for share in _CUTS):
        ahead = min(cut - first, end - cut)
        if ahead >= _FEWEST_HOURS:
            yield cut, ahead


def _hourly(ratio: Ratio) -> Float64Array:
    return np.divide(ratio.above, ratio.below, out=np.zeros_like(ratio.above), where=ratio.below > 0)


def _within(low: float, value: float, high: float) -> bool:
    slack = 1e-9 * max(abs(low), abs(value), abs(high))
    return low - slack <= value <= high + slack
