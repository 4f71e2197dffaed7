"""What follows an OOM kill: the record of it, and the immediate reaction (ADR 0011)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cruise.decisions.pod_policy.container_bounds import ContainerBounds, compute_container_bounds
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.limit_ranges import forbids_resize, get_pod_limit_ranges, select_limit_ranges
from cruise.decisions.pod_policy.quotas import QuotaAllowance, must_keep_limits
from cruise.decisions.pod_policy.resizable_pod import SKIP_REASON_BY_MODE, ResizablePod
from cruise.decisions.sizing.guaranteed import compute_guaranteed_memory_after_oom_kill
from cruise.decisions.sizing.memory_limit import (
    compute_limit_after_oom_kill,
    compute_limit_ceiling,
    compute_min_limit_after_oom_kill,
)
from cruise.decisions.sizing.pod_level_containers import enlarge_pod_level_target
from cruise.decisions.sizing.resizes import (
    build_resize,
    build_withdrawn_targets,
    compute_growth,
    is_refusal_outdated,
    matches_refused_resize,
    would_change_qos_class,
)
from cruise.decisions.sizing.update_threshold import get_update_threshold
from cruise.decisions.usage.oom_records import raise_oom_memory_by_record, summarize_oom_records
from cruise.domain.actions import ContainerTarget, EvictPod, ReasonCode, RefusedResize, ResizePod, SkippedPod
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import POD_LEVEL, Container, ContainerRole, Node, OomKill, Pod, QosClass
from cruise.domain.pod_resources import count_pod_requests, replace_spec_resources
from cruise.domain.policy import Mode, OomReaction, Policy, ResizeDirection
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import ResourceName, Resources, round_up_to_mebibytes
from cruise.domain.usage import OomRecord, PeakKey, Statistic, StatisticsTable

NEW_KILL_WINDOW = timedelta(hours=1)
"""How long after a kill cruise reacts: to a new installation, pod statuses may show kills from weeks ago."""
OWN_KILL_THRESHOLD = 0.25
"""Share of its limit from which a container's use explains its kill; below, the node ran out of memory."""
PEAK_MARGIN = 1.5
"""Largest factor of the OOM memory above observed use: use between two samples is unknown."""


def build_oom_record(kill: OomKill, statistic: Statistic | None, others_bytes: int = 0) -> OomRecord:
    """Return the record of a kill; its OOM memory is the limit at the kill, or the observed use with a margin if less.

    It is 0 if use was far below the limit: then the node ran out of memory, which shows nothing about the container.
    `others_bytes` is the use of the containers that shared the limit.
    """
    known = 0 if statistic is None else max(statistic.memory_peak_bytes, statistic.oom_memory_bytes)
    observed = max(kill.last_working_set_bytes or 0, known)
    limit = None if kill.memory_limit_bytes is None else max(0, kill.memory_limit_bytes - others_bytes)
    if limit is None:
        oom_memory = observed
    elif not observed:
        oom_memory = limit
    else:
        oom_memory = min(limit, math.ceil(observed * PEAK_MARGIN)) if observed >= limit * OWN_KILL_THRESHOLD else 0
    return OomRecord(
        namespace=kill.namespace,
        pod=kill.pod,
        pod_uid=kill.pod_uid,
        workload=str(kill.workload) if kill.workload is not None else "",
        container=kill.container,
        identity=kill.identity,
        node=kill.node,
        finished_at=kill.finished_at,
        memory_limit_bytes=kill.memory_limit_bytes,
        memory_request_bytes=kill.memory_request_bytes,
        last_working_set_bytes=kill.last_working_set_bytes,
        oom_memory_bytes=oom_memory,
        applies_to_workload=kill.runs_to_completion,
    )


def build_oom_record_from_statistics(kill: OomKill, statistics: StatisticsTable) -> OomRecord:
    """Return the record of a kill, by the statistics of its container or else of its workload."""
    row = statistics.find_row(kill.namespace, kill.pod, kill.workload, kill.container, kill.identity)
    others = [
        statistics.find_row(kill.namespace, kill.pod, kill.workload, name, kill.identity)
        for name in kill.shares_limit_with
    ]
    others_bytes = sum(int(statistics.memory_last_bytes[other]) for other in others if other is not None)
    return build_oom_record(kill, None if row is None else statistics.get_row(row), others_bytes)


def build_oom_records(kills: Iterable[OomKill], statistics: StatisticsTable) -> list[OomRecord]:
    """Return the records of several kills, the earliest first, each including the effect of those before it."""
    records: list[OomRecord] = []
    for kill in sorted(kills, key=lambda one: (one.finished_at, one.key)):
        records.append(build_oom_record_from_statistics(kill, statistics))
        statistics = raise_oom_memory_by_record(
            statistics, records[-1], shared=affects_whole_workload(records[-1], records)
        )
    return records


def affects_whole_workload(record: OomRecord, known: Iterable[OomRecord]) -> bool:
    """Return whether a kill affects its whole workload.

    It does if it is not the only `known` one, or if its pod does not run again.
    """
    return PeakKey(record.namespace, record.workload, record.container, "") in summarize_oom_records(known).by_key


@dataclass(frozen=True, slots=True)
class OomContext:
    """What is known around a killed container: its pod's node, statistics by container, and earlier reactions.

    `free_capacity` is the node's allocatable minus what kube-scheduler counts; `refused` is the pod's rejected resize;
    `original_limits` are the memory limits by container before cruise resized the pod, None if it never did.
    """

    node: Node | None
    free_capacity: Resources
    statistics: Mapping[str, Statistic]
    limit_ranges: Sequence[LimitRangeItem] = ()
    refused: RefusedResize | None = None
    last_reaction_at: datetime | None = None
    quotas: Sequence[ResourceQuota] = ()
    original_limits: Mapping[str, int] | None = None


def decide_oom_reaction(
    record: OomRecord, pod: Pod | None, context: OomContext, eligibility: Eligibility, policy: Policy, now: datetime
) -> ResizePod | EvictPod | SkippedPod:
    """Grow the killed container in place if its node has the capacity, otherwise evict its pod, or skip it.

    `pod` must be freshly read, None if it no longer exists.
    """
    skipped = _explain_skip(record, pod, context.last_reaction_at, policy, now)
    if skipped is not None or pod is None:
        return skipped or SkippedPod(record.namespace, record.pod, ReasonCode.NOT_FOUND)
    checked = eligibility.check(pod, killed=True)
    if isinstance(checked, SkippedPod):
        return checked
    skipped = _explain_no_growth(record, checked, context)
    if skipped is not None:
        return skipped
    if policy.oom_reaction is OomReaction.EVICT:
        return _evict(checked, eligibility)
    allocated = _use_allocated(checked)
    resize = _build_resize(checked.pod, allocated, _build_targets(record, allocated, context, policy), context)
    if isinstance(resize, SkippedPod):
        return resize
    requested = _add_other_containers(allocated, resize.containers)
    would_be_refused = _would_be_refused(requested, context, pod, policy, now)
    return (
        resize
        if resize.growth.growth_fits_in(context.free_capacity) and not would_be_refused
        else _evict(checked, eligibility)
    )


def _would_be_refused(
    requested: Sequence[ContainerTarget], context: OomContext, pod: Pod, policy: Policy, now: datetime
) -> bool:
    if context.node is None:
        return False
    if context.node.memory_swaps and pod.qos is not QosClass.GUARANTEED and _changes_memory_requests(requested, pod):
        return True
    if context.refused is None:
        return False
    available = context.free_capacity + count_pod_requests(pod)
    is_outdated = is_refusal_outdated(context.refused, available, context.node.allocatable, policy, now)
    return not is_outdated and matches_refused_resize(requested, context.refused, get_update_threshold(policy))


def _changes_memory_requests(targets: Sequence[ContainerTarget], pod: Pod) -> bool:
    stated = {one.name: one.requests.memory_bytes for one in pod.resizable_parts}
    return any(one.requests.memory_bytes != stated[one.container] for one in targets)


def _explain_skip(
    record: OomRecord, pod: Pod | None, last_reaction_at: datetime | None, policy: Policy, now: datetime
) -> SkippedPod | None:
    if last_reaction_at is not None and now - last_reaction_at < policy.oom_cooldown:
        until = last_reaction_at + policy.oom_cooldown
        return SkippedPod(record.namespace, record.pod, ReasonCode.COOLDOWN, until=until)
    if now - record.finished_at > NEW_KILL_WINDOW:
        return SkippedPod(record.namespace, record.pod, ReasonCode.RECORDED_ONLY, ReasonDetailCode.OOM_KILL_TOO_OLD)
    if policy.oom_reaction is OomReaction.RECORD:
        return SkippedPod(record.namespace, record.pod, ReasonCode.RECORDED_ONLY)
    if pod is None or pod.uid != record.pod_uid:
        return SkippedPod(record.namespace, record.pod, ReasonCode.NOT_FOUND)
    if any(one.name == record.container and one.role is ContainerRole.INIT for one in pod.containers):
        return SkippedPod(
            record.namespace,
            record.pod,
            ReasonCode.RECORDED_ONLY,
            ReasonDetailCode.INIT_CONTAINER.create(record.container),
        )
    return None


def _explain_unmanaged(record: OomRecord, checked: ResizablePod) -> SkippedPod | None:
    """Skip a container that is not sized, of which memory is not, or that may only shrink."""
    namespace, name = checked.pod.namespace, checked.pod.name
    if any(one.name == record.container for one in checked.kept_containers):
        mode = checked.effective_policy.get_for_container(record.container).mode
        reason = SKIP_REASON_BY_MODE.get(mode, ReasonCode.MEMORY_NOT_MANAGED)
        return SkippedPod(namespace, name, reason, record.container)
    if checked.effective_policy.get_for_container(record.container).direction is ResizeDirection.SHRINK:
        detail = ReasonDetailCode.DIRECTION_SHRINK.create(record.container)
        return SkippedPod(namespace, name, ReasonCode.AT_MAXIMUM, detail)
    pairs = zip(checked.sized, checked.managed_by_container, strict=False)
    if any(one.name == record.container and ResourceName.MEMORY not in resources for one, resources in pairs):
        return SkippedPod(namespace, name, ReasonCode.MEMORY_NOT_MANAGED, record.container)
    return None


def _explain_no_growth(record: OomRecord, checked: ResizablePod, context: OomContext) -> SkippedPod | None:
    """Return why nothing is done about a kill, None if the container may get more memory."""
    namespace, name = checked.pod.namespace, checked.pod.name
    if context.node is None:
        # A pod on a node with unknown capacity is not evicted for lack of capacity.
        return SkippedPod(namespace, name, ReasonCode.NODE_NOT_READY, ReasonDetailCode.NODE_UNKNOWN)
    bounds = checked.utilisation_bounds
    # At its maximum of replicas an HPA would remove a pod because of a larger request; the node pass grows within that.
    is_bounded = bounds is not None and not bounds.is_at_minimum and ResourceName.MEMORY in bounds.metrics
    if is_bounded or not checked.manages_memory:
        return SkippedPod(namespace, name, ReasonCode.MEMORY_NOT_MANAGED)
    unmanaged = _explain_unmanaged(record, checked)
    if unmanaged is None and record.memory_limit_bytes is not None and not record.oom_memory_bytes:
        return SkippedPod(namespace, name, ReasonCode.RECORDED_ONLY, ReasonDetailCode.NODE_OUT_OF_MEMORY)
    return unmanaged


def _use_allocated(resizable: ResizablePod) -> ResizablePod:
    """Return a pod with a pending resize with its allocated resources in place of those of its spec."""
    if resizable.pod.resize.pending is None:
        return resizable
    withdrawn = replace_spec_resources(resizable.pod, build_withdrawn_targets(resizable))
    parts = {part.name: part for part in withdrawn.resizable_parts}
    return resizable._replace(pod=withdrawn, sized=tuple([parts[one.name] for one in resizable.sized]))


def _build_targets(
    record: OomRecord, resizable: ResizablePod, context: OomContext, policy: Policy
) -> Sequence[ContainerTarget] | SkippedPod:
    """Return what grows after a kill, or why nothing does: the container, or the pod if the kill was at its limit."""
    pod = resizable.pod
    if pod.pod_level is None:
        target = _build_target(record, resizable, context, policy)
        return target if isinstance(target, SkippedPod) else (target,)
    killed = next((one for one in pod.sized_containers if one.name == record.container), None)
    if killed is not None and killed.limits.memory_bytes is not None:
        target = _build_target(record, resizable._replace(sized=(killed,)), context, policy)
        return target if isinstance(target, SkippedPod) else enlarge_pod_level_target(pod, killed, target)
    others = sum(
        one.memory_last_bytes for name, one in context.statistics.items() if name not in (record.container, POD_LEVEL)
    )
    whole = replace(record, container=POD_LEVEL, oom_memory_bytes=record.oom_memory_bytes + others)
    target = _build_target(whole, resizable, context, policy)
    return target if isinstance(target, SkippedPod) else (target,)


def _build_target(
    record: OomRecord, resizable: ResizablePod, context: OomContext, policy: Policy
) -> ContainerTarget | SkippedPod:
    """Return the killed container with more memory, or why it gets none."""
    pod = resizable.pod
    container = next((c for c in resizable.sized if c.name == record.container), None)
    if container is None:
        return SkippedPod(pod.namespace, pod.name, ReasonCode.NOT_FOUND, record.container)
    statistic = context.statistics.get(container.name)
    ranges = select_limit_ranges(container, context.limit_ranges)
    bounds = compute_container_bounds(resizable.effective_policy, container.name, ranges, policy)
    current_request, current_limit = container.requests.memory_bytes or 0, container.limits.memory_bytes
    request = max(
        min(
            max(round_up_to_mebibytes(record.oom_memory_bytes), bounds.whole_unit_bounds[2]),
            bounds.whole_unit_bounds[3],
        ),
        current_request,
    )
    ceiling = _get_ceiling(resizable, container, context, policy)
    if pod.qos is QosClass.GUARANTEED:
        request = compute_guaranteed_memory_after_oom_kill(record, statistic, current_request, bounds, policy, ceiling)
        limit: int | None = request
    else:
        request, limit = _compute_request_and_limit(
            record, statistic, pod, container, request, bounds, policy, ceiling, context
        )
    if must_keep_limits(pod, context.quotas, ResourceName.MEMORY):
        limit, request = current_limit, request if current_limit is None else min(request, current_limit)
        if request == current_request:
            return SkippedPod(pod.namespace, pod.name, ReasonCode.QUOTA_EXCEEDED, container.name)
    if request == current_request and limit == current_limit:
        at_ceiling = current_limit is not None and current_limit >= ceiling
        detail = (
            ReasonDetailCode.LIMIT_AT_CEILING.create(container.name) if at_ceiling else ReasonDetailCode.NOTHING_GROWS
        )
        return SkippedPod(pod.namespace, pod.name, ReasonCode.AT_MAXIMUM, detail)
    return ContainerTarget(
        container.name,
        container.role,
        replace(container.requests, memory_bytes=request),
        replace(container.limits, memory_bytes=limit),
    )


def _compute_request_and_limit(
    record: OomRecord,
    statistic: Statistic | None,
    pod: Pod,
    container: Container,
    request: int,
    bounds: ContainerBounds,
    policy: Policy,
    ceiling: int,
    context: OomContext,
) -> tuple[int, int | None]:
    """Return the memory request that LimitRanges require for the limit, at least `request`, and the limit."""
    current_limit = container.limits.memory_bytes
    if policy.rules.memory_limit_safeguards and bounds.ratios[1] < math.inf:
        # Under a ratio, a higher limit requires a higher request.
        minimum_limit = compute_min_limit_after_oom_kill(record, statistic, current_limit, bounds, policy, ceiling)
        request_for_limit = round_up_to_mebibytes(math.ceil(minimum_limit / bounds.ratios[1]))
        request = max(request, request_for_limit) if request_for_limit <= bounds.whole_unit_bounds[3] else request
    limit = compute_limit_after_oom_kill(
        record, statistic, request, current_limit, context.node, bounds, policy, ceiling
    )
    if limit is not None and current_limit is not None and policy.rules.memory_limit_safeguards:
        limit = _apply_pod_range(pod, container, request, limit, context)
        request = min(request, limit)
    return request, limit


def _apply_pod_range(pod: Pod, container: Container, request: int, limit: int, context: OomContext) -> int:
    """Return as much of a limit as LimitRanges of type Pod allow next to the pod's other containers.

    It is never lower than before.
    """
    pod_range = get_pod_limit_ranges(pod, context.limit_ranges).get(ResourceName.MEMORY)
    if pod_range is None or pod.pod_level is not None:
        return limit
    others = [one for one in pod.sized_containers if one is not container and one.name != container.name]
    limits = [(container.limits.memory_bytes or 0), *(one.limits.memory_bytes or 0 for one in others)]
    requests = [request, *(one.requests.memory_bytes or 0 for one in others)]
    return pod_range.get_limits(requests, limits, [limit, *limits[1:]], [limit, *limits[1:]])[0]


def _get_ceiling(resizable: ResizablePod, container: Container, context: OomContext, policy: Policy) -> int:
    """Return what the container's memory limit may rise to."""
    limits = context.original_limits if resizable.template_limits is None else resizable.template_limits
    stated = container.limits.memory_bytes if limits is None else limits.get(container.name)
    return compute_limit_ceiling(
        stated, None if context.node is None else context.node.allocatable.memory_bytes, policy
    )


def _build_resize(
    pod: Pod, resizable: ResizablePod, grown: Sequence[ContainerTarget] | SkippedPod, context: OomContext
) -> ResizePod | SkippedPod:
    """Return the resize to the targets; another pending resize is withdrawn with it, since it would block it."""
    if isinstance(grown, SkippedPod):
        return grown
    targets = tuple(grown) if pod.resize.pending is None else _add_other_containers(resizable, grown)
    if forbids_resize(pod, targets, context.limit_ranges):
        return SkippedPod(pod.namespace, pod.name, ReasonCode.LIMIT_RANGE)
    if would_change_qos_class(pod, targets):
        return SkippedPod(pod.namespace, pod.name, ReasonCode.QOS_CHANGE)
    growth = compute_growth(pod, targets)
    if not QuotaAllowance(context.quotas).consume(pod, growth):
        return SkippedPod(pod.namespace, pod.name, ReasonCode.QUOTA_EXCEEDED)
    return build_resize(pod, targets, growth, ReasonCode.OOM_KILLED)


def _add_other_containers(resizable: ResizablePod, targets: Sequence[ContainerTarget]) -> tuple[ContainerTarget, ...]:
    """Return targets for all sized containers, unchanged for those not among `targets`."""
    by_name = {target.container: target for target in targets}
    return tuple(by_name.get(c.name, ContainerTarget(c.name, c.role, c.requests, c.limits)) for c in resizable.written)


def _evict(resizable: ResizablePod, eligibility: Eligibility) -> EvictPod | SkippedPod:
    pod = resizable.pod
    if resizable.effective_policy.mode < Mode.FULL:
        return SkippedPod(pod.namespace, pod.name, ReasonCode.INSUFFICIENT_CAPACITY, ReasonDetailCode.NO_EVICTIONS)
    reason = eligibility.explain_not_evictable_for_sizing(pod, resizable.effective_policy, killed=True)
    if reason is not None:
        return SkippedPod(pod.namespace, pod.name, ReasonCode.NOT_EVICTABLE, reason)
    ranking = eligibility.evictability.get_ranking(pod, resizable.effective_policy)
    return EvictPod(
        pod.namespace, pod.name, pod.uid, pod.node, pod.workload, ranking, ResourceName.MEMORY, ReasonCode.OOM_KILLED
    )
