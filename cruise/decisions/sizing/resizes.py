"""Resizes of single pods: one that is still pending, one that was refused, and the part that takes no room."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.pod_policy.eligibility import ResizablePod
from cruise.decisions.pod_policy.limit_ranges import forbids_resize
from cruise.decisions.sizing.recommendation import DemandTable
from cruise.decisions.sizing.update_threshold import UpdateThreshold, get_update_threshold
from cruise.domain.actions import ContainerTarget, ReasonCode, RefusedResize, ResizePod, SkippedPod
from cruise.domain.cluster import Container, LimitRangeItem, Pod, QosClass, ResizePending
from cruise.domain.pod_resources import compute_qos_class, replace_container_resources
from cruise.domain.policy import Policy
from cruise.domain.resources import (
    NO_RESOURCES,
    NOTHING_STATED,
    BoolArray,
    Int64Array,
    ResourceName,
    Resources,
    StatedResources,
)
from cruise.domain.usage import StatisticsTable


def withdraw_pending_resize(
    pod: ResizablePod, policy: Policy, refused: Mapping[str, RefusedResize], now: datetime
) -> tuple[ResizePod | None, SkippedPod | None]:
    """Withdraw a resize that the kubelet cannot do, or has put off for too long; leave a younger one be."""
    state, one = pod.pod.resize, pod.pod
    deferred = state.pending is ResizePending.DEFERRED
    left = SkippedPod(one.namespace, one.name, ReasonCode.RESIZE_DEFERRED if deferred else ReasonCode.RESIZE_INFEASIBLE)
    waited = state.pending_since is not None and now - state.pending_since >= policy.deferred_resize_timeout
    if deferred and not waited:
        until = None if state.pending_since is None else state.pending_since + policy.deferred_resize_timeout
        return None, replace(left, until=until)
    targets = tuple(build_withdrawn_target(container) for container in pod.sized)
    if all(container.requests == target.requests for container, target in zip(pod.sized, targets, strict=True)):
        return None, left
    earlier = refused.get(one.uid)
    if earlier is not None and earlier.containers == targets:
        return None, replace(left, detail="the API server refuses to take it back")
    return _resize(one, targets, Resources(), ReasonCode.WITHDRAWN), None


def build_withdrawn_target(container: Container) -> ContainerTarget:
    """Return what the kubelet has granted, for each resource that the spec asks for.

    A limit that was to fall may be under the granted request by now, and one in force is safe: the largest stays.
    """
    granted = container.allocated if container.allocated is not None else container.requests
    actual = container.actual_limits if container.actual_limits is not None else NOTHING_STATED
    stated, limits = container.requests, container.limits
    cpu = stated.cpu_millicores if granted.cpu_millicores is None else granted.cpu_millicores
    memory = stated.memory_bytes if granted.memory_bytes is None else granted.memory_bytes
    return ContainerTarget(
        container.name,
        container.role,
        StatedResources(cpu, memory),
        StatedResources(
            _limit_above(limits.cpu_millicores, actual.cpu_millicores, cpu),
            _limit_above(limits.memory_bytes, actual.memory_bytes, memory),
        ),
    )


def _limit_above(stated: int | None, actual: int | None, request: int | None) -> int | None:
    return None if stated is None else max(stated, actual or 0, request or 0)


def remove_growth(pod: Pod, resize: ResizePod, ranges: Sequence[LimitRangeItem], policy: Policy) -> ResizePod | None:
    """Return the part of a resize that takes no room: requests that would rise stay as they are.

    None where nothing is left that leaves the dead band, or where the API server would refuse the rest. Two pods that
    wait for what the other gives back, one of CPU and one of memory, would otherwise wait for ever.
    """
    named = {container.name: container for container in pod.containers}
    targets = tuple([_not_above(target, named[target.container]) for target in resize.containers])
    moves = get_update_threshold(pod, policy).is_exceeded_by((named[target.container], target) for target in targets)
    if not moves or would_become_guaranteed(pod, targets) or (ranges and forbids_resize(pod, targets, ranges)):
        return None
    return replace(resize, containers=targets, growth=NO_RESOURCES)


def _not_above(target: ContainerTarget, container: Container) -> ContainerTarget:
    current, cpu, memory = container.requests, target.requests.cpu_millicores, target.requests.memory_bytes
    kept = StatedResources(
        None if cpu is None or current.cpu_millicores is None else min(cpu, current.cpu_millicores),
        None if memory is None or current.memory_bytes is None else min(memory, current.memory_bytes),
    )
    # The API server makes a limit without a request the request.
    memory_limit, before = target.limits.memory_bytes, container.limits.memory_bytes
    if before is not None and memory_limit == memory != kept.memory_bytes:
        # It was raised for the request alone.
        memory_limit = before
    limits = StatedResources(
        None if kept.cpu_millicores is None else target.limits.cpu_millicores,
        None if kept.memory_bytes is None else memory_limit,
    )
    return replace(target, requests=kept, limits=limits)


def matches_refused_resize(targets: Sequence[ContainerTarget], earlier: RefusedResize, band: UpdateThreshold) -> bool:
    """Tell whether the targets of all of a pod's containers are refused as an earlier one was.

    What the API server refused is not tried again while no value is outside the dead band around it; what the kubelet
    had no room for, only once some resource's sum over the containers has fallen out of the dead band.
    """
    if earlier.reason is ReasonCode.RESIZE_REFUSED:
        before = {target.container: target for target in earlier.containers}
        if before.keys() != {target.container for target in targets}:
            return False
        return not band.is_exceeded_by((before[target.container], target) for target in targets)
    now, then = _sum(targets), _sum(earlier.containers)
    fallen = Resources(min(now.cpu_millicores, then.cpu_millicores), min(now.memory_bytes, then.memory_bytes))
    return not band.is_any_exceeded(then, fallen)


def is_refusal_outdated(
    earlier: RefusedResize, room: Resources, allocatable: Resources, policy: Policy, now: datetime
) -> bool:
    """Tell whether a refusal no longer says anything, so that the same may be asked for again.

    One that a kubelet put off stands until the node has more room for the pod than it had then, and for a few minutes
    at most; one that the node cannot do, until the node is another. `room` is what the node's other pods leave.
    """
    if not policy.rules.fit_by_resource:
        return False
    if earlier.reason is ReasonCode.RESIZE_DEFERRED:
        more = earlier.free_capacity is not None and not room.fits_in(earlier.free_capacity)
        return more or now - earlier.at >= policy.deferred_memory_timeout
    return (
        earlier.reason is ReasonCode.RESIZE_INFEASIBLE
        and earlier.free_capacity is not None
        and earlier.free_capacity != allocatable
    )


def _sum(targets: Sequence[ContainerTarget]) -> Resources:
    total = Resources()
    for target in targets:
        total += target.requests.resources
    return total


def would_become_guaranteed(pod: Pod, targets: Sequence[ContainerTarget]) -> bool:
    """Tell whether the sizes would make a Burstable pod Guaranteed."""
    # One container whose limit is not its request settles it, long before the class has to be worked out.
    if any(_has_play(target.requests, target.limits) for target in targets):
        return False
    return (
        compute_qos_class(replace_container_resources(pod, targets), pod.pod_requests, pod.pod_limits)
        is QosClass.GUARANTEED
    )


def _has_play(requests: StatedResources, limits: StatedResources) -> bool:
    """Tell whether a limit is missing, or differs from a stated request."""
    if not limits.cpu_millicores or not limits.memory_bytes:
        return True
    return (requests.cpu_millicores or limits.cpu_millicores) != limits.cpu_millicores or (
        requests.memory_bytes or limits.memory_bytes
    ) != limits.memory_bytes


def _resize(pod: Pod, targets: tuple[ContainerTarget, ...], growth: Resources, reason: ReasonCode) -> ResizePod:
    return ResizePod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, targets, growth, reason)


def is_below_usage(
    action: ResizePod, pod: Pod, before: StatisticsTable, now: StatisticsTable, working_set_margin: float
) -> bool:
    """Tell whether a size, decided by the statistics `before`, is too small by those of `now`, because usage grew.

    That is a request below its base, or a memory limit below `working_set_margin` times the last working set.
    """
    for target in action.containers:
        place = (pod.namespace, pod.name, pod.workload, target.container, pod.identity)
        row, earlier = now.find(*place), before.find(*place)
        if row is None or earlier is None:
            continue
        requests, limit = target.requests, target.limits.memory_bytes
        for wanted, figure in (
            (requests.cpu_millicores, "cpu_base_millicores"),
            (requests.memory_bytes, "memory_base_bytes"),
            (None if limit is None else limit / working_set_margin, "memory_last_bytes"),
        ):
            usage = getattr(now, figure)[row]
            if wanted is not None and wanted < usage and getattr(before, figure)[earlier] < usage:
                return True
    return False


# Why each pod's sizes are written or not: the dead band, pending and refused resizes, and what a server refuses.


class SizeDecision(IntEnum):
    """Why a pod's sizes are written, or why they are not."""

    NO_CHANGE_NEEDED = 0
    RIGHTSIZED = 1
    EVICTED = 2
    RESIZING = 3
    REFUSED = 4
    LIMIT_RANGE = 5
    QOS_CHANGE = 6
    WAITING_FOR_CAPACITY = 7
    QUOTA = 8


SizeDecisions = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class ResizeRefusals:
    """What keeps a pod from its new sizes: its namespace's LimitRanges, and by uid the target refused before."""

    limit_ranges: Mapping[str, Sequence[LimitRangeItem]] = field(default_factory=dict)
    targets: Mapping[str, RefusedResize] = field(default_factory=dict)


NO_RESIZE_REFUSALS = ResizeRefusals()


@dataclass(frozen=True, slots=True)
class ContainerSizeColumns:
    """Requests and limits of all containers of a table; a limit of 0 is none."""

    cpu_millicores: Int64Array
    memory_bytes: Int64Array
    memory_limit_bytes: Int64Array
    cpu_limit_millicores: Int64Array

    def get_requests(self, resource: ResourceName) -> Int64Array:
        """Return one resource's requests."""
        return self.cpu_millicores if resource is ResourceName.CPU else self.memory_bytes

    def to_targets(self, table: DemandTable, pods: BoolArray) -> Iterator[tuple[ContainerTarget, ...]]:
        """Yield the targets of the pods that are flagged, pod by pod."""
        chosen = pods[table.candidates.pod_of_container]
        columns = (self.cpu_millicores, self.memory_bytes, self.cpu_limit_millicores, self.memory_limit_bytes)
        values = zip(*(column[chosen].tolist() for column in columns), strict=True)
        for index in np.flatnonzero(pods).tolist():
            yield tuple([_target(container, *next(values)) for container in table.candidates.pods[index].sized])


def _target(container: Container, cpu: int, memory: int, cpu_limit: int, memory_limit: int) -> ContainerTarget:
    limits = StatedResources(cpu_limit or None, memory_limit or None) if cpu_limit or memory_limit else NOTHING_STATED
    return ContainerTarget(container.name, container.role, StatedResources(cpu or None, memory or None), limits)


def decide_size_changes(
    table: DemandTable, sizes: ContainerSizeColumns, staying: BoolArray, refusals: ResizeRefusals
) -> SizeDecisions:
    """Return why each pod's sizes are written or not; pods that do not stay are evicted."""
    causes = np.where(staying, np.int8(SizeDecision.NO_CHANGE_NEEDED), np.int8(SizeDecision.EVICTED))
    moved = _leave_dead_band(table, sizes) & staying
    causes[moved] = SizeDecision.RIGHTSIZED
    if table.candidates.resizing:
        resizing = np.array(table.candidates.resizing, dtype=np.int64)
        causes[resizing[staying[resizing]]] = SizeDecision.RESIZING
        moved[resizing] = False
    doubtful = moved & _without_play(table, sizes)
    if refusals.limit_ranges or refusals.targets:
        for index in np.flatnonzero(moved & ~doubtful).tolist():
            pod = table.candidates.pods[index].pod
            doubtful[index] = pod.uid in refusals.targets or bool(refusals.limit_ranges.get(pod.namespace))
    for index, targets in zip(np.flatnonzero(doubtful).tolist(), sizes.to_targets(table, doubtful), strict=True):
        causes[index] = _cause(table, index, targets, refusals)
    return causes


def _cause(
    table: DemandTable, index: int, targets: tuple[ContainerTarget, ...], refusals: ResizeRefusals
) -> SizeDecision:
    pod = table.candidates.pods[index].pod
    earlier, ranges = refusals.targets.get(pod.uid), refusals.limit_ranges.get(pod.namespace)
    band = table.candidates.update_threshold.for_container(int(table.candidates.first_container[index]))
    if earlier is not None and matches_refused_resize(targets, earlier, band):
        return SizeDecision.REFUSED
    if ranges and forbids_resize(pod, targets, ranges):
        return SizeDecision.LIMIT_RANGE
    return SizeDecision.QOS_CHANGE if would_become_guaranteed(pod, targets) else SizeDecision.RIGHTSIZED


def _leave_dead_band(table: DemandTable, sizes: ContainerSizeColumns) -> BoolArray:
    """Tell for each pod whether any value moves far enough to be written."""
    band = table.candidates.update_threshold
    return table.candidates.any_by_pod(
        band.is_exceeded(ResourceName.CPU, table.cpu.current, sizes.cpu_millicores)
        | band.is_exceeded(ResourceName.MEMORY, table.memory.current, sizes.memory_bytes)
        | band.is_exceeded(ResourceName.CPU, table.cpu_limit, sizes.cpu_limit_millicores)
        | band.is_exceeded(ResourceName.MEMORY, table.memory_limit, sizes.memory_limit_bytes)
    )


def _without_play(table: DemandTable, sizes: ContainerSizeColumns) -> BoolArray:
    """Tell for each pod whether every sized container's limits equal its requests: only then may it be Guaranteed.

    A request that is left out becomes the limit.
    """
    cpu, cpu_limit = sizes.cpu_millicores, sizes.cpu_limit_millicores
    if not cpu_limit.any():
        return np.zeros(len(table.candidates.pods), dtype=np.bool_)
    memory, memory_limit = sizes.memory_bytes, sizes.memory_limit_bytes
    cpu_has_play = (cpu_limit == 0) | ((cpu != cpu_limit) & (cpu != 0))
    memory_has_play = (memory_limit == 0) | ((memory != memory_limit) & (memory != 0))
    return ~table.candidates.any_by_pod(cpu_has_play | memory_has_play)
