"""The Vertical Pod Autoscaler's recommender: computes recommendations from samples and kills.

Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, pkg/recommender/model: aggregate_container_state.go,
aggregations_config.go, cluster.go, container.go, types.go, pkg/recommender/logic: estimator.go, recommender.go, and
pkg/recommender/input. The pods of a workload share the state of a container's name; a state whose last sample is eight
days old is removed. Amounts are whole millicores or bytes, truncated after every step as upstream.

Its decaying histograms (pkg/recommender/util: histogram.go, decaying_histogram.go, histogram_options.go) are rows of a
matrix of weights. A sample's weight is multiplied by 2^((time - reference) / half-life), so that older samples count
less without an update; if that exponent exceeds 100, the row's reference moves forward and its weights are scaled down.
A bucket that weighs less than epsilon is empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.resources import Resources

_LARGEST_EXPONENT = 100
_BEFORE_ANY_SAMPLE = -62_135_596_800  # the zero of upstream's clock, January of the year 1


class HistogramBuckets(Protocol):
    """The buckets of a histogram; the last one has no end."""

    @property
    def starts(self) -> Float64Array:
        """The start of each bucket."""

    def find(self, values: Float64Array) -> Int64Array:
        """Return the bucket of each value; values outside all buckets belong to the nearest."""


@dataclass(frozen=True, slots=True)
class ExponentialBuckets:
    """Exponential buckets: the first is [0, `first`), each is `ratio` times as wide as the previous one."""

    starts: Float64Array
    first: float
    ratio: float

    @staticmethod
    def create(largest: float, first: float, ratio: float) -> "ExponentialBuckets":
        """Return buckets up to one that starts at `largest` or above."""
        count = int(np.ceil(np.log(largest * (ratio - 1) / first + 1) / np.log(ratio))) + 1
        starts: Float64Array = first * (np.power(ratio, np.arange(count, dtype=np.float64)) - 1) / (ratio - 1)
        return ExponentialBuckets(starts, first, ratio)

    def find(self, values: Float64Array) -> Int64Array:
        """Return the bucket of each value, rounded as upstream rounds."""
        places = np.log(np.maximum(values, 0) * (self.ratio - 1) / self.first + 1) / np.log(self.ratio)
        places[values < self.first] = 0
        found: Int64Array = np.minimum(places, len(self.starts) - 1).astype(np.int64)
        return found


class DecayingHistograms:
    """One histogram per row, and percentiles of each, which are computed only for changed rows."""

    def __init__(
        self, rows: int, buckets: HistogramBuckets, shares: Sequence[float], half_life_seconds: int, epsilon: float
    ) -> None:
        """Start with empty histograms; `shares` are the percentiles to compute, from 0 to 1."""
        self._buckets = buckets
        self._ends = np.append(buckets.starts[1:], buckets.starts[-1])
        self._shares = shares
        self._half_life = half_life_seconds
        self._epsilon = epsilon
        count = len(buckets.starts)
        self._weights: Float64Array = np.zeros((rows, count))
        self._total: Float64Array = np.zeros(rows)
        self._lowest: Int64Array = np.full(rows, count - 1, dtype=np.int64)
        self._highest: Int64Array = np.zeros(rows, dtype=np.int64)
        self._reference: Int64Array = np.full(rows, _BEFORE_ANY_SAMPLE, dtype=np.int64)
        self._percentiles: Float64Array = np.zeros((len(shares), rows))
        self._changed: BoolArray = np.zeros(rows, dtype=np.bool_)

    @property
    def empty(self) -> BoolArray:
        """A mask of the rows without a weight above epsilon."""
        return self._weights[np.arange(len(self._total)), self._lowest] < self._epsilon

    def add(self, rows: Int64Array, values: Float64Array, weight: float, time: Int64Array) -> None:
        """Add one sample to each of the rows, which may repeat; `time` is in Unix seconds."""
        buckets, weights = self._buckets.find(values), weight * self._factors(rows, time)
        np.add.at(self._weights.ravel(), rows * self._weights.shape[1] + buckets, weights)
        np.add.at(self._total, rows, weights)
        full = self._weights[rows, buckets] >= self._epsilon
        np.minimum.at(self._lowest, rows[full], buckets[full])
        np.maximum.at(self._highest, rows[full], buckets[full])
        self._changed[rows] = True

    def subtract(self, rows: Int64Array, values: Float64Array, weight: float, time: Int64Array) -> None:
        """Remove samples that were added with the same values, weight and times."""
        if not rows.size:
            return
        buckets, weights = self._buckets.find(values), weight * self._factors(rows, time)
        np.subtract.at(self._weights.ravel(), rows * self._weights.shape[1] + buckets, weights)
        np.subtract.at(self._total, rows, weights)
        self._total[rows] = np.where(self._total[rows] < self._epsilon, 0, self._total[rows])
        left = self._weights[rows, buckets]
        self._weights[rows, buckets] = np.where(left < self._epsilon, 0, left)
        self._update_bounds(rows)

    def clear(self, rows: Int64Array) -> None:
        """Remove all samples of some rows."""
        self._weights[rows] = 0
        self._total[rows] = 0
        self._reference[rows] = _BEFORE_ANY_SAMPLE
        self._update_bounds(rows)

    def compute_percentiles(self) -> Float64Array:
        """Return a matrix (shares, rows) of the ends of the percentiles' buckets; 0 for an empty row."""
        rows = np.flatnonzero(self._changed)
        if rows.size:
            self._changed[rows] = False
            self._percentiles[:, rows] = 0
            rows = rows[self._weights[rows, self._lowest[rows]] >= self._epsilon]
        if rows.size:
            self._percentiles[:, rows] = self._compute_percentiles(rows)
        return self._percentiles

    def _compute_percentiles(self, rows: Int64Array) -> Float64Array:
        """Return the percentiles of rows that are not empty, computed on their common range of buckets."""
        lowest, highest = self._lowest[rows], self._highest[rows]
        start, stop = int(lowest.min()), int(highest.max()) + 1
        block = self._weights[:, start:stop]
        sums = np.cumsum(block if len(rows) == len(block) else block[rows], axis=1)
        before = np.where(lowest > start, sums[np.arange(len(rows)), np.maximum(lowest - start - 1, 0)], 0)
        found = np.empty((len(self._shares), len(rows)))
        for place, share in enumerate(self._shares):
            below = np.count_nonzero(sums < (share * self._total[rows] + before)[:, np.newaxis], axis=1)
            found[place] = self._ends[np.clip(start + below, lowest, highest)]
        return found

    def _factors(self, rows: Int64Array, time: Int64Array) -> Float64Array:
        """Return the weights of samples by age, after moving the reference of rows that need it."""
        late = time > self._reference[rows] + _LARGEST_EXPONENT * self._half_life
        if late.any():
            moved, first = np.unique(rows[late], return_index=True)
            reference = (time[late][first] + self._half_life // 2) // self._half_life * self._half_life
            halvings = (self._reference[moved] - reference) // self._half_life
            scale = np.ldexp(1.0, np.maximum(halvings, -2000))
            self._weights[moved] *= scale[:, np.newaxis]
            self._total[moved] *= scale
            self._reference[moved] = reference
            self._update_bounds(moved)
        return np.exp2((time - self._reference[rows]) / self._half_life)

    def _update_bounds(self, rows: Int64Array) -> None:
        """Update the lowest and highest bucket that is not empty, after weights decreased."""
        full = self._weights[rows] >= self._epsilon
        some = full.any(axis=1)
        last = full.shape[1] - 1
        self._lowest[rows] = np.where(some, full.argmax(axis=1), last)
        self._highest[rows] = np.where(some, last - full[:, ::-1].argmax(axis=1), 0)
        self._changed[rows] = True


_WINDOW_SECONDS = 86400
_NEVER = np.int64(-(1 << 62))
_BUMP_RATIO = 1.2
_BUMP_BYTES = 100 * 1024 * 1024
LOWER_SHARE, TARGET_SHARE, UPPER_SHARE = 0.5, 0.9, 0.95
POD_MINIMUM_MILLICORES = 25
POD_MINIMUM_BYTES = 250 * 1024 * 1024  # "250 MB" upstream, which counts them with 1024
_MARGIN = 0.15
_LARGEST = 1e14
_DAY_SECONDS = 86400
_SAMPLES_A_DAY = 1440
_SHARES = (LOWER_SHARE, TARGET_SHARE, UPPER_SHARE)
_HALF_LIFE_SECONDS = 86400
_CPU_SAMPLE_WEIGHT = 0.1
_EPSILON = 0.001 * _CPU_SAMPLE_WEIGHT
_CPU_BUCKETS = ExponentialBuckets.create(1000.0, 0.01, 1.05)  # cores
_MEMORY_BUCKETS = ExponentialBuckets.create(1e12, 1e7, 1.05)  # bytes
_EXPIRY_SECONDS = 8 * 86400


class VpaMemoryPeaks:
    """The memory peaks of C containers, one per window of 24 hours that starts with the first sample.

    They are added to the histograms of `row_of_container`. A higher peak replaces the earlier one of its window, both
    dated at the window's end. A kill counts as a usage of 20 %, and at least 100 MiB, above the request or the peak.
    """

    def __init__(self, histograms: DecayingHistograms, row_of_container: Int64Array) -> None:
        self._histograms = histograms
        self._row_of_container = row_of_container
        count = len(row_of_container)
        self._window_end: Int64Array = np.full(count, _NEVER, dtype=np.int64)
        self._seen_at: Int64Array = np.full(count, _NEVER, dtype=np.int64)
        self._peak: Float64Array = np.zeros(count)
        self._peak_of_kills: Float64Array = np.zeros(count)

    def reset(self, containers: Int64Array) -> None:
        """Start new windows for containers whose pods were replaced; earlier peaks remain in the histograms."""
        self._window_end[containers] = _NEVER
        self._seen_at[containers] = _NEVER
        self._peak[containers] = 0
        self._peak_of_kills[containers] = 0

    def add(self, containers: Int64Array, used_bytes: Float64Array, time: int) -> None:
        """Add one sample of each of some containers; samples older than the last one are dropped."""
        valid = (used_bytes >= 0) & (time >= self._seen_at[containers])
        self._add(containers[valid], used_bytes[valid], time, self._peak)

    def add_oom_kill(self, container: int, requested_bytes: int, time: int) -> bool:
        """Add an out-of-memory kill; return False if it is ignored, a day older than the last sample."""
        if time < self._seen_at[container] - _WINDOW_SECONDS:
            return False
        used = max(requested_bytes, int(self._peak[container]))
        needed = max(used + _BUMP_BYTES, int(used * _BUMP_RATIO))
        place = np.array([container], dtype=np.int64)
        self._add(place, np.array([needed], dtype=np.float64), time, self._peak_of_kills)
        return True

    def _add(self, containers: Int64Array, used: Float64Array, time: int, peaks: Float64Array) -> None:
        self._seen_at[containers] = time
        end = self._window_end[containers]
        end[end == _NEVER] = time
        within = time < end
        old = np.maximum(self._peak[containers], self._peak_of_kills[containers])
        # Upstream takes a peak of 0 for no peak: such a window does not change.
        higher = within & (old != 0) & (used > old)
        self._histograms.subtract(self._row_of_container[containers[higher]], old[higher], 1.0, end[higher])
        end = np.where(within, end, end + (time - end) // _WINDOW_SECONDS * _WINDOW_SECONDS + _WINDOW_SECONDS)
        self._window_end[containers] = end
        opened = containers[~within]
        self._peak[opened] = 0
        self._peak_of_kills[opened] = 0
        added = higher | ~within
        if added.any():
            self._histograms.add(self._row_of_container[containers[added]], used[added], 1.0, end[added])
            peaks[containers[added]] = used[added]


@dataclass(frozen=True, slots=True)
class VpaRecommendation:
    """The recommended requests of containers for one resource, one entry each, with lower and upper bounds."""

    lower: Int64Array
    target: Int64Array
    upper: Int64Array

    def take(self, places: Int64Array) -> "VpaRecommendation":
        """Return the entries at the given places."""
        return VpaRecommendation(self.lower[places], self.target[places], self.upper[places])


def convert_to_amount(value: NDArray[np.floating]) -> Int64Array:
    """Return whole units, between 0 and upstream's largest amount; NaN becomes 0."""
    amount: Int64Array = np.clip(np.nan_to_num(value, nan=0.0, posinf=_LARGEST), 0, _LARGEST).astype(np.int64)
    return amount


def add_margin(amount: Int64Array, margin: float = _MARGIN) -> Int64Array:
    """Increase amounts by a share."""
    return np.add(amount, convert_to_amount(amount * margin))


def compute_confidence(first_at: Int64Array, last_at: Int64Array, samples: Int64Array) -> Float64Array:
    """Return the days of history, or fewer if there is less than one sample per minute."""
    return np.minimum((last_at - first_at) / _DAY_SECONDS, samples / _SAMPLES_A_DAY)


def apply_confidence(amount: Int64Array, confidence: Float64Array, multiplier: float, exponent: float) -> Int64Array:
    """Widen bounds with little history; without history to the largest amount, or to 0 for a negative exponent."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        factor: Float64Array = np.power(1 + multiplier / confidence, exponent)
        return convert_to_amount(amount.astype(np.float64) * factor)


def recommend_from_percentiles(
    percentiles: Float64Array, confidence: Float64Array, smallest: int, largest: int
) -> VpaRecommendation:
    """Return recommendations from a matrix of percentiles (lower, target and upper share; containers).

    `smallest` is the container's share of the pod's minimum, `largest` the maximum.
    """
    lower, target, upper = (add_margin(convert_to_amount(row)) for row in percentiles)
    lower = apply_confidence(lower, confidence, 0.001, -2.0)
    upper = apply_confidence(upper, confidence, 1.0, 1.0)
    return VpaRecommendation(*(np.minimum(np.maximum(one, smallest), largest) for one in (lower, target, upper)))


class VpaUsageRecommender:
    """The recommender's states; `row_of_container` has each container's state.

    Upstream scrapes usage once a minute: a sample of `step_seconds` counts as the same number of one-minute samples, so
    that weights, counts and the confidence are as upstream.
    """

    def __init__(self, row_of_container: Int64Array, largest: Resources, step_seconds: int) -> None:
        """Start without history; `largest` is the maximum recommendation for a container."""
        rows = int(row_of_container.max(initial=-1)) + 1
        self._row_of_container = row_of_container
        self._largest = largest
        self._step_seconds = step_seconds
        back = 60 * np.arange(max(1, step_seconds // 60))
        self._minutes = len(back)
        self._weight = float(_CPU_SAMPLE_WEIGHT * np.exp2(-back / _HALF_LIFE_SECONDS).sum())
        self._cpu = DecayingHistograms(rows, _CPU_BUCKETS, _SHARES, _HALF_LIFE_SECONDS, _EPSILON)
        self._memory = DecayingHistograms(rows, _MEMORY_BUCKETS, _SHARES, _HALF_LIFE_SECONDS, _EPSILON)
        self._peaks = VpaMemoryPeaks(self._memory, row_of_container)
        self._samples: Int64Array = np.zeros(rows, dtype=np.int64)
        self._first_at: Int64Array = np.zeros(rows, dtype=np.int64)
        self._last_at: Int64Array = np.zeros(rows, dtype=np.int64)

    def reset(self, containers: Int64Array) -> None:
        """Start new memory windows for containers whose pods were replaced."""
        self._peaks.reset(containers)

    def add(self, time: int, cpu_millicores: Float32Array, memory_bytes: Float32Array | None) -> None:
        """Add samples: matrices (times, containers) up to `time`; NaN is no sample."""
        self._expire(time)
        first = time - (len(cpu_millicores) - 1) * self._step_seconds
        times, columns = np.nonzero(cpu_millicores >= 0)
        if times.size:
            # Upstream rounds quantities up to whole millicores.
            cores = np.ceil(cpu_millicores[times, columns].astype(np.float64)) / 1000
            self._add_cpu(self._row_of_container[columns], cores, first + times * self._step_seconds)
        if memory_bytes is None:
            return
        for place, row in enumerate(memory_bytes):
            seen = np.flatnonzero(row >= 0)
            if seen.size:
                # At least one byte: see the simplifications in `vpa`.
                used = np.maximum(np.ceil(row[seen].astype(np.float64)), 1)
                self._peaks.add(seen, used, first + place * self._step_seconds)

    def add_oom_kill(self, container: int, requested_bytes: int, time: int) -> None:
        """Add an out-of-memory kill."""
        self._peaks.add_oom_kill(container, requested_bytes, time)

    def recommend(self) -> tuple[VpaRecommendation, VpaRecommendation]:
        """Return the recommendations of each state for CPU and memory, in a pod with one container."""
        confidence = compute_confidence(self._first_at, self._last_at, self._samples)
        millicores = self._cpu.compute_percentiles() * 1000
        return (
            recommend_from_percentiles(millicores, confidence, POD_MINIMUM_MILLICORES, self._largest.cpu_millicores),
            recommend_from_percentiles(
                self._memory.compute_percentiles(), confidence, POD_MINIMUM_BYTES, self._largest.memory_bytes
            ),
        )

    def is_known(self) -> tuple[BoolArray, BoolArray]:
        """Return masks of the states with CPU samples and with memory samples."""
        sampled = self._samples > 0
        return sampled, sampled & ~self._memory.empty

    def _add_cpu(self, rows: Int64Array, cores: Float64Array, time: Int64Array) -> None:
        self._cpu.add(rows, cores, self._weight, time)
        new = self._samples[rows] == 0
        self._first_at[rows[new]] = np.iinfo(np.int64).max
        np.minimum.at(self._first_at, rows, time - 60 * (self._minutes - 1))
        np.maximum.at(self._last_at, rows, time)
        np.add.at(self._samples, rows, self._minutes)

    def _expire(self, time: int) -> None:
        rows = np.flatnonzero((self._samples > 0) & (time - self._last_at >= _EXPIRY_SECONDS))
        if rows.size:
            self._cpu.clear(rows)
            self._memory.clear(rows)
            self._samples[rows] = 0
            self._last_at[rows] = 0
