"""Admission: the requests and limits that a pod is created with, computed from its workload's statistics (ADR 0029)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.admission.hpa_bounds import build_hpa_admission_bounds
from cruise.decisions.admission.limits import (
    AdmissionLimitInputs,
    GuaranteedAdmissionInputs,
    add_heap_and_pod_level_needs,
)
from cruise.decisions.admission.node_index import (
    NodeIndex,
    build_largest_node_cut_options,
    get_submitted_memory_limits,
    get_submitted_requests,
    limit_to_largest_node,
    restore_submitted_pod,
)
from cruise.decisions.admission.startup import (
    StartupBoostStep,
    StartupCpuConstraints,
    add_startup_boosts,
    build_startup_boost_steps,
)
from cruise.decisions.pod_policy.container_bounds import (
    ContainerBounds,
    compute_container_bounds,
    read_recorded_memory_limits,
)
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.limit_ranges import get_pod_limit_ranges, select_limit_ranges, violates_limit_range
from cruise.decisions.pod_policy.quotas import exceeds_quota
from cruise.decisions.pod_policy.resizable_pod import (
    explain_no_managed_containers,
    find_pod_level_resources,
    select_containers_with_resources,
    select_kept_containers,
)
from cruise.decisions.sizing.memory_limit import compute_limit_ceiling
from cruise.decisions.sizing.pod_level_containers import PodLevelContainers
from cruise.decisions.sizing.resizes import has_sizes, keep_qos_class, would_change_qos_class
from cruise.decisions.usage.estimation import sum_statistics
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.annotations import EffectivePolicy, UnreadableAnnotations
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import Container, Pod, QosClass
from cruise.domain.pod_resources import (
    create_fast_replace,
    get_qos_class,
    get_spec_targets,
    replace_spec_resources,
)
from cruise.domain.policy import AdmissionSize, Mode, Policy
from cruise.domain.records import AverageHeadroomShare
from cruise.domain.resources import ResourceName, Resources, StatedResources, round_up_to_mebibytes
from cruise.domain.startup_boosts import StartupBoost, settle_boosted_pod
from cruise.domain.usage import Statistic, StatisticsTable

# Sizes of these pods are not decided, or are the stated ones: they start with more than they state.
_BOOSTED_AS_STATED = frozenset(
    {
        ReasonCode.NO_CHANGE_NEEDED,
        ReasonCode.NO_STATISTICS,
        ReasonCode.STALE_STATISTICS,
        ReasonCode.IMPLAUSIBLE_USAGE,
        ReasonCode.NEW_WORKLOAD,
        ReasonCode.QUOTA_EXCEEDED,
        ReasonCode.LIMIT_RANGE,
        ReasonCode.QOS_CHANGE,
    }
)
_replace_in_pod = create_fast_replace(Pod, "containers", "pod_level", "qos", "annotations")


@dataclass(frozen=True, slots=True)
class LeaveUnchanged:
    """The pod is created unchanged; `new_revision` is as for `MutatePod`."""

    reason: ReasonCode
    detail: str = ""
    new_revision: bool = False


@dataclass(frozen=True, slots=True)
class MutatePod:
    """The pod is created with other resources: complete requests and limits of each sized container.

    `admission_size` is what requests are computed from, None if they are the stated ones; with `new_revision` they
    are at least the template's, which no earlier pod had. The `boosts` are part of them until the pod has started.
    """

    containers: tuple[ContainerTarget, ...]
    admission_size: AdmissionSize | None = AdmissionSize.PEAK
    new_revision: bool = False
    boosts: tuple[StartupBoost, ...] = ()


def decide_admission(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    nodes: NodeIndex,
    limit_ranges: Sequence[LimitRangeItem],
    policy: Policy,
    quotas: Sequence[ResourceQuota] = (),
    *,
    boosts_startup: bool = True,
) -> MutatePod | LeaveUnchanged:
    """Size a pod at its creation: requests from the peak, the memory limit from the 7-day maximum, no CPU limit.

    Deciding again for the mutated pod changes nothing. `nodes` are those that it may run on, present or added later;
    `limit_ranges` and `quotas` are those of the pod's namespace. Without `boosts_startup` the sizes are those after
    its start.
    """

    def decide(stated: Pod) -> MutatePod | LeaveUnchanged:
        decision = _decide(stated, eligibility, statistics, nodes, limit_ranges, policy, quotas)
        if not boosts_startup:
            return decision
        terms = build_startup_cpu_constraints(stated, eligibility, nodes, limit_ranges, policy)
        return _add_startup_boosts(stated, decision, terms, quotas)

    submitted = restore_submitted_pod(pod)
    if submitted is not None:
        # Sizes within a LimitRange depend on the stated ones, so deciding from an earlier decision's differs from it.
        first = decide(submitted)
        if isinstance(first, MutatePod) and has_sizes(pod, first.containers):
            return LeaveUnchanged(ReasonCode.NO_CHANGE_NEEDED, new_revision=first.new_revision)
    return decide(settle_boosted_pod(pod) if boosts_startup else pod)


def build_startup_cpu_constraints(
    pod: Pod, eligibility: Eligibility, nodes: NodeIndex, limit_ranges: Sequence[LimitRangeItem], policy: Policy
) -> StartupCpuConstraints:
    """Return what bounds the CPU of a pod's start besides its policy."""
    return StartupCpuConstraints(
        eligibility, nodes, build_largest_node_cut_options(pod, eligibility, policy), limit_ranges, policy
    )


def explain_startup(
    pod: Pod, decision: MutatePod | LeaveUnchanged, terms: StartupCpuConstraints, quotas: Sequence[ResourceQuota]
) -> list[StartupBoostStep]:
    """Return how the CPU of each container that states one for its start was decided; `decision` is without boosts."""
    if isinstance(decision, LeaveUnchanged) and decision.reason not in _BOOSTED_AS_STATED:
        return []
    settled = _merge_sizes(pod, decision)
    steps = build_startup_boost_steps(pod, settled, terms)
    boosts = [one.boost for one in steps if one.boost is not None]
    if not boosts:
        return steps
    boosted = add_startup_boosts(settled, boosts)
    checked = _check_decision(pod, MutatePod(tuple(boosted)), terms.limit_ranges)
    reason = checked.reason if isinstance(checked, LeaveUnchanged) else None
    if reason is None and quotas and exceeds_quota(pod, boosted, quotas):
        reason = ReasonCode.QUOTA_EXCEEDED
    if reason is None:
        return steps
    return [one if one.boost is None else replace(one, boost=None, reason=reason) for one in steps]


def _add_startup_boosts(
    pod: Pod, decision: MutatePod | LeaveUnchanged, terms: StartupCpuConstraints, quotas: Sequence[ResourceQuota]
) -> MutatePod | LeaveUnchanged:
    steps = explain_startup(pod, decision, terms, quotas)
    boosts = tuple([one.boost for one in steps if one.boost is not None])
    if not boosts:
        return decision
    named = {one.container for one in boosts}
    named |= {one.container for one in decision.containers} if isinstance(decision, MutatePod) else set()
    boosted = tuple([one for one in add_startup_boosts(_merge_sizes(pod, decision), boosts) if one.container in named])
    if isinstance(decision, MutatePod):
        return replace(decision, containers=boosted, boosts=boosts)
    return MutatePod(boosted, None, decision.new_revision, boosts)


def _merge_sizes(pod: Pod, decision: MutatePod | LeaveUnchanged) -> list[ContainerTarget]:
    """Return the sizes of all parts of a pod after its start."""
    decided = {one.container: one for one in decision.containers} if isinstance(decision, MutatePod) else {}
    return [decided.get(one.container, one) for one in get_spec_targets(pod)]


def _decide(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    nodes: NodeIndex,
    limit_ranges: Sequence[LimitRangeItem],
    policy: Policy,
    quotas: Sequence[ResourceQuota],
) -> MutatePod | LeaveUnchanged:
    effective_policy = eligibility.get_effective_policy(pod)
    sized, managed, _ = managed_containers = eligibility.find_managed_at_admission(pod)
    skipped = _explain_skip(pod, eligibility, effective_policy, managed)
    if skipped is not None or isinstance(effective_policy, UnreadableAnnotations):
        return skipped or LeaveUnchanged(ReasonCode.UNREADABLE_ANNOTATION)
    # Next to pod-level resources all containers count, also those that keep their own sizes.
    sized = sized if pod.pod_level is None else pod.sized_containers
    rows = [statistics.find_row(pod.namespace, "", pod.workload, container.name, pod.identity) for container in sized]
    reason = eligibility.explain_unusable_statistics(pod, rows)
    if reason is not None:
        return LeaveUnchanged(reason)
    known_rows = [row for row in rows if row is not None]
    known = [statistics.get_row(row) for row in known_rows]
    containers = None
    if pod.pod_level is not None:
        template_limits, resources = read_recorded_memory_limits(pod), find_pod_level_resources(pod, managed)
        stating = select_containers_with_resources(managed_containers, resources, effective_policy, policy)
        containers = PodLevelContainers(pod, known, stating, resources, effective_policy, template_limits, policy)
        sized, managed, known, known_rows = (pod.pod_level,), (resources,), [sum_statistics(known)], [0]
        statistics = replace(StatisticsTable.from_rows(known), average_headroom_share=statistics.average_headroom_share)
    new_revision = eligibility.is_new_revision(pod, policy.new_workload_age)
    # A pod that runs to completion is not evicted, so its size cannot move from node to node, and it may need its peak
    # before a node pass sees it.
    needs_peak = new_revision or (pod.runs_to_completion and policy.rules.run_histories)
    size = AdmissionSize.PEAK if needs_peak else eligibility.admission_size
    submitted = get_submitted_requests(pod, sized)
    utilisation = build_hpa_admission_bounds(pod, sized, eligibility, statistics, submitted, known_rows, new_revision)
    # What the pod states counts only for a new revision.
    average_share = statistics.average_headroom_share if size is AdmissionSize.NODE_PASS else None
    wanted = [
        _compute_requests(statistic, average_share, effective_policy.get_for_container(container.name).headroom_factor)
        for statistic, container in zip(known, sized, strict=True)
    ]
    if new_revision:
        wanted = [one.max_with(container.requests.resources) for one, container in zip(wanted, sized, strict=True)]
    ceilings = [
        compute_limit_ceiling(limit, eligibility.largest_node_memory, policy)
        for limit in get_submitted_memory_limits(pod, sized)
    ]
    own_ranges = select_limit_ranges(sized[0], limit_ranges)
    bounds = [compute_container_bounds(effective_policy, container.name, own_ranges, policy) for container in sized]
    bounds = [
        bound.build_for_new_pod(requests, container.limits)
        for bound, requests, container in zip(bounds, submitted, sized, strict=True)
    ]
    bounds = add_heap_and_pod_level_needs(sized, pod.qos, known, bounds, ceilings, containers, policy)
    largest_node = build_largest_node_cut_options(pod, eligibility, policy)
    if pod.qos is QosClass.GUARANTEED:
        guaranteed = GuaranteedAdmissionInputs(sized, submitted, known_rows, bounds, ceilings, managed, new_revision)
        targets = guaranteed.compute_targets(statistics, policy)
        targets = [*keep_qos_class(pod, limit_to_largest_node(pod, targets, managed, nodes, largest_node))]
        targets = utilisation.bound_targets(targets, statistics)
    else:
        targets = _set_requests(sized, wanted, bounds, managed)
        ranges = get_pod_limit_ranges(pod, limit_ranges, select_kept_containers(pod, sized)) if limit_ranges else {}
        limits = AdmissionLimitInputs(sized, known, ceilings, bounds, managed, ranges, quotas, nodes, policy)
        targets = limits.raise_requests_to_limits(targets)
        targets = limit_to_largest_node(pod, targets, managed, nodes, largest_node)
        targets = utilisation.bound_targets(targets, statistics)
        targets = limits.add_limits(targets)
        if new_revision:
            targets = _keep_stated_limits(targets, sized, managed)
    if containers is not None and not new_revision:
        targets = [*keep_qos_class(pod, containers.size(targets[0]))]
    decision = _check_decision(pod, MutatePod(tuple(targets), size, new_revision), limit_ranges)
    if quotas and isinstance(decision, MutatePod) and exceeds_quota(pod, decision.containers, quotas):
        return LeaveUnchanged(ReasonCode.QUOTA_EXCEEDED)
    return decision


def _explain_skip(
    pod: Pod,
    eligibility: Eligibility,
    effective_policy: EffectivePolicy | UnreadableAnnotations,
    managed: Sequence[frozenset[ResourceName]],
) -> LeaveUnchanged | None:
    """Return why a pod is left unchanged whatever its statistics, None if it may be sized; `managed` by container."""
    reason = eligibility.explain_skip_at_admission(pod)
    if reason is not None or isinstance(effective_policy, UnreadableAnnotations):
        detail = effective_policy.detail if isinstance(effective_policy, UnreadableAnnotations) else ""
        if reason is ReasonCode.MANAGED_BY_OTHER_AUTOSCALER:
            detail = eligibility.get_autoscaler_claims(pod).sized_by
        elif reason is ReasonCode.LOOKUP_PENDING:
            detail = eligibility.explain_pending_lookup(pod)
        return LeaveUnchanged(reason or ReasonCode.UNREADABLE_ANNOTATION, detail)
    if not managed:
        claims = eligibility.get_autoscaler_claims(pod)
        return LeaveUnchanged(*explain_no_managed_containers(pod, effective_policy, claims, Mode.INITIAL))
    if pod.pod_level is not None and not find_pod_level_resources(pod, managed):
        return LeaveUnchanged(ReasonCode.POD_LEVEL_RESOURCES)
    return None


def _check_decision(
    pod: Pod, mutation: MutatePod, limit_ranges: Sequence[LimitRangeItem]
) -> MutatePod | LeaveUnchanged:
    """Leave the pod unchanged if the API server would reject the sizes, or if they change nothing."""
    targets = mutation.containers
    if limit_ranges and violates_limit_range(pod, targets, limit_ranges):
        return LeaveUnchanged(ReasonCode.LIMIT_RANGE)
    if would_change_qos_class(pod, targets):
        return LeaveUnchanged(ReasonCode.QOS_CHANGE)
    if has_sizes(pod, targets):
        return LeaveUnchanged(ReasonCode.NO_CHANGE_NEEDED, new_revision=mutation.new_revision)
    return mutation


@dataclass(frozen=True, slots=True)
class AdmittedResources:
    """The resources that a mutation gives to a pod, and to others with equal containers and pod-level resources."""

    containers: tuple[Container, ...]
    pod_level: Container | None
    qos: QosClass

    def apply_to(self, pod: Pod, annotations: Mapping[str, str]) -> Pod:
        """Return the pod as it is created, with annotations added; its own take precedence."""
        return _replace_in_pod(pod, self.containers, self.pod_level, self.qos, {**annotations, **pod.annotations})


def compute_admitted_resources(pod: Pod, mutation: MutatePod) -> AdmittedResources:
    """Return the pod's resources after a mutation."""
    sized = replace_spec_resources(pod, mutation.containers)
    return AdmittedResources(sized.containers, sized.pod_level, get_qos_class(sized))


def _set_requests(
    sized: Sequence[Container],
    wanted: Sequence[Resources],
    bounds: Sequence[ContainerBounds],
    managed: Sequence[frozenset[ResourceName]],
) -> list[ContainerTarget]:
    """Return the containers with their new requests, and with the limits that they state."""
    targets = []
    for container, wanted_amount, bound, resources in zip(sized, wanted, bounds, managed, strict=True):
        cpu, memory = container.requests.cpu_millicores, container.requests.memory_bytes
        if ResourceName.CPU in resources:
            cpu = _clamp(wanted_amount.cpu_millicores, bound.whole_unit_bounds[0], bound.whole_unit_bounds[1])
        if ResourceName.MEMORY in resources:
            memory = _clamp(
                round_up_to_mebibytes(wanted_amount.memory_bytes),
                bound.whole_unit_bounds[2],
                bound.whole_unit_bounds[3],
            )
        # Without a request, the API server would set one that equals the limit.
        requests = StatedResources(
            cpu or _keep_zero(container.requests.cpu_millicores), memory or _keep_zero(container.requests.memory_bytes)
        )
        targets.append(ContainerTarget(container.name, container.role, requests, container.limits))
    return targets


def _keep_zero(stated: int | None) -> int | None:
    return 0 if stated == 0 else None


def _compute_requests(
    statistic: Statistic, average_share: AverageHeadroomShare | None, headroom_factor: float
) -> Resources:
    """Return a container's requests: its peak, or its base plus its average share of the headroom above it.

    The peak is the most: a container on a node of its own would get that.
    """
    peak = Resources(statistic.cpu_peak_millicores, max(statistic.memory_peak_bytes, statistic.oom_memory_bytes))
    if average_share is None:
        return peak
    base = Resources(statistic.cpu_base_millicores, statistic.memory_base_bytes).min_with(peak)
    headroom = peak - base
    return base + Resources(
        math.ceil(headroom.cpu_millicores * min(1.0, average_share.cpu * headroom_factor)),
        math.ceil(headroom.memory_bytes * min(1.0, average_share.memory * headroom_factor)),
    )


def _keep_stated_limits(
    targets: Sequence[ContainerTarget], sized: Sequence[Container], managed: Sequence[frozenset[ResourceName]]
) -> list[ContainerTarget]:
    """Return targets with memory limits no lower than those that the pod states."""
    pairs = [(target, container.limits.memory_bytes) for target, container in zip(targets, sized, strict=True)]
    return [
        target
        if stated is None or ResourceName.MEMORY not in resources
        else replace(target, limits=replace(target.limits, memory_bytes=max(target.limits.memory_bytes or 0, stated)))
        for (target, stated), resources in zip(pairs, managed, strict=True)
    ]


def _clamp(value: int, least: int, most: int) -> int:
    return min(max(value, least), most)


def get_original_resources(pod: Pod, mutation: MutatePod) -> dict[str, tuple[StatedResources, StatedResources]]:
    """Return the requests and limits that a mutation replaces, by container name."""
    named = {target.container for target in mutation.containers}
    return {part.name: (part.requests, part.limits) for part in pod.resizable_parts if part.name in named}
