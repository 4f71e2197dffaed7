"""Autopilot's usage signal and moving-window statistics, updated window by window.

Source: Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020, sections 3.2.1 and 3.2.2. From the
paper: about 400 buckets with fixed boundaries, windows of 5 minutes, every CPU sample, only each task's memory peak,
and one histogram per job. Assumed: boundaries 3 % apart, from 1 millicore and 1 MiB (399 steps end at 132 cores and 129
GiB; larger samples are in the last bucket); a window is the interval between two passes.

Instead of reducing the weights of old samples, the weights of new samples grow; the common factor cancels out in
percentiles and averages. It is removed before it overflows.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cruise.domain.arrays import Float32Array, Float64Array, Int64Array
from cruise.domain.resources import MEBIBYTE

BUCKETS = 400
BUCKET_RATIO = 1.03
CPU_BOUNDS: Float64Array = np.power(BUCKET_RATIO, np.arange(BUCKETS), dtype=np.float64)
MEMORY_BOUNDS: Float64Array = MEBIBYTE * CPU_BOUNDS
_LARGEST_EXPONENT = 256


@dataclass(frozen=True, slots=True)
class UsageSignal:
    """The samples of the window that ends at `time` (Unix seconds): the job and the bucket of each.

    Bucket k has the samples from `bounds[k - 1]` up to, but not including, `bounds[k]`.
    """

    time: int
    jobs: Int64Array
    buckets: Int64Array


def build_cpu_signal(time: int, cpu: Float32Array, jobs: Int64Array) -> UsageSignal:
    """Return the signal of a matrix (times, containers) of millicores; `jobs` has each container's job."""
    times, containers = np.nonzero(~np.isnan(cpu))
    return UsageSignal(time, jobs[containers], _buckets(cpu[times, containers], CPU_BOUNDS))


def build_memory_signal(time: int, memory: Float32Array, jobs: Int64Array) -> UsageSignal:
    """Return the signal of each container's peak in a matrix (times, containers) of bytes; NaN is no sample."""
    peaks = np.fmax.reduce(memory, axis=0)
    containers = np.flatnonzero(~np.isnan(peaks))
    return UsageSignal(time, jobs[containers], _buckets(peaks[containers], MEMORY_BOUNDS))


def _buckets(values: Float32Array, bounds: Float64Array) -> Int64Array:
    return np.minimum(np.searchsorted(bounds, values.astype(np.float64), side="right"), len(bounds) - 1)


class WindowStatistic(Protocol):
    """A statistic of every job's windows, which are added in the order of time."""

    def add(self, signal: UsageSignal) -> None:
        """Take in a window."""
        ...

    def get_values(self) -> Float64Array:
        """Return the statistic of every job, NaN without history."""
        ...


class GrowingWeight:
    """The weight 2^(t / half-life) of a window at time t."""

    def __init__(self, half_life_seconds: float) -> None:
        self._half_life = half_life_seconds
        self._origin: int | None = None

    def get_weight(self, time: int) -> tuple[float, float]:
        """Return the weight of a window that ends at `time`, and the factor to multiply all earlier sums with."""
        if self._origin is None:
            self._origin = time
        exponent = (time - self._origin) / self._half_life
        if exponent <= _LARGEST_EXPONENT:
            return 2.0**exponent, 1.0
        self._origin = time
        return 1.0, 2.0**-exponent


class LoadPercentile:
    """S_pj: the percentile of usage, weighted by age and by the load itself (equation 3).

    The bucket of the percentile and the load above it are kept and updated, because a sum over all buckets at every
    pass would be too slow.
    """

    def __init__(self, jobs: int, bounds: Float64Array, half_life_seconds: float, share: float) -> None:
        """Expect `share` below 1."""
        self._bounds = bounds
        self._weight = GrowingWeight(half_life_seconds)
        self._uncovered = 1.0 - share
        self._loads = np.zeros((jobs, len(bounds)))
        self._total = np.zeros(jobs)
        self._place: Int64Array = np.zeros(jobs, dtype=np.int64)
        self._above = np.zeros(jobs)  # load in the buckets above the percentile's

    def add(self, signal: UsageSignal) -> None:
        """Take in a window."""
        weight, rescale = self._weight.get_weight(signal.time)
        if rescale != 1.0:
            self._loads *= rescale
            self._total *= rescale
            self._above *= rescale
        jobs, buckets = signal.jobs, signal.buckets
        new = self._total[jobs] == 0
        np.maximum.at(self._place, jobs[new], buckets[new])
        load = weight * self._bounds[buckets]
        np.add.at(self._loads.reshape(-1), jobs * len(self._bounds) + buckets, load)
        np.add.at(self._total, jobs, load)
        above = buckets > self._place[jobs]
        np.add.at(self._above, jobs[above], load[above])
        self._raise_percentiles()
        self._lower_percentiles()

    def _raise_percentiles(self) -> None:
        allowed = self._uncovered * self._total
        jobs = np.flatnonzero(self._above > allowed)
        while jobs.size:
            self._place[jobs] += 1
            self._above[jobs] -= self._loads[jobs, self._place[jobs]]
            jobs = jobs[self._above[jobs] > allowed[jobs]]

    def _lower_percentiles(self) -> None:
        allowed = self._uncovered * self._total
        jobs = np.flatnonzero(self._place > 0)
        while jobs.size:
            place = self._place[jobs]
            above = self._above[jobs] + self._loads[jobs, place]
            lower = above <= allowed[jobs]
            jobs = jobs[lower]
            self._above[jobs] = above[lower]
            self._place[jobs] -= 1
            jobs = jobs[self._place[jobs] > 0]

    def get_values(self) -> Float64Array:
        """Return the boundary at or below which the share of the load was served."""
        return np.where(self._total > 0, self._bounds[self._place], np.nan)


class RecentMaximum:
    """The maximum of each job's values in the last `windows` windows; -inf without values."""

    def __init__(self, jobs: int, windows: int) -> None:
        self._ring = np.full((windows, jobs), -np.inf)
        self._next = 0
        self.largest: Float64Array = np.full(jobs, -np.inf)

    def push(self, numbers: Float64Array) -> None:
        """Replace the oldest value of every job.

        The maximum over the ring is computed only for jobs whose maximum was just replaced.
        """
        replaced = self._ring[self._next].copy()
        self._ring[self._next] = numbers
        self._next = (self._next + 1) % len(self._ring)
        falling = np.flatnonzero((replaced == self.largest) & (numbers < self.largest))
        np.maximum(self.largest, numbers, out=self.largest)
        self.largest[falling] = self._ring[:, falling].max(axis=0)


class WindowPeak:
    """S_max: the highest bucket with a sample in the last `windows` windows; windows without samples count too."""

    def __init__(self, jobs: int, bounds: Float64Array, windows: int) -> None:
        self._bounds = bounds
        self._recent = RecentMaximum(jobs, windows)
        self._last: Int64Array = np.full(jobs, -1, dtype=np.int64)

    def add(self, signal: UsageSignal) -> None:
        """Take in a window."""
        highest = np.full(len(self._last), -np.inf)
        np.maximum.at(highest, signal.jobs, signal.buckets)
        self._recent.push(highest)
        largest = self._recent.largest
        seen = largest >= 0
        self._last[seen] = largest[seen]

    def get_values(self) -> Float64Array:
        """Return the peak; for an idle job, the last one it had."""
        return np.where(self._last >= 0, self._bounds[self._last], np.nan)
