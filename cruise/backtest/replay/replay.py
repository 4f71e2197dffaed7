"""Replays one recording under one policy, one pass interval after the other, and returns the score."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.recordings.scaling import ScaledRecording
from cruise.backtest.replay.autoscaling import ReplayedAutoscaling
from cruise.backtest.replay.cluster import ReplayedCluster
from cruise.backtest.replay.node_removal import NodeRemoval
from cruise.backtest.replay.nodes import PENDING_NODE, ReplayedPodState
from cruise.backtest.replay.oom_killer import OomKillSimulation
from cruise.backtest.replay.policy import ConsolidationSizeBasis, ReplayOptions, ReplayPolicy
from cruise.backtest.replay.scoring import (
    ChangeCounts,
    HourlyCountRecorder,
    IntervalUsage,
    NodeTimeLineRecorder,
    ReplayResourceTotals,
    ReplayTotals,
    compute_interval_usage,
    compute_policy_score,
)
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.backtest import PodCreationTime, PolicyScore

_ROWS_PER_CHUNK = 512


@dataclass(frozen=True, slots=True)
class ReplayInterval:
    """The samples of the rows from `first_row` up to, but not including, `end_row`.

    The interval starts one step before its first sample and ends with its last; the pass runs at `end_time`.
    `created_containers` are created when it starts; `removed_containers` have their last sample in it.
    """

    first_row: int
    end_row: int
    start_time: int
    end_time: int
    created_containers: Int64Array
    removed_containers: Int64Array


def split_into_intervals(recording: UsageRecording, options: ReplayOptions) -> Iterator[ReplayInterval]:
    """Split a recording at multiples of the pass interval; a sample at the boundary belongs to the interval it ends.

    Containers without samples are never created.
    """
    step, start = recording.step_seconds, recording.start
    times = start + step * np.arange(len(recording.cpu_millicores), dtype=np.int64)
    interval_numbers = -(-times // max(options.pass_seconds, step))
    is_first = np.diff(interval_numbers, prepend=interval_numbers[:1] - 1)
    edges = np.append(np.flatnonzero(is_first), len(times)).tolist()
    first, last = find_first_and_last_samples(recording)
    created_at_start = options.creation_time is PodCreationTime.START
    creation_rows = np.where(first < len(times), 0 if created_at_start else first, len(times))
    created, removed = _ContainersByRow.create(creation_rows), _ContainersByRow.create(last)
    for row, end in pairwise(edges):
        start_time, end_time = int(times[row]) - step, int(times[end - 1])
        yield ReplayInterval(
            row, end, start_time, end_time, created.select_between(row, end), removed.select_between(row, end)
        )


@dataclass(frozen=True, slots=True)
class _ContainersByRow:
    """Containers sorted by a row of the recording."""

    containers: Int64Array
    rows: Int64Array

    @staticmethod
    def create(rows: Int64Array) -> "_ContainersByRow":
        """Sort containers by the row of each."""
        order = np.argsort(rows, kind="stable")
        return _ContainersByRow(order, rows[order])

    def select_between(self, first: int, end: int) -> Int64Array:
        """Return the containers whose row is in a range, ascending."""
        begin, stop = np.searchsorted(self.rows, (first, end))
        return np.sort(self.containers[begin:stop])


def find_first_and_last_samples(recording: UsageRecording) -> tuple[Int64Array, Int64Array]:
    """Return each container's first and last row with a sample; without samples the number of rows, and -1."""
    length, count = recording.cpu_millicores.shape
    first = np.full(count, length, dtype=np.int64)
    last = np.full(count, -1, dtype=np.int64)
    # In chunks: a mask of all samples would be as large as the recording.
    for begin in range(0, length, _ROWS_PER_CHUNK):
        known = ~np.isnan(recording.cpu_millicores[begin : begin + _ROWS_PER_CHUNK])
        if recording.has_memory:
            known |= ~np.isnan(recording.memory_bytes[begin : begin + _ROWS_PER_CHUNK])
        sampled = known.any(axis=0)
        first = np.where(sampled & (first == length), begin + known.argmax(axis=0), first)
        last = np.where(sampled, begin + len(known) - 1 - known[::-1].argmax(axis=0), last)
    return first, last


def replay_policy(
    recording: UsageRecording,
    policy: ReplayPolicy,
    options: ReplayOptions,
    *,
    consolidation: ConsolidationSizeBasis = ConsolidationSizeBasis.ADMITTED,
    watched_node: str | None = None,
    on_progress: Callable[[float], None] | None = None,
    scaled: ScaledRecording | None = None,
) -> PolicyScore:
    """Return the score of a policy; `on_progress` receives the completed share, about once per percent.

    Nodes are named node-000, node-001 …; `watched_node` is the one whose time line is recorded, by default the first.
    The same arguments give the same score. With `scaled`, whose recording it is, its HPAs set the number of pods.
    """
    replay = _Replay(recording, policy, options, consolidation, watched_node, scaled)
    length, shown_percent = len(recording.cpu_millicores), 0
    for interval in split_into_intervals(recording, options):
        replay.run_interval(interval)
        if on_progress is not None and interval.end_row * 100 // length > shown_percent:
            shown_percent = interval.end_row * 100 // length
            on_progress(interval.end_row / length)
    return replay.compute_score()


class _Replay:
    """The simulated cluster under one policy, and the counts of its score."""

    def __init__(
        self,
        recording: UsageRecording,
        policy: ReplayPolicy,
        options: ReplayOptions,
        consolidation: ConsolidationSizeBasis,
        watched_node: str | None,
        scaled: ScaledRecording | None,
    ) -> None:
        count = len(recording.containers)
        self._recording = recording
        self._policy = policy
        self._options = options
        self._pods = ReplayedPodState(recording, options)
        self._changes = ChangeCounts(count)
        self._cluster = ReplayedCluster(recording, self._pods, policy, self._changes)
        self._oom_killer = OomKillSimulation(self._pods, self._cluster, policy, self._changes)
        start = recording.start - recording.step_seconds
        self._node_removal = NodeRemoval(self._pods, self._cluster, policy, start, consolidation)
        self._cpu = ReplayResourceTotals(count, options.node.cpu_millicores)
        self._memory = ReplayResourceTotals(count, options.node.memory_bytes)
        self._time_line = NodeTimeLineRecorder(self._pods, watched_node)
        self._totals = ReplayTotals(np.zeros(count, dtype=np.float64))
        memory = self._memory if recording.has_memory else None
        self._hourly_counts = HourlyCountRecorder(recording, self._cpu, memory, self._changes, self._totals)
        self._autoscaling = None if scaled is None else ReplayedAutoscaling(scaled, self._pods, self._cluster)

    def run_interval(self, interval: ReplayInterval) -> None:
        """Create pods, account for usage, kill, observe, decide, apply, remove pods, consolidate nodes."""
        self._hourly_counts.start_hour(interval.start_time)
        self._cluster.create(interval.created_containers, interval.start_time)
        rows = slice(interval.first_row, interval.end_row)
        cpu, memory = self._recording.cpu_millicores[rows], self._recording.memory_bytes[rows]
        if self._autoscaling is None:
            self._account_usage(interval.start_time, cpu, memory)
        else:
            self._scale_by_usage(self._autoscaling, interval, cpu, memory)
        self._policy.observe(interval.end_time, self._hide_pending(cpu), self._hide_pending(memory))
        decision = self._policy.decide(self._pods.get_view(interval.end_time))
        self._time_line.record_decision(decision)
        self._cluster.apply(decision, interval.end_time)
        self._cluster.remove(interval.removed_containers)
        self._node_removal.consolidate(interval.end_time)

    def _scale_by_usage(
        self, autoscaling: ReplayedAutoscaling, interval: ReplayInterval, cpu: Float32Array, memory: Float32Array
    ) -> None:
        """Account for usage sample by sample; after each one HPAs add and remove pods."""
        step = self._recording.step_seconds
        for place in range(len(cpu)):
            rows, start = slice(place, place + 1), interval.start_time + place * step
            self._account_usage(start, cpu[rows], memory[rows])
            autoscaling.sync(interval.first_row + place, start + step)

    def _account_usage(self, start_time: int, cpu: Float32Array, memory: Float32Array) -> None:
        pods, nodes = self._pods, self._pods.nodes
        placements = pods.placements
        step = self._recording.step_seconds
        end_time = start_time + len(cpu) * step
        minutes = (end_time - start_time) / 60
        self._totals.add(minutes, placements.order, nodes.node_count, int(np.count_nonzero(pods.node == PENDING_NODE)))
        cpu_usage = compute_interval_usage(cpu, placements)
        self._cpu.add(cpu_usage, pods.sizes.cpu_millicores, nodes.cpu_millicores)
        memory_usage: IntervalUsage | None = None
        if self._recording.has_memory:
            memory_usage = compute_interval_usage(memory, placements)
            self._memory.add(memory_usage, pods.sizes.memory_bytes, nodes.memory_bytes)
        self._time_line.record_usage(end_time, cpu_usage, memory_usage)
        if memory_usage is not None:
            pods.memory_in_use = memory[-1]
            times = np.arange(start_time + step, end_time + 1, step, dtype=np.int64)
            self._oom_killer.kill(memory, memory_usage, times)

    def _hide_pending(self, rows: Float32Array) -> Float32Array:
        """Return the samples without those of pending pods, which a policy must not see."""
        pending = np.flatnonzero(self._pods.node == PENDING_NODE)
        if pending.size:
            rows = rows.copy()
            rows[:, pending] = np.nan
        else:
            rows = rows.view()
        rows.flags.writeable = False
        return rows

    def compute_score(self) -> PolicyScore:
        """Return the score of everything that was counted."""
        memory = self._memory if self._recording.has_memory else None
        return compute_policy_score(
            self._policy.name,
            self._recording,
            self._options,
            (self._cpu, memory),
            self._changes,
            self._totals,
            self._pods.nodes.peak,
            self._time_line.get_time_line(),
            self._hourly_counts.get_counts(),
            None if self._autoscaling is None else self._autoscaling.get_score(),
        )
