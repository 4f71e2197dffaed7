"""Compares two configurations on one recording, metric by metric, with confidence intervals tested on its past."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType

import numpy as np

from cruise.domain.arrays import Float64Array
from cruise.domain.backtest import (
    BacktestResult,
    BoundCheck,
    BoundResult,
    ComparedMetric,
    ConfigurationComparison,
    HourlyCounts,
    MetricComparison,
    PolicyScore,
    ReplayQuantity,
)

# Fewer blocks do not show how they vary.
_MIN_BLOCKS = 3
_DAY_MINUTES = 1440.0
CONFIDENCE = 0.95
_BOOTSTRAP_SAMPLES = 1000
_DAY_HOURS = 24
# Shorter recordings need their first day, which a running controller is past.
_MIN_HOURS_TO_SKIP_FIRST_DAY = 4 * _DAY_HOURS
_SPLIT_SHARES = (0.3, 0.4, 0.5, 0.6, 0.7)
_MIN_FORECAST_HOURS = 6


def bootstrap_hours(rng: np.random.Generator, hours: int, size: int, block: int, samples: int) -> Float64Array:
    """Draw samples of `size` hours in circular blocks; return a matrix (samples, hours) of how often each was drawn.

    Blocks, because neighbouring hours are alike.
    """
    starts = rng.integers(0, hours, (samples, -(-size // block)))
    drawn = ((starts[:, :, None] + np.arange(block)) % hours).reshape(samples, -1)[:, :size]
    cells = drawn + hours * np.arange(samples)[:, None]
    return np.bincount(cells.ravel(), minlength=samples * hours).reshape(samples, hours).astype(np.float64)


def compute_small_sample_factor(blocks: float, confidence: float) -> float:
    """Return the factor by which to widen an interval, because few blocks vary less than their population.

    Student's t over the normal quantile, with `blocks` - 1 degrees of freedom, at least 2. Source: Abramowitz and
    Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z, freedom = NormalDist().inv_cdf((1 + confidence) / 2), max(blocks - 1, 2.0)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return 1 + sum(term / freedom**power for power, term in enumerate(terms, start=1)) / z


def compute_block_length(series: Float64Array) -> int:
    """Return the best number of hours in a block, from the autocorrelation of the series.

    Source: Politis and White, "Automatic block-length selection for the dependent bootstrap", 2004, with the correction
    of Patton, Politis and White, 2009: circular blocks, a flat-top window as long as the autocorrelation is
    significant.
    """
    count = len(series)
    longest = max(1, count // _MIN_BLOCKS)
    centred = series - series.mean()
    # A constant series varies by rounding errors only.
    if count < 2 * _MIN_BLOCKS or float(np.abs(centred).max()) <= 1e-12 * max(1.0, float(np.abs(series).max())):
        return longest if count < 2 * _MIN_BLOCKS else 1
    insignificant = max(5, int(np.ceil(np.sqrt(np.log10(count)))))
    lags = min(int(np.ceil(np.sqrt(count))) + insignificant, count - 1)
    covariance = np.array([centred[: count - lag] @ centred[lag:] for lag in range(lags + 1)]) / count
    window = min(2 * max(_find_last_lag(covariance / covariance[0], count, insignificant), 1), lags)
    lag = np.arange(-window, window + 1)
    taper = np.clip(2 * (1 - np.abs(lag) / window), 0, 1)
    weighted = taper * covariance[np.abs(lag)]
    spectrum = float(weighted.sum())
    if spectrum <= 0:
        return 1
    slope = float((np.abs(lag) * weighted).sum())
    best = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * count ** (1 / 3)
    return int(np.clip(round(best), 1, longest))


def _find_last_lag(correlation: Float64Array, count: int, insignificant: int) -> int:
    """Return the last lag before so many insignificant ones, else the last significant one."""
    significant = np.abs(correlation[1:]) >= 2 * np.sqrt(np.log10(count) / count)
    for lag in range(len(significant) - insignificant + 1):
        if not significant[lag : lag + insignificant].any():
            return lag
    return int(np.flatnonzero(significant).max(initial=-1)) + 1


@dataclass(frozen=True, slots=True)
class HourlyMetric:
    """A metric as Σ numerator / Σ denominator, with one row per hour; 0 if the denominator is 0.

    As sums, so that the metric of any part of the hours can be computed.
    """

    numerator: Float64Array
    denominator: Float64Array

    def select_hours(self, first: int, end: int) -> float:
        """Return the metric of some hours."""
        return float(self.compute_weighted(np.ones((1, end - first)), first, end)[0])

    def compute_weighted(self, weights: Float64Array, first: int, end: int) -> Float64Array:
        """Return the metric for each row of a matrix of the hours' weights."""
        numerator, denominator = weights @ self.numerator[first:end], weights @ self.denominator[first:end]
        return _divide(numerator, denominator)


def _divide(numerator: Float64Array, denominator: Float64Array) -> Float64Array:
    ratio: Float64Array = np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
    return ratio


def build_hourly_metrics(hourly_counts: HourlyCounts) -> Mapping[ComparedMetric, HourlyMetric]:
    """Return the recorded metrics."""
    counts = {count: matrix.sum(axis=1) for count, matrix in hourly_counts.items()}
    return {metric: build(counts) for metric, (required, build) in _METRICS.items() if required in counts}


def _build_daily_metric(numerator: Float64Array, counts: HourlyCounts) -> HourlyMetric:
    return HourlyMetric(numerator * _DAY_MINUTES, counts[ReplayQuantity.CONTAINER_MINUTES])


_METRICS: Mapping[ComparedMetric, tuple[ReplayQuantity, Callable[[HourlyCounts], HourlyMetric]]] = MappingProxyType(
    {
        ComparedMetric.CPU_SLACK: (
            ReplayQuantity.CPU_REQUESTED,
            lambda counts: HourlyMetric(
                counts[ReplayQuantity.CPU_REQUESTED] - counts[ReplayQuantity.CPU_USED],
                counts[ReplayQuantity.CPU_REQUESTED],
            ),
        ),
        ComparedMetric.MEMORY_SLACK: (
            ReplayQuantity.MEMORY_REQUESTED,
            lambda counts: HourlyMetric(
                counts[ReplayQuantity.MEMORY_REQUESTED] - counts[ReplayQuantity.MEMORY_USED],
                counts[ReplayQuantity.MEMORY_REQUESTED],
            ),
        ),
        ComparedMetric.CPU_STARVED: (
            ReplayQuantity.CPU_STARVED,
            lambda counts: HourlyMetric(counts[ReplayQuantity.CPU_STARVED], counts[ReplayQuantity.CPU_SAMPLES]),
        ),
        ComparedMetric.OOM_KILLS: (
            ReplayQuantity.OOM_KILLS,
            lambda counts: _build_daily_metric(1000 * counts[ReplayQuantity.OOM_KILLS], counts),
        ),
        ComparedMetric.RESIZES: (
            ReplayQuantity.RESIZES,
            lambda counts: _build_daily_metric(counts[ReplayQuantity.RESIZES], counts),
        ),
        ComparedMetric.OWN_EVICTIONS: (
            ReplayQuantity.EVICTIONS,
            lambda counts: _build_daily_metric(
                1000 * (counts[ReplayQuantity.EVICTIONS] - counts[ReplayQuantity.CONSOLIDATION_MOVES]), counts
            ),
        ),
        ComparedMetric.NODES: (
            ReplayQuantity.NODE_MINUTES,
            lambda counts: HourlyMetric(counts[ReplayQuantity.NODE_MINUTES], counts[ReplayQuantity.MINUTES]),
        ),
    }
)


def compare_configurations(
    result: BacktestResult, current: str, reference: str, bounds: Mapping[ComparedMetric, float], seed: int
) -> ConfigurationComparison:
    """Compare two rows of a result with hourly counts: current - reference.

    A 95 % interval predicts the difference over as much time again. It is the bootstrap of the difference between two
    samples of the hours, which stand for the past and the future; both configurations have the same hours. It is
    widened if intervals from the start of the recording missed what followed.
    """
    current_metrics, reference_metrics = (_build_score_metrics(result.policies[name]) for name in (current, reference))
    hours = len(next(iter(current_metrics.values())).denominator)
    first = _DAY_HOURS if hours >= _MIN_HOURS_TO_SKIP_FIRST_DAY else 0
    metrics, blocks = {}, {}
    for metric, values_by_hour in current_metrics.items():
        values = _ComparedValues(values_by_hour, reference_metrics[metric], seed)
        blocks[metric] = values.get_block_length(first, hours)
        metrics[metric] = values.compare(first, hours)
    return ConfigurationComparison(
        result=result,
        metrics=metrics,
        block_hours=blocks,
        skipped_hours=first,
        bounds={
            metric: BoundCheck(bound, _check_bound(metrics.get(metric), bound)) for metric, bound in bounds.items()
        },
    )


def _build_score_metrics(score: PolicyScore) -> Mapping[ComparedMetric, HourlyMetric]:
    if score.hourly_counts is None:
        raise ValueError(f"{score.policy} was replayed without hourly counts")
    return build_hourly_metrics(score.hourly_counts)


def _check_bound(comparison: MetricComparison | None, bound: float) -> BoundResult:
    if comparison is None:
        return BoundResult.NOT_RECORDED
    if comparison.delta > bound:
        return BoundResult.EXCEEDED
    return BoundResult.INCONCLUSIVE if comparison.high > bound else BoundResult.WITHIN_BOUND


class _ComparedValues:
    """One metric under both configurations."""

    def __init__(self, current: HourlyMetric, reference: HourlyMetric, seed: int) -> None:
        self._current = current
        self._reference = reference
        self._seed = seed
        current_hours, reference_hours = (_divide(one.numerator, one.denominator) for one in (current, reference))
        self._hourly_deltas: Float64Array = current_hours - reference_hours

    def compare(self, first: int, end: int) -> MetricComparison:
        """Compare the metric over some hours."""
        low, high = self._compute_interval(first, end, end - first)
        forecasts, confirmed = self._walk_forward(first, end)
        return MetricComparison(
            current=self._current.select_hours(first, end),
            reference=self._reference.select_hours(first, end),
            delta=self._compute_delta(first, end),
            low=low,
            high=high,
            forecasts=forecasts,
            confirmed_forecasts=confirmed,
        )

    def get_block_length(self, first: int, end: int) -> int:
        """Return the number of hours in a block."""
        return compute_block_length(self._hourly_deltas[first:end])

    def _compute_delta(self, first: int, end: int) -> float:
        return self._current.select_hours(first, end) - self._reference.select_hours(first, end)

    def _compute_interval(self, first: int, end: int, ahead: int) -> tuple[float, float]:
        """Return the interval of the difference over the next `ahead` hours, given some hours.

        A bootstrap does not see trends; the errors of earlier intervals do, and widen it.
        """
        delta, (low, high) = self._compute_delta(first, end), self._bootstrap_interval(first, end, ahead)
        errors = (self._compute_error(first, split, later) for split, later in _split_hours(first, end))
        factor = max(max(errors, default=1.0), 1.0)
        return delta + factor * (low - delta), delta + factor * (high - delta)

    def _compute_error(self, first: int, split: int, ahead: int) -> float:
        """Return the error of the forecast at a split, in half widths of its interval."""
        low, high = self._bootstrap_interval(first, split, ahead)
        error = abs(self._compute_delta(split, split + ahead) - self._compute_delta(first, split))
        return 2 * error / (high - low) if high > low else 0.0

    def _bootstrap_interval(self, first: int, end: int, ahead: int) -> tuple[float, float]:
        delta = self._compute_delta(first, end)
        if not self._hourly_deltas[first:end].any():
            return delta, delta
        rng, block = np.random.default_rng(self._seed), self.get_block_length(first, end)
        past, future = (
            self._weight_deltas(bootstrap_hours(rng, end - first, size, block, _BOOTSTRAP_SAMPLES), first, end)
            for size in (end - first, ahead)
        )
        low, high = np.quantile(future - past, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
        factor = compute_small_sample_factor((end - first) / block, CONFIDENCE)
        return delta + factor * float(low), delta + factor * float(high)

    def _weight_deltas(self, weights: Float64Array, first: int, end: int) -> Float64Array:
        deltas: Float64Array = self._current.compute_weighted(weights, first, end) - self._reference.compute_weighted(
            weights, first, end
        )
        return deltas

    def _walk_forward(self, first: int, end: int) -> tuple[int, int]:
        """Return the number of forecasts within the hours, and of those that were confirmed."""
        forecasts = confirmed = 0
        for split, ahead in _split_hours(first, end):
            low, high = self._compute_interval(first, split, ahead)
            forecasts += 1
            confirmed += _is_within(low, self._compute_delta(split, split + ahead), high)
        return forecasts, confirmed


def _split_hours(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the hours at which to split past and future, and the number of hours to forecast from there."""
    for split in (first + round((end - first) * share) for share in _SPLIT_SHARES):
        ahead = min(split - first, end - split)
        if ahead >= _MIN_FORECAST_HOURS:
            yield split, ahead


def _is_within(low: float, value: float, high: float) -> bool:
    tolerance = 1e-9 * max(abs(low), abs(value), abs(high))
    return low - tolerance <= value <= high + tolerance
