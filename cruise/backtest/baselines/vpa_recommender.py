"""The Vertical Pod Autoscaler's recommender: computes recommendations from samples and kills.

Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, pkg/recommender/model: aggregate_container_state.go,
aggregations_config.go, cluster.go, container.go, types.go, pkg/recommender/logic: estimator.go, recommender.go, and
pkg/recommender/input. The pods of a workload share the state of a container's name; a state whose last sample is eight
days old is removed. Amounts are whole millicores or bytes, truncated after every step as upstream.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.backtest.baselines.vpa_histograms import DecayingHistograms, ExponentialBuckets
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.resources import Resources

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
