"""One policy over one recording: simulated time goes from pass to pass, and what happens is kept as a score."""

from collections.abc import Callable

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.accounting import ResourceAccount
from cruise.backtest.replay.cells import CellRecorder
from cruise.backtest.replay.churn import Churn
from cruise.backtest.replay.cluster import ReplayedCluster
from cruise.backtest.replay.consolidation import Consolidation
from cruise.backtest.replay.demand import Demand, demand_of
from cruise.backtest.replay.intervals import Interval, intervals_of
from cruise.backtest.replay.oom_killer import OomKiller
from cruise.backtest.replay.options import Judgement, ReplayOptions
from cruise.backtest.replay.pods import PENDING, Pods
from cruise.backtest.replay.policy import ReplayPolicy
from cruise.backtest.replay.scoring import Totals, score_of
from cruise.backtest.replay.time_line import TimeLineRecorder
from cruise.domain.arrays import Float32Array
from cruise.domain.backtest import PolicyScore


def replay(
    recording: Recording,
    policy: ReplayPolicy,
    options: ReplayOptions,
    *,
    judgement: Judgement = Judgement.ADMITTED,
    watched_node: str | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> PolicyScore:
    """Return what would have been under a policy; `on_progress` gets the share done, about every hundredth.

    `judgement` is what consolidation goes by. Nodes are called node-000, node-001 …; the first is watched unless
    another is named. The same arguments give the same score.
    """
    run = _Replay(recording, policy, options, judgement, watched_node)
    length, shown = len(recording.cpu_millicores), 0
    for interval in intervals_of(recording, options):
        run.pass_interval(interval)
        if on_progress is not None and interval.end * 100 // length > shown:
            shown = interval.end * 100 // length
            on_progress(interval.end / length)
    return run.score()


class _Replay:
    def __init__(
        self,
        recording: Recording,
        policy: ReplayPolicy,
        options: ReplayOptions,
        judgement: Judgement,
        watched_node: str | None,
    ) -> None:
        count = len(recording.containers)
        self._recording = recording
        self._policy = policy
        self._options = options
        self._pods = Pods(recording, options)
        self._churn = Churn(count)
        self._cluster = ReplayedCluster(recording, self._pods, policy, self._churn)
        self._oom_killer = OomKiller(self._pods, self._cluster, policy, self._churn)
        start = recording.start - recording.step_seconds
        self._consolidation = Consolidation(self._pods, self._cluster, policy, start, judgement)
        self._cpu = ResourceAccount(count, options.node.cpu_millicores)
        self._memory = ResourceAccount(count, options.node.memory_bytes)
        self._time_line = TimeLineRecorder(self._pods, watched_node)
        self._totals = Totals(np.zeros(count, dtype=np.float64))
        memory = self._memory if recording.has_memory else None
        self._cells = CellRecorder(recording, self._cpu, memory, self._churn, self._totals)

    def pass_interval(self, interval: Interval) -> None:
        """Let one interval pass: arrivals, use, kills, observation, decision, departures, consolidation."""
        self._cells.begin(interval.since)
        self._cluster.create(interval.arriving, interval.since)
        rows = slice(interval.first, interval.end)
        cpu, memory = self._recording.cpu_millicores[rows], self._recording.memory_bytes[rows]
        self._use(interval, cpu, memory)
        self._policy.observe(interval.at, self._seen(cpu), self._seen(memory))
        decision = self._policy.decide(self._pods.view(interval.at))
        self._time_line.decided(decision)
        self._cluster.carry_out(decision, interval.at)
        self._cluster.leave(interval.leaving)
        self._consolidation.consolidate(interval.at)

    def _use(self, interval: Interval, cpu: Float32Array, memory: Float32Array) -> None:
        pods, nodes = self._pods, self._pods.nodes
        places = pods.places
        minutes = (interval.at - interval.since) / 60
        self._totals.add(minutes, places.order, nodes.count, int(np.count_nonzero(pods.node == PENDING)))
        demand = demand_of(cpu, places)
        self._cpu.add(demand, pods.sizes.cpu_millicores, nodes.cpu_millicores)
        of_memory: Demand | None = None
        if self._recording.has_memory:
            of_memory = demand_of(memory, places)
            self._memory.add(of_memory, pods.sizes.memory_bytes, nodes.memory_bytes)
        self._time_line.used(interval.at, demand, of_memory)
        if of_memory is not None:
            pods.memory_in_use = memory[-1]
            step = self._recording.step_seconds
            times = np.arange(interval.since + step, interval.at + 1, step, dtype=np.int64)
            self._oom_killer.kill(memory, of_memory, times)

    def _seen(self, rows: Float32Array) -> Float32Array:
        """Return the samples that a policy sees: a pending pod used nothing."""
        waiting = np.flatnonzero(self._pods.node == PENDING)
        if waiting.size:
            rows = rows.copy()
            rows[:, waiting] = np.nan
        else:
            rows = rows.view()
        rows.flags.writeable = False
        return rows

    def score(self) -> PolicyScore:
        memory = self._memory if self._recording.has_memory else None
        return score_of(
            self._policy.name,
            self._recording,
            self._options,
            (self._cpu, memory),
            self._churn,
            self._totals,
            self._pods.nodes.peak,
            self._time_line.time_line(),
            self._cells.cells(),
        )
