"""One policy over one recording: simulated time goes from pass to pass, and what happens is kept as a score."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.cluster import ReplayedCluster
from cruise.backtest.replay.counts import HourlyCountRecorder, TimeLineRecorder
from cruise.backtest.replay.node_removal import NodeRemoval
from cruise.backtest.replay.oom_killer import OomKillSimulation
from cruise.backtest.replay.pods import PENDING_NODE, ReplayedPodState
from cruise.backtest.replay.policy import ConsolidationSizes, PodCreationTime, ReplayOptions, ReplayPolicy
from cruise.backtest.replay.scoring import (
    ChangeCounts,
    IntervalUsage,
    ReplayTotals,
    ResourceAccount,
    compute_interval_usage,
    compute_policy_score,
)
from cruise.domain.backtest import PolicyScore
from cruise.domain.resources import Float32Array, Int64Array

# The times of a recording cut into pass intervals, and the containers that come and go in each.


@dataclass(frozen=True, slots=True)
class ReplayInterval:
    """The samples of rows `first` up to and without `end`; the pass is at the last one's time, `at`.

    `since` is when the interval begins: one step before its first sample. `arriving` are created as it begins,
    `leaving` had their last sample in it.
    """

    first: int
    end: int
    since: int
    at: int
    created_containers: Int64Array
    removed_containers: Int64Array


def split_into_intervals(recording: UsageRecording, options: ReplayOptions) -> Iterator[ReplayInterval]:
    """Cut at multiples of the pass interval, a sample on the cut belonging to what it ends.

    Containers without samples never come.
    """
    step, start = recording.step_seconds, recording.start
    times = start + step * np.arange(len(recording.cpu_millicores), dtype=np.int64)
    interval_of = -(-times // max(options.pass_seconds, step))
    edges = np.append(np.flatnonzero(np.diff(interval_of, prepend=interval_of[:1] - 1)), len(times))
    first, last = find_sampled_rows(recording)
    come = np.where(first < len(times), 0 if options.creation_time is PodCreationTime.START else first, len(times))
    coming, going = _grouped(come), _grouped(last)
    for row, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        since, at = int(times[row]) - step, int(times[end - 1])
        yield ReplayInterval(row, end, since, at, coming.select_between(row, end), going.select_between(row, end))


@dataclass(frozen=True, slots=True)
class _ContainersByRow:
    """Containers by a row, to be looked up by a range of rows."""

    order: Int64Array
    rows: Int64Array

    def select_between(self, first: int, end: int) -> Int64Array:
        """Return the containers whose row is in a range, ascending."""
        begin, stop = np.searchsorted(self.rows, (first, end))
        return np.sort(self.order[begin:stop])


def _grouped(rows: Int64Array) -> _ContainersByRow:
    order = np.argsort(rows, kind="stable")
    return _ContainersByRow(order, rows[order])


def find_sampled_rows(recording: UsageRecording) -> tuple[Int64Array, Int64Array]:
    """Return each container's first and last row with a sample: the number of rows, and -1, where it has none."""
    length, count = recording.cpu_millicores.shape
    first = np.full(count, length, dtype=np.int64)
    last = np.full(count, -1, dtype=np.int64)
    # In stretches, as a mask of everything would be as large as the recording.
    for begin in range(0, length, _STRETCH):
        known = ~np.isnan(recording.cpu_millicores[begin : begin + _STRETCH])
        if recording.has_memory:
            known |= ~np.isnan(recording.memory_bytes[begin : begin + _STRETCH])
        found = known.any(axis=0)
        first = np.where(found & (first == length), begin + known.argmax(axis=0), first)
        last = np.where(found, begin + len(known) - 1 - known[::-1].argmax(axis=0), last)
    return first, last


_STRETCH = 512


def replay_policy(
    recording: UsageRecording,
    policy: ReplayPolicy,
    options: ReplayOptions,
    *,
    judgement: ConsolidationSizes = ConsolidationSizes.ADMITTED,
    watched_node: str | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> PolicyScore:
    """Return what would have been under a policy; `on_progress` gets the share done, about every hundredth.

    `judgement` is what consolidation goes by. Nodes are called node-000, node-001 …; the first is watched unless
    another is named. The same arguments give the same score.
    """
    run = _Replay(recording, policy, options, judgement, watched_node)
    length, shown = len(recording.cpu_millicores), 0
    for interval in split_into_intervals(recording, options):
        run.pass_interval(interval)
        if on_progress is not None and interval.end * 100 // length > shown:
            shown = interval.end * 100 // length
            on_progress(interval.end / length)
    return run.score()


class _Replay:
    def __init__(
        self,
        recording: UsageRecording,
        policy: ReplayPolicy,
        options: ReplayOptions,
        judgement: ConsolidationSizes,
        watched_node: str | None,
    ) -> None:
        count = len(recording.containers)
        self._recording = recording
        self._policy = policy
        self._options = options
        self._pods = ReplayedPodState(recording, options)
        self._churn = ChangeCounts(count)
        self._cluster = ReplayedCluster(recording, self._pods, policy, self._churn)
        self._oom_killer = OomKillSimulation(self._pods, self._cluster, policy, self._churn)
        start = recording.start - recording.step_seconds
        self._consolidation = NodeRemoval(self._pods, self._cluster, policy, start, judgement)
        self._cpu = ResourceAccount(count, options.node.cpu_millicores)
        self._memory = ResourceAccount(count, options.node.memory_bytes)
        self._time_line = TimeLineRecorder(self._pods, watched_node)
        self._totals = ReplayTotals(np.zeros(count, dtype=np.float64))
        memory = self._memory if recording.has_memory else None
        self._cells = HourlyCountRecorder(recording, self._cpu, memory, self._churn, self._totals)

    def pass_interval(self, interval: ReplayInterval) -> None:
        """Let one interval pass: arrivals, use, kills, observation, decision, departures, consolidation."""
        self._cells.start_hour(interval.since)
        self._cluster.create(interval.created_containers, interval.since)
        rows = slice(interval.first, interval.end)
        cpu, memory = self._recording.cpu_millicores[rows], self._recording.memory_bytes[rows]
        self._use(interval, cpu, memory)
        self._policy.observe(interval.at, self._seen(cpu), self._seen(memory))
        decision = self._policy.decide(self._pods.get_view(interval.at))
        self._time_line.record_decision(decision)
        self._cluster.apply(decision, interval.at)
        self._cluster.remove(interval.removed_containers)
        self._consolidation.consolidate(interval.at)

    def _use(self, interval: ReplayInterval, cpu: Float32Array, memory: Float32Array) -> None:
        pods, nodes = self._pods, self._pods.nodes
        places = pods.get_placed
        minutes = (interval.at - interval.since) / 60
        self._totals.add(minutes, places.order, nodes.count_nodes, int(np.count_nonzero(pods.node == PENDING_NODE)))
        demand = compute_interval_usage(cpu, places)
        self._cpu.add(demand, pods.sizes.cpu_millicores, nodes.cpu_millicores)
        of_memory: IntervalUsage | None = None
        if self._recording.has_memory:
            of_memory = compute_interval_usage(memory, places)
            self._memory.add(of_memory, pods.sizes.memory_bytes, nodes.memory_bytes)
        self._time_line.record_usage(interval.at, demand, of_memory)
        if of_memory is not None:
            pods.memory_in_use = memory[-1]
            step = self._recording.step_seconds
            times = np.arange(interval.since + step, interval.at + 1, step, dtype=np.int64)
            self._oom_killer.kill(memory, of_memory, times)

    def _seen(self, rows: Float32Array) -> Float32Array:
        """Return the samples that a policy sees: a pending pod used nothing."""
        waiting = np.flatnonzero(self._pods.node == PENDING_NODE)
        if waiting.size:
            rows = rows.copy()
            rows[:, waiting] = np.nan
        else:
            rows = rows.view()
        rows.flags.writeable = False
        return rows

    def score(self) -> PolicyScore:
        memory = self._memory if self._recording.has_memory else None
        return compute_policy_score(
            self._policy.name,
            self._recording,
            self._options,
            (self._cpu, memory),
            self._churn,
            self._totals,
            self._pods.nodes.peak,
            self._time_line.get_time_line(),
            self._cells.get_counts(),
        )
