"""One node's time line, pass by pass."""

from collections.abc import Callable, Mapping

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.pods import ReplayedPodState
from cruise.backtest.replay.policy import ReplayDecision
from cruise.backtest.replay.scoring import ChangeCounts, IntervalUsage, ReplayTotals, ResourceAccount
from cruise.domain.backtest import HOUR_SECONDS, HourlyCounts, NodeTimeLine, ReplayCount
from cruise.domain.resources import Float64Array, Int64Array

# The counts of a replay cut into hours and groups of workloads, from sums that are kept anyway.

# Enough to tell workloads apart in a bootstrap, and few enough for a small answer.
MAX_GROUPS = 64

_Columns = Mapping[ReplayCount, Callable[[], Float64Array | Int64Array]]


class HourlyCountRecorder:
    """Takes the difference of all sums whenever an hour is over, so that an interval costs nothing more."""

    def __init__(
        self,
        recording: UsageRecording,
        cpu: ResourceAccount,
        memory: ResourceAccount | None,
        churn: ChangeCounts,
        totals: ReplayTotals,
    ) -> None:
        self._group = recording.workload_containers() % MAX_GROUPS
        self._groups = int(self._group.max(initial=-1)) + 1
        self._totals = totals
        self._columns: _Columns = {
            ReplayCount.CPU_REQUESTED: lambda: cpu.requested,
            ReplayCount.CPU_USED: lambda: cpu.used,
            ReplayCount.CPU_SAMPLES: lambda: cpu.samples,
            ReplayCount.CPU_STARVED: lambda: cpu.starved_samples,
            ReplayCount.CONTAINER_MINUTES: lambda: totals.running_minutes,
            ReplayCount.RESIZES: lambda: churn.resizes,
            ReplayCount.EVICTIONS: lambda: churn.evictions,
            ReplayCount.CONSOLIDATION_MOVES: lambda: churn.moves,
        }
        if memory is not None:
            self._columns |= {
                ReplayCount.MEMORY_REQUESTED: lambda: memory.requested,
                ReplayCount.MEMORY_USED: lambda: memory.used,
                ReplayCount.OOM_KILLS: lambda: churn.oom_kills,
            }
        self._hour: int | None = None
        self._before = self._sums()
        self._found: dict[ReplayCount, list[Float64Array]] = {count: [] for count in self._before}

    def start_hour(self, since: int) -> None:
        """Begin an interval, in whose hour everything counts that comes until the next."""
        hour = since // HOUR_SECONDS
        if self._hour is not None and hour != self._hour:
            self._close()
        self._hour = hour

    def get_counts(self) -> HourlyCounts:
        """Close the last hour, and return all of them."""
        self._close()
        return HourlyCounts({count: np.stack(rows) for count, rows in self._found.items()})

    def _close(self) -> None:
        now = self._sums()
        for count, sums in now.items():
            self._found[count].append(sums - self._before[count])
        self._before = now

    def _sums(self) -> dict[ReplayCount, Float64Array]:
        found = {count: self._grouped(column()) for count, column in self._columns.items()}
        found[ReplayCount.NODE_MINUTES] = np.array([self._totals.node_minutes])
        found[ReplayCount.MINUTES] = np.array([self._totals.minutes])
        return found

    def _grouped(self, column: Float64Array | Int64Array) -> Float64Array:
        return np.bincount(self._group, weights=column, minlength=self._groups).astype(np.float64)


def format_replayed_node_name(index: int) -> str:
    """Return what the node of an index is called."""
    return f"node-{index:03d}"


class TimeLineRecorder:
    """Keeps one entry an interval: requests, base and headroom as they were in force in it, and the use.

    A node that is not there has zeros; `node` is its name, None for the first.
    """

    def __init__(self, pods: ReplayedPodState, node: str | None) -> None:
        self._pods = pods
        self._name = format_replayed_node_name(0) if node is None else node
        digits = self._name.removeprefix("node-")
        self._index = (
            int(digits) if digits.isdecimal() and format_replayed_node_name(int(digits)) == self._name else None
        )
        self._rows: list[tuple[int, ...]] = []
        self._wanted: list[tuple[int, int, int, int]] = []
        self._now = (0, 0, 0, 0)
        self._known = False

    def record_usage(self, at: int, cpu: IntervalUsage, memory: IntervalUsage | None) -> None:
        """Take in an interval, before anything is changed at its end."""
        nodes = self._pods.nodes
        requested = (0, 0)
        if self._index is not None and self._index < len(nodes.exists):
            requested = int(nodes.cpu_millicores[self._index]), int(nodes.memory_bytes[self._index])
        self._rows.append((at, *requested, self._peak(cpu), 0 if memory is None else self._peak(memory)))
        self._wanted.append(self._now)

    def _peak(self, demand: IntervalUsage) -> int:
        (place,) = np.nonzero(demand.placements.nodes == self._index)
        return int(np.ceil(demand.sums[:, place].max())) if place.size else 0

    def record_decision(self, decision: ReplayDecision) -> None:
        """Take in what a policy thinks that the node needs from now on."""
        if decision.base is None or decision.headroom is None:
            return
        self._known = True
        columns = (*decision.base, *decision.headroom)
        cpu_base, memory_base, cpu_headroom, memory_headroom = (
            int(column[self._index]) if self._index is not None and self._index < len(column) else 0
            for column in columns
        )
        self._now = (cpu_base, memory_base, cpu_headroom, memory_headroom)

    def get_time_line(self) -> NodeTimeLine:
        """Return the whole line."""
        rows = np.array(self._rows, dtype=np.int64).reshape(-1, 5)
        wanted = np.array(self._wanted, dtype=np.int64).reshape(-1, 4)
        base: list[Int64Array | None] = [column.copy() for column in wanted.T] if self._known else [None] * 4
        return NodeTimeLine(
            self._name,
            rows[:, 0].copy(),
            self._pods.nodes.allocatable,
            requested_cpu_millicores=rows[:, 1].copy(),
            requested_memory_bytes=rows[:, 2].copy(),
            peak_cpu_millicores=rows[:, 3].copy(),
            peak_memory_bytes=rows[:, 4].copy(),
            base_cpu_millicores=base[0],
            base_memory_bytes=base[1],
            headroom_cpu_millicores=base[2],
            headroom_memory_bytes=base[3],
        )
