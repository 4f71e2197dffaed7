"""The Vertical Pod Autoscaler's recommender: samples and kills in, recommendations out.

Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, pkg/recommender/model: aggregate_container_state.go,
aggregations_config.go, cluster.go, types.go, pkg/recommender/logic: estimator.go, recommender.go, and
pkg/recommender/input. The pods of a workload share the state of a container's name; a state whose last sample is eight
days old is dropped. Amounts are whole millicores or bytes, cut off after every step as upstream does it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.backtest.baselines.vpa_histograms import DecayingHistograms, ExponentialBuckets
from cruise.domain.resources import BoolArray, Float32Array, Float64Array, Int64Array, Resources

# What the Vertical Pod Autoscaler remembers of a container's memory: one peak in 24 hours. Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, pkg/recommender/model/container.go. A container's windows begin with its first sample. The peak of a window weighs as much as any other however often it rises: the old peak is taken out of the histogram when a higher one is put in, both dated at the window's end. A kill counts as a use of 20 % more, and at least 100 MiB more, than the container requested or was seen to use.

_WINDOW_SECONDS = 86400
_NEVER = np.int64(-(1 << 62))
_BUMP_RATIO = 1.2
_BUMP_BYTES = 100 * 1024 * 1024


class VpaMemoryPeaks:
    """The windows of C containers; their peaks go to the histogram of `row_of_container`, one row a container."""

    def __init__(self, histograms: DecayingHistograms, row_of_container: Int64Array) -> None:
        self._histograms = histograms
        self._row_of_container = row_of_container
        count = len(row_of_container)
        self._window_end: Int64Array = np.full(count, _NEVER, dtype=np.int64)
        self._seen_at: Int64Array = np.full(count, _NEVER, dtype=np.int64)
        self._peak: Float64Array = np.zeros(count)
        self._peak_of_kills: Float64Array = np.zeros(count)

    def reset(self, containers: Int64Array) -> None:
        """Begin new windows for containers whose pods were replaced; what the old ones gave stays in the histogram."""
        self._window_end[containers] = _NEVER
        self._seen_at[containers] = _NEVER
        self._peak[containers] = 0
        self._peak_of_kills[containers] = 0

    def add(self, containers: Int64Array, used_bytes: Float64Array, time: int) -> None:
        """Take in one sample of each of some containers; one older than the last is dropped."""
        valid = (used_bytes >= 0) & (time >= self._seen_at[containers])
        self._add(containers[valid], used_bytes[valid], time, self._peak)

    def add_oom_kill(self, container: int, requested_bytes: int, time: int) -> bool:
        """Take in a kill for want of memory, and tell whether it counted: a day before the last sample is too old."""
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
        # Upstream takes a peak of 0 for no peak at all: such a window stays as it is to its end.
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


@dataclass(frozen=True, slots=True)
class VpaRecommendation:
    """What containers should request of one resource, one entry each; from `lower` to `upper` there is no hurry."""

    lower: Int64Array
    target: Int64Array
    upper: Int64Array

    def take(self, places: Int64Array) -> "VpaRecommendation":
        """Return the entries at some places."""
        return VpaRecommendation(self.lower[places], self.target[places], self.upper[places])


def convert_to_amount(value: NDArray[np.floating]) -> Int64Array:
    """Return whole units, between 0 and the largest amount that upstream knows; what is no number is 0."""
    amount: Int64Array = np.clip(np.nan_to_num(value, nan=0.0, posinf=_LARGEST), 0, _LARGEST).astype(np.int64)
    return amount


def add_margin(amount: Int64Array, margin: float = _MARGIN) -> Int64Array:
    """Add a share of an amount to it."""
    return np.add(amount, convert_to_amount(amount * margin))


def compute_confidence(first_at: Int64Array, last_at: Int64Array, samples: Int64Array) -> Float64Array:
    """Return how many days of history there are: with samples every minute; fewer samples count for less time."""
    return np.minimum((last_at - first_at) / _DAY_SECONDS, samples / _SAMPLES_A_DAY)


def apply_confidence(amount: Int64Array, confidence: Float64Array, multiplier: float, exponent: float) -> Int64Array:
    """Widen a bound where there is little history; without any it is the largest amount, or 0 for `exponent` < 0."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        factor: Float64Array = np.power(1 + multiplier / confidence, exponent)
        return convert_to_amount(amount.astype(np.float64) * factor)


def recommend_from_percentiles(
    percentiles: Float64Array, confidence: Float64Array, smallest: int, largest: int
) -> VpaRecommendation:
    """Return recommendations from a matrix (lower, target and upper share; containers) of percentiles.

    `smallest` is the container's part of the pod's minimum, `largest` the most that may be recommended.
    """
    lower, target, upper = (add_margin(convert_to_amount(row)) for row in percentiles)
    lower = apply_confidence(lower, confidence, 0.001, -2.0)
    upper = apply_confidence(upper, confidence, 1.0, 1.0)
    return VpaRecommendation(*(np.minimum(np.maximum(one, smallest), largest) for one in (lower, target, upper)))


class VpaUsageRecommender:
    """The state of S workloads' containers, fed by C containers of which each belongs to the state `row_of_container`.

    Upstream scrapes usage once a minute: a sample of `step_seconds` is taken for as many samples of a minute with the
    same value, so that weights, counts and with them the confidence grow as they would.
    """

    def __init__(self, row_of_container: Int64Array, largest: Resources, step_seconds: int) -> None:
        """Start without any history; `largest` is the most that is recommended for a container."""
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
        """Begin new memory windows for containers whose pods were replaced."""
        self._peaks.reset(containers)

    def add(self, time: int, cpu_millicores: Float32Array, memory_bytes: Float32Array | None) -> None:
        """Add samples: matrices (times, containers) of which the last time is `time`; NaN is no sample."""
        self._expire(time)
        first = time - (len(cpu_millicores) - 1) * self._step_seconds
        times, columns = np.nonzero(cpu_millicores >= 0)
        if times.size:
            # Amounts are whole millicores upstream, and quantities are rounded up to them.
            cores = np.ceil(cpu_millicores[times, columns].astype(np.float64)) / 1000
            self._add_cpu(self._row_of_container[columns], cores, first + times * self._step_seconds)
        if memory_bytes is None:
            return
        for place, row in enumerate(memory_bytes):
            seen = np.flatnonzero(row >= 0)
            if seen.size:
                # A window that begins with 0 bytes keeps that peak upstream, where no container ever uses nothing.
                used = np.maximum(np.ceil(row[seen].astype(np.float64)), 1)
                self._peaks.add(seen, used, first + place * self._step_seconds)

    def add_oom_kill(self, container: int, requested_bytes: int, time: int) -> None:
        """Add a kill for want of memory."""
        self._peaks.add_oom_kill(container, requested_bytes, time)

    def recommendations(self) -> tuple[VpaRecommendation, VpaRecommendation]:
        """Return what each state should have of CPU and of memory, in a pod with one container."""
        confidence = compute_confidence(self._first_at, self._last_at, self._samples)
        millicores = self._cpu.percentiles() * 1000
        return (
            recommend_from_percentiles(millicores, confidence, POD_MINIMUM_MILLICORES, self._largest.cpu_millicores),
            recommend_from_percentiles(
                self._memory.percentiles(), confidence, POD_MINIMUM_BYTES, self._largest.memory_bytes
            ),
        )

    def is_known(self) -> tuple[BoolArray, BoolArray]:
        """Tell of which states CPU use and memory use were seen."""
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
