"""What a cluster requests beyond its targets, by workload."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.revert import OriginalSizesByUid
from cruise.decisions.sizing.container_sizes import PlannedContainerSizes
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.sizing.planned_requests import (
    count_requests_of_containers,
    count_requests_when_resized,
    get_planned_sizes,
    get_target_sizes,
)
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.cluster import ClusterSnapshot, Pod, QosClass
from cruise.domain.pod_resources import count_pod_requests, replace_spec_resources, reset_kubelet_status
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.usage import StatisticsTable


@dataclass(frozen=True, slots=True)
class WorkloadRequests:
    """One workload's requests as kube-scheduler counts them, at present, at the targets, and as planned.

    `used` are its bases. `share` is the reclaimable share of the cluster's allocatable, averaged over CPU and memory;
    negative if the workload needs more than it requests. `skip_reason` is the most frequent one of its skipped pods.
    """

    namespace: str
    workload: str
    pods: int
    requested: Resources
    target: Resources
    planned: Resources
    used: Resources
    share: float
    skipped_pods: int
    skip_reason: ReasonCode | None

    @staticmethod
    def without_pods(namespace: str, workload: str) -> "WorkloadRequests":
        """Return the sums of a workload without running pods."""
        none = NO_RESOURCES
        return WorkloadRequests(namespace, workload, 0, none, none, none, none, 0.0, 0, None)

    @property
    def reclaimable(self) -> Resources:
        """What is requested beyond the target; negative if the target is larger."""
        return self.requested - self.target


@dataclass(frozen=True, slots=True)
class ClusterRequestTotals:
    """The sums over all pods on nodes, as kube-scheduler counts them; `used` as far as it is known.

    `used_without_requests` is the use of the `best_effort_pods`, for which kube-scheduler counts nothing.
    """

    allocatable: Resources
    requested: Resources
    target: Resources
    planned: Resources
    used: Resources
    best_effort_pods: int = 0
    used_without_requests: Resources = NO_RESOURCES

    @property
    def reclaimable(self) -> Resources:
        """What is requested beyond the targets, minus what some workloads need more."""
        return self.requested - self.target


@dataclass(slots=True)
class _WorkloadSums:
    pods: int = 0
    requested: Resources = NO_RESOURCES
    target: Resources = NO_RESOURCES
    planned: Resources = NO_RESOURCES
    used_cpu: int = 0
    used_memory: int = 0
    skipped_pods: Counter[ReasonCode] = field(default_factory=Counter)


class PodRequests(NamedTuple):
    """A pod on a node: its requests as kube-scheduler counts them, at present and at its target; why it is skipped.

    `resizable` is what the plan sized it by, None if it was not sized.
    """

    pod: Pod
    requested: Resources
    target: Resources
    skip_reason: ReasonCode | None
    resizable: ResizablePod | None = None


def list_pod_requests(snapshot: ClusterSnapshot, plans: Sequence[NodePlan]) -> list[PodRequests]:
    """Return the pods on nodes.

    A pod without a target, because it is not sized or will be evicted, counts with its present requests.
    """
    sizes: dict[tuple[str, str], Mapping[str, Resources]] = {}
    sized: dict[tuple[str, str], tuple[ResizablePod | None, Resources]] = {}
    for plan in plans:
        if not isinstance(plan.targets, PlannedContainerSizes):
            sizes |= get_target_sizes(plan)
            continue
        for one, cpu, memory in plan.targets.iterate_requests_by_pod():
            sized[one.pod.namespace, one.pod.name] = one, count_requests_of_containers(one, cpu, memory)
    skip_reasons = {(one.namespace, one.pod): one.reason for plan in plans for one in plan.skipped}
    found = []
    for pod in snapshot.pods:
        if pod.node is None or pod.is_finished:
            continue
        key = (pod.namespace, pod.name)
        requested = count_pod_requests(pod)
        resizable, target = sized.get(key, (None, requested))
        if key in sizes:
            target = count_requests_when_resized(pod, sizes[key])
        found.append(PodRequests(pod, requested, target, skip_reasons.get(key), resizable))
    return found


def estimate_waste(
    snapshot: ClusterSnapshot, statistics: StatisticsTable, plans: Sequence[NodePlan], pods: Iterable[PodRequests]
) -> tuple[tuple[WorkloadRequests, ...], ClusterRequestTotals]:
    """Return all workloads of these pods, the largest reclaimable share first, and the totals."""
    planned: dict[tuple[str, str], Mapping[str, Resources]] = {}
    for plan in plans:
        planned |= get_planned_sizes(plan)
    sums: dict[tuple[str, str], _WorkloadSums] = {}
    used, best_effort = _UsageSums(statistics), _WorkloadSums()
    for one in pods:
        sums_of_workload = sums.setdefault((one.pod.namespace, one.pod.workload_name), _WorkloadSums())
        _add(sums_of_workload, one, planned.get((one.pod.namespace, one.pod.name)))
        used.add(sums_of_workload, one.pod)
        if one.pod.qos is QosClass.BEST_EFFORT:
            best_effort.pods += 1
            used.add(best_effort, one.pod)
    allocatable = _sum(node.allocatable for node in snapshot.nodes if not node.is_virtual)
    rows = [_build_workload(*key, sums_of_workload, allocatable) for key, sums_of_workload in sums.items()]
    totals = ClusterRequestTotals(
        allocatable,
        _sum(row.requested for row in rows),
        _sum(row.target for row in rows),
        _sum(row.planned for row in rows),
        _sum(row.used for row in rows),
        best_effort.pods,
        Resources(best_effort.used_cpu, best_effort.used_memory),
    )
    return tuple(sorted(rows, key=lambda row: (-row.share, row.namespace, row.workload))), totals


def _add(total: _WorkloadSums, one: PodRequests, planned: Mapping[str, Resources] | None) -> None:
    total.pods += 1
    total.requested += one.requested
    total.target += one.target
    total.planned += one.requested if planned is None else count_requests_when_resized(one.pod, planned)
    if one.skip_reason is not None:
        total.skipped_pods[one.skip_reason] += 1


class _UsageSums:
    """Sums bases; columns are lists of plain numbers, since there may be 225,000."""

    def __init__(self, statistics: StatisticsTable) -> None:
        self._find = statistics.find_row
        self._cpu = statistics.cpu_base_millicores.tolist()
        self._memory = statistics.memory_base_bytes.tolist()

    def add(self, total: _WorkloadSums, pod: Pod) -> None:
        """Add a pod's bases to its workload's."""
        for container in pod.sized_containers:
            row = self._find(pod.namespace, pod.name, pod.workload, container.name, pod.identity)
            if row is not None:
                total.used_cpu += self._cpu[row]
                total.used_memory += self._memory[row]


def _build_workload(namespace: str, workload: str, total: _WorkloadSums, allocatable: Resources) -> WorkloadRequests:
    reclaimable = total.requested - total.target
    share = (
        reclaimable.cpu_millicores / max(1, allocatable.cpu_millicores)
        + reclaimable.memory_bytes / max(1, allocatable.memory_bytes)
    ) / 2
    most_common = total.skipped_pods.most_common(1)
    return WorkloadRequests(
        namespace=namespace,
        workload=workload,
        pods=total.pods,
        requested=total.requested,
        target=total.target,
        planned=total.planned,
        used=Resources(total.used_cpu, total.used_memory),
        share=share,
        skipped_pods=total.skipped_pods.total(),
        skip_reason=most_common[0][0] if most_common else None,
    )


def _sum(amounts: Iterable[Resources]) -> Resources:
    return sum(amounts, NO_RESOURCES)


@dataclass(frozen=True, slots=True)
class RealizedSavings:
    """The number of pods on nodes with known original sizes, and their requests before cruise and now."""

    pods: int = 0
    before: Resources = NO_RESOURCES
    now: Resources = NO_RESOURCES

    def __add__(self, other: "RealizedSavings") -> "RealizedSavings":
        return RealizedSavings(self.pods + other.pods, self.before + other.before, self.now + other.now)

    @property
    def saved(self) -> Resources:
        """What was saved; negative if pods needed more than they requested."""
        return self.before - self.now


def sum_realized_savings(
    snapshot: ClusterSnapshot, originals: Mapping[str, OriginalSizesByUid]
) -> Mapping[str, RealizedSavings]:
    """Compare the pods' requests, as kube-scheduler counts them, with their original ones by pod uid, by namespace."""
    savings: dict[str, RealizedSavings] = {}
    for pod, before, now in iterate_realized_savings(snapshot, originals):
        savings[pod.namespace] = savings.get(pod.namespace, RealizedSavings()) + RealizedSavings(1, before, now)
    return savings


def iterate_realized_savings(
    snapshot: ClusterSnapshot, originals: Mapping[str, OriginalSizesByUid]
) -> Iterator[tuple[Pod, Resources, Resources]]:
    """Yield each pod on a node with known original sizes, with its requests before cruise and now."""
    for pod in snapshot.pods:
        original = originals.get(pod.uid)
        if original is None or pod.node is None or pod.is_finished:
            continue
        targets = [
            ContainerTarget(container.name, container.role, *original[container.name])
            for container in pod.resizable_parts
            if container.name in original
        ]
        # The kubelet reports present values, which would count if they are larger.
        restored = reset_kubelet_status(replace_spec_resources(pod, targets))
        yield pod, count_pod_requests(restored), count_pod_requests(pod)
