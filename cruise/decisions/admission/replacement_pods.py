"""Pods that no node can hold: shrunk where they wait, to what they would be created with today."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from datetime import datetime, timedelta

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.eviction.destinations import PodPredictions
from cruise.decisions.pod_policy.container_bounds import compute_container_bounds
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.limit_ranges import forbids_resize, violates_limit_range
from cruise.decisions.pod_policy.quotas import allows_one_more_pod
from cruise.decisions.scheduling.filters import get_replacement_constraints
from cruise.decisions.sizing.resizes import matches_refused_resize, would_become_guaranteed
from cruise.decisions.sizing.update_threshold import get_update_threshold
from cruise.domain.actions import ContainerTarget, ReasonCode, RefusedResize, ResizePod, SkippedPod
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import NO_RESIZE, ClusterSnapshot, Container, ContainerRole, LimitRangeItem, Pod
from cruise.domain.cluster_policies import ResourceQuota
from cruise.domain.overrides import StoredOverrides
from cruise.domain.pod_resources import replace_spec_resources
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, StatedResources
from cruise.domain.usage import StatisticsTable

# By then a node that is ordered has come. One that was there lately is not for sale, or not for this pod.
_NODES_COME_WITHIN = timedelta(minutes=10)


def decide_unschedulable_pods(
    snapshot: ClusterSnapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    stored: StoredOverrides | None = None,
    refused: Mapping[str, RefusedResize] | None = None,
) -> tuple[list[ResizePod], list[SkippedPod]]:
    """Return the resizes of unschedulable pods and the pods held, both in the pods' order.

    Requests only fall, to the workload's peak; limits stay, unless a LimitRange lets no request fall beside them.
    kube-scheduler tries a pod again once it has shrunk.
    """
    waiting = [pod for pod in snapshot.pods if _waits_for_room(pod)]
    if not waiting:
        return [], []
    eligibility = Eligibility(snapshot, statistics, stored or {}, policy, now)
    # A kind of node that went lately may come again, but not for a pod that has waited longer than nodes take to come.
    today, known = NodeIndex(snapshot.nodes), NodeIndex(snapshot.known_nodes)
    counting = [today if _waits_in_vain(pod, now) else known for pod in waiting]
    decided = [
        _decide(pod, eligibility, statistics, snapshot, nodes, policy, refused or {})
        for pod, nodes in zip(waiting, counting, strict=True)
    ]
    return (
        [one for one in decided if isinstance(one, ResizePod)],
        [one for one in decided if isinstance(one, SkippedPod)],
    )


def shrink_pending_pod(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    snapshot: ClusterSnapshot,
    nodes: NodeIndex,
    policy: Policy,
) -> Pod:
    """Return the pod as it is once it has shrunk for want of room, where it may."""
    decided = _decide(pod, eligibility, statistics, snapshot, nodes, policy, {}) if _waits_for_room(pod) else None
    return replace_spec_resources(pod, decided.containers) if isinstance(decided, ResizePod) else pod


def _waits_for_room(pod: Pod) -> bool:
    over = pod.is_finished or pod.terminating
    return pod.node is None and pod.unschedulable_since is not None and not pod.scheduling_gated and not over


def _waits_in_vain(pod: Pod, now: datetime) -> bool:
    return pod.unschedulable_since is not None and now - pod.unschedulable_since > _NODES_COME_WITHIN


def _decide(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    snapshot: ClusterSnapshot,
    nodes: NodeIndex,
    policy: Policy,
    refused: Mapping[str, RefusedResize],
) -> ResizePod | SkippedPod:
    ranges = snapshot.limit_ranges.get(pod.namespace, ())
    decision = decide_admission(pod, eligibility, statistics, nodes, ranges, policy)
    if isinstance(decision, LeaveUnchanged):
        return SkippedPod(pod.namespace, pod.name, decision.reason, decision.detail)
    guidance = eligibility.get_effective_policy(pod)
    if isinstance(guidance, EffectivePolicy) and guidance.mode < Mode.RESIZE:
        return SkippedPod(pod.namespace, pod.name, ReasonCode.MODE_INITIAL)
    containers = pod.sized_containers
    pairs = list(zip(containers, decision.containers, strict=True))
    targets = tuple(_shrunk(container, target, container.limits.memory_bytes) for container, target in pairs)
    if ranges and forbids_resize(pod, targets, ranges):
        # Beside a smaller request a LimitRange may ask for the limit that the pod would be created with.
        targets = tuple(_shrunk(container, target, target.limits.memory_bytes) for container, target in pairs)
    reason = _why_not(pod, containers, targets, policy)
    if reason is None and ranges and forbids_resize(pod, targets, ranges):
        reason = ReasonCode.LIMIT_RANGE
    earlier = refused.get(pod.uid)
    if (
        reason is None
        and earlier is not None
        and matches_refused_resize(targets, earlier, get_update_threshold(pod, policy))
    ):
        reason = ReasonCode.RESIZE_REFUSED
    if reason is not None:
        return SkippedPod(pod.namespace, pod.name, reason)
    return ResizePod(pod.namespace, pod.name, pod.uid, None, pod.workload, targets, NO_RESOURCES, ReasonCode.RIGHTSIZED)


def _why_not(
    pod: Pod, containers: Sequence[Container], targets: Sequence[ContainerTarget], policy: Policy
) -> ReasonCode | None:
    if not get_update_threshold(pod, policy).is_exceeded_by(zip(containers, targets, strict=True)):
        return ReasonCode.NO_CHANGE_NEEDED
    return ReasonCode.QOS_CHANGE if would_become_guaranteed(pod, targets) else None


def _shrunk(container: Container, target: ContainerTarget, memory_limit: int | None) -> ContainerTarget:
    requests = StatedResources(
        _lower(container.requests.cpu_millicores, target.requests.cpu_millicores),
        _lower(container.requests.memory_bytes, target.requests.memory_bytes),
    )
    limit = _lower(container.limits.memory_bytes, memory_limit)
    return replace(target, requests=requests, limits=replace(container.limits, memory_bytes=limit))


def _lower(stated: int | None, wanted: int | None) -> int | None:
    """Return the smaller of two; what is not stated stays so, since a resize must not change the QoS class."""
    return stated if stated is None or wanted is None else min(stated, wanted)


# What takes the place of a pod that is evicted: the pod as its controller would create it now.


def predict_replacement_pods(
    snapshot: ClusterSnapshot, eligibility: Eligibility, statistics: StatisticsTable, policy: Policy
) -> PodPredictions | None:
    """Return what finds a pod's replacement at admission size, None where evictions need not know it.

    What leaves a namespace frees its quota, sooner or later than the replacement is created: it must find a place
    both as it is admitted by what quotas leave now, and as if they left everything. And one that is cut to the largest
    node is moved in vain where the node does not hold its base.
    """
    if not policy.rules.eviction_safeguards:
        return None

    nodes = NodeIndex(snapshot.known_nodes)

    def anew(pod: Pod) -> Pod | None:
        created = recreate_from_template(pod, snapshot)
        ranges = snapshot.limit_ranges.get(pod.namespace, ())
        quotas = snapshot.quotas.get(pod.namespace, ())

        def admitted(quotas: Sequence[ResourceQuota]) -> Pod:
            decision = decide_admission(created, eligibility, statistics, nodes, ranges, policy, quotas)
            return replace_spec_resources(created, decision.containers) if isinstance(decision, MutatePod) else created

        fresh = admitted(quotas)
        if pod.owner_kind == "DaemonSet":
            # None is evicted, but more come with every node, of whose use nothing is known.
            return _requesting_both(fresh, created)
        if (ranges and violates_limit_range(fresh, (), ranges)) or (quotas and not allows_one_more_pod(fresh, quotas)):
            return None
        fresh = _requesting_both(fresh, admitted(())) if quotas else fresh
        return _requesting_both(fresh, _at_its_base(created, eligibility, statistics, ranges, policy))

    def shrunk(pod: Pod) -> Pod:
        return shrink_pending_pod(pod, eligibility, statistics, snapshot, nodes, policy)

    return PodPredictions(anew, shrunk)


def _at_its_base(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    ranges: Sequence[LimitRangeItem],
    policy: Policy,
) -> Pod:
    """Return the pod with its base for requests of what is managed, and with none of the rest."""
    guidance, managed = eligibility.get_effective_policy(pod), eligibility.get_managed_resources(pod)
    at_base = []
    for one in pod.containers:
        row = statistics.find(pod.namespace, "", pod.workload, one.name, pod.identity)
        base = NO_RESOURCES
        if row is not None and one.role is not ContainerRole.INIT and isinstance(guidance, EffectivePolicy):
            known, most = (
                statistics.row(row),
                compute_container_bounds(guidance, one.name, ranges, policy).whole_unit_bounds,
            )
            base = Resources(
                min(known.cpu_base_millicores, known.cpu_peak_millicores, most[1]) * (ResourceName.CPU in managed),
                min(known.memory_base_bytes, known.memory_peak_bytes, most[3]) * (ResourceName.MEMORY in managed),
            )
        at_base.append(replace(one, requests=StatedResources(*astuple(base))))
    return replace(pod, containers=tuple(at_base))


def recreate_from_template(pod: Pod, snapshot: ClusterSnapshot) -> Pod:
    """Return the pod as its template states it, where that is known; as it is otherwise."""
    workload = None if pod.workload is None else snapshot.workloads.get((pod.namespace, pod.workload))
    stated = {} if workload is None or workload.requests is None else workload.requests
    limits = {} if workload is None or workload.memory_limits is None else workload.memory_limits
    anew = [replace(one, allocated=None, actual=None, actual_limits=None) for one in pod.containers]
    for at, one in enumerate(anew):
        if one.name in stated:
            limit = StatedResources(one.limits.cpu_millicores, limits.get(one.name))
            anew[at] = replace(one, requests=stated[one.name].with_defaults(one.requests), limits=limit)
    return replace(
        pod,
        node=None,
        phase="Pending",
        ready=False,
        resize=NO_RESIZE,
        containers=tuple(anew),
        constraints=get_replacement_constraints(pod.constraints),
    )


def _requesting_both(pod: Pod, other: Pod) -> Pod:
    """Return the pod with the larger of two requests of each container."""
    most = [
        replace(one, requests=StatedResources(*astuple(one.requests.resources.at_least(same.requests.resources))))
        for one, same in zip(pod.containers, other.containers, strict=True)
    ]
    return replace(pod, containers=tuple(most))
