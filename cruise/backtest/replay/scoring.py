"""Counts usage, requests and changes of a replay, by hour and group of workloads, and computes the policy's score."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.nodes import PlacedContainers, ReplayedPodState, format_node_name
from cruise.backtest.replay.policy import ReplayDecision, ReplayOptions
from cruise.domain.arrays import Float32Array, Float64Array, Int64Array
from cruise.domain.backtest import (
    HOUR_SECONDS,
    AutoscalingScore,
    ContainerScore,
    HourlyCounts,
    NodeTimeLine,
    PolicyScore,
    ReplayQuantity,
    ResourceScore,
)

REVERSAL_SECONDS = 86400
WORST_CONTAINERS = 10
_DAY_MINUTES = 1440


@dataclass(frozen=True, slots=True)
class IntervalUsage:
    """The usage of one resource in one interval of S samples; a missing sample counts as 0.

    `used` is a matrix (S, placed containers in the order of `placements`), `node_sums` a matrix (S, their nodes);
    `samples` has each container's number of samples.
    """

    placements: PlacedContainers
    used: Float64Array
    samples: Int64Array
    node_sums: Float64Array

    @property
    def node_peaks(self) -> Float64Array:
        """The largest usage of each node."""
        peaks: Float64Array = self.node_sums.max(axis=0)
        return peaks


def compute_interval_usage(rows: Float32Array, placements: PlacedContainers) -> IntervalUsage:
    """Sum the samples of one interval, a matrix (times, containers), over nodes."""
    used = rows.take(placements.order, axis=1).astype(np.float64)
    unknown = np.isnan(used)
    samples = np.full(len(placements.order), len(used), dtype=np.int64)
    if unknown.any():
        used[unknown] = 0.0
        samples -= np.count_nonzero(unknown, axis=0)
    has_nodes = placements.starts.size
    sums = np.add.reduceat(used, placements.starts, axis=1) if has_nodes else np.zeros((len(used), 0))
    return IntervalUsage(placements, used, samples, sums)


class ReplayResourceTotals:
    """The sums of one resource over a replay; columns have one entry per container and count samples.

    Requests are those at the start of an interval. Usage is as recorded, also after a kill.
    """

    def __init__(self, containers: int, allocatable: int) -> None:
        self._allocatable = allocatable
        self.requested: Float64Array = np.zeros(containers, dtype=np.float64)
        self.used: Float64Array = np.zeros(containers, dtype=np.float64)
        self.samples: Int64Array = np.zeros(containers, dtype=np.int64)
        self.starved_samples: Int64Array = np.zeros(containers, dtype=np.int64)
        self._short_node_intervals = 0
        self._node_intervals = 0

    def add(self, usage: IntervalUsage, requests: Int64Array, node_requests: Int64Array) -> None:
        """Add one interval; `requests` has one entry per container, `node_requests` one per node index."""
        placements = usage.placements
        order, requested = placements.order, requests[placements.order]
        self.requested[order] += requested * usage.samples
        self.used[order] += usage.used.sum(axis=0)
        self.samples[order] += usage.samples
        self._node_intervals += len(placements.nodes)
        self._short_node_intervals += int(np.count_nonzero(usage.node_peaks > node_requests[placements.nodes]))
        exceeded = usage.node_sums > self._allocatable
        if exceeded.any():
            starved = (usage.used > requested) & exceeded[:, placements.row_of_container]
            self.starved_samples[order] += np.count_nonzero(starved, axis=0)

    def build_score(self) -> ResourceScore:
        """Return the resource's part of the score; shares of nothing are 0."""
        requested, samples = float(self.requested.sum()), int(self.samples.sum())
        slack = requested - float(self.used.sum())
        return ResourceScore(
            relative_slack=slack / requested if requested else 0.0,
            starved_share=int(self.starved_samples.sum()) / samples if samples else 0.0,
            short_share=self._short_node_intervals / self._node_intervals if self._node_intervals else 0.0,
            mean_slack=slack / samples if samples else 0.0,
        )

    def compute_mean_slack(self) -> Float64Array:
        """Return each container's mean request − usage."""
        slack: Float64Array = (self.requested - self.used) / np.maximum(self.samples, 1)
        return slack


class ChangeCounts:
    """Counts of resizes, evictions and kills, one entry per container.

    A resize is a reversal if it moves a resource of the same pod in the other direction than a resize of the last 24
    hours did. `moves` are the evictions made by consolidation.
    """

    def __init__(self, containers: int) -> None:
        self.resizes: Int64Array = np.zeros(containers, dtype=np.int64)
        self.evictions: Int64Array = np.zeros(containers, dtype=np.int64)
        self.oom_kills: Int64Array = np.zeros(containers, dtype=np.int64)
        self.moves: Int64Array = np.zeros(containers, dtype=np.int64)
        self.reversals = 0
        self._directions: Int64Array = np.zeros((2, containers), dtype=np.int64)
        self._resized_at: Int64Array = np.zeros((2, containers), dtype=np.int64)

    def count_resizes(
        self, containers: Int64Array, cpu_change: Int64Array, memory_change: Int64Array, time: int
    ) -> None:
        """Count resizes; each container occurs once."""
        self.resizes[containers] += 1
        is_reversal = np.zeros(len(containers), dtype=np.bool_)
        resource_changes = (cpu_change, memory_change)
        for directions, resized_at, change in zip(self._directions, self._resized_at, resource_changes, strict=True):
            changed = change != 0
            direction, places = np.sign(change[changed]), containers[changed]
            is_recent = time - resized_at[places] <= REVERSAL_SECONDS
            is_reversal[changed] |= (directions[places] == -direction) & is_recent
            directions[places], resized_at[places] = direction, time
        self.reversals += int(np.count_nonzero(is_reversal))

    def count_creation(self, containers: Int64Array) -> None:
        """Forget the resizes of the pods that were replaced."""
        self._directions[:, containers] = 0


@dataclass(slots=True)
class ReplayTotals:
    """Minutes of the replay, and summed minutes of containers, nodes and pending pods.

    `running_minutes` has one entry per container.
    """

    running_minutes: Float64Array
    minutes: float = 0.0
    container_minutes: float = 0.0
    node_minutes: float = 0.0
    pending_minutes: float = 0.0

    def add(self, minutes: float, running: Int64Array, nodes: int, pending: int) -> None:
        """Add one interval and the containers that ran in it."""
        self.minutes += minutes
        self.running_minutes[running] += minutes
        self.container_minutes += minutes * len(running)
        self.node_minutes += minutes * nodes
        self.pending_minutes += minutes * pending


def compute_policy_score(
    policy: str,
    recording: UsageRecording,
    options: ReplayOptions,
    accounts: tuple[ReplayResourceTotals, ReplayResourceTotals | None],
    changes: ChangeCounts,
    totals: ReplayTotals,
    nodes_peak: int,
    time_line: NodeTimeLine,
    hourly_counts: HourlyCounts,
    autoscaling: AutoscalingScore | None,
) -> PolicyScore:
    """Compute the score of a replay; `accounts` are those of CPU and memory."""
    cpu, memory = accounts
    days = totals.container_minutes / _DAY_MINUTES
    resizes, prices = int(changes.resizes.sum()), options.prices
    return PolicyScore(
        policy=policy,
        cpu=cpu.build_score(),
        memory=None if memory is None else memory.build_score(),
        oom_per_1000_container_days=_divide(1000 * int(changes.oom_kills.sum()), days),
        resizes_per_container_day=_divide(resizes, days),
        resize_reversal_share=_divide(changes.reversals, resizes),
        evictions_per_1000_pod_days=_divide(1000 * int(changes.evictions.sum()), days),
        moves_per_1000_pod_days=_divide(1000 * int(changes.moves.sum()), days),
        nodes_mean=_divide(totals.node_minutes, totals.minutes),
        nodes_peak=nodes_peak,
        pending_pod_minutes=totals.pending_minutes,
        container_days=days,
        # Requests cost nothing, nodes do.
        cost=None if prices is None else totals.node_minutes / 60 * prices.compute_hourly_cost(options.node),
        worst_containers=_find_worst_containers(recording, options, cpu, memory, changes),
        time_line=time_line,
        hourly_counts=hourly_counts,
        autoscaling=autoscaling,
    )


def _divide(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _find_worst_containers(
    recording: UsageRecording,
    options: ReplayOptions,
    cpu: ReplayResourceTotals,
    memory: ReplayResourceTotals | None,
    changes: ChangeCounts,
) -> tuple[ContainerScore, ...]:
    """Return the containers with the most kills, then starved minutes, then slack as shares of a node."""
    cpu_slack = cpu.compute_mean_slack()
    memory_slack: Float64Array = np.zeros_like(cpu_slack) if memory is None else memory.compute_mean_slack()
    starved = (
        (cpu.starved_samples if memory is None else cpu.starved_samples + memory.starved_samples)
        * recording.step_seconds
        / 60
    )
    slack = cpu_slack / max(1, options.node.cpu_millicores) + memory_slack / max(1, options.node.memory_bytes)
    order = np.lexsort((-slack, -starved, -changes.oom_kills))[:WORST_CONTAINERS]
    return tuple(
        ContainerScore(
            namespace=recording.containers[index].namespace,
            workload=str(recording.containers[index].workload),
            pod=recording.containers[index].pod,
            cpu_slack_millicores=float(cpu_slack[index]),
            memory_slack_bytes=float(memory_slack[index]),
            starved_minutes=float(starved[index]),
            oom_kills=int(changes.oom_kills[index]),
            evictions=int(changes.evictions[index]),
            resizes=int(changes.resizes[index]),
        )
        for index in order.tolist()
    )


# Enough to tell workloads apart in a bootstrap, and few enough for a small result.
MAX_GROUPS = 64

_Columns = Mapping[ReplayQuantity, Callable[[], Float64Array | Int64Array]]


class HourlyCountRecorder:
    """Records counts by hour, as differences of the replay's sums: intervals cost nothing extra."""

    def __init__(
        self,
        recording: UsageRecording,
        cpu: ReplayResourceTotals,
        memory: ReplayResourceTotals | None,
        changes: ChangeCounts,
        totals: ReplayTotals,
    ) -> None:
        self._group = recording.number_workload_containers() % MAX_GROUPS
        self._groups = int(self._group.max(initial=-1)) + 1
        self._totals = totals
        self._columns: _Columns = {
            ReplayQuantity.CPU_REQUESTED: lambda: cpu.requested,
            ReplayQuantity.CPU_USED: lambda: cpu.used,
            ReplayQuantity.CPU_SAMPLES: lambda: cpu.samples,
            ReplayQuantity.CPU_STARVED: lambda: cpu.starved_samples,
            ReplayQuantity.CONTAINER_MINUTES: lambda: totals.running_minutes,
            ReplayQuantity.RESIZES: lambda: changes.resizes,
            ReplayQuantity.EVICTIONS: lambda: changes.evictions,
            ReplayQuantity.CONSOLIDATION_MOVES: lambda: changes.moves,
        }
        if memory is not None:
            self._columns |= {
                ReplayQuantity.MEMORY_REQUESTED: lambda: memory.requested,
                ReplayQuantity.MEMORY_USED: lambda: memory.used,
                ReplayQuantity.OOM_KILLS: lambda: changes.oom_kills,
            }
        self._hour: int | None = None
        self._previous_sums = self._compute_sums()
        self._hours: dict[ReplayQuantity, list[Float64Array]] = {count: [] for count in self._previous_sums}

    def start_hour(self, start_time: int) -> None:
        """Start an interval; what is counted until the next call belongs to the hour of its start."""
        hour = start_time // HOUR_SECONDS
        if self._hour is not None and hour != self._hour:
            self._finish_hour()
        self._hour = hour

    def get_counts(self) -> HourlyCounts:
        """Finish the last hour and return the counts of all hours."""
        self._finish_hour()
        return {count: np.stack(rows) for count, rows in self._hours.items()}

    def _finish_hour(self) -> None:
        current = self._compute_sums()
        for count, sums in current.items():
            self._hours[count].append(sums - self._previous_sums[count])
        self._previous_sums = current

    def _compute_sums(self) -> dict[ReplayQuantity, Float64Array]:
        sums = {count: self._sum_by_group(column()) for count, column in self._columns.items()}
        sums[ReplayQuantity.NODE_MINUTES] = np.array([self._totals.node_minutes])
        sums[ReplayQuantity.MINUTES] = np.array([self._totals.minutes])
        return sums

    def _sum_by_group(self, column: Float64Array | Int64Array) -> Float64Array:
        return np.bincount(self._group, weights=column, minlength=self._groups).astype(np.float64)


class NodeTimeLineRecorder:
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
