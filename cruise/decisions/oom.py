"""What follows an out-of-memory kill: what it teaches, and what is done at once."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np

from cruise.decisions.pod_policy.container_bounds import compute_container_bounds
from cruise.decisions.pod_policy.eligibility import Eligibility, ResizablePod
from cruise.decisions.pod_policy.limit_ranges import forbids_resize, get_pod_limit_ranges
from cruise.decisions.pod_policy.quotas import QuotaAllowance, keeps_limits
from cruise.decisions.sizing.memory_limit import (
    compute_limit_after_oom_kill,
    compute_limit_ceiling,
    compute_min_limit_after_oom_kill,
)
from cruise.decisions.sizing.resizes import (
    build_withdrawn_target,
    is_refusal_outdated,
    matches_refused_resize,
    would_become_guaranteed,
)
from cruise.decisions.sizing.update_threshold import get_update_threshold
from cruise.decisions.usage.oom_records import find_relevant_oom_kills, raise_oom_memory, summarize_oom_records
from cruise.domain.actions import ContainerTarget, EvictPod, ReasonCode, RefusedResize, ResizePod, SkippedPod
from cruise.domain.cluster import (
    NO_RESIZE,
    ClusterSnapshot,
    Container,
    ContainerRole,
    LimitRangeItem,
    Node,
    OomKill,
    Pod,
)
from cruise.domain.cluster_policies import ResourceQuota
from cruise.domain.pod_resources import count_pod_requests, replace_spec_resources
from cruise.domain.policy import Mode, OomReaction, Policy
from cruise.domain.reasons import ReasonDetail
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, round_up_to_mebibytes
from cruise.domain.usage import ContainerKey, OomRecord, PeakKey, Statistic, StatisticKey, StatisticsTable

NEW_KILL_WINDOW = timedelta(hours=1)
"""How long after a kill it is still acted on: a pod's status may show one of weeks ago to a cruise that is new."""


OWN_KILL_THRESHOLD = 0.25
"""From which share of its limit on a container's use explains its kill; under that, the node ran out of memory."""
PEAK_MARGIN = 1.5
"""Up to how much more than was observed a kill teaches: use between two observations is not seen."""


def get_raised_memory(kill: OomKill, statistic: Statistic | None) -> OomRecord:
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
        lesson = min(limit, math.ceil(observed * PEAK_MARGIN)) if observed >= limit * OWN_KILL_THRESHOLD else 0
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
        applies_to_workload=kill.runs_to_completion,
    )


def compute_raised_memory(kill: OomKill, statistics: StatisticsTable) -> OomRecord:
    """Return what a kill teaches, given what is known of its container, else of its workload's."""
    row = statistics.find(kill.namespace, kill.pod, kill.workload, kill.container, kill.identity)
    return get_raised_memory(kill, None if row is None else statistics.row(row))


def compute_raised_memory_in_order(kills: Iterable[OomKill], statistics: StatisticsTable) -> list[OomRecord]:
    """Return what several kills teach, the earliest first, each beside what those before it taught."""
    records: list[OomRecord] = []
    for kill in sorted(kills, key=lambda one: (one.finished_at, one.key)):
        records.append(compute_raised_memory(kill, statistics))
        statistics = raise_oom_memory(statistics, records[-1], shared=applies_to_workload(records[-1], records))
    return records


def add_kills_in_pod_status(
    statistics: StatisticsTable, snapshot: ClusterSnapshot, policy: Policy, now: datetime
) -> StatisticsTable:
    """Return statistics with what the kills teach that pod statuses still show."""
    if not policy.rules.oom_kills_in_status:
        return statistics
    records: list[OomRecord] = []
    for record in compute_raised_memory_in_order(
        _untold(find_relevant_oom_kills(snapshot, now), statistics), statistics
    ):
        records.append(record)
        statistics = raise_oom_memory(
            _with_own_row(statistics, record), record, shared=applies_to_workload(record, records)
        )
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
    return statistics.join(StatisticsTable.from_columns(statistics.take(np.array([row])), [key]))


def _untold(kills: Iterable[OomKill], statistics: StatisticsTable) -> list[OomKill]:
    """Return the kills of containers whose statistics say nothing of kills; those of others may count already."""
    rows = [(one, statistics.find(one.namespace, one.pod, one.workload, one.container, one.identity)) for one in kills]
    return [kill for kill, row in rows if row is None or not statistics.oom_memory_bytes[row]]


def applies_to_workload(record: OomRecord, known: Iterable[OomRecord]) -> bool:
    """Tell whether a kill teaches its whole workload: it is not the only `known` one, or its pod does not run again."""
    return PeakKey(record.namespace, record.workload, record.container, "") in summarize_oom_records(known).by_key


@dataclass(frozen=True, slots=True)
class OomContext:
    """What is known around a killed container: its pod's node, statistics by container, and what went before.

    `room` is what the node's allocatable leaves over what kube-scheduler counts; `refused` is what was refused for the
    pod, `last_reaction_at` that of the same pod and container. `quotas` are those of its namespace, and
    `original_limits` the memory limits before cruise resized the pod, by container, None where it never did.
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
    record: OomRecord, pod: Pod | None, scene: OomContext, eligibility: Eligibility, policy: Policy, now: datetime
) -> ResizePod | EvictPod | SkippedPod:
    """Grow the killed container in place where its node has the room, evict its pod otherwise, or hold.

    `pod` is freshly read, None if it is gone.
    """
    hold = _why_hold(record, pod, scene.last_reaction_at, policy, now)
    if hold is not None or pod is None:
        return hold or SkippedPod(record.namespace, record.pod, ReasonCode.NOT_FOUND)
    verdict = eligibility.check(pod, killed=True)
    if isinstance(verdict, SkippedPod):
        return verdict
    of_node = record.memory_limit_bytes is not None and not record.oom_memory_bytes
    if scene.node is None or not verdict.manages_memory or of_node:
        return _left_alone(verdict, scene)
    if policy.oom_reaction is OomReaction.EVICT:
        return _evict(verdict, eligibility)
    granted = _as_granted(verdict)
    grown = _grown(granted, _target(record, granted, scene, policy), scene)
    if isinstance(grown, SkippedPod):
        return grown
    asked = _with_others(granted, grown.containers)
    again = _stands_refused(asked, scene, pod, policy, now)
    return grown if grown.growth.growth_fits_in(scene.free_capacity) and not again else _evict(verdict, eligibility)


def _stands_refused(
    asked: Sequence[ContainerTarget], scene: OomContext, pod: Pod, policy: Policy, now: datetime
) -> bool:
    if scene.refused is None or scene.node is None:
        return False
    beside = scene.free_capacity + count_pod_requests(pod)
    forgotten = is_refusal_outdated(scene.refused, beside, scene.node.allocatable, policy, now)
    return not forgotten and matches_refused_resize(asked, scene.refused, get_update_threshold(pod, policy))


def _why_hold(
    record: OomRecord, pod: Pod | None, last_reaction_at: datetime | None, policy: Policy, now: datetime
) -> SkippedPod | None:
    if last_reaction_at is not None and now - last_reaction_at < policy.oom_cooldown:
        until = last_reaction_at + policy.oom_cooldown
        return SkippedPod(record.namespace, record.pod, ReasonCode.COOLDOWN, until=until)
    if now - record.finished_at > NEW_KILL_WINDOW:
        return SkippedPod(record.namespace, record.pod, ReasonCode.RECORDED_ONLY, ReasonDetail.OOM_KILL_TOO_OLD)
    if policy.oom_reaction is OomReaction.RECORD:
        return SkippedPod(record.namespace, record.pod, ReasonCode.RECORDED_ONLY)
    if pod is None or pod.uid != record.pod_uid:
        return SkippedPod(record.namespace, record.pod, ReasonCode.NOT_FOUND)
    if any(one.name == record.container and one.role is ContainerRole.INIT for one in pod.containers):
        return SkippedPod(
            record.namespace, record.pod, ReasonCode.RECORDED_ONLY, ReasonDetail.INIT_CONTAINER.create(record.container)
        )
    return None


def _left_alone(verdict: ResizablePod, scene: OomContext) -> SkippedPod:
    namespace, name = verdict.pod.namespace, verdict.pod.name
    if scene.node is None:
        # A pod on a node whose room is unknown is not evicted for lack of room.
        return SkippedPod(namespace, name, ReasonCode.NODE_NOT_READY, ReasonDetail.NODE_UNKNOWN)
    if not verdict.manages_memory:
        return SkippedPod(namespace, name, ReasonCode.MEMORY_NOT_MANAGED)
    return SkippedPod(namespace, name, ReasonCode.RECORDED_ONLY, ReasonDetail.NODE_OUT_OF_MEMORY)


def _as_granted(verdict: ResizablePod) -> ResizablePod:
    """Return a pod whose resize waits with what its kubelet has granted in place of what its spec requests."""
    if verdict.pod.resize.pending is None:
        return verdict
    granted = [(container, build_withdrawn_target(container)) for container in verdict.sized]
    return verdict._replace(sized=tuple(replace(c, requests=t.requests, limits=t.limits) for c, t in granted))


def _target(
    record: OomRecord, verdict: ResizablePod, scene: OomContext, policy: Policy
) -> ContainerTarget | SkippedPod:
    """Return the killed container with more memory, or why it gets none."""
    pod = verdict.pod
    container = next((c for c in verdict.sized if c.name == record.container), None)
    if container is None:
        return SkippedPod(pod.namespace, pod.name, ReasonCode.NOT_FOUND, record.container)
    statistic = scene.statistics.get(container.name)
    bounds = compute_container_bounds(verdict.effective_policy, container.name, scene.limit_ranges, policy)
    now_requested, now_limit = container.requests.memory_bytes or 0, container.limits.memory_bytes
    request = max(
        min(
            max(round_up_to_mebibytes(record.oom_memory_bytes), bounds.whole_unit_bounds[2]),
            bounds.whole_unit_bounds[3],
        ),
        now_requested,
    )
    ceiling = _ceiling(verdict, container, scene, policy)
    if policy.rules.memory_limit_safeguards and bounds.ratios[1] < math.inf:
        # A limit that is to rise takes the request with it.
        least = compute_min_limit_after_oom_kill(record, statistic, now_limit, bounds, policy, ceiling)
        beside = round_up_to_mebibytes(math.ceil(least / bounds.ratios[1]))
        request = max(request, beside) if beside <= bounds.whole_unit_bounds[3] else request
    limit = compute_limit_after_oom_kill(record, statistic, request, now_limit, scene.node, bounds, policy, ceiling)
    if limit is not None and now_limit is not None and policy.rules.memory_limit_safeguards:
        limit = _within_pod_range(pod, container, request, limit, scene)
        request = min(request, limit)
    if keeps_limits(pod, scene.quotas, ResourceName.MEMORY):
        limit, request = now_limit, request if now_limit is None else min(request, now_limit)
        if request == now_requested:
            return SkippedPod(pod.namespace, pod.name, ReasonCode.QUOTA_EXCEEDED, container.name)
    if request == now_requested and limit == now_limit:
        at_ceiling = now_limit is not None and now_limit >= ceiling
        detail = ReasonDetail.LIMIT_AT_CEILING.create(container.name) if at_ceiling else ReasonDetail.NOTHING_GROWS
        return SkippedPod(pod.namespace, pod.name, ReasonCode.AT_MAXIMUM, detail)
    return ContainerTarget(
        container.name,
        container.role,
        replace(container.requests, memory_bytes=request),
        replace(container.limits, memory_bytes=limit),
    )


def _within_pod_range(pod: Pod, container: Container, request: int, limit: int, scene: OomContext) -> int:
    """Return as much of a limit as LimitRanges of type Pod leave beside the pod's other containers, never lower."""
    bound = get_pod_limit_ranges(pod, scene.limit_ranges).get(ResourceName.MEMORY)
    if bound is None:
        return limit
    others = [one for one in pod.sized_containers if one is not container and one.name != container.name]
    limits = [(container.limits.memory_bytes or 0), *(one.limits.memory_bytes or 0 for one in others)]
    requests = [request, *(one.requests.memory_bytes or 0 for one in others)]
    return bound.limits(requests, limits, [limit, *limits[1:]], [limit, *limits[1:]])[0]


def _ceiling(verdict: ResizablePod, container: Container, scene: OomContext, policy: Policy) -> int:
    """Return what the container's memory limit may rise to."""
    limits = scene.original_limits if verdict.template_limits is None else verdict.template_limits
    stated = container.limits.memory_bytes if limits is None else limits.get(container.name)
    return compute_limit_ceiling(stated, None if scene.node is None else scene.node.allocatable.memory_bytes, policy)


def _grown(verdict: ResizablePod, target: ContainerTarget | SkippedPod, scene: OomContext) -> ResizePod | SkippedPod:
    """Return the resize that gives the target; what else waits is taken back with it, since it would hold it up."""
    if isinstance(target, SkippedPod):
        return target
    pod = verdict.pod
    targets = (target,) if pod.resize.pending is None else _with_others(verdict, (target,))
    if forbids_resize(pod, targets, scene.limit_ranges):
        return SkippedPod(pod.namespace, pod.name, ReasonCode.LIMIT_RANGE)
    if would_become_guaranteed(pod, targets):
        return SkippedPod(pod.namespace, pod.name, ReasonCode.QOS_CHANGE)
    before, after = (
        count_pod_requests(pod),
        count_pod_requests(replace(replace_spec_resources(pod, targets), resize=NO_RESIZE)),
    )
    growth = (after - before).at_least(NO_RESOURCES)
    if not QuotaAllowance(scene.quotas).consume(pod, growth):
        return SkippedPod(pod.namespace, pod.name, ReasonCode.QUOTA_EXCEEDED)
    return ResizePod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, targets, growth, ReasonCode.OOM_KILLED)


def _with_others(verdict: ResizablePod, targets: Sequence[ContainerTarget]) -> tuple[ContainerTarget, ...]:
    """Return targets for all sized containers, those that are not among `targets` as they are."""
    named = {target.container: target for target in targets}
    return tuple(named.get(c.name, ContainerTarget(c.name, c.role, c.requests, c.limits)) for c in verdict.sized)


def _evict(verdict: ResizablePod, eligibility: Eligibility) -> EvictPod | SkippedPod:
    pod = verdict.pod
    if verdict.effective_policy.mode < Mode.FULL:
        return SkippedPod(pod.namespace, pod.name, ReasonCode.INSUFFICIENT_CAPACITY, ReasonDetail.NO_EVICTIONS)
    kept = eligibility.evictability.explain_not_evictable(pod, verdict.effective_policy)
    if kept is not None:
        return SkippedPod(pod.namespace, pod.name, ReasonCode.NOT_EVICTABLE, kept)
    ranking = eligibility.evictability.get_ranking(pod, verdict.effective_policy)
    return EvictPod(
        pod.namespace, pod.name, pod.uid, pod.node, pod.workload, ranking, ResourceName.MEMORY, ReasonCode.OOM_KILLED
    )
