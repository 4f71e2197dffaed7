"""Records the counts of a replay by hour and group of workloads, and the time line of one node."""

from collections.abc import Callable, Mapping

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.nodes import format_node_name
from cruise.backtest.replay.pods import ReplayedPodState
from cruise.backtest.replay.policy import ReplayDecision
from cruise.backtest.replay.scoring import ChangeCounts, IntervalUsage, ReplayTotals, ResourceAccount
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.backtest import HOUR_SECONDS, HourlyCounts, NodeTimeLine, ReplayCount

# Enough to tell workloads apart in a bootstrap, and few enough for a small result.
MAX_GROUPS = 64

_Columns = Mapping[ReplayCount, Callable[[], Float64Array | Int64Array]]


class HourlyCountRecorder:
    """Records counts by hour, as differences of the replay's sums: intervals cost nothing extra."""

    def __init__(
        self,
        recording: UsageRecording,
        cpu: ResourceAccount,
        memory: ResourceAccount | None,
        changes: ChangeCounts,
        totals: ReplayTotals,
    ) -> None:
        self._group = recording.number_workload_containers() % MAX_GROUPS
        self._groups = int(self._group.max(initial=-1)) + 1
        self._totals = totals
        self._columns: _Columns = {
            ReplayCount.CPU_REQUESTED: lambda: cpu.requested,
            ReplayCount.CPU_USED: lambda: cpu.used,
            ReplayCount.CPU_SAMPLES: lambda: cpu.samples,
            ReplayCount.CPU_STARVED: lambda: cpu.starved_samples,
            ReplayCount.CONTAINER_MINUTES: lambda: totals.running_minutes,
            ReplayCount.RESIZES: lambda: changes.resizes,
            ReplayCount.EVICTIONS: lambda: changes.evictions,
            ReplayCount.CONSOLIDATION_MOVES: lambda: changes.moves,
        }
        if memory is not None:
            self._columns |= {
                ReplayCount.MEMORY_REQUESTED: lambda: memory.requested,
                ReplayCount.MEMORY_USED: lambda: memory.used,
                ReplayCount.OOM_KILLS: lambda: changes.oom_kills,
            }
        self._hour: int | None = None
        self._previous_sums = self._compute_sums()
        self._hours: dict[ReplayCount, list[Float64Array]] = {count: [] for count in self._previous_sums}

    def start_hour(self, start_time: int) -> None:
        """Start an interval; what is counted until the next call belongs to the hour of its start."""
        hour = start_time // HOUR_SECONDS
        if self._hour is not None and hour != self._hour:
            self._finish_hour()
        self._hour = hour

    def get_counts(self) -> HourlyCounts:
        """Finish the last hour and return the counts of all hours."""
        self._finish_hour()
        return HourlyCounts({count: np.stack(rows) for count, rows in self._hours.items()})

    def _finish_hour(self) -> None:
        current = self._compute_sums()
        for count, sums in current.items():
            self._hours[count].append(sums - self._previous_sums[count])
        self._previous_sums = current

    def _compute_sums(self) -> dict[ReplayCount, Float64Array]:
        sums = {count: self._sum_by_group(column()) for count, column in self._columns.items()}
        sums[ReplayCount.NODE_MINUTES] = np.array([self._totals.node_minutes])
        sums[ReplayCount.MINUTES] = np.array([self._totals.minutes])
        return sums

    def _sum_by_group(self, column: Float64Array | Int64Array) -> Float64Array:
        return np.bincount(self._group, weights=column, minlength=self._groups).astype(np.float64)


class TimeLineRecorder:
    """Records the requests, base, headroom and usage of one node, one entry per interval; zeros while it is absent."""

    def __init__(self, pods: ReplayedPodState, node: str | None) -> None:
        """Record the node of a name, None for the first node."""
        self._pods = pods
        self._name = format_node_name(0) if node is None else node
        digits = self._name.removeprefix("node-")
        self._index = int(digits) if digits.isdecimal() and format_node_name(int(digits)) == self._name else None
        self._rows: list[tuple[int, ...]] = []
        self._needs: list[tuple[int, int, int, int]] = []
        self._current_needs = (0, 0, 0, 0)
        self._has_needs = False

    def record_usage(self, time: int, cpu: IntervalUsage, memory: IntervalUsage | None) -> None:
        """Record an interval, before the changes of its pass."""
        nodes = self._pods.nodes
        requested = (0, 0)
        if self._index is not None and self._index < len(nodes.exists):
            requested = int(nodes.cpu_millicores[self._index]), int(nodes.memory_bytes[self._index])
        peaks = self._get_peak(cpu), 0 if memory is None else self._get_peak(memory)
        self._rows.append((time, *requested, *peaks))
        self._needs.append(self._current_needs)

    def _get_peak(self, usage: IntervalUsage) -> int:
        (place,) = np.nonzero(usage.placements.nodes == self._index)
        return int(np.ceil(usage.node_sums[:, place].max())) if place.size else 0

    def record_decision(self, decision: ReplayDecision) -> None:
        """Record the base and headroom that apply from now on."""
        if decision.base is None or decision.headroom is None:
            return
        self._has_needs = True
        columns = (*decision.base, *decision.headroom)
        cpu_base, memory_base, cpu_headroom, memory_headroom = (
            int(column[self._index]) if self._index is not None and self._index < len(column) else 0
            for column in columns
        )
        self._current_needs = (cpu_base, memory_base, cpu_headroom, memory_headroom)

    def get_time_line(self) -> NodeTimeLine:
        """Return the recorded time line."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 5)
        needs = np.array(self._needs, dtype=np.int64).reshape(-1, 4)
        columns: list[Int64Array | None] = [column.copy() for column in needs.T] if self._has_needs else [None] * 4
        return NodeTimeLine(
            self._name,
            rows[:, 0].copy(),
            self._pods.nodes.allocatable,
            requested_cpu_millicores=rows[:, 1].copy(),
            requested_memory_bytes=rows[:, 2].copy(),
            peak_cpu_millicores=rows[:, 3].copy(),
            peak_memory_bytes=rows[:, 4].copy(),
            base_cpu_millicores=columns[0],
            base_memory_bytes=columns[1],
            headroom_cpu_millicores=columns[2],
            headroom_memory_bytes=columns[3],
        )
