"""Pods that no node can hold: shrunk where they wait, to what they would be created with today."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cruise.decisions.admission.admission import Leave, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.guidance.limit_ranges import refuses_resize
from cruise.decisions.sizing.dead_band import dead_band_of
from cruise.decisions.sizing.resize import becomes_guaranteed, was_refused
from cruise.domain.actions import ContainerTarget, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.annotations import Guidance
from cruise.domain.cluster import Container, Pod, Snapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES, Amounts
from cruise.domain.sizes import with_sizes
from cruise.domain.usage import StatisticsTable

# By then a node that is ordered has come. One that was there lately is not for sale, or not for this pod.
_NODES_COME_WITHIN = timedelta(minutes=10)


def decide_unscheduled(
    snapshot: Snapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    stored: StoredOverrides | None = None,
    refused: Mapping[str, RefusedTarget] | None = None,
) -> tuple[list[ResizePod], list[Hold]]:
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
        [one for one in decided if isinstance(one, Hold)],
    )


def shrunk_where_it_waits(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    snapshot: Snapshot,
    nodes: NodeIndex,
    policy: Policy,
) -> Pod:
    """Return the pod as it is once it has shrunk for want of room, where it may."""
    decided = _decide(pod, eligibility, statistics, snapshot, nodes, policy, {}) if _waits_for_room(pod) else None
    return with_sizes(pod, decided.containers) if isinstance(decided, ResizePod) else pod


def _waits_for_room(pod: Pod) -> bool:
    over = pod.terminal or pod.terminating
    return pod.node is None and pod.unschedulable_since is not None and not pod.scheduling_gated and not over


def _waits_in_vain(pod: Pod, now: datetime) -> bool:
    return pod.unschedulable_since is not None and now - pod.unschedulable_since > _NODES_COME_WITHIN


def _decide(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    snapshot: Snapshot,
    nodes: NodeIndex,
    policy: Policy,
    refused: Mapping[str, RefusedTarget],
) -> ResizePod | Hold:
    ranges = snapshot.limit_ranges.get(pod.namespace, ())
    decision = decide_admission(pod, eligibility, statistics, nodes, ranges, policy)
    if isinstance(decision, Leave):
        return Hold(pod.namespace, pod.name, decision.reason, decision.detail)
    guidance = eligibility.guidance_of(pod)
    if isinstance(guidance, Guidance) and guidance.mode < Mode.RESIZE:
        return Hold(pod.namespace, pod.name, Reason.MODE_INITIAL)
    containers = pod.sized_containers
    pairs = list(zip(containers, decision.containers, strict=True))
    targets = tuple(_shrunk(container, target, container.limits.memory_bytes) for container, target in pairs)
    if ranges and refuses_resize(pod, targets, ranges):
        # Beside a smaller request a LimitRange may ask for the limit that the pod would be created with.
        targets = tuple(_shrunk(container, target, target.limits.memory_bytes) for container, target in pairs)
    reason = _why_not(pod, containers, targets, policy)
    if reason is None and ranges and refuses_resize(pod, targets, ranges):
        reason = Reason.LIMIT_RANGE
    earlier = refused.get(pod.uid)
    if reason is None and earlier is not None and was_refused(targets, earlier, dead_band_of(pod, policy)):
        reason = Reason.REFUSED
    if reason is not None:
        return Hold(pod.namespace, pod.name, reason)
    return ResizePod(pod.namespace, pod.name, pod.uid, None, pod.workload, targets, NO_RESOURCES, Reason.RIGHTSIZED)


def _why_not(
    pod: Pod, containers: Sequence[Container], targets: Sequence[ContainerTarget], policy: Policy
) -> Reason | None:
    if not dead_band_of(pod, policy).is_left(zip(containers, targets, strict=True)):
        return Reason.SETTLED
    return Reason.QOS_CHANGE if becomes_guaranteed(pod, targets) else None


def _shrunk(container: Container, target: ContainerTarget, memory_limit: int | None) -> ContainerTarget:
    requests = Amounts(
        _lower(container.requests.cpu_millicores, target.requests.cpu_millicores),
        _lower(container.requests.memory_bytes, target.requests.memory_bytes),
    )
    limit = _lower(container.limits.memory_bytes, memory_limit)
    return replace(target, requests=requests, limits=replace(container.limits, memory_bytes=limit))


def _lower(stated: int | None, wanted: int | None) -> int | None:
    """Return the smaller of two; what is not stated stays so, since a resize must not change the QoS class."""
    return stated if stated is None or wanted is None else min(stated, wanted)
