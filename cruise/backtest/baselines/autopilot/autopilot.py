"""The baseline `autopilot`: vertical scaling as Google's Autopilot does it, by its moving windows or its meta-learner.

Source: Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020. The paper's:

- All tasks of a job (here: the containers of one name in the pods of a workload) have the same limits, and learn from
  one signal; no job learns from another.
- Limits come from moving windows or from an ensemble of models. Here it is the former unless asked otherwise: the
  latter's weights are not published, and those found the paper's way do not do better (`autopilot_ensemble`).
- Jobs are taken to be serving jobs, hence S_p95 of CPU. Small jobs (the paper calls those with up to ten machines
  small) have minimal tolerance of kills by default, hence S_max of memory.
- A limit is what the scheduler packs by, that is a request here. CPU above it is free while the node has some to
  spare. Autopilot makes the memory limits of all its jobs soft: a task above its limit is killed only when its machine
  runs short. In Kubernetes that is a request without a limit, where the kernel kills whoever is furthest above its
  request. `hard_memory_limits` makes the limit equal to the request instead.
- A limit is changed in place. Where a machine has no room for a growth, pods have to move; here the one that grows.
- No rule of its own follows a kill: the next recommendation sees the use that led to it.

Ours, where the paper is silent: before any history a pod gets what it was provisioned with, and in a job's first hour
no less than that (the paper shows that Autopilot is cautious with young jobs, not how); a limit is written when it
moves by a tenth or more, which is within the least safety margin, and brings the number of changes near to what the
paper reports (99 % of job-days have at most 6; without such a threshold, ours would have 26); no limit exceeds a node.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from cruise.backtest.baselines.as_requested import provisioned_sizes
from cruise.backtest.baselines.autopilot.ensemble import CPU_ENSEMBLE, MEMORY_ENSEMBLE, MetaLearner
from cruise.backtest.baselines.autopilot.moving import (
    HELD_SECONDS,
    JobClass,
    OomTolerance,
    cpu_recommender,
    memory_recommender,
    windows_of,
)
from cruise.backtest.baselines.autopilot.signal import CPU_BOUNDS, MEMORY_BOUNDS, Recommender, cpu_signal, memory_signal
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.sizing import NOBODY, Decision, Fleet, Kill, KillReaction, Sizes
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array

if TYPE_CHECKING:
    from cruise.backtest.replay.terms import Terms


LEAST_CHANGE = 0.10


class Recommenders(StrEnum):
    """Which of the paper's two kinds sets the limits."""

    MOVING_WINDOWS = "moving-windows"
    ENSEMBLE = "ensemble"


@dataclass(frozen=True, slots=True)
class AutopilotOptions:
    """What the owner of jobs may choose; the defaults are the paper's for small serving jobs.

    An ensemble knows neither classes nor tolerances: its weights stand for them.
    """

    recommenders: Recommenders = Recommenders.MOVING_WINDOWS
    job_class: JobClass = JobClass.SERVING
    oom_tolerance: OomTolerance = OomTolerance.MINIMAL
    hard_memory_limits: bool = False


class Autopilot:
    """Recommended limits of each job, as requests of its pods."""

    def __init__(self, recording: Recording, terms: "Terms", options: AutopilotOptions = AutopilotOptions()) -> None:
        """Group the recorded containers to jobs."""
        self._options = options
        self._provisioned = provisioned_sizes(recording)
        self._job = jobs_of(recording)
        self._has_memory = recording.has_memory
        jobs = int(self._job.max(initial=-1)) + 1
        window_seconds = max(terms.pass_seconds, recording.step_seconds)
        self._cpu, self._memory = _recommenders(jobs, options, window_seconds)
        self._windows_seen = np.zeros(jobs, dtype=np.int64)
        self._first_windows = windows_of(HELD_SECONDS, window_seconds)

    @property
    def name(self) -> str:
        """The name in tables."""
        return "autopilot"

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in the window that ends at `at`."""
        signal = cpu_signal(at, cpu, self._job)
        self._windows_seen += np.bincount(signal.jobs, minlength=len(self._windows_seen)) > 0
        self._cpu.learn(signal)
        if self._has_memory:
            self._memory.learn(memory_signal(at, memory, self._job))

    def admit(self, containers: Int64Array, fleet: Fleet) -> Sizes:
        """Return the limits of the containers' jobs."""
        return self._limits(containers, fleet)

    def decide(self, fleet: Fleet) -> Decision:
        """Write the limits that changed; a pod that cannot grow where it is has to move."""
        running = np.flatnonzero(fleet.node >= 0)
        now = fleet.sizes.take(running)
        wanted = self._limits(running, fleet)
        written = Sizes(
            _moved(now.cpu_millicores, wanted.cpu_millicores),
            _moved(now.memory_bytes, wanted.memory_bytes),
            wanted.memory_limit_bytes,
        )
        if self._options.hard_memory_limits:
            written = Sizes(written.cpu_millicores, written.memory_bytes, written.memory_bytes)
        changed = (
            (written.cpu_millicores != now.cpu_millicores)
            | (written.memory_bytes != now.memory_bytes)
            | (written.memory_limit_bytes != now.memory_limit_bytes)
        )
        return Decision(running[changed], written.take(changed), NOBODY, evict_without_room=True)

    def killed(self, kill: Kill, fleet: Fleet) -> KillReaction:
        """Do nothing at once: the window's peak tells the recommender what was used."""
        return KillReaction()

    def _limits(self, containers: Int64Array, fleet: Fleet) -> Sizes:
        jobs = self._job[containers]
        young = self._windows_seen[jobs] < self._first_windows
        given = self._provisioned.take(containers)
        cpu = _limit(self._cpu.recommend()[jobs], given.cpu_millicores, young, fleet.allocatable.cpu_millicores)
        memory = given.memory_bytes
        if self._has_memory:
            memory = _limit(self._memory.recommend()[jobs], memory, young, fleet.allocatable.memory_bytes)
        return Sizes(cpu, memory, memory if self._options.hard_memory_limits else np.zeros_like(memory))


def jobs_of(recording: Recording) -> Int64Array:
    """Return the index of each recorded container's job: a container of a workload."""
    found: dict[tuple[str, str, str], int] = {}
    return np.array(
        [
            found.setdefault((each.namespace, str(each.workload), each.container), len(found))
            for each in recording.containers
        ],
        dtype=np.int64,
    )


def _recommenders(jobs: int, options: AutopilotOptions, window_seconds: int) -> tuple[Recommender, Recommender]:
    if options.recommenders is Recommenders.ENSEMBLE:
        return (
            MetaLearner(jobs, CPU_BOUNDS, CPU_ENSEMBLE, window_seconds),
            MetaLearner(jobs, MEMORY_BOUNDS, MEMORY_ENSEMBLE, window_seconds),
        )
    return (
        cpu_recommender(jobs, options.job_class, window_seconds),
        memory_recommender(jobs, options.oom_tolerance, window_seconds),
    )


def _limit(recommended: Float64Array, given: Int64Array, young: BoolArray, largest: int) -> Int64Array:
    limit = np.where(np.isnan(recommended), given, np.ceil(recommended)).astype(np.int64)
    return np.minimum(np.where(young, np.maximum(limit, given), limit), largest)


def _moved(now: Int64Array, wanted: Int64Array) -> Int64Array:
    return np.where(np.abs(wanted - now) >= LEAST_CHANGE * now, wanted, now)
