"""What follows an out-of-memory kill: what it teaches, and what is done at once."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from cruise.decisions.limit_ranges import breaks_limit_range
from cruise.decisions.recommendation import container_bounds
from cruise.decisions.resize import becomes_guaranteed
from cruise.decisions.scope import Scope, Touchable
from cruise.domain.actions import ContainerTarget, EvictPod, Hold, Reason, ResizePod
from cruise.domain.cluster import LimitRangeItem, OomKill, Pod
from cruise.domain.policy import EvictionRanking, Mode, OomReaction, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources
from cruise.domain.usage import OomRecord, Statistic


def learn_from(kill: OomKill, statistic: Statistic | None) -> OomRecord:
    """Return what a kill teaches: the limit at the kill, or without a limit the last observed peak."""
    if kill.memory_limit_bytes is not None:
        lesson = kill.memory_limit_bytes
    else:
        observed = [kill.last_working_set_bytes or 0]
        observed += [statistic.memory_peak_bytes] if statistic is not None else []
        lesson = max(observed)
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
        oom_memory_bytes=lesson,
    )


def decide_oom_reaction(
    record: OomRecord,
    pod: Pod | None,
    scope: Scope,
    statistics: Mapping[str, Statistic],
    room: Resources,
    limit_ranges: Sequence[LimitRangeItem],
    last_reaction_at: datetime | None,
    policy: Policy,
    now: datetime,
) -> ResizePod | EvictPod | Hold:
    """Grow the killed container in place where its node has the room, evict its pod otherwise, or hold.

    `pod` is freshly read, None if it is gone; `statistics` are the pod's, by container; `room` is what the node's
    allocatable leaves over what kube-scheduler counts; `last_reaction_at` is that of the same pod and container.
    """
    hold = _why_hold(record, pod, last_reaction_at, policy, now)
    if hold is not None or pod is None:
        return hold or Hold(record.namespace, record.pod, Reason.GONE)
    verdict = scope.of(pod)
    if isinstance(verdict, Hold):
        return verdict
    if not verdict.manages_memory:
        return Hold(pod.namespace, pod.name, Reason.MEMORY_UNMANAGED)
    if policy.oom_reaction is OomReaction.RESIZE_THEN_EVICT:
        grown = _grown(record, verdict, statistics.get(record.container), limit_ranges, policy)
        if isinstance(grown, Hold):
            return grown
        if grown.growth.fits_in(room):
            return grown
    return _evict(verdict, scope)


def _why_hold(
    record: OomRecord, pod: Pod | None, last_reaction_at: datetime | None, policy: Policy, now: datetime
) -> Hold | None:
    if last_reaction_at is not None and now - last_reaction_at < policy.oom_cooldown:
        until = last_reaction_at + policy.oom_cooldown
        return Hold(record.namespace, record.pod, Reason.COOLING_DOWN, until=until)
    if policy.oom_reaction is OomReaction.RECORD:
        return Hold(record.namespace, record.pod, Reason.RECORDED)
    if pod is None or pod.uid != record.pod_uid:
        return Hold(record.namespace, record.pod, Reason.GONE)
    return None


def _grown(
    record: OomRecord,
    verdict: Touchable,
    statistic: Statistic | None,
    limit_ranges: Sequence[LimitRangeItem],
    policy: Policy,
) -> ResizePod | Hold:
    pod = verdict.pod
    container = next((c for c in verdict.sized if c.name == record.container), None)
    if container is None:
        return Hold(pod.namespace, pod.name, Reason.GONE, record.container)
    bounds = container_bounds(verdict.guidance, container.name, limit_ranges, policy.floor)
    now_requested, now_limit = container.requests.memory_bytes or 0, container.limits.memory_bytes
    request = max(min(max(_up(record.oom_memory_bytes), bounds.whole[2]), bounds.whole[3]), now_requested)
    seven_days = statistic.memory_7d_max_bytes if statistic is not None else 0
    wanted = _up(2 * max(seven_days, record.oom_memory_bytes))
    limit = max(min(wanted, bounds.whole[5], int(min(request * bounds.ratios[1], wanted))), request, now_limit or 0)
    if request == now_requested and limit == now_limit:
        return Hold(pod.namespace, pod.name, Reason.CAPPED, "no bound lets it grow")
    target = ContainerTarget(
        container.name,
        container.role,
        replace(container.requests, memory_bytes=request),
        replace(container.limits, memory_bytes=limit),
    )
    if breaks_limit_range(pod, (target,), limit_ranges):
        return Hold(pod.namespace, pod.name, Reason.LIMIT_RANGE)
    if becomes_guaranteed(pod, (target,)):
        return Hold(pod.namespace, pod.name, Reason.QOS_CHANGE)
    growth = Resources(0, request - now_requested)
    return ResizePod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, (target,), growth, Reason.OOM_KILLED)


def _evict(verdict: Touchable, scope: Scope) -> EvictPod | Hold:
    pod = verdict.pod
    ranking = scope.ranking_of(pod, verdict.guidance)
    unmovable = scope.why_unmovable(pod)
    if verdict.guidance.mode < Mode.FULL:
        return Hold(pod.namespace, pod.name, Reason.NO_ROOM, "the mode allows no eviction")
    if unmovable is not None or ranking is EvictionRanking.NEVER:
        return Hold(pod.namespace, pod.name, Reason.UNMOVABLE, unmovable or "eviction-ranking never")
    return EvictPod(
        pod.namespace, pod.name, pod.uid, pod.node, pod.workload, ranking, ResourceName.MEMORY, Reason.OOM_KILLED
    )


def _up(value: int) -> int:
    return -(-value // MEBIBYTE) * MEBIBYTE
