"""The baseline `autopilot`: vertical scaling as Google's Autopilot does it, by its moving windows.

Source: Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020. The paper's:

- All tasks of a job (here: the containers of one name in the pods of a workload) have the same limits, and learn from
  one signal; no job learns from another.
- Limits come from moving windows. The paper's other kind, an ensemble of models, is left out: its weights are not
  published, and none of 133 settings for CPU and 93 for memory, searched on recordings as the paper says, wasted less
  than moving windows at as few overruns.
- Jobs are taken to be serving jobs, hence S_p95 of CPU. Small jobs (the paper calls those with up to ten machines
  small) have minimal tolerance of kills by default, hence S_max of memory.
- A limit is what the scheduler packs by, that is a request here. CPU above it is free while the node has some to
  spare. Autopilot makes the memory limits of all its jobs soft: a task above its limit is killed only when its machine
  runs short. In Kubernetes that is a request without a limit, where the kernel kills the container that is furthest
  above its request.
- A limit is changed in place. Where a machine has no room for a growth, pods have to move; here the one that grows.
- No rule of its own follows a kill: the next recommendation sees the use that led to it.

Ours, where the paper is silent: before any history a pod gets what it was provisioned with, and in a job's first hour
no less than that (the paper shows that Autopilot is cautious with young jobs, not how); a limit is written when it
moves by a tenth or more, which is within the least safety margin, and brings the number of changes near to what the
paper reports (99 % of job-days have at most 6; without such a threshold, ours would have 26); no limit exceeds a node.
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
from cruise.domain.resources import MEBIBYTE, BoolArray, Float32Array, Float64Array, Int64Array

# Autopilot's moving-window recommender: a statistic of the job's use, a safety margin, an hour's maximum. Source: Rzadca et al., EuroSys 2020, section 3.2.2. The paper's: the statistics, a half-life of 12 hours for CPU, a margin of 10–15 %, less for large limits, and then the maximum of what was recommended in the last hour. Ours, where it is silent: S_max looks back 72 hours (the paper's N is "a fixed system parameter"; 72 hours is the default window of the maxima in its horizontal scaling), and the margin falls evenly with the logarithm of the limit, from 15 % at 1 core or 1 GiB to 10 % at 8 cores or 32 GiB.

CPU_HALF_LIFE_SECONDS = 12 * 3600
PEAK_SECONDS = 72 * 3600
HOLD_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class SafetyMargin:
    """The safety margin as a share of the limit: `most` up to `small`, `least` from `large` on."""

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
    """A statistic with the margin upon it, and the maximum of that over the last hour."""

    def __init__(self, jobs: int, statistic: WindowStatistic, margin: SafetyMargin, held_windows: int) -> None:
        self._statistic = statistic
        self._margin = margin
        self._recent = RecentMaximum(jobs, held_windows)

    def observe(self, signal: UsageSignal) -> None:
        """Take in a window."""
        self._statistic.add(signal)
        raw = self._statistic.get_values()
        self._recent.push(np.nan_to_num(raw * (1.0 + self._margin.get_share(raw)), nan=-np.inf))

    def recommend(self) -> Float64Array:
        """Return the limit of every job, NaN for one that has no history."""
        largest = self._recent.largest
        return np.where(np.isfinite(largest), largest, np.nan)


def create_cpu_recommender(jobs: int, window_seconds: int) -> MovingWindowRecommender:
    """Return the recommender of millicores: S_p95, as for serving jobs."""
    statistic = LoadPercentile(jobs, CPU_BOUNDS, CPU_HALF_LIFE_SECONDS, 0.95)
    return MovingWindowRecommender(jobs, statistic, CPU_MARGIN, count_windows(HOLD_SECONDS, window_seconds))


def create_memory_recommender(jobs: int, window_seconds: int) -> MovingWindowRecommender:
    """Return the recommender of bytes: S_max, as for jobs with minimal tolerance of kills."""
    statistic = WindowPeak(jobs, MEMORY_BOUNDS, count_windows(PEAK_SECONDS, window_seconds))
    return MovingWindowRecommender(jobs, statistic, MEMORY_MARGIN, count_windows(HOLD_SECONDS, window_seconds))


def count_windows(seconds: int, window_seconds: int) -> int:
    """Return how many windows make up a time, at least one."""
    return max(1, -(-seconds // window_seconds))


MIN_CHANGE = 0.10


class AutopilotBaseline(ReplayPolicy):
    """Recommended limits of each job, as requests of its pods."""

    name = "autopilot"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._provisioned = get_provisioned_sizes(recording)
        self._job = recording.workload_containers()
        self._has_memory = recording.has_memory
        jobs = int(self._job.max(initial=-1)) + 1
        window_seconds = max(options.pass_seconds, recording.step_seconds)
        self._cpu = create_cpu_recommender(jobs, window_seconds)
        self._memory = create_memory_recommender(jobs, window_seconds)
        self._windows_seen = np.zeros(jobs, dtype=np.int64)
        self._first_windows = count_windows(HOLD_SECONDS, window_seconds)

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in the window that ends at `time`."""
        signal = build_cpu_signal(time, cpu, self._job)
        self._windows_seen += np.bincount(signal.jobs, minlength=len(self._windows_seen)) > 0
        self._cpu.observe(signal)
        if self._has_memory:
            self._memory.observe(build_memory_signal(time, memory, self._job))

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the limits of the containers' jobs."""
        jobs = self._job[containers]
        is_new = self._windows_seen[jobs] < self._first_windows
        given = self._provisioned.select(containers)
        cpu = _limit(self._cpu.recommend()[jobs], given.cpu_millicores, is_new, view.allocatable.cpu_millicores)
        memory = given.memory_bytes
        if self._has_memory:
            memory = _limit(self._memory.recommend()[jobs], memory, is_new, view.allocatable.memory_bytes)
        return ContainerSizes(cpu, memory, np.zeros_like(memory))

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Write the limits that changed; a pod that cannot grow where it is has to move."""
        running = np.flatnonzero(view.node >= 0)
        now, wanted = view.sizes.select(running), self.admit(running, view)
        written = ContainerSizes(
            _moved(now.cpu_millicores, wanted.cpu_millicores),
            _moved(now.memory_bytes, wanted.memory_bytes),
            wanted.memory_limit_bytes,
        )
        changed = written.find_differences(now)
        return ReplayDecision(running[changed], written.select(changed), NO_CONTAINERS, evict_without_capacity=True)


def _limit(recommended: Float64Array, given: Int64Array, is_new: BoolArray, largest: int) -> Int64Array:
    limit = np.where(np.isnan(recommended), given, np.ceil(recommended)).astype(np.int64)
    return np.minimum(np.where(is_new, np.maximum(limit, given), limit), largest)


def _moved(now: Int64Array, wanted: Int64Array) -> Int64Array:
    return np.where(np.abs(wanted - now) >= MIN_CHANGE * now, wanted, now)
