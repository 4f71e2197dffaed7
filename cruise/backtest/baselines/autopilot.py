"""The baseline `autopilot`: the vertical scaling of Google's Autopilot, with its moving-window recommenders.

Source: Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020, section 3.2.2. From the paper:

- All tasks of a job (here: the containers of one name in the pods of a workload) have the same limits, recommended from
  one usage signal.
- Recommendations come from moving windows. Not simulated: the ensemble of models, whose weights are not published. None
  of 133 settings for CPU and 93 for memory, searched on recordings as the paper says, had less slack than moving
  windows at as few overruns.
- Jobs are serving jobs, hence S_p95 of CPU. Small jobs (up to ten machines) have minimal tolerance of kills by default,
  hence S_max of memory.
- A half-life of 12 hours for CPU, a safety margin of 10–15 %, lower for large limits, and the maximum of the
  recommendations of the last hour.
- A limit is the amount that the scheduler packs, so a request here. CPU above it may be used while the node has some.
  Memory limits are soft: a task above its limit is killed only if its machine runs out of memory. In Kubernetes that is
  a request without a limit; the kernel kills the container that exceeds its request most.
- Limits change in place. If an increase does not fit on a machine, pods must move; here the pod that grows.
- There is no rule for kills: the next recommendation sees the usage before the kill.

Assumed, because the paper does not say: a pod without history keeps its provisioned requests, and a job's first hour
has no less than those; a limit is written if it changes by at least a tenth, which is below the smallest safety margin
and gives about the paper's number of changes (99 % of job-days have at most 6; without the threshold 26); no limit
exceeds a node. S_max covers 72 hours, the default window of maxima in Autopilot's horizontal scaling. The margin falls
with the logarithm of the limit, from 15 % at 1 core or 1 GiB to 10 % at 8 cores or 32 GiB.

The usage signal and the statistics of moving windows (sections 3.2.1 and 3.2.2) are updated window by window. From the
paper: about 400 buckets with fixed boundaries, windows of 5 minutes, every CPU sample, only each task's memory peak,
and one histogram per job. Assumed: boundaries 3 % apart, from 1 millicore and 1 MiB (399 steps end at 132 cores and 129
GiB; larger samples are in the last bucket); a window is the interval between two passes. Instead of reducing the
weights of old samples, the weights of new samples grow; the common factor cancels out in percentiles and averages. It
is removed before it overflows.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cruise.backtest.baselines.bounds import get_provisioned_sizes
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import (
    NO_CONTAINERS,
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayOptions,
    ReplayPolicy,
)
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.resources import MEBIBYTE

BUCKETS = 400
BUCKET_RATIO = 1.03
CPU_BOUNDS: Float64Array = np.power(BUCKET_RATIO, np.arange(BUCKETS), dtype=np.float64)
MEMORY_BOUNDS: Float64Array = MEBIBYTE * CPU_BOUNDS
_LARGEST_EXPONENT = 256


@dataclass(frozen=True, slots=True)
class WindowUsageSignal:
    """The samples of all jobs in the window that ends at `time` (Unix seconds): the job and the bucket of each.

    Bucket k has the samples from `bounds[k - 1]` up to, but not including, `bounds[k]`.
    """

    time: int
    jobs: Int64Array
    buckets: Int64Array


def build_cpu_signal(time: int, cpu: Float32Array, jobs: Int64Array) -> WindowUsageSignal:
    """Return the signal of a matrix (times, containers) of millicores; `jobs` has each container's job."""
    times, containers = np.nonzero(~np.isnan(cpu))
    return WindowUsageSignal(time, jobs[containers], _buckets(cpu[times, containers], CPU_BOUNDS))


def build_memory_signal(time: int, memory: Float32Array, jobs: Int64Array) -> WindowUsageSignal:
    """Return the signal of each container's peak in a matrix (times, containers) of bytes; NaN is no sample."""
    peaks = np.fmax.reduce(memory, axis=0)
    containers = np.flatnonzero(~np.isnan(peaks))
    return WindowUsageSignal(time, jobs[containers], _buckets(peaks[containers], MEMORY_BOUNDS))


def _buckets(values: Float32Array, bounds: Float64Array) -> Int64Array:
    return np.minimum(np.searchsorted(bounds, values.astype(np.float64), side="right"), len(bounds) - 1)


class WindowStatistic(Protocol):
    """A statistic of every job's windows, which are added in the order of time."""

    def add(self, signal: WindowUsageSignal) -> None:
        """Take in a window."""

    def get_values(self) -> Float64Array:
        """Return the statistic of every job, NaN without history."""


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

    def add(self, signal: WindowUsageSignal) -> None:
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


class PeakOverWindows:
    """S_max: the highest bucket with a sample in the last `windows` windows; windows without samples count too."""

    def __init__(self, jobs: int, bounds: Float64Array, windows: int) -> None:
        self._bounds = bounds
        self._recent = RecentMaximum(jobs, windows)
        self._last: Int64Array = np.full(jobs, -1, dtype=np.int64)

    def add(self, signal: WindowUsageSignal) -> None:
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


CPU_HALF_LIFE_SECONDS = 12 * 3600
PEAK_SECONDS = 72 * 3600
MAXIMUM_SECONDS = 3600
MIN_CHANGE = 0.10


@dataclass(frozen=True, slots=True)
class SafetyMargin:
    """The safety margin as a share of the limit: `maximum` up to `small`, `minimum` from `large` on."""

    small: float
    large: float
    maximum: float = 0.15
    minimum: float = 0.10

    def get_share(self, limits: Float64Array) -> Float64Array:
        """Return the margin of each limit; NaN stays NaN."""
        way = np.log(limits / self.small) / math.log(self.large / self.small)
        return self.maximum + (self.minimum - self.maximum) * np.clip(way, 0.0, 1.0)


CPU_MARGIN = SafetyMargin(1000, 8000)
MEMORY_MARGIN = SafetyMargin(1024 * MEBIBYTE, 32 * 1024 * MEBIBYTE)


class MovingWindowRecommender:
    """A window statistic plus the safety margin, and the maximum of that over the last hour."""

    def __init__(self, jobs: int, statistic: WindowStatistic, margin: SafetyMargin, maximum_windows: int) -> None:
        self._statistic = statistic
        self._margin = margin
        self._recent = RecentMaximum(jobs, maximum_windows)

    def observe(self, signal: WindowUsageSignal) -> None:
        """Add a window."""
        self._statistic.add(signal)
        raw = self._statistic.get_values()
        self._recent.push(np.nan_to_num(raw * (1.0 + self._margin.get_share(raw)), nan=-np.inf))

    def recommend(self) -> Float64Array:
        """Return the limit of every job, NaN without history."""
        largest = self._recent.largest
        return np.where(np.isfinite(largest), largest, np.nan)


def create_cpu_recommender(jobs: int, window_seconds: int) -> MovingWindowRecommender:
    """Return the recommender of millicores, S_p95."""
    statistic = LoadPercentile(jobs, CPU_BOUNDS, CPU_HALF_LIFE_SECONDS, 0.95)
    return MovingWindowRecommender(jobs, statistic, CPU_MARGIN, count_windows(MAXIMUM_SECONDS, window_seconds))


def create_memory_recommender(jobs: int, window_seconds: int) -> MovingWindowRecommender:
    """Return the recommender of bytes, S_max."""
    statistic = PeakOverWindows(jobs, MEMORY_BOUNDS, count_windows(PEAK_SECONDS, window_seconds))
    return MovingWindowRecommender(jobs, statistic, MEMORY_MARGIN, count_windows(MAXIMUM_SECONDS, window_seconds))


def count_windows(seconds: int, window_seconds: int) -> int:
    """Return the number of windows in a time, at least one."""
    return max(1, -(-seconds // window_seconds))


class AutopilotBaseline(ReplayPolicy):
    """The recommended limits of each job as the requests of its pods."""

    name = "autopilot"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._provisioned = get_provisioned_sizes(recording)
        self._job = recording.number_workload_containers()
        self._has_memory = recording.has_memory
        jobs = int(self._job.max(initial=-1)) + 1
        window_seconds = max(options.pass_seconds, recording.step_seconds)
        self._cpu = create_cpu_recommender(jobs, window_seconds)
        self._memory = create_memory_recommender(jobs, window_seconds)
        self._windows_seen = np.zeros(jobs, dtype=np.int64)
        self._first_windows = count_windows(MAXIMUM_SECONDS, window_seconds)

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Add the window that ends at `time`."""
        signal = build_cpu_signal(time, cpu, self._job)
        self._windows_seen += np.bincount(signal.jobs, minlength=len(self._windows_seen)) > 0
        self._cpu.observe(signal)
        if self._has_memory:
            self._memory.observe(build_memory_signal(time, memory, self._job))

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the limits of the containers' jobs."""
        jobs = self._job[containers]
        is_new = self._windows_seen[jobs] < self._first_windows
        provisioned = self._provisioned.select(containers)
        cpu = _compute_limit(
            self._cpu.recommend()[jobs], provisioned.cpu_millicores, is_new, view.allocatable.cpu_millicores
        )
        memory = provisioned.memory_bytes
        if self._has_memory:
            memory = _compute_limit(self._memory.recommend()[jobs], memory, is_new, view.allocatable.memory_bytes)
        return ContainerSizes(cpu, memory, np.zeros_like(memory))

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Write changed limits; a pod whose increase does not fit on its node is evicted."""
        running = np.flatnonzero(view.node >= 0)
        now, wanted = view.sizes.select(running), self.admit(running, view)
        written = ContainerSizes(
            _apply_threshold(now.cpu_millicores, wanted.cpu_millicores),
            _apply_threshold(now.memory_bytes, wanted.memory_bytes),
            wanted.memory_limit_bytes,
        )
        changed = written.find_differences(now)
        return ReplayDecision(running[changed], written.select(changed), NO_CONTAINERS, evict_without_capacity=True)


def _compute_limit(recommended: Float64Array, provisioned: Int64Array, is_new: BoolArray, largest: int) -> Int64Array:
    limit = np.where(np.isnan(recommended), provisioned, np.ceil(recommended)).astype(np.int64)
    return np.minimum(np.where(is_new, np.maximum(limit, provisioned), limit), largest)


def _apply_threshold(now: Int64Array, wanted: Int64Array) -> Int64Array:
    return np.where(np.abs(wanted - now) >= MIN_CHANGE * now, wanted, now)
