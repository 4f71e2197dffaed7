"""What follows an out-of-memory kill: what it teaches, and what is done at once."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from cruise.decisions.guidance.container_bounds import container_bounds
from cruise.decisions.guidance.eligibility import Eligibility, Touchable
from cruise.decisions.guidance.limit_ranges import refuses_resize
from cruise.decisions.guidance.pod_ranges import pod_ranges
from cruise.decisions.guidance.quotas import QuotaRoom, limits_stay
from cruise.decisions.sizing.dead_band import dead_band_of
from cruise.decisions.sizing.memory_limit import ceiling_of, least_after_kill, limit_after_kill
from cruise.decisions.sizing.resize import becomes_guaranteed, is_forgotten, was_refused, withdrawn_target
from cruise.decisions.usage.lessons import lessons_of, with_lesson
from cruise.decisions.usage.shown_kills import kills_that_count
from cruise.domain.actions import ContainerTarget, EvictPod, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.cluster import NO_RESIZE, Container, ContainerRole, LimitRangeItem, Node, OomKill, Pod, Snapshot
from cruise.domain.details import Detail
from cruise.domain.policy import Mode, OomReaction, Policy
from cruise.domain.quotas import Quota
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, whole_mebibytes
from cruise.domain.sizes import with_sizes
from cruise.domain.usage import ContainerKey, OomRecord, PeakKey, Statistic, StatisticKey, StatisticsTable

NEWLY = timedelta(hours=1)
"""How long after a kill it is still acted on: a pod's status may show one of weeks ago to a cruise that is new."""


OWN_FROM = 0.25
"""From which share of its limit on a container's use explains its kill; under that, the node ran out of memory."""
PEAK_MARGIN = 1.5
"""Up to how much more than was observed a kill teaches: use between two observations is not seen."""


def learn_from(kill: OomKill, statistic: Statistic | None) -> OomRecord:
    """Return what a kill teaches: the limit at the kill, or what was observed with a margin where that is less.

    0 where use was far below the limit: then the node ran out of memory, which says nothing of the container.
    """
    known = 0 if statistic is None else max(statistic.memory_peak_bytes, statistic.oom_memory_bytes)
    observed = max(kill.last_working_set_bytes or 0, known)
    limit = kill.memory_limit_bytes
    if limit is None:
        lesson = observed
    elif not observed:
        lesson = limit
    else:
        lesson = min(limit, math.ceil(observed * PEAK_MARGIN)) if observed >= limit * OWN_FROM else 0
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
        teaches_workload=kill.runs_to_completion,
    )


def learn(kill: OomKill, statistics: StatisticsTable) -> OomRecord:
    """Return what a kill teaches, given what is known of its container, else of its workload's."""
    row = statistics.find(kill.namespace, kill.pod, kill.workload, kill.container, kill.identity)
    return learn_from(kill, None if row is None else statistics.row(row))


def learn_in_turn(kills: Iterable[OomKill], statistics: StatisticsTable) -> list[OomRecord]:
    """Return what several kills teach, the earliest first, each beside what those before it taught."""
    records: list[OomRecord] = []
    for kill in sorted(kills, key=lambda one: (one.finished_at, one.key)):
        records.append(learn(kill, statistics))
        statistics = with_lesson(statistics, records[-1], shared=is_shared(records[-1], records))
    return records


def with_shown_kills(statistics: StatisticsTable, snapshot: Snapshot, policy: Policy, now: datetime) -> StatisticsTable:
    """Return statistics with what the kills teach that pod statuses still show."""
    if not policy.rules.shown_kills:
        return statistics
    records: list[OomRecord] = []
    for record in learn_in_turn(_untold(kills_that_count(snapshot, now), statistics), statistics):
        records.append(record)
        statistics = with_lesson(_with_own_row(statistics, record), record, shared=is_shared(record, records))
    return statistics


def _with_own_row(statistics: StatisticsTable, record: OomRecord) -> StatisticsTable:
    """Give a killed container a copy of its workload's row where it has none: what it learns is its own."""
    own = ContainerKey(record.namespace, record.pod, record.container)
    of_workload = PeakKey(record.namespace, record.workload, record.container, record.identity)
    rows = statistics.row_of_workload
    row = rows.get(of_workload, rows.get(of_workload._replace(identity="")))
    if row is None or own in statistics.row_of_container:
        return statistics
    key = StatisticKey(record.namespace, record.pod, record.workload, record.container, record.identity)
    return statistics.joined(StatisticsTable.of_columns(statistics.take(np.array([row])), [key]))


def _untold(kills: Iterable[OomKill], statistics: StatisticsTable) -> list[OomKill]:
    """Return the kills of containers whose statistics say nothing of kills; those of others may count already."""
    rows = [(one, statistics.find(one.namespace, one.pod, one.workload, one.container, one.identity)) for one in kills]
    return [kill for kill, row in rows if row is None or not statistics.oom_memory_bytes[row]]


def is_shared(record: OomRecord, known: Iterable[OomRecord]) -> bool:
    """Tell whether a kill teaches its whole workload: it is not the only `known` one, or its pod does not run again."""
    return PeakKey(record.namespace, record.workload, record.container, "") in lessons_of(known).of_keys


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known around a killed container: its pod's node, statistics by container, and what went before.

    `room` is what the node's allocatable leaves over what kube-scheduler counts; `refused` is what was refused for the
    pod, `last_reaction_at` that of the same pod and container. `quotas` are those of its namespace, and
    `original_limits` the memory limits before cruise resized the pod, by container, None where it never did.
    """

    node: Node | None
    room: Resources
    statistics: Mapping[str, Statistic]
    limit_ranges: Sequence[LimitRangeItem] = ()
    refused: RefusedTarget | None = None
    last_reaction_at: datetime | None = None
    quotas: Sequence[Quota] = ()
    original_limits: Mapping[str, int] | None = None


def decide_oom_reaction(
    record: OomRecord, pod: Pod | None, scene: Scene, eligibility: Eligibility, policy: Policy, now: datetime
) -> ResizePod | EvictPod | Hold:
    """Grow the killed container in place where its node has the room, evict its pod otherwise, or hold.

    `pod` is freshly read, None if it is gone.
    """
    hold = _why_hold(record, pod, scene.last_reaction_at, policy, now)
    if hold is not None or pod is None:
        return hold or Hold(record.namespace, record.pod, Reason.GONE)
    verdict = eligibility.of(pod, killed=True)
    if isinstance(verdict, Hold):
        return verdict
    of_node = record.memory_limit_bytes is not None and not record.oom_memory_bytes
    if scene.node is None or not verdict.manages_memory or of_node:
        return _left_alone(verdict, scene)
    if policy.oom_reaction is OomReaction.EVICT:
        return _evict(verdict, eligibility)
    granted = _as_granted(verdict)
    grown = _grown(granted, _target(record, granted, scene, policy), scene)
    if isinstance(grown, Hold):
        return grown
    asked = _with_others(granted, grown.containers)
    again = _stands_refused(asked, scene, pod, policy, now)
    return grown if grown.growth.growth_fits_in(scene.room) and not again else _evict(verdict, eligibility)


def _stands_refused(asked: Sequence[ContainerTarget], scene: Scene, pod: Pod, policy: Policy, now: datetime) -> bool:
    if scene.refused is None or scene.node is None:
        return False
    beside = scene.room + counted_requests(pod)
    forgotten = is_forgotten(scene.refused, beside, scene.node.allocatable, policy, now)
    return not forgotten and was_refused(asked, scene.refused, dead_band_of(pod, policy))


def _why_hold(
    record: OomRecord, pod: Pod | None, last_reaction_at: datetime | None, policy: Policy, now: datetime
) -> Hold | None:
    if last_reaction_at is not None and now - last_reaction_at < policy.oom_cooldown:
        until = last_reaction_at + policy.oom_cooldown
        return Hold(record.namespace, record.pod, Reason.COOLING_DOWN, until=until)
    if now - record.finished_at > NEWLY:
        return Hold(record.namespace, record.pod, Reason.RECORDED, Detail.KILLED_LONG_AGO)
    if policy.oom_reaction is OomReaction.RECORD:
        return Hold(record.namespace, record.pod, Reason.RECORDED)
    if pod is None or pod.uid != record.pod_uid:
        return Hold(record.namespace, record.pod, Reason.GONE)
    if any(one.name == record.container and one.role is ContainerRole.INIT for one in pod.containers):
        return Hold(record.namespace, record.pod, Reason.RECORDED, Detail.INIT_CONTAINER.of(record.container))
    return None


def _left_alone(verdict: Touchable, scene: Scene) -> Hold:
    namespace, name = verdict.pod.namespace, verdict.pod.name
    if scene.node is None:
        # A pod on a node whose room is unknown is not evicted for lack of room.
        return Hold(namespace, name, Reason.NODE_NOT_READY, Detail.NODE_UNKNOWN)
    if not verdict.manages_memory:
        return Hold(namespace, name, Reason.MEMORY_UNMANAGED)
    return Hold(namespace, name, Reason.RECORDED, Detail.NODE_RAN_OUT)


def _as_granted(verdict: Touchable) -> Touchable:
    """Return a pod whose resize waits with what its kubelet has granted in place of what its spec requests."""
    if verdict.pod.resize.pending is None:
        return verdict
    granted = [(container, withdrawn_target(container)) for container in verdict.sized]
    return verdict._replace(sized=tuple(replace(c, requests=t.requests, limits=t.limits) for c, t in granted))


def _target(record: OomRecord, verdict: Touchable, scene: Scene, policy: Policy) -> ContainerTarget | Hold:
    """Return the killed container with more memory, or why it gets none."""
    pod = verdict.pod
    container = next((c for c in verdict.sized if c.name == record.container), None)
    if container is None:
        return Hold(pod.namespace, pod.name, Reason.GONE, record.container)
    statistic = scene.statistics.get(container.name)
    bounds = container_bounds(verdict.guidance, container.name, scene.limit_ranges, policy)
    now_requested, now_limit = container.requests.memory_bytes or 0, container.limits.memory_bytes
    request = max(min(max(whole_mebibytes(record.oom_memory_bytes), bounds.whole[2]), bounds.whole[3]), now_requested)
    ceiling = _ceiling(verdict, container, scene, policy)
    if policy.rules.careful_limits and bounds.ratios[1] < math.inf:
        # A limit that is to rise takes the request with it.
        least = least_after_kill(record, statistic, now_limit, bounds, policy, ceiling)
        beside = whole_mebibytes(math.ceil(least / bounds.ratios[1]))
        request = max(request, beside) if beside <= bounds.whole[3] else request
    limit = limit_after_kill(record, statistic, request, now_limit, scene.node, bounds, policy, ceiling)
    if limit is not None and now_limit is not None and policy.rules.careful_limits:
        limit = _within_pod_range(pod, container, request, limit, scene)
        request = min(request, limit)
    if limits_stay(pod, scene.quotas, ResourceName.MEMORY):
        limit, request = now_limit, request if now_limit is None else min(request, now_limit)
        if request == now_requested:
            return Hold(pod.namespace, pod.name, Reason.QUOTA, container.name)
    if request == now_requested and limit == now_limit:
        at_ceiling = now_limit is not None and now_limit >= ceiling
        detail = Detail.LIMIT_AT_CEILING.of(container.name) if at_ceiling else Detail.NOTHING_GROWS
        return Hold(pod.namespace, pod.name, Reason.CAPPED, detail)
    return ContainerTarget(
        container.name,
        container.role,
        replace(container.requests, memory_bytes=request),
        replace(container.limits, memory_bytes=limit),
    )


def _within_pod_range(pod: Pod, container: Container, request: int, limit: int, scene: Scene) -> int:
    """Return as much of a limit as LimitRanges of type Pod leave beside the pod's other containers, never lower."""
    bound = pod_ranges(pod, scene.limit_ranges).get(ResourceName.MEMORY)
    if bound is None:
        return limit
    others = [one for one in pod.sized_containers if one is not container and one.name != container.name]
    limits = [(container.limits.memory_bytes or 0), *(one.limits.memory_bytes or 0 for one in others)]
    requests = [request, *(one.requests.memory_bytes or 0 for one in others)]
    return bound.limits(requests, limits, [limit, *limits[1:]], [limit, *limits[1:]])[0]


def _ceiling(verdict: Touchable, container: Container, scene: Scene, policy: Policy) -> int:
    """Return what the container's memory limit may rise to."""
    limits = scene.original_limits if verdict.template_limits is None else verdict.template_limits
    stated = container.limits.memory_bytes if limits is None else limits.get(container.name)
    return ceiling_of(stated, None if scene.node is None else scene.node.allocatable.memory_bytes, policy)


def _grown(verdict: Touchable, target: ContainerTarget | Hold, scene: Scene) -> ResizePod | Hold:
    """Return the resize that gives the target; what else waits is taken back with it, since it would hold it up."""
    if isinstance(target, Hold):
        return target
    pod = verdict.pod
    targets = (target,) if pod.resize.pending is None else _with_others(verdict, (target,))
    if refuses_resize(pod, targets, scene.limit_ranges):
        return Hold(pod.namespace, pod.name, Reason.LIMIT_RANGE)
    if becomes_guaranteed(pod, targets):
        return Hold(pod.namespace, pod.name, Reason.QOS_CHANGE)
    before, after = counted_requests(pod), counted_requests(replace(with_sizes(pod, targets), resize=NO_RESIZE))
    growth = (after - before).at_least(NO_RESOURCES)
    if not QuotaRoom(scene.quotas).take(pod, growth):
        return Hold(pod.namespace, pod.name, Reason.QUOTA)
    return ResizePod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, targets, growth, Reason.OOM_KILLED)


def _with_others(verdict: Touchable, targets: Sequence[ContainerTarget]) -> tuple[ContainerTarget, ...]:
    """Return targets for all sized containers, those that are not among `targets` as they are."""
    named = {target.container: target for target in targets}
    return tuple(named.get(c.name, ContainerTarget(c.name, c.role, c.requests, c.limits)) for c in verdict.sized)


def _evict(verdict: Touchable, eligibility: Eligibility) -> EvictPod | Hold:
    pod = verdict.pod
    if verdict.guidance.mode < Mode.FULL:
        return Hold(pod.namespace, pod.name, Reason.NO_ROOM, Detail.NO_EVICTIONS)
    kept = eligibility.evictability.why_kept(pod, verdict.guidance)
    if kept is not None:
        return Hold(pod.namespace, pod.name, Reason.UNMOVABLE, kept)
    ranking = eligibility.evictability.ranking_of(pod, verdict.guidance)
    return EvictPod(
        pod.namespace, pod.name, pod.uid, pod.node, pod.workload, ranking, ResourceName.MEMORY, Reason.OOM_KILLED
    )
