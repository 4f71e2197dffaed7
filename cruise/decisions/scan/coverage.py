"""How much of what a cluster requests is sized, how much is skipped for which reason, and what each reason costs.

The saving behind a reason is decided, not guessed: its pods are decided once more with the change that unlocks the
reason, by the node pass's own decision. A pod that has another reason as well, or no usable statistics, has no known
saving. All reasons share one such pass, so savings on the same node may differ a little from those of one change alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from cruise.decisions.pod_policy.eligibility import Eligibility, ResizablePod
from cruise.decisions.pod_policy.static_managers import REFUSAL_BY_MANAGER, find_unresizable_resources
from cruise.decisions.pod_policy.unlocks import UNLOCKS, DecisionInputs
from cruise.decisions.scan.waste import PodRequests
from cruise.decisions.sizing.node_plans import SizingContext, size_cluster
from cruise.decisions.sizing.resizes import SizeDecision
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.cluster import Pod, QosClass
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.usage import StatisticsTable

_NOT_MANAGED = {
    ResourceName.CPU: ReasonCode.CPU_NOT_MANAGED,
    ResourceName.MEMORY: ReasonCode.MEMORY_NOT_MANAGED,
}
_NO_VALID_SIZE = (SizeDecision.LIMIT_RANGE, SizeDecision.QOS_CHANGE, SizeDecision.EVICTED)
# A size is decided; only its write waits.
_WRITE_WAITS = frozenset(
    {
        ReasonCode.RESIZE_REFUSED,
        ReasonCode.WAITING_FOR_CAPACITY,
        ReasonCode.RESIZE_DEFERRED,
        ReasonCode.RESIZE_INFEASIBLE,
        ReasonCode.QUOTA_EXCEEDED,
    }
)

_PodKey = tuple[str, str]
_Reclaimable = Mapping[_PodKey, Mapping[ResourceName, int]]


@dataclass(frozen=True, slots=True)
class CoverageGroup:
    """Requests that are sized, or skipped for one reason.

    `pods` are those with at least one resource in the group. `reclaimable` is requested − target, of skipped pods what
    it would be without the reason; it is not known of the part `unknown` of the requests.
    """

    pods: int = 0
    requested: Resources = NO_RESOURCES
    reclaimable: Resources = NO_RESOURCES
    unknown: Resources = NO_RESOURCES

    def __add__(self, other: "CoverageGroup") -> "CoverageGroup":
        return CoverageGroup(
            self.pods + other.pods,
            self.requested + other.requested,
            self.reclaimable + other.reclaimable,
            self.unknown + other.unknown,
        )

    def is_known(self, resource: ResourceName) -> bool:
        """Return whether the reclaimable amount of a resource is known for at least a part of the requests."""
        return not self.unknown.get(resource) or self.unknown.get(resource) < self.requested.get(resource)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The requests of all pods on nodes: each resource of each pod is either sized or skipped for one reason."""

    sized: CoverageGroup = CoverageGroup()
    skipped: Mapping[ReasonCode, CoverageGroup] = field(default_factory=dict)

    @property
    def requested(self) -> Resources:
        """What all pods request, as kube-scheduler counts it."""
        return sum((one.requested for one in self.skipped.values()), self.sized.requested)


def sum_coverage(parts: Iterable[Coverage]) -> Coverage:
    """Return the coverage of several namespaces, the reason with the largest share of the requests first."""
    sized, skipped = CoverageGroup(), dict[ReasonCode, CoverageGroup]()
    for part in parts:
        sized += part.sized
        for reason, group in part.skipped.items():
            skipped[reason] = skipped.get(reason, CoverageGroup()) + group
    total = Coverage(sized, skipped).requested

    def get_share(reason: ReasonCode) -> float:
        requested = skipped[reason].requested
        return sum(requested.get(one) / max(1, total.get(one)) for one in ResourceName)

    return Coverage(sized, {one: skipped[one] for one in sorted(skipped, key=lambda one: (-get_share(one), one))})


def estimate_coverage(
    inputs: DecisionInputs,
    statistics: StatisticsTable,
    now: datetime,
    pods: Sequence[PodRequests],
    context: SizingContext,
) -> Mapping[str, Coverage]:
    """Return the coverage of each namespace with pods on nodes; `pods` are those of a node pass over `inputs`."""
    reasons = _find_reasons(inputs, statistics, now, pods)
    reclaimable = _decide_without_reasons(inputs, statistics, now, reasons, context)
    sums: dict[tuple[str, ReasonCode | None], list[int]] = {}
    for one in pods:
        key = (one.pod.namespace, one.pod.name)
        known = reclaimable.get(key, {})
        by_resource = reasons.get(key, {})
        seen = set[ReasonCode | None]()
        for at, resource in enumerate(ResourceName):
            reason = by_resource.get(resource)
            amounts = sums.setdefault((one.pod.namespace, reason), [0] * 7)
            if reason not in seen:
                seen.add(reason)
                amounts[0] += 1
            requested, target = one.requested.get(resource), one.target.get(resource)
            amounts[1 + at] += requested
            if reason is None or reason in _WRITE_WAITS:
                amounts[3 + at] += requested - target
            elif resource in known:
                amounts[3 + at] += known[resource]
            else:
                amounts[5 + at] += requested
    by_namespace: dict[str, dict[ReasonCode | None, CoverageGroup]] = {}
    for (namespace, reason), (count, *amounts) in sorted(sums.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        group = CoverageGroup(count, *(Resources(*amounts[at : at + 2]) for at in (0, 2, 4)))
        by_namespace.setdefault(namespace, {})[reason] = group
    return {
        namespace: Coverage(
            groups.get(None, CoverageGroup()), {reason: group for reason, group in groups.items() if reason is not None}
        )
        for namespace, groups in by_namespace.items()
    }


def _find_reasons(
    inputs: DecisionInputs, statistics: StatisticsTable, now: datetime, pods: Sequence[PodRequests]
) -> dict[_PodKey, dict[ResourceName, ReasonCode]]:
    """Return why resources of pods are not sized; pods of which both are sized are absent."""
    snapshot = inputs.snapshot
    eligibility = Eligibility(snapshot, statistics, inputs.stored, inputs.policy, now)
    nodes = {node.name: node for node in snapshot.nodes}
    found: dict[_PodKey, dict[ResourceName, ReasonCode]] = {}
    for one in pods:
        pod = one.pod
        if one.skip_reason is not None:
            own = dict.fromkeys(ResourceName, one.skip_reason)
        elif pod.node not in nodes:
            own = dict.fromkeys(ResourceName, ReasonCode.NODE_NOT_READY)
        else:
            verdict = eligibility.check(pod)
            if isinstance(verdict, SkippedPod):
                own = dict.fromkeys(ResourceName, verdict.reason)
            elif verdict.manages_cpu and verdict.manages_memory:
                continue
            else:
                static = find_unresizable_resources(nodes[pod.node]) if pod.qos is QosClass.GUARANTEED else frozenset()
                own = {
                    resource: _explain_unmanaged(eligibility, verdict, resource, static)
                    for resource in ResourceName
                    if not (verdict.manages_cpu if resource is ResourceName.CPU else verdict.manages_memory)
                }
        found[pod.namespace, pod.name] = own
    return found


def _explain_unmanaged(
    eligibility: Eligibility, resizable: ResizablePod, resource: ResourceName, static: frozenset[ResourceName]
) -> ReasonCode:
    """Return why one resource of a resizable pod is not sized."""
    policies = [resizable.effective_policy.for_container(one.name) for one in resizable.sized]
    if all(resource not in one.resources for one in policies):
        return _NOT_MANAGED[resource]
    bounds = resizable.utilisation_bounds
    if resource in eligibility.get_autoscaler_claims(resizable.pod).scaled:
        return ReasonCode.MANAGED_BY_HPA
    if bounds is not None and resource in bounds.metrics:
        return ReasonCode.MANAGED_BY_HPA
    if resource in static:
        return REFUSAL_BY_MANAGER[resource]
    restarts = "cpu_resize_restarts" if resource is ResourceName.CPU else "memory_resize_restarts"
    if any(getattr(container, restarts) for container in resizable.sized):
        return ReasonCode.RESIZE_RESTARTS
    return ReasonCode.NO_STATISTICS


class _UnlockedEligibility(Eligibility):
    """The rules on which pods are resizable, except for pods whose verdict is already known."""

    def __init__(
        self, inputs: DecisionInputs, statistics: StatisticsTable, now: datetime, known: Mapping[_PodKey, ResizablePod]
    ) -> None:
        super().__init__(inputs.snapshot, statistics, inputs.stored, inputs.policy, now)
        self._known = known

    def check(self, pod: Pod, *, killed: bool = False) -> ResizablePod | SkippedPod:
        known = self._known.get((pod.namespace, pod.name))
        return super().check(pod, killed=killed) if known is None else known


def _decide_without_reasons(
    inputs: DecisionInputs,
    statistics: StatisticsTable,
    now: datetime,
    reasons: Mapping[_PodKey, Mapping[ResourceName, ReasonCode]],
    context: SizingContext,
) -> _Reclaimable:
    """Return what would be reclaimable of skipped pods if the reason of each were unlocked; only what is known."""
    unlocked: dict[_PodKey, ResizablePod] = {}
    history = inputs.policy.memory_limit_history
    for reason in sorted({reason for own in reasons.values() for reason in own.values()}):
        apply = UNLOCKS[reason].apply
        if apply is None:
            continue
        changed = apply(inputs)
        eligibility = Eligibility(changed.snapshot, statistics, changed.stored, changed.policy, now)
        for pod in changed.snapshot.pods:
            key = (pod.namespace, pod.name)
            if key in reasons and reason in reasons[key].values():
                verdict = eligibility.check(pod)
                if isinstance(verdict, ResizablePod):
                    unlocked[key] = verdict
                    history = min(history, changed.policy.memory_limit_history)
    if not unlocked:
        return {}
    nodes = frozenset(one.pod.node for one in unlocked.values() if one.pod.node is not None)
    sizing = size_cluster(
        inputs.snapshot,
        _UnlockedEligibility(inputs, statistics, now, unlocked),
        statistics,
        replace(inputs.policy, memory_limit_history=history),
        now,
        context,
        nodes,
    )
    sized = sizing.sized
    has_size = ~np.isin(sized.decisions, _NO_VALID_SIZE)
    amounts = {resource: sized.compute_reclaimable(resource).tolist() for resource in ResourceName}
    found: dict[_PodKey, dict[ResourceName, int]] = {}
    for at, resizable in enumerate(sized.columns.candidates.pods):
        key = (resizable.pod.namespace, resizable.pod.name)
        if key in unlocked and has_size[at]:
            manages = {ResourceName.CPU: resizable.manages_cpu, ResourceName.MEMORY: resizable.manages_memory}
            found[key] = {one: amounts[one][at] for one in ResourceName if manages[one]}
    return found
