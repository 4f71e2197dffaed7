"""What a pod that is being created shall ask for: its workload's peak."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.admission.largest_node import Terms, within_largest_node
from cruise.decisions.admission.limits import Limits
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.guidance.container_bounds import ContainerBounds, container_bounds
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.guidance.limit_ranges import breaks_limit_range
from cruise.decisions.guidance.pod_ranges import pod_ranges
from cruise.decisions.guidance.quotas import breaks_quota
from cruise.decisions.sizing.memory_limit import ceiling_of
from cruise.decisions.sizing.resize import becomes_guaranteed
from cruise.domain.actions import ContainerTarget, Reason
from cruise.domain.annotations import Unreadable
from cruise.domain.cluster import Container, LimitRangeItem, Pod, QosClass
from cruise.domain.headroom import Sharing
from cruise.domain.policy import AdmissionSize, Policy
from cruise.domain.qos import qos_of
from cruise.domain.quotas import Quota
from cruise.domain.replacing import replacing
from cruise.domain.resources import Amounts, ResourceName, Resources, whole_mebibytes
from cruise.domain.revisions import originals_of
from cruise.domain.sizes import sized_containers
from cruise.domain.usage import Statistic, StatisticsTable

_created = replacing(Pod, "containers", "qos", "annotations")


@dataclass(frozen=True, slots=True)
class Leave:
    """The pod is created as it is, with the reason; `new_revision` is as for `Mutate`."""

    reason: Reason
    detail: str = ""
    new_revision: bool = False


@dataclass(frozen=True, slots=True)
class Mutate:
    """The pod is created with other resources: the whole requests and limits of each sized container.

    `size` is what its requests are by; `new_revision` tells that they are not less than what the template states, which
    no pod before it did.
    """

    containers: tuple[ContainerTarget, ...]
    size: AdmissionSize = AdmissionSize.PEAK
    new_revision: bool = False


def decide_admission(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    nodes: NodeIndex,
    limit_ranges: Sequence[LimitRangeItem],
    policy: Policy,
    quotas: Sequence[Quota] = (),
) -> Mutate | Leave:
    """Size a pod at its creation: requests from the peak, memory limit from the 7-day maximum, no CPU limit.

    Deciding again on the mutated pod leaves it. `nodes` are those that it may run on, now or once they come;
    `limit_ranges` and `quotas` are those of the pod's namespace.
    """
    guidance = eligibility.guidance_of(pod)
    reason = eligibility.why_untouchable_at_admission(pod)
    if reason is not None or isinstance(guidance, Unreadable):
        detail = guidance.detail if isinstance(guidance, Unreadable) else ""
        if reason is Reason.OTHER_AUTOSCALER:
            detail = eligibility.claimed(pod).sized_by
        elif reason is Reason.LOOKUP_PENDING:
            detail = eligibility.why_pending(pod)
        return Leave(reason or Reason.UNREADABLE_ANNOTATION, detail)
    managed = eligibility.managed(pod)
    if not managed:
        return Leave(Reason.AUTOSCALED, eligibility.claimed(pod).scaled_by)
    sized = pod.sized_containers
    rows = [statistics.find(pod.namespace, "", pod.workload, container.name, pod.identity) for container in sized]
    reason = eligibility.why_statistics_forbid(pod, rows)
    if reason is not None:
        return Leave(reason)
    known = [statistics.row(row) for row in rows if row is not None]
    new_revision = eligibility.is_new_revision(pod, policy.new_workload_age)
    size = AdmissionSize.PEAK if new_revision else eligibility.admission_size
    # What is wanted beside what is stated, which counts for a new revision alone.
    share = statistics.sharing if size is AdmissionSize.PLANNED else None
    wanted = [_wanted(statistic, share, guidance.headroom_factor) for statistic in known]
    if new_revision:
        wanted = [one.at_least(container.requests.resources) for one, container in zip(wanted, sized, strict=True)]
    ceilings = [ceiling_of(limit, eligibility.largest_memory, policy) for limit in _template_limits(pod, sized)]
    bounds = [container_bounds(guidance, container.name, limit_ranges, policy) for container in sized]
    targets = _requesting(sized, wanted, bounds, managed)
    ranges = pod_ranges(pod, limit_ranges) if limit_ranges else {}
    limits = Limits(sized, known, ceilings, bounds, managed, ranges, quotas, nodes, policy)
    targets = limits.requests_beside(targets)
    targets = within_largest_node(pod, targets, managed, nodes, _terms(pod, eligibility, policy))
    targets = limits.beside(targets)
    if new_revision:
        targets = _with_stated_limits(targets, sized, managed)
    decision = _judged(pod, sized, Mutate(tuple(targets), size, new_revision), limit_ranges)
    if quotas and isinstance(decision, Mutate) and breaks_quota(pod, decision.containers, quotas):
        return Leave(Reason.QUOTA)
    return decision


def _terms(pod: Pod, eligibility: Eligibility, policy: Policy) -> Terms:
    """Return the terms of the cut: the first design cut templates as well, and knew nothing of DaemonSets."""
    if not policy.rules.lasting_templates:
        return Terms(keeps_template=False)
    return Terms(reserved=eligibility.daemons_beside(pod), nodes_come=eligibility.nodes_autoscale)


def _judged(
    pod: Pod, sized: Sequence[Container], mutation: Mutate, limit_ranges: Sequence[LimitRangeItem]
) -> Mutate | Leave:
    """Leave the pod where the API server would refuse the sizes, or where they change nothing."""
    targets = mutation.containers
    if limit_ranges and breaks_limit_range(pod, targets, limit_ranges):
        return Leave(Reason.LIMIT_RANGE)
    if becomes_guaranteed(pod, targets):
        return Leave(Reason.QOS_CHANGE)
    if all(_unchanged(container, target) for container, target in zip(sized, targets, strict=True)):
        return Leave(Reason.SETTLED, new_revision=mutation.new_revision)
    return mutation


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a mutation makes of a pod, and of each other one that has the same containers and pod-level resources."""

    containers: tuple[Container, ...]
    qos: QosClass

    def of(self, pod: Pod, annotations: Mapping[str, str]) -> Pod:
        """Return the pod as it is created, with annotations added; its own win."""
        return _created(pod, self.containers, self.qos, {**annotations, **pod.annotations})


def admitted(pod: Pod, mutation: Mutate) -> Admitted:
    """Return what a mutation makes of the pod."""
    containers = sized_containers(pod, mutation.containers)
    return Admitted(containers, qos_of(containers, pod.pod_requests, pod.pod_limits))


def _requesting(
    sized: Sequence[Container],
    wanted: Sequence[Resources],
    bounds: Sequence[ContainerBounds],
    managed: frozenset[ResourceName],
) -> list[ContainerTarget]:
    """Return the containers with what they are to request, and with the limits that they state."""
    targets = []
    for container, want, bound in zip(sized, wanted, bounds, strict=True):
        cpu, memory = container.requests.cpu_millicores, container.requests.memory_bytes
        if ResourceName.CPU in managed:
            cpu = _clamp(want.cpu_millicores, bound.whole[0], bound.whole[1])
        if ResourceName.MEMORY in managed:
            memory = _clamp(whole_mebibytes(want.memory_bytes), bound.whole[2], bound.whole[3])
        targets.append(ContainerTarget(container.name, container.role, Amounts(cpu, memory), container.limits))
    return targets


def _template_limits(pod: Pod, sized: Sequence[Container]) -> list[int | None]:
    """Return the memory limits that the pod was submitted with, whatever an earlier mutation made of them."""
    originals = originals_of(pod)
    return [originals.get(one.name, (one.requests, one.limits))[1].memory_bytes for one in sized]


def _wanted(statistic: Statistic, sharing: Sharing | None, headroom_factor: float) -> Resources:
    """Return what a container's requests should be: its peak, or its base and its `sharing` of the headroom above it.

    The larger one is what it would have on a node of its own, so that is the most.
    """
    peak = Resources(statistic.cpu_peak_millicores, max(statistic.memory_peak_bytes, statistic.oom_memory_bytes))
    if sharing is None:
        return peak
    base = Resources(statistic.cpu_base_millicores, statistic.memory_base_bytes).at_most(peak)
    headroom = peak - base
    return base + Resources(
        math.ceil(headroom.cpu_millicores * min(1.0, sharing.cpu * headroom_factor)),
        math.ceil(headroom.memory_bytes * min(1.0, sharing.memory * headroom_factor)),
    )


def _with_stated_limits(
    targets: Sequence[ContainerTarget], sized: Sequence[Container], managed: frozenset[ResourceName]
) -> list[ContainerTarget]:
    """Return targets whose memory limits are not below those that the pod states."""
    if ResourceName.MEMORY not in managed:
        return list(targets)
    pairs = [(target, container.limits.memory_bytes) for target, container in zip(targets, sized, strict=True)]
    return [
        target
        if stated is None
        else replace(target, limits=replace(target.limits, memory_bytes=max(target.limits.memory_bytes or 0, stated)))
        for target, stated in pairs
    ]


def _unchanged(container: Container, target: ContainerTarget) -> bool:
    return container.requests == target.requests and container.limits == target.limits


def _clamp(value: int, least: int, most: int) -> int:
    return min(max(value, least), most)


def original_amounts(pod: Pod, mutation: Mutate) -> dict[str, tuple[Amounts, Amounts]]:
    """Return requests and limits that a mutation replaces, by container name."""
    named = {target.container for target in mutation.containers}
    return {c.name: (c.requests, c.limits) for c in pod.containers if c.name in named}
