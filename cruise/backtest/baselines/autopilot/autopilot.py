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

import numpy as np

from cruise.backtest.baselines.as_requested import provisioned_sizes
from cruise.backtest.baselines.autopilot.moving import HELD_SECONDS, cpu_recommender, memory_recommender, windows_of
from cruise.backtest.baselines.autopilot.signal import cpu_signal, memory_signal
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.options import ReplayOptions
from cruise.backtest.replay.policy import NO_CONTAINERS, ClusterView, Decision, ReplayPolicy, Sizes
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array

LEAST_CHANGE = 0.10


class Autopilot(ReplayPolicy):
    """Recommended limits of each job, as requests of its pods."""

    name = "autopilot"

    def __init__(self, recording: Recording, options: ReplayOptions) -> None:
        self._provisioned = provisioned_sizes(recording)
        self._job = recording.workload_containers()
        self._has_memory = recording.has_memory
        jobs = int(self._job.max(initial=-1)) + 1
        window_seconds = max(options.pass_seconds, recording.step_seconds)
        self._cpu = cpu_recommender(jobs, window_seconds)
        self._memory = memory_recommender(jobs, window_seconds)
        self._windows_seen = np.zeros(jobs, dtype=np.int64)
        self._first_windows = windows_of(HELD_SECONDS, window_seconds)

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in the window that ends at `at`."""
        signal = cpu_signal(at, cpu, self._job)
        self._windows_seen += np.bincount(signal.jobs, minlength=len(self._windows_seen)) > 0
        self._cpu.learn(signal)
        if self._has_memory:
            self._memory.learn(memory_signal(at, memory, self._job))

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        """Return the limits of the containers' jobs."""
        jobs = self._job[containers]
        young = self._windows_seen[jobs] < self._first_windows
        given = self._provisioned.take(containers)
        cpu = _limit(self._cpu.recommend()[jobs], given.cpu_millicores, young, view.allocatable.cpu_millicores)
        memory = given.memory_bytes
        if self._has_memory:
            memory = _limit(self._memory.recommend()[jobs], memory, young, view.allocatable.memory_bytes)
        return Sizes(cpu, memory, np.zeros_like(memory))

    def decide(self, view: ClusterView) -> Decision:
        """Write the limits that changed; a pod that cannot grow where it is has to move."""
        running = np.flatnonzero(view.node >= 0)
        now, wanted = view.sizes.take(running), self.admit(running, view)
        written = Sizes(
            _moved(now.cpu_millicores, wanted.cpu_millicores),
            _moved(now.memory_bytes, wanted.memory_bytes),
            wanted.memory_limit_bytes,
        )
        changed = written.differ(now)
        return Decision(running[changed], written.take(changed), NO_CONTAINERS, evict_without_room=True)


def _limit(recommended: Float64Array, given: Int64Array, young: BoolArray, largest: int) -> Int64Array:
    limit = np.where(np.isnan(recommended), given, np.ceil(recommended)).astype(np.int64)
    return np.minimum(np.where(young, np.maximum(limit, given), limit), largest)


def _moved(now: Int64Array, wanted: Int64Array) -> Int64Array:
    return np.where(np.abs(wanted - now) >= LEAST_CHANGE * now, wanted, now)
