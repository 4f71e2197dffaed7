"""What a cluster requests beyond its targets, workload by workload."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.sizing.outlook import counted_when_sized, sizes_as_planned, sizes_at_targets
from cruise.domain.actions import Reason
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.usage import StatisticsTable

HOURS_A_MONTH = 730


@dataclass(frozen=True, slots=True)
class Prices:
    """What an hour of a resource costs; in the currency of the settings."""

    cpu_core_hour: float
    memory_gib_hour: float

    def month(self, amount: Resources) -> float:
        """Return the price of an amount for a month of 730 hours."""
        hour = (
            amount.cpu_millicores / 1000 * self.cpu_core_hour + amount.memory_bytes / (1 << 30) * self.memory_gib_hour
        )
        return hour * HOURS_A_MONTH


@dataclass(frozen=True, slots=True)
class WorkloadWaste:
    """One workload's requests as kube-scheduler counts them, now, at the targets, and as planned; `used` are its bases.

    `recommended` is what its containers should have (the `targets` of the node plans), `planned` what they have once
    the plans' resizes are written. `share` is that of the cluster's allocatable which is reclaimable, CPU and memory
    averaged; negative where the workload needs more than it requests. `held` counts its pods that are left as they are,
    `held_reason` the most frequent reason.
    """

    namespace: str
    workload: str
    pods: int
    requested: Resources
    recommended: Resources
    planned: Resources
    used: Resources
    share: float
    held: int
    held_reason: Reason | None

    @staticmethod
    def without_pods(namespace: str, workload: str) -> "WorkloadWaste":
        """Return the sums of a workload of which no pod runs."""
        none = NO_RESOURCES
        return WorkloadWaste(namespace, workload, 0, none, none, none, none, 0.0, 0, None)

    @property
    def reclaimable(self) -> Resources:
        """What is requested beyond the target; negative where the target is more."""
        return self.requested - self.recommended


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole cluster: sums over all pods on nodes, as kube-scheduler counts them, `used` where it is known."""

    allocatable: Resources
    requested: Resources
    recommended: Resources
    planned: Resources
    used: Resources

    @property
    def reclaimable(self) -> Resources:
        """What is requested beyond the targets, net: what some workloads should have more is taken off."""
        return self.requested - self.recommended


@dataclass(slots=True)
class _Sum:
    pods: int = 0
    requested: Resources = NO_RESOURCES
    recommended: Resources = NO_RESOURCES
    planned: Resources = NO_RESOURCES
    used_cpu: int = 0
    used_memory: int = 0
    held: Counter[Reason] = field(default_factory=Counter)


def estimate_waste(
    snapshot: Snapshot, statistics: StatisticsTable, plans: Sequence[NodePlan]
) -> tuple[tuple[WorkloadWaste, ...], Totals]:
    """Return all workloads with pods on nodes, the largest share of the cluster first, and the totals.

    A pod without a target, since it is left out of sizing or evicted to be placed anew, counts as it is.
    """
    targets: dict[tuple[str, str], Mapping[str, Resources]] = {}
    planned: dict[tuple[str, str], Mapping[str, Resources]] = {}
    for plan in plans:
        targets |= sizes_at_targets(plan)
        planned |= sizes_as_planned(plan)
    held = {(hold.namespace, hold.pod): hold.reason for plan in plans for hold in plan.hold}
    sums: dict[tuple[str, str], _Sum] = {}
    used = _UsedSoFar(statistics)
    for pod in snapshot.pods:
        if pod.node is None or pod.terminal:
            continue
        total = sums.setdefault((pod.namespace, pod.workload_name), _Sum())
        _add(total, pod, targets.get((pod.namespace, pod.name)), planned.get((pod.namespace, pod.name)))
        used.add(total, pod)
        reason = held.get((pod.namespace, pod.name))
        if reason is not None:
            total.held[reason] += 1
    allocatable = _sum(node.allocatable for node in snapshot.nodes)
    rows = [_row(*place, total, allocatable) for place, total in sums.items()]
    totals = Totals(
        allocatable,
        _sum(row.requested for row in rows),
        _sum(row.recommended for row in rows),
        _sum(row.planned for row in rows),
        _sum(row.used for row in rows),
    )
    return tuple(sorted(rows, key=lambda row: (-row.share, row.namespace, row.workload))), totals


def _add(
    total: _Sum, pod: Pod, targets: Mapping[str, Resources] | None, planned: Mapping[str, Resources] | None
) -> None:
    requested = counted_requests(pod)
    total.pods += 1
    total.requested += requested
    total.recommended += requested if targets is None else counted_when_sized(pod, targets)
    total.planned += requested if planned is None else counted_when_sized(pod, planned)


class _UsedSoFar:
    """Adds up bases; the columns as plain numbers, since there may be 225,000."""

    def __init__(self, statistics: StatisticsTable) -> None:
        self._find = statistics.find
        self._cpu = statistics.cpu_base_millicores.tolist()
        self._memory = statistics.memory_base_bytes.tolist()

    def add(self, total: _Sum, pod: Pod) -> None:
        """Add a pod's bases to its workload's."""
        for container in pod.sized_containers:
            row = self._find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
            if row is not None:
                total.used_cpu += self._cpu[row]
                total.used_memory += self._memory[row]


def _row(namespace: str, workload: str, total: _Sum, allocatable: Resources) -> WorkloadWaste:
    reclaimable = total.requested - total.recommended
    share = (
        reclaimable.cpu_millicores / max(1, allocatable.cpu_millicores)
        + reclaimable.memory_bytes / max(1, allocatable.memory_bytes)
    ) / 2
    most_common = total.held.most_common(1)
    return WorkloadWaste(
        namespace=namespace,
        workload=workload,
        pods=total.pods,
        requested=total.requested,
        recommended=total.recommended,
        planned=total.planned,
        used=Resources(total.used_cpu, total.used_memory),
        share=share,
        held=total.held.total(),
        held_reason=most_common[0][0] if most_common else None,
    )


def _sum(amounts: Iterable[Resources]) -> Resources:
    return sum(amounts, NO_RESOURCES)
