"""The score of a replay, from what was counted in it."""

from dataclasses import dataclass

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.pods import PlacedContainers
from cruise.backtest.replay.policy import ReplayOptions
from cruise.domain.backtest import ContainerScore, HourlyCounts, NodeTimeLine, PolicyScore, ResourceScore
from cruise.domain.resources import Float32Array, Float64Array, Int64Array

# What the placed containers used in one interval, and the sums over their nodes.


@dataclass(frozen=True, slots=True)
class IntervalUsage:
    """One resource in one interval of S samples: `used` is (S, placed containers in the order of `places`).

    `sums` is (S, nodes of `places`), `samples` how many samples each container has. No sample is no use.
    """

    placements: PlacedContainers
    used: Float64Array
    samples: Int64Array
    sums: Float64Array

    @property
    def get_peaks(self) -> Float64Array:
        """The largest sum of each node."""
        peaks: Float64Array = self.sums.max(axis=0)
        return peaks


def compute_interval_usage(rows: Float32Array, places: PlacedContainers) -> IntervalUsage:
    """Sum up one interval's samples, a matrix with one row a time and one column a container."""
    used = rows.take(places.order, axis=1).astype(np.float64)
    unknown = np.isnan(used)
    samples = np.full(len(places.order), len(used), dtype=np.int64)
    if unknown.any():
        used[unknown] = 0.0
        samples -= np.count_nonzero(unknown, axis=0)
    sums = np.add.reduceat(used, places.starts, axis=1) if places.starts.size else np.zeros((len(used), 0))
    return IntervalUsage(places, used, samples, sums)


# The sums behind a policy's score: what was requested, used, starved and short, in double precision.


class ResourceAccount:
    """One resource over a replay; columns with one entry a container, counted in samples.

    Requests are those in force as an interval begins; demand is as it was recorded, kills or not.
    """

    def __init__(self, containers: int, allocatable: int) -> None:
        self._allocatable = allocatable
        self.requested: Float64Array = np.zeros(containers, dtype=np.float64)
        self.used: Float64Array = np.zeros(containers, dtype=np.float64)
        self.samples: Int64Array = np.zeros(containers, dtype=np.int64)
        self.starved_samples: Int64Array = np.zeros(containers, dtype=np.int64)
        self._short = 0
        self._node_intervals = 0

    def add(self, demand: IntervalUsage, requests: Int64Array, node_requests: Int64Array) -> None:
        """Take in one interval: `requests` with one entry a container, `node_requests` one a node index."""
        places = demand.placements
        order, requested = places.order, requests[places.order]
        self.requested[order] += requested * demand.samples
        self.used[order] += demand.used.sum(axis=0)
        self.samples[order] += demand.samples
        self._node_intervals += len(places.nodes)
        self._short += int(np.count_nonzero(demand.get_peaks > node_requests[places.nodes]))
        over = demand.sums > self._allocatable
        if over.any():
            starved = (demand.used > requested) & over[:, places.row_of_container]
            self.starved_samples[order] += np.count_nonzero(starved, axis=0)

    def score(self) -> ResourceScore:
        """Return the shares; 0 where there is nothing to share."""
        requested, samples = float(self.requested.sum()), int(self.samples.sum())
        slack = requested - float(self.used.sum())
        return ResourceScore(
            relative_slack=slack / requested if requested else 0.0,
            starved_share=int(self.starved_samples.sum()) / samples if samples else 0.0,
            short_share=self._short / self._node_intervals if self._node_intervals else 0.0,
            mean_slack=slack / samples if samples else 0.0,
        )

    def mean_slack(self) -> Float64Array:
        """Return each container's mean of request − use."""
        slack: Float64Array = (self.requested - self.used) / np.maximum(self.samples, 1)
        return slack


# How often sizes were written into running pods and taken back, and pods evicted and killed.

REVERSAL_SECONDS = 86400


class ChangeCounts:
    """Counts with one entry a container.

    A resize is a reversal if one of its resources goes the other way than it last went, no longer than 24 hours ago,
    in the same pod. `moves` are those of the evictions that consolidation made.
    """

    def __init__(self, containers: int) -> None:
        self.resizes: Int64Array = np.zeros(containers, dtype=np.int64)
        self.evictions: Int64Array = np.zeros(containers, dtype=np.int64)
        self.oom_kills: Int64Array = np.zeros(containers, dtype=np.int64)
        self.moves: Int64Array = np.zeros(containers, dtype=np.int64)
        self.reversals = 0
        self._went: Int64Array = np.zeros((2, containers), dtype=np.int64)
        self._went_at: Int64Array = np.zeros((2, containers), dtype=np.int64)

    def count_resizes(self, containers: Int64Array, cpu_change: Int64Array, memory_change: Int64Array, at: int) -> None:
        """Take note of resizes done, each container once."""
        self.resizes[containers] += 1
        reversed_now = np.zeros(len(containers), dtype=np.bool_)
        for went, went_at, change in zip(self._went, self._went_at, (cpu_change, memory_change), strict=True):
            moved = change != 0
            way, where = np.sign(change[moved]), containers[moved]
            reversed_now[moved] |= (went[where] == -way) & (at - went_at[where] <= REVERSAL_SECONDS)
            went[where], went_at[where] = way, at
        self.reversals += int(np.count_nonzero(reversed_now))

    def count_creation(self, containers: Int64Array) -> None:
        """Forget which way the sizes of replaced pods went."""
        self._went[:, containers] = 0


WORST_CONTAINERS = 10
_GIBIBYTE = 1 << 30
_DAY_MINUTES = 1440


@dataclass(slots=True)
class ReplayTotals:
    """Minutes of the replay, and of running and pending containers and of nodes, each counted.

    `running_minutes` has one entry a container.
    """

    running_minutes: Float64Array
    minutes: float = 0.0
    container_minutes: float = 0.0
    node_minutes: float = 0.0
    pending_minutes: float = 0.0

    def add(self, minutes: float, running: Int64Array, nodes: int, pending: int) -> None:
        """Take in one interval, in which some containers ran."""
        self.minutes += minutes
        self.running_minutes[running] += minutes
        self.container_minutes += minutes * len(running)
        self.node_minutes += minutes * nodes
        self.pending_minutes += minutes * pending


def compute_policy_score(
    policy: str,
    recording: UsageRecording,
    options: ReplayOptions,
    accounts: tuple[ResourceAccount, ResourceAccount | None],
    churn: ChangeCounts,
    totals: ReplayTotals,
    nodes_peak: int,
    time_line: NodeTimeLine,
    cells: HourlyCounts,
) -> PolicyScore:
    """Sum a replay up; `accounts` are those of CPU and memory."""
    cpu, memory = accounts
    days = totals.container_minutes / _DAY_MINUTES
    resizes = int(churn.resizes.sum())
    return PolicyScore(
        policy=policy,
        cpu=cpu.score(),
        memory=None if memory is None else memory.score(),
        oom_per_1000_container_days=_ratio(1000 * int(churn.oom_kills.sum()), days),
        resizes_per_container_day=_ratio(resizes, days),
        resize_reversal_share=_ratio(churn.reversals, resizes),
        evictions_per_1000_pod_days=_ratio(1000 * int(churn.evictions.sum()), days),
        moves_per_1000_pod_days=_ratio(1000 * int(churn.moves.sum()), days),
        nodes_mean=_ratio(totals.node_minutes, totals.minutes),
        nodes_peak=nodes_peak,
        pending_pod_minutes=totals.pending_minutes,
        container_days=days,
        cost=_cost(options, totals.node_minutes / 60),
        worst_containers=_worst(recording, options, cpu, memory, churn),
        time_line=time_line,
        hourly_counts=cells,
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _cost(options: ReplayOptions, node_hours: float) -> float | None:
    """Return what the nodes cost, None without any price: nodes are what is paid for, not requests."""
    if options.price_core_hour is None and options.price_gibibyte_hour is None:
        return None
    cpu = options.node.cpu_millicores / 1000 * (options.price_core_hour or 0.0)
    memory = options.node.memory_bytes / _GIBIBYTE * (options.price_gibibyte_hour or 0.0)
    return node_hours * (cpu + memory)


def _worst(
    recording: UsageRecording,
    options: ReplayOptions,
    cpu: ResourceAccount,
    memory: ResourceAccount | None,
    churn: ChangeCounts,
) -> tuple[ContainerScore, ...]:
    """Return the worst containers: most kills, then most starved, then most slack as shares of a node."""
    cpu_slack = cpu.mean_slack()
    memory_slack: Float64Array = np.zeros_like(cpu_slack) if memory is None else memory.mean_slack()
    starved = (
        (cpu.starved_samples if memory is None else cpu.starved_samples + memory.starved_samples)
        * recording.step_seconds
        / 60
    )
    slack = cpu_slack / max(1, options.node.cpu_millicores) + memory_slack / max(1, options.node.memory_bytes)
    order = np.lexsort((-slack, -starved, -churn.oom_kills))[:WORST_CONTAINERS]
    return tuple(
        ContainerScore(
            namespace=recording.containers[index].namespace,
            workload=str(recording.containers[index].workload),
            pod=recording.containers[index].pod,
            cpu_slack_millicores=float(cpu_slack[index]),
            memory_slack_bytes=float(memory_slack[index]),
            starved_minutes=float(starved[index]),
            oom_kills=int(churn.oom_kills[index]),
            evictions=int(churn.evictions[index]),
            resizes=int(churn.resizes[index]),
        )
        for index in order.tolist()
    )
