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
"""

import math
from dataclasses import dataclass

import numpy as np

from cruise.backtest.baselines.as_requested import get_provisioned_sizes
from cruise.backtest.baselines.autopilot_windows import (
    CPU_BOUNDS,
    MEMORY_BOUNDS,
    LoadPercentile,
    RecentMaximum,
    UsageSignal,
    WindowPeak,
    WindowStatistic,
    build_cpu_signal,
    build_memory_signal,
)
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

    def observe(self, signal: UsageSignal) -> None:
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
    statistic = WindowPeak(jobs, MEMORY_BOUNDS, count_windows(PEAK_SECONDS, window_seconds))
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
