"""Two configurations over one recording, figure by figure, with intervals and how such intervals did before."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType

import numpy as np

from cruise.domain.backtest import (
    BacktestResult,
    BoundCheck,
    BoundResult,
    ComparedMetric,
    ConfigurationComparison,
    HourlyCounts,
    MetricComparison,
    PolicyScore,
    ReplayCount,
)
from cruise.domain.resources import Float64Array

# How often each hour counts in hours drawn anew: in blocks, since neighbouring hours are alike.

# A block of a third leaves three of them, fewer than which say nothing of how they vary.
_FEWEST_BLOCKS = 3


def bootstrap_hours(rng: np.random.Generator, hours: int, drawn: int, block: int, draws: int) -> Float64Array:
    """Return a matrix (draws, hours): how often each was drawn, `drawn` in all, in blocks that go on at the start."""
    starts = rng.integers(0, hours, (draws, -(-drawn // block)))
    places = ((starts[:, :, None] + np.arange(block)) % hours).reshape(draws, -1)[:, :drawn]
    cells = places + hours * np.arange(draws)[:, None]
    return np.bincount(cells.ravel(), minlength=draws * hours).reshape(draws, hours).astype(np.float64)


def compute_small_sample_factor(blocks: float, confidence: float) -> float:
    """Return how much wider an interval is to be, since few blocks vary less than what they were drawn from.

    It is Student's t over the normal quantile, for one degree of freedom fewer than there are blocks, at least 2.
    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z, freedom = NormalDist().inv_cdf((1 + confidence) / 2), max(blocks - 1, 2.0)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return 1 + sum(term / freedom ** (at + 1) for at, term in enumerate(terms)) / z


def compute_block_length(series: Float64Array) -> int:
    """Return how many hours a block should have, from how long the series remembers.

    Source: Politis and White, "Automatic block-length selection for the dependent bootstrap", 2004, with the correction
    of Patton, Politis and White, 2009: circular blocks, a flat-top window as long as the autocorrelation is
    significant.
    """
    count = len(series)
    longest = max(1, count // _FEWEST_BLOCKS)
    centred = series - series.mean()
    # What is left of a constant series is rounding.
    if count < 2 * _FEWEST_BLOCKS or float(np.abs(centred).max()) <= 1e-12 * max(1.0, float(np.abs(series).max())):
        return longest if count < 2 * _FEWEST_BLOCKS else 1
    quiet = max(5, int(np.ceil(np.sqrt(np.log10(count)))))
    lags = min(int(np.ceil(np.sqrt(count))) + quiet, count - 1)
    covariance = np.array([centred[: count - lag] @ centred[lag:] for lag in range(lags + 1)]) / count
    window = min(2 * max(_memory(covariance / covariance[0], count, quiet), 1), lags)
    at = np.arange(-window, window + 1)
    taper = np.clip(2 * (1 - np.abs(at) / window), 0, 1)
    weighted = taper * covariance[np.abs(at)]
    spectrum = float(weighted.sum())
    if spectrum <= 0:
        return 1
    slope = float((np.abs(at) * weighted).sum())
    best = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * count ** (1 / 3)
    return int(np.clip(round(best), 1, longest))


def _memory(correlation: Float64Array, count: int, quiet: int) -> int:
    """Return the last lag before `quiet` insignificant ones, else the last significant one."""
    significant = np.abs(correlation[1:]) >= 2 * np.sqrt(np.log10(count) / count)
    for lag in range(len(significant) - quiet + 1):
        if not significant[lag : lag + quiet].any():
            return lag
    return int(np.flatnonzero(significant).max(initial=-1)) + 1


# Each figure as a ratio of sums over hours and groups of workloads, so that it can be had of any part of them.

_DAY_MINUTES = 1440.0


@dataclass(frozen=True, slots=True)
class MetricRatio:
    """Σ above / Σ below: a row an hour, summed over groups of workloads; 0 of nothing."""

    numerator: Float64Array
    denominator: Float64Array

    def select_hours(self, first: int, end: int) -> float:
        """Return the figure of some hours."""
        return float(self.weight(np.ones((1, end - first)), first, end)[0])

    def weight(self, weights: Float64Array, first: int, end: int) -> Float64Array:
        """Return the figure of each row of weights, which say how often each of some hours counts."""
        above, below = weights @ self.numerator[first:end], weights @ self.denominator[first:end]
        found: Float64Array = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
        return found


def build_ratios(cells: HourlyCounts) -> Mapping[ComparedMetric, MetricRatio]:
    """Return the figures that were recorded, as ratios."""
    counts = {count: matrix.sum(axis=1) for count, matrix in cells.counts.items()}
    return {figure: make(counts) for figure, (needs, make) in _RATIOS.items() if needs in counts}


_Counts = Mapping[ReplayCount, Float64Array]


def _a_day(above: Float64Array, counts: _Counts) -> MetricRatio:
    return MetricRatio(above * _DAY_MINUTES, counts[ReplayCount.CONTAINER_MINUTES])


_RATIOS: Mapping[ComparedMetric, tuple[ReplayCount, Callable[[_Counts], MetricRatio]]] = MappingProxyType(
    {
        ComparedMetric.CPU_SLACK: (
            ReplayCount.CPU_REQUESTED,
            lambda counts: MetricRatio(
                counts[ReplayCount.CPU_REQUESTED] - counts[ReplayCount.CPU_USED], counts[ReplayCount.CPU_REQUESTED]
            ),
        ),
        ComparedMetric.MEMORY_SLACK: (
            ReplayCount.MEMORY_REQUESTED,
            lambda counts: MetricRatio(
                counts[ReplayCount.MEMORY_REQUESTED] - counts[ReplayCount.MEMORY_USED],
                counts[ReplayCount.MEMORY_REQUESTED],
            ),
        ),
        ComparedMetric.CPU_STARVED: (
            ReplayCount.CPU_STARVED,
            lambda counts: MetricRatio(counts[ReplayCount.CPU_STARVED], counts[ReplayCount.CPU_SAMPLES]),
        ),
        ComparedMetric.OOM_KILLS: (
            ReplayCount.OOM_KILLS,
            lambda counts: _a_day(1000 * counts[ReplayCount.OOM_KILLS], counts),
        ),
        ComparedMetric.RESIZES: (ReplayCount.RESIZES, lambda counts: _a_day(counts[ReplayCount.RESIZES], counts)),
        ComparedMetric.OWN_EVICTIONS: (
            ReplayCount.EVICTIONS,
            lambda counts: _a_day(
                1000 * (counts[ReplayCount.EVICTIONS] - counts[ReplayCount.CONSOLIDATION_MOVES]), counts
            ),
        ),
        ComparedMetric.NODES: (
            ReplayCount.NODE_MINUTES,
            lambda counts: MetricRatio(counts[ReplayCount.NODE_MINUTES], counts[ReplayCount.MINUTES]),
        ),
    }
)

CONFIDENCE = 0.95
_DRAWS = 1000
_DAY_HOURS = 24
# A controller that runs has had its first day; a shorter recording has nothing else to tell of.
_FIRST_DAY_COUNTS_BELOW = 4 * _DAY_HOURS
_CUTS = (0.3, 0.4, 0.5, 0.6, 0.7)
_FEWEST_HOURS = 6


def compare_configurations(
    result: BacktestResult, here: str, against: str, bounds: Mapping[ComparedMetric, float], seed: int
) -> ConfigurationComparison:
    """Compare two rows of a result that have cells: `here` less `against`.

    An interval is where the difference of as much time again is expected with 95 %: two samples of the hours are drawn
    in blocks, one in place of what was seen, one of what comes, both with the same hours for both configurations. Where
    such intervals from parts of the hours were too narrow for what came next, it is wider by as much.
    """
    ratios, others = (_ratios(result.policies[name]) for name in (here, against))
    hours = len(next(iter(ratios.values())).denominator)
    first = _DAY_HOURS if hours >= _FIRST_DAY_COUNTS_BELOW else 0
    figures, blocks = {}, {}
    for figure, ratio in ratios.items():
        pair = _ComparedValues(ratio, others[figure], seed)
        blocks[figure] = pair.block(first, hours)
        figures[figure] = pair.compare(first, hours)
    return ConfigurationComparison(
        result=result,
        metrics=figures,
        block_hours=blocks,
        skipped_hours=first,
        bounds={figure: BoundCheck(bound, _verdict(figures.get(figure), bound)) for figure, bound in bounds.items()},
    )


def _ratios(score: PolicyScore) -> Mapping[ComparedMetric, MetricRatio]:
    if score.hourly_counts is None:
        raise ValueError(f"{score.policy} was replayed without cells")
    return build_ratios(score.hourly_counts)


def _verdict(found: MetricComparison | None, bound: float) -> BoundResult:
    if found is None:
        return BoundResult.NOT_RECORDED
    if found.delta > bound:
        return BoundResult.EXCEEDED
    return BoundResult.INCONCLUSIVE if found.high > bound else BoundResult.WITHIN_BOUND


class _ComparedValues:
    """One figure under both configurations."""

    def __init__(self, here: MetricRatio, against: MetricRatio, seed: int) -> None:
        self._here = here
        self._against = against
        self._seed = seed
        self._hourly = _hourly(here) - _hourly(against)

    def compare(self, first: int, end: int) -> MetricComparison:
        """Compare some hours."""
        low, high = self._interval(first, end, end - first)
        forecasts, held = self._walk_forward(first, end)
        return MetricComparison(
            current=self._here.select_hours(first, end),
            reference=self._against.select_hours(first, end),
            delta=self._delta(first, end),
            low=low,
            high=high,
            forecasts=forecasts,
            confirmed_forecasts=held,
        )

    def block(self, first: int, end: int) -> int:
        """Return how many hours a block has."""
        return compute_block_length(self._hourly[first:end])

    def _delta(self, first: int, end: int) -> float:
        return self._here.select_hours(first, end) - self._against.select_hours(first, end)

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
            self._drawn(bootstrap_hours(rng, end - first, drawn, block, _DRAWS), first, end)
            for drawn in (end - first, ahead)
        )
        low, high = np.quantile(coming - seen, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
        wider = compute_small_sample_factor((end - first) / block, CONFIDENCE)
        return delta + wider * float(low), delta + wider * float(high)

    def _drawn(self, weights: Float64Array, first: int, end: int) -> Float64Array:
        found: Float64Array = self._here.weight(weights, first, end) - self._against.weight(weights, first, end)
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


def _hourly(ratio: MetricRatio) -> Float64Array:
    return np.divide(
        ratio.numerator, ratio.denominator, out=np.zeros_like(ratio.numerator), where=ratio.denominator > 0
    )


def _within(low: float, value: float, high: float) -> bool:
    slack = 1e-9 * max(abs(low), abs(value), abs(high))
    return low - slack <= value <= high + slack
