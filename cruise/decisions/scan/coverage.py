"""How much of what a cluster requests is sized, how much is skipped for which reason, and what each reason costs.

The saving behind a reason is decided, not guessed: its pods are decided once more with the change that unlocks the
reason, by the node pass's own decision. A pod that has another reason as well, or no usable statistics, has no known
saving. All reasons share one such pass, so savings on the same node may differ a little from those of one change alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import SKIP_REASON_BY_MODE, ResizablePod, find_unresizable_resources
from cruise.decisions.pod_policy.skip_reason_unlocks import UNLOCKS, EligibilityInputs
from cruise.decisions.scan.waste import PodRequests
from cruise.decisions.sizing.node_plans import SizingContext, size_cluster
from cruise.decisions.sizing.resizes import SizeDecision
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.annotations import UnreadableAnnotations
from cruise.domain.cluster import Container, Node, Pod
from cruise.domain.pod_resources import count_container_requests
from cruise.domain.policy import Mode
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.usage import StatisticsTable

_NOT_MANAGED = {
    ResourceName.CPU: ReasonCode.CPU_NOT_MANAGED,
    ResourceName.MEMORY: ReasonCode.MEMORY_NOT_MANAGED,
}
_NO_VALID_SIZE = (SizeDecision.LIMIT_RANGE, SizeDecision.QOS_CHANGE, SizeDecision.EVICTED)
# Of a pod with such a reason, an HPA or an annotation may exclude one resource whatever its statistics.
_OF_STATISTICS = (
    ReasonCode.NO_STATISTICS,
    ReasonCode.STALE_STATISTICS,
    ReasonCode.IMPLAUSIBLE_USAGE,
    ReasonCode.NEW_WORKLOAD,
    ReasonCode.NEW_TEMPLATE_REVISION,
)
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
    inputs: EligibilityInputs,
    statistics: StatisticsTable,
    now: datetime,
    pods: Sequence[PodRequests],
    context: SizingContext,
) -> Mapping[str, Coverage]:
    """Return the coverage of each namespace with pods on nodes; `pods` are those of a node pass over `inputs`."""
    reasons = _find_reasons(inputs, statistics, now, pods)
    reclaimable = _decide_without_reasons(inputs, statistics, now, pods, reasons, context)
    sums = _CoverageSums()
    for one in pods:
        key = (one.pod.namespace, one.pod.name)
        own = reasons.get(key)
        if own is None:
            sums.add_sized_pod(one)
            continue
        known = reclaimable.get(key, {})
        sums.begin_pod(one.pod.namespace)
        for resource in ResourceName:
            requested = one.requested.get(resource)
            saved, reason = requested - one.target.get(resource), own.of_pod.get(resource)
            if reason is None:
                kept = own.of_containers.get(resource)
                if kept is not None:
                    # The other containers reclaim their part anyway.
                    is_known = resource in known and own.has_one_reason
                    sums.add(kept[0], resource, kept[1], known[resource] - saved if is_known else None)
                    requested -= kept[1]
                sums.add(None, resource, requested, saved)
            elif reason in _WRITE_WAITS:
                sums.add(reason, resource, requested, saved)
            else:
                sums.add(reason, resource, requested, known.get(resource))
    return sums.build()


class _CoverageSums:
    """The sums of requests by namespace and reason, None for those that are sized."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ReasonCode | None], list[int]] = {}
        self._namespace = ""
        self._of_pod: set[ReasonCode | None] = set()

    def begin_pod(self, namespace: str) -> None:
        """Begin a pod, which counts once for each of its reasons."""
        self._namespace, self._of_pod = namespace, set()

    def add_sized_pod(self, one: PodRequests) -> None:
        """Add a pod of which all is sized."""
        amounts = self._sums.setdefault((one.pod.namespace, None), [0] * 7)
        requested, target = one.requested, one.target
        amounts[0] += 1
        amounts[1] += requested.cpu_millicores
        amounts[2] += requested.memory_bytes
        amounts[3] += requested.cpu_millicores - target.cpu_millicores
        amounts[4] += requested.memory_bytes - target.memory_bytes

    def add(self, reason: ReasonCode | None, resource: ResourceName, requested: int, reclaimable: int | None) -> None:
        """Add requests of the pod; `reclaimable` is None if it is unknown."""
        amounts = self._sums.setdefault((self._namespace, reason), [0] * 7)
        if reason not in self._of_pod:
            self._of_pod.add(reason)
            amounts[0] += 1
        at = 0 if resource is ResourceName.CPU else 1
        amounts[1 + at] += requested
        if reclaimable is None:
            amounts[5 + at] += requested
        else:
            amounts[3 + at] += reclaimable

    def build(self) -> Mapping[str, Coverage]:
        """Return the coverage by namespace."""
        by_namespace: dict[str, dict[ReasonCode | None, CoverageGroup]] = {}
        for namespace, reason in sorted(self._sums, key=lambda key: (key[0], key[1] or "")):
            count, *amounts = self._sums[namespace, reason]
            group = CoverageGroup(count, *(Resources(*amounts[at : at + 2]) for at in (0, 2, 4)))
            by_namespace.setdefault(namespace, {})[reason] = group
        return {
            namespace: Coverage(
                groups.get(None, CoverageGroup()),
                {reason: group for reason, group in groups.items() if reason is not None},
            )
            for namespace, groups in by_namespace.items()
        }


@dataclass(frozen=True, slots=True)
class _PodReasons:
    """Why resources of a pod are not sized; and of the sized ones, why some containers are not, with their requests."""

    of_pod: Mapping[ResourceName, ReasonCode] = field(default_factory=dict)
    of_containers: Mapping[ResourceName, tuple[ReasonCode, int]] = field(default_factory=dict)

    @property
    def codes(self) -> frozenset[ReasonCode]:
        return frozenset([*self.of_pod.values(), *(reason for reason, _ in self.of_containers.values())])

    @property
    def has_one_reason(self) -> bool:
        return len(self.codes) == 1


_ALL_SIZED = _PodReasons()


def _find_reasons(
    inputs: EligibilityInputs, statistics: StatisticsTable, now: datetime, pods: Sequence[PodRequests]
) -> dict[_PodKey, _PodReasons]:
    """Return why resources of pods are not sized; pods of which all is sized are absent."""
    eligibility = _build_eligibility(inputs, statistics, now)
    nodes = {node.name: node for node in inputs.snapshot.nodes}
    found: dict[_PodKey, _PodReasons] = {}
    for one in pods:
        pod, reason = one.pod, one.skip_reason
        node = nodes.get(pod.node or "")
        if reason is None and node is None:
            reason = ReasonCode.NODE_NOT_READY
        if reason is None and node is not None:
            verdict = one.resizable or eligibility.check(pod)
            if isinstance(verdict, ResizablePod):
                own = _explain_resizable(eligibility, verdict, node)
                if own is not _ALL_SIZED:
                    found[pod.namespace, pod.name] = own
                continue
            reason = verdict.reason
        assert reason is not None
        of_pod = dict.fromkeys(ResourceName, reason)
        if reason in _OF_STATISTICS:
            of_pod |= _explain_unmanaged(eligibility, pod)
        found[pod.namespace, pod.name] = _PodReasons(of_pod)
    return found


def _explain_resizable(eligibility: Eligibility, resizable: ResizablePod, node: Node) -> _PodReasons:
    """Return why resources and containers of a resizable pod are not sized."""
    is_partly_managed = bool(resizable.kept_containers or resizable.managed_by_container)
    if resizable.manages_cpu and resizable.manages_memory and not is_partly_managed:
        return _ALL_SIZED
    pod = resizable.pod
    managed = {ResourceName.CPU: resizable.manages_cpu, ResourceName.MEMORY: resizable.manages_memory}
    refused = find_unresizable_resources(pod, node)
    bounds = resizable.utilisation_bounds
    by_hpa = dict.fromkeys(() if bounds is None else bounds.metrics, ReasonCode.MANAGED_BY_HPA)
    unmanaged = by_hpa | _explain_unmanaged(eligibility, pod)
    of_pod = {
        resource: unmanaged.get(resource) or refused.get(resource) or _explain_unresizable(pod, resource)
        for resource in ResourceName
        if not managed[resource]
    }
    of_containers = {}
    for resource in ResourceName if is_partly_managed else ():
        kept = [
            (reason, count_container_requests(container).get(resource))
            for container in pod.sized_containers
            if (reason := _explain_container(eligibility, pod, container, resource)) is not None
        ]
        if managed[resource] and kept:
            of_containers[resource] = kept[0][0], sum(amount for _, amount in kept)
    return _PodReasons(of_pod, of_containers)


def _explain_container(
    eligibility: Eligibility, pod: Pod, container: Container, resource: ResourceName
) -> ReasonCode | None:
    """Return why overrides or another autoscaler keep a resource of a container from being sized, None if not."""
    policy = eligibility.get_effective_policy(pod)
    if isinstance(policy, UnreadableAnnotations):
        return ReasonCode.UNREADABLE_ANNOTATION
    own = policy.get_for_container(container.name)
    if own.mode < Mode.RESIZE:
        return SKIP_REASON_BY_MODE[own.mode]
    if resource not in own.resources:
        return _NOT_MANAGED[resource]
    claims = eligibility.get_autoscaler_claims(pod)
    if resource in claims.scaled:
        return ReasonCode.MANAGED_BY_HPA
    is_free = resource in claims.get_unclaimed_resources(container.name)
    return None if is_free else ReasonCode.MANAGED_BY_OTHER_AUTOSCALER


def _explain_unmanaged(eligibility: Eligibility, pod: Pod) -> dict[ResourceName, ReasonCode]:
    """Return the resources that overrides or an HPA keep from being sized in all containers, with the first reason."""
    found = {}
    for resource in ResourceName:
        reasons = [_explain_container(eligibility, pod, one, resource) for one in pod.sized_containers]
        if reasons and reasons[0] is not None and None not in reasons:
            found[resource] = reasons[0]
    return found


def _explain_unresizable(pod: Pod, resource: ResourceName) -> ReasonCode:
    """Return why one resource of a pod is not sized although it is managed."""
    restarts = "cpu_resize_restarts" if resource is ResourceName.CPU else "memory_resize_restarts"
    if any(getattr(container, restarts) for container in pod.sized_containers):
        return ReasonCode.RESIZE_RESTARTS
    return ReasonCode.NO_STATISTICS


def _build_eligibility(inputs: EligibilityInputs, statistics: StatisticsTable, now: datetime) -> Eligibility:
    return Eligibility(inputs.snapshot, statistics, inputs.paused_workloads, inputs.policy, now, inputs.policy_index)


class _UnlockedEligibility(Eligibility):
    """The rules on which pods are resizable, except for pods whose verdict is already known."""

    def __init__(
        self,
        inputs: EligibilityInputs,
        statistics: StatisticsTable,
        now: datetime,
        known: Mapping[_PodKey, ResizablePod],
    ) -> None:
        super().__init__(inputs.snapshot, statistics, inputs.paused_workloads, inputs.policy, now, inputs.policy_index)
        self._known = known

    def check(self, pod: Pod, *, killed: bool = False) -> ResizablePod | SkippedPod:
        known = self._known.get((pod.namespace, pod.name))
        return super().check(pod, killed=killed) if known is None else known


def _decide_without_reasons(
    inputs: EligibilityInputs,
    statistics: StatisticsTable,
    now: datetime,
    pods: Sequence[PodRequests],
    reasons: Mapping[_PodKey, _PodReasons],
    context: SizingContext,
) -> _Reclaimable:
    """Return what would be reclaimable of skipped pods if the reason of each were unlocked; only what is known."""
    unlocked: dict[_PodKey, ResizablePod] = {}
    history = inputs.policy.memory_limit_history
    for reason in sorted({reason for own in reasons.values() for reason in own.codes}):
        apply = UNLOCKS[reason].apply
        if apply is None:
            continue
        changed = apply(inputs)
        eligibility = _build_eligibility(changed, statistics, now)
        for pod in changed.snapshot.pods:
            key = (pod.namespace, pod.name)
            if key in reasons and reason in reasons[key].codes:
                verdict = eligibility.check(pod)
                if isinstance(verdict, ResizablePod):
                    unlocked[key] = verdict
                    history = min(history, changed.policy.memory_limit_history)
    if not unlocked:
        return {}
    sized_pods = {(one.pod.namespace, one.pod.name): one.resizable for one in pods if one.resizable is not None}
    nodes = frozenset(one.pod.node for one in unlocked.values() if one.pod.node is not None)
    sizing = size_cluster(
        inputs.snapshot,
        _UnlockedEligibility(inputs, statistics, now, sized_pods | unlocked),
        replace(inputs.policy, memory_limit_history=history),
        now,
        context,
        nodes,
    )
    sized = sizing.result
    has_size = ~np.isin(sized.decisions, _NO_VALID_SIZE)
    amounts = {resource: sized.compute_reclaimable(resource).tolist() for resource in ResourceName}
    found: dict[_PodKey, dict[ResourceName, int]] = {}
    for at, resizable in enumerate(sized.columns.candidates.pods):
        key = (resizable.pod.namespace, resizable.pod.name)
        if key in unlocked and has_size[at]:
            manages = {ResourceName.CPU: resizable.manages_cpu, ResourceName.MEMORY: resizable.manages_memory}
            found[key] = {one: amounts[one][at] for one in ResourceName if manages[one]}
    return found
