"""Decides for each pod whether its new sizes are written, and handles resizes that are pending or were rejected."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.pod_policy.limit_ranges import forbids_resize
from cruise.decisions.pod_policy.resizable_pod import REFUSALS_OF_ANY_SIZE, ResizablePod, explain_infeasible
from cruise.decisions.sizing.demand import DemandTable
from cruise.decisions.sizing.update_threshold import UpdateThreshold, get_update_threshold
from cruise.domain.actions import ContainerTarget, ReasonCode, RefusedResize, ResizeCause, ResizePod, SkippedPod
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, ContainerRole, Pod, QosClass
from cruise.domain.pod_resources import count_pod_requests, get_qos_class, replace_spec_resources
from cruise.domain.policy import Policy
from cruise.domain.resources import (
    NO_RESIZE,
    NO_RESOURCES,
    NOTHING_STATED,
    ResizePending,
    ResizeState,
    ResourceName,
    Resources,
    StatedResources,
)
from cruise.domain.usage import StatisticsTable

INFEASIBLE = frozenset({ReasonCode.RESIZE_INFEASIBLE, *REFUSALS_OF_ANY_SIZE})


def withdraw_pending_resize(
    pod: ResizablePod, policy: Policy, refused: Mapping[str, RefusedResize], now: datetime
) -> tuple[ResizePod | None, SkippedPod | None]:
    """Withdraw a resize that the kubelet cannot do or has deferred for too long; leave a younger one unchanged."""
    state, pod_object = pod.pod.resize, pod.pod
    deferred = state.pending is ResizePending.DEFERRED
    skipped = SkippedPod(pod_object.namespace, pod_object.name, explain_pending_resize(state))
    timed_out = state.pending_since is not None and now - state.pending_since >= policy.deferred_resize_timeout
    if deferred and not timed_out:
        until = None if state.pending_since is None else state.pending_since + policy.deferred_resize_timeout
        return None, replace(skipped, until=until)
    targets = build_withdrawn_targets(pod)
    if all(container.requests == target.requests for container, target in zip(pod.written, targets, strict=True)):
        return None, skipped
    earlier = refused.get(pod_object.uid)
    if earlier is not None and earlier.containers == targets:
        return None, replace(skipped, detail="the API server refuses to take it back")
    return build_resize(pod_object, targets, Resources(), ReasonCode.WITHDRAWN), None


def explain_pending_resize(state: ResizeState) -> ReasonCode:
    """Return why a resize is pending, as it is remembered once it is withdrawn."""
    if state.pending is ResizePending.DEFERRED:
        return ReasonCode.RESIZE_DEFERRED
    return explain_infeasible(state)


def build_withdrawn_targets(pod: ResizablePod) -> tuple[ContainerTarget, ...]:
    """Return the sizes of a pod's containers without its pending resize."""
    return keep_qos_class(pod.pod, [_build_withdrawn_target(container) for container in pod.written])


def _build_withdrawn_target(container: Container) -> ContainerTarget:
    """Return the sizes that the kubelet has allocated, for each resource in the spec.

    A limit that was being lowered may be below the allocated request by now, and a larger one is still in effect: the
    largest is kept.
    """
    granted = container.allocated if container.allocated is not None else container.requests
    actual = container.actual_limits if container.actual_limits is not None else NOTHING_STATED
    requests, limits = granted.with_defaults(container.requests), container.limits
    return ContainerTarget(
        container.name,
        container.role,
        requests,
        StatedResources(
            _keep_largest_limit(limits.cpu_millicores, actual.cpu_millicores, requests.cpu_millicores),
            _keep_largest_limit(limits.memory_bytes, actual.memory_bytes, requests.memory_bytes),
        ),
    )


def _keep_largest_limit(stated: int | None, actual: int | None, request: int | None) -> int | None:
    return None if stated is None else max(stated, actual or 0, request or 0)


def remove_growth(pod: Pod, resize: ResizePod, ranges: Sequence[LimitRangeItem], policy: Policy) -> ResizePod | None:
    """Return the part of a resize that needs no capacity: requests that would increase are unchanged.

    None if the rest does not exceed the update threshold, or the API server would reject it. Without this, two pods
    that wait for each other's capacity, one for CPU and one for memory, would wait forever.
    """
    by_name = {part.name: part for part in pod.resizable_parts}
    targets = tuple([_cap_at_present(target, by_name[target.container]) for target in resize.containers])
    targets = keep_qos_class(pod, targets)
    exceeds_threshold = get_update_threshold(policy).is_exceeded_by(
        (by_name[target.container], target) for target in targets
    )
    if (
        not exceeds_threshold
        or would_change_qos_class(pod, targets)
        or (ranges and forbids_resize(pod, targets, ranges))
    ):
        return None
    return replace(resize, containers=targets, growth=NO_RESOURCES)


def _cap_at_present(target: ContainerTarget, container: Container) -> ContainerTarget:
    current, cpu, memory = container.requests, target.requests.cpu_millicores, target.requests.memory_bytes
    requests = StatedResources(
        None if cpu is None or current.cpu_millicores is None else min(cpu, current.cpu_millicores),
        None if memory is None or current.memory_bytes is None else min(memory, current.memory_bytes),
    )
    # The API server sets a missing request to the limit.
    memory_limit, before = target.limits.memory_bytes, container.limits.memory_bytes
    if before is not None and memory_limit == memory != requests.memory_bytes:
        # The limit was raised only for the request.
        memory_limit = before
    limits = StatedResources(
        None if requests.cpu_millicores is None else target.limits.cpu_millicores,
        None if requests.memory_bytes is None else memory_limit,
    )
    return replace(target, requests=requests, limits=limits)


def matches_refused_resize(
    targets: Sequence[ContainerTarget], earlier: RefusedResize, threshold: UpdateThreshold
) -> bool:
    """Return whether the targets of a pod's containers would be rejected as an earlier resize was.

    What the API server rejected is not tried again while no value differs from it by the update threshold; what the
    kubelet had no capacity for, not until a resource's sum over the containers has fallen by the update threshold. A
    static manager or a node with swap rejects sizes whatever they are: `Eligibility` leaves the resource unmanaged.
    """
    if earlier.reason in REFUSALS_OF_ANY_SIZE:
        return False
    if earlier.reason is ReasonCode.RESIZE_REFUSED:
        before = {target.container: target for target in earlier.containers}
        if before.keys() != {target.container for target in targets}:
            return False
        return not threshold.is_exceeded_by((before[target.container], target) for target in targets)
    present_sum, refused_sum = _sum_requests(targets), _sum_requests(earlier.containers)
    return not threshold.is_any_exceeded(refused_sum, present_sum.min_with(refused_sum))


def is_refusal_outdated(
    earlier: RefusedResize, free_capacity: Resources, allocatable: Resources, policy: Policy, now: datetime
) -> bool:
    """Return whether a rejection no longer applies, so that the same resize may be tried again.

    A deferred one applies until the node has more capacity for the pod than it had then, and for a few minutes at most;
    an infeasible one until the node's allocatable changes. `free_capacity` is what the node's other pods leave.
    """
    if not policy.rules.fit_by_resource:
        return False
    if earlier.reason is ReasonCode.RESIZE_DEFERRED:
        has_more_capacity = earlier.free_capacity is not None and not free_capacity.fits_in(earlier.free_capacity)
        return has_more_capacity or now - earlier.at >= policy.deferred_memory_timeout
    return earlier.reason in INFEASIBLE and earlier.free_capacity is not None and earlier.free_capacity != allocatable


def _sum_requests(targets: Sequence[ContainerTarget]) -> Resources:
    return sum((target.requests.resources for target in targets), NO_RESOURCES)


def keep_qos_class(pod: Pod, targets: Sequence[ContainerTarget]) -> tuple[ContainerTarget, ...]:
    """Return the targets with limits that equal their requests if the pod is Guaranteed."""
    if pod.qos is not QosClass.GUARANTEED:
        return tuple(targets)
    # A container's own resources do not count next to pod-level ones.
    return tuple(
        [
            replace(target, limits=target.requests)
            if pod.pod_level is None or target.role is ContainerRole.POD
            else target
            for target in targets
        ]
    )


def would_change_qos_class(pod: Pod, targets: Sequence[ContainerTarget]) -> bool:
    """Return whether the sizes would make a Burstable pod Guaranteed, or a Guaranteed pod Burstable."""
    is_guaranteed = pod.qos is QosClass.GUARANTEED
    # A single container with a limit other than its request decides, which is cheaper than computing the class.
    if pod.pod_level is None and any(_differs_from_limits(target.requests, target.limits) for target in targets):
        return is_guaranteed
    after = get_qos_class(replace_spec_resources(pod, targets))
    return (after is QosClass.GUARANTEED) is not is_guaranteed


def _differs_from_limits(requests: StatedResources, limits: StatedResources) -> bool:
    """Return whether a limit is missing, or differs from a stated request."""
    if not limits.cpu_millicores or not limits.memory_bytes:
        return True
    return (requests.cpu_millicores or limits.cpu_millicores) != limits.cpu_millicores or (
        requests.memory_bytes or limits.memory_bytes
    ) != limits.memory_bytes


def build_resize(
    pod: Pod,
    targets: tuple[ContainerTarget, ...],
    growth: Resources,
    reason: ReasonCode,
    cause: ResizeCause | None = None,
) -> ResizePod:
    """Return the resize of a pod to the targets."""
    return ResizePod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, targets, growth, reason, cause)


def compute_growth(pod: Pod, targets: Sequence[ContainerTarget]) -> Resources:
    """Return what a pod's counted requests would grow by with the targets, at least zero."""
    after = count_pod_requests(replace(replace_spec_resources(pod, targets), resize=NO_RESIZE))
    return (after - count_pod_requests(pod)).max_with(NO_RESOURCES)


def has_sizes(pod: Pod, targets: Sequence[ContainerTarget]) -> bool:
    """Return whether a pod's spec states exactly the targets."""
    parts = {part.name: (part.requests, part.limits) for part in pod.resizable_parts}
    return all(parts[target.container] == (target.requests, target.limits) for target in targets)


def is_outgrown_by_usage(
    action: ResizePod, pod: Pod, before: StatisticsTable, now: StatisticsTable, working_set_margin: float
) -> bool:
    """Return whether a size decided by the statistics `before` is too small by those of `now` because usage grew.

    Too small is a request below its base, or a memory limit below `working_set_margin` times the last working set.
    """
    for target in action.containers:
        key = (pod.namespace, pod.name, pod.workload, target.container, pod.identity)
        row, earlier = now.find_row(*key), before.find_row(*key)
        if row is None or earlier is None:
            continue
        requests, limit = target.requests, target.limits.memory_bytes
        for size, column in (
            (requests.cpu_millicores, "cpu_base_millicores"),
            (requests.memory_bytes, "memory_base_bytes"),
            (None if limit is None else limit / working_set_margin, "memory_last_bytes"),
        ):
            usage = getattr(now, column)[row]
            if size is not None and size < usage and getattr(before, column)[earlier] < usage:
                return True
    return False


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
class ResizeBlockers:
    """What prevents new sizes: the LimitRanges of a namespace, and by pod uid the resize that was rejected before."""

    limit_ranges: Mapping[str, Sequence[LimitRangeItem]] = field(default_factory=dict)
    targets: Mapping[str, RefusedResize] = field(default_factory=dict)


NO_RESIZE_REFUSALS = ResizeBlockers()


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
        """Yield the targets of the flagged pods, pod by pod."""
        chosen = pods[table.candidates.pod_of_container]
        columns = (self.cpu_millicores, self.memory_bytes, self.cpu_limit_millicores, self.memory_limit_bytes)
        values = zip(*(column[chosen].tolist() for column in columns), strict=True)
        pod_level = table.candidates.pod_level
        for index in np.flatnonzero(pods).tolist():
            pod = table.candidates.pods[index]
            targets = tuple([_build_target(container, *next(values)) for container in pod.sized])
            yield targets if index not in pod_level else keep_qos_class(pod.pod, pod_level[index].size(targets[0]))


def _build_target(container: Container, cpu: int, memory: int, cpu_limit: int, memory_limit: int) -> ContainerTarget:
    limits = StatedResources(cpu_limit or None, memory_limit or None) if cpu_limit or memory_limit else NOTHING_STATED
    return ContainerTarget(container.name, container.role, StatedResources(cpu or None, memory or None), limits)


def decide_size_changes(
    table: DemandTable, sizes: ContainerSizeColumns, remains: BoolArray, refusals: ResizeBlockers
) -> SizeDecisions:
    """Return why each pod's sizes are written or not; pods that do not remain are evicted."""
    decisions = np.where(remains, np.int8(SizeDecision.NO_CHANGE_NEEDED), np.int8(SizeDecision.EVICTED))
    changed = _exceed_update_threshold(table, sizes)
    changed[list(table.candidates.near_container_limit)] = True
    changed &= remains
    decisions[changed] = SizeDecision.RIGHTSIZED
    if table.candidates.resizing:
        resizing = np.array(table.candidates.resizing, dtype=np.int64)
        decisions[resizing[remains[resizing]]] = SizeDecision.RESIZING
        changed[resizing] = False
    needs_check = changed & (table.candidates.guaranteed | _equal_limits(table, sizes))
    if refusals.limit_ranges or refusals.targets:
        for index in np.flatnonzero(changed & ~needs_check).tolist():
            pod = table.candidates.pods[index].pod
            needs_check[index] = pod.uid in refusals.targets or bool(refusals.limit_ranges.get(pod.namespace))
    for index, targets in zip(np.flatnonzero(needs_check).tolist(), sizes.to_targets(table, needs_check), strict=True):
        decisions[index] = _decide_for_pod(table, index, targets, refusals)
    return decisions


def _decide_for_pod(
    table: DemandTable, index: int, targets: tuple[ContainerTarget, ...], refusals: ResizeBlockers
) -> SizeDecision:
    pod = table.candidates.pods[index].pod
    earlier, ranges = refusals.targets.get(pod.uid), refusals.limit_ranges.get(pod.namespace)
    threshold = table.candidates.update_threshold
    if earlier is not None and matches_refused_resize(targets, earlier, threshold):
        return SizeDecision.REFUSED
    if ranges and forbids_resize(pod, targets, ranges):
        return SizeDecision.LIMIT_RANGE
    return SizeDecision.QOS_CHANGE if would_change_qos_class(pod, targets) else SizeDecision.RIGHTSIZED


def _exceed_update_threshold(table: DemandTable, sizes: ContainerSizeColumns) -> BoolArray:
    """Return for each pod whether any value moves by the update threshold."""
    threshold = table.candidates.update_threshold
    return table.candidates.any_by_pod(
        threshold.is_exceeded(ResourceName.CPU, table.cpu.current, sizes.cpu_millicores)
        | threshold.is_exceeded(ResourceName.MEMORY, table.memory.current, sizes.memory_bytes)
        | threshold.is_exceeded(ResourceName.CPU, table.cpu_limit, sizes.cpu_limit_millicores)
        | threshold.is_exceeded(ResourceName.MEMORY, table.memory_limit, sizes.memory_limit_bytes)
    )


def _equal_limits(table: DemandTable, sizes: ContainerSizeColumns) -> BoolArray:
    """Return for each pod whether every container's limits equal its requests: only then can it be Guaranteed.

    A missing request is set to the limit.
    """
    cpu, cpu_limit = sizes.cpu_millicores, sizes.cpu_limit_millicores
    if not cpu_limit.any():
        return np.zeros(len(table.candidates.pods), dtype=np.bool_)
    memory, memory_limit = sizes.memory_bytes, sizes.memory_limit_bytes
    cpu_differs = (cpu_limit == 0) | ((cpu != cpu_limit) & (cpu != 0))
    memory_differs = (memory_limit == 0) | ((memory != memory_limit) & (memory != 0))
    return ~table.candidates.any_by_pod(cpu_differs | memory_differs)
