"""Autopilot's moving-window statistics, kept up window by window instead of summed anew over all history.

Source: Rzadca et al., EuroSys 2020, section 3.2.2. Every statistic speaks of J jobs; its `places` are indices of
bucket boundaries, -1 for a job without history.

Instead of letting old samples decay, new ones are given ever greater weights: the same but for a factor that
percentiles and averages do not see. The factor is taken out before it grows too large for a float.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cruise.domain.resources import MEBIBYTE, Float32Array, Float64Array, Int64Array

# What Autopilot's recommenders read: for every job and window, a histogram of what its tasks used. Source: Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020, section 3.2.1. The paper's: about 400 buckets with fixed boundaries, windows of 5 minutes, every CPU sample, of memory only each task's peak, and one histogram a job. Ours, where it is silent: boundaries 3 % apart, from 1 millicore and 1 MiB up (399 steps end at 132 cores and 129 GiB; what is above falls into the last bucket), and a window is an interval between two passes.

BUCKETS = 400
BUCKET_RATIO = 1.03
CPU_BOUNDS: Float64Array = np.power(BUCKET_RATIO, np.arange(BUCKETS), dtype=np.float64)
MEMORY_BOUNDS: Float64Array = MEBIBYTE * CPU_BOUNDS


@dataclass(frozen=True, slots=True)
class UsageSignal:
    """The samples of the window that ends at `time` (Unix seconds): of which job each is, and which bucket it fell into.

    Bucket k holds what is below `bounds[k]` and not below `bounds[k - 1]`.
    """

    time: int
    jobs: Int64Array
    buckets: Int64Array


def build_cpu_signal(time: int, cpu: Float32Array, jobs: Int64Array) -> UsageSignal:
    """Return the signal of a matrix (times, containers) of millicores, NaN for none; `jobs` has each container's."""
    times, containers = np.nonzero(~np.isnan(cpu))
    return UsageSignal(time, jobs[containers], _buckets(cpu[times, containers], CPU_BOUNDS))


def build_memory_signal(time: int, memory: Float32Array, jobs: Int64Array) -> UsageSignal:
    """Return the signal of the peaks of a matrix (times, containers) of bytes, NaN for none."""
    peaks = np.fmax.reduce(memory, axis=0)
    containers = np.flatnonzero(~np.isnan(peaks))
    return UsageSignal(time, jobs[containers], _buckets(peaks[containers], MEMORY_BOUNDS))


def _buckets(values: Float32Array, bounds: Float64Array) -> Int64Array:
    return np.minimum(np.searchsorted(bounds, values.astype(np.float64), side="right"), len(bounds) - 1)


_LARGEST_EXPONENT = 256


class WindowStatistic(Protocol):
    """A number of every job, taken from its windows in the order of time."""

    def add(self, signal: UsageSignal) -> None:
        """Take in a window."""
        ...

    def get_values(self) -> Float64Array:
        """Return the statistic of every job, NaN for one without history."""
        ...


class GrowingWeight:
    """The weight 2^(t / half-life) of a window at t; `rescale` is what earlier sums are to be multiplied with."""

    def __init__(self, half_life_seconds: float) -> None:
        self._half_life = half_life_seconds
        self._origin: int | None = None

    def get_at(self, time: int) -> tuple[float, float]:
        """Return the weight of a window that ends at `time`, and the factor for all sums of the windows before."""
        if self._origin is None:
            self._origin = time
        exponent = (time - self._origin) / self._half_life
        if exponent <= _LARGEST_EXPONENT:
            return 2.0**exponent, 1.0
        self._origin = time
        return 1.0, 2.0**-exponent


class LoadPercentile:
    """S_pj: the percentile of usage weighted by age and by the load itself (equation 3).

    The place of the percentile is remembered with the load above it and moved where a window shifts it, which is
    seldom far: a sum over all buckets at every pass would cost more than all else.
    """

    def __init__(self, jobs: int, bounds: Float64Array, half_life_seconds: float, share: float) -> None:
        """Expect `share` below 1."""
        self._bounds = bounds
        self._weight = GrowingWeight(half_life_seconds)
        self._uncovered = 1.0 - share
        self._loads = np.zeros((jobs, len(bounds)))
        self._total = np.zeros(jobs)
        self._place: Int64Array = np.zeros(jobs, dtype=np.int64)
        self._above = np.zeros(jobs)  # load in the buckets above the place

    def add(self, signal: UsageSignal) -> None:
        """Take in a window."""
        weight, rescale = self._weight.get_at(signal.time)
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
        self._climb()
        self._sink()

    def _climb(self) -> None:
        allowed = self._uncovered * self._total
        jobs = np.flatnonzero(self._above > allowed)
        while jobs.size:
            self._place[jobs] += 1
            self._above[jobs] -= self._loads[jobs, self._place[jobs]]
            jobs = jobs[self._above[jobs] > allowed[jobs]]

    def _sink(self) -> None:
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
        """Return the boundary at or below which the share of all load was served."""
        return np.where(self._total > 0, self._bounds[self._place], np.nan)


class RecentMaximum:
    """The largest of each job's numbers of the last `windows` windows; -inf is none."""

    def __init__(self, jobs: int, windows: int) -> None:
        self._ring = np.full((windows, jobs), -np.inf)
        self._next = 0
        self.largest: Float64Array = np.full(jobs, -np.inf)

    def push(self, numbers: Float64Array) -> None:
        """Take in one number a job, in the place of the oldest.

        The whole ring is looked through only for those jobs whose maximum has just left it.
        """
        gone = self._ring[self._next].copy()
        self._ring[self._next] = numbers
        self._next = (self._next + 1) % len(self._ring)
        falling = np.flatnonzero((gone == self.largest) & (numbers < self.largest))
        np.maximum(self.largest, numbers, out=self.largest)
        self.largest[falling] = self._ring[:, falling].max(axis=0)


class WindowPeak:
    """S_max: the highest bucket with a sample in the last `windows` windows, each of which counts, sample or none."""

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
        """Return the peak; that of the last window with a sample for a job that has rested since."""
        return np.where(self._last >= 0, self._bounds[self._last], np.nan)
