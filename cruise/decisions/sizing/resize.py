"""Which pods to resize now: the dead band, refused and pending resizes, and what must not be broken on the way."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.guidance.eligibility import Touchable
from cruise.decisions.guidance.limit_ranges import breaks_limit_range
from cruise.decisions.sizing.recommendation import DemandTable
from cruise.domain.actions import ContainerTarget, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import Container, LimitRangeItem, Pod, QosClass, ResizePending
from cruise.domain.policy import Policy
from cruise.domain.qos import qos_class
from cruise.domain.resources import NO_AMOUNTS, NO_RESOURCES, Amounts, ResourceName, Resources
from cruise.domain.sizes import with_sizes


@dataclass(frozen=True, slots=True)
class PodSizes:
    """The sizes decided for all containers of a `DemandTable`, in its order; a limit of 0 is none.

    `growth` is what each pod's requests, as kube-scheduler counts them, rise by: 0 where they fall or stay.
    """

    table: DemandTable
    cpu_millicores: Int64Array
    memory_bytes: Int64Array
    memory_limit_bytes: Int64Array
    cpu_limit_millicores: Int64Array
    growth: Mapping[ResourceName, Int64Array]
    stays: NDArray[np.bool_]


def choose_resizes(
    sizes: PodSizes,
    limit_ranges: Mapping[str, Sequence[LimitRangeItem]],
    policy: Policy,
    refused: Mapping[str, RefusedTarget],
    now: datetime,
) -> tuple[list[ResizePod | None], list[Hold | None]]:
    """Return for each pod of the table its resize, or why it is held back; both None where it is settled."""
    table = sizes.table
    resizes: list[ResizePod | None] = [None] * len(table.pods)
    holds: list[Hold | None] = [None] * len(table.pods)
    moved = leave_dead_band(sizes, policy) & sizes.stays
    for index, pod in enumerate(table.pods):
        if pod.pod.resize.pending is not None:
            moved[index] = False
            if sizes.stays[index]:
                resizes[index], holds[index] = _pending(pod, policy, refused, now)
    indices = np.flatnonzero(moved)
    growth_cpu, growth_memory = (sizes.growth[resource][indices].tolist() for resource in ResourceName)
    equal = _without_play(sizes)[indices].tolist()
    for index, targets, more_cpu, more_memory, no_play in zip(
        indices.tolist(), _targets(sizes, moved), growth_cpu, growth_memory, equal, strict=True
    ):
        one = table.pods[index].pod
        earlier = refused.get(one.uid) if refused else None
        reason = Reason.REFUSED if earlier is not None and was_refused(targets, earlier, policy) else None
        ranges = limit_ranges.get(one.namespace)
        if reason is None and ranges and breaks_limit_range(one, targets, ranges):
            reason = Reason.LIMIT_RANGE
        if reason is None and no_play and becomes_guaranteed(one, targets):
            reason = Reason.QOS_CHANGE
        if reason is not None:
            holds[index] = Hold(one.namespace, one.name, reason)
            continue
        growth = Resources(more_cpu, more_memory) if more_cpu or more_memory else NO_RESOURCES
        resizes[index] = _resize(one, targets, growth, Reason.RIGHTSIZED)
    return resizes, holds


def _targets(sizes: PodSizes, pods: NDArray[np.bool_]) -> Iterator[tuple[ContainerTarget, ...]]:
    """Yield the targets of the pods that are flagged, pod by pod."""
    table = sizes.table
    containers = pods[table.pod_of]
    columns = (sizes.cpu_millicores, sizes.memory_bytes, sizes.cpu_limit_millicores, sizes.memory_limit_bytes)
    values = zip(*(column[containers].tolist() for column in columns), strict=True)
    for index in np.flatnonzero(pods).tolist():
        yield tuple([_target(container, *next(values)) for container in table.pods[index].sized])


def _without_play(sizes: PodSizes) -> NDArray[np.bool_]:
    """Tell for each pod whether every sized container's limits equal its requests: only then may it be Guaranteed.

    A request that is left out becomes the limit.
    """
    if not len(sizes.table.pods):
        return np.zeros(0, dtype=np.bool_)
    cpu, cpu_limit = sizes.cpu_millicores, sizes.cpu_limit_millicores
    memory, memory_limit = sizes.memory_bytes, sizes.memory_limit_bytes
    cpu = (cpu_limit > 0) & ((cpu == cpu_limit) | (cpu == 0))
    memory = (memory_limit > 0) & ((memory == memory_limit) | (memory == 0))
    return np.asarray(np.logical_and.reduceat(cpu & memory, sizes.table.first_container))


def leave_dead_band(sizes: PodSizes, policy: Policy) -> NDArray[np.bool_]:
    """Tell for each pod whether any value moves far enough to be written."""
    table = sizes.table
    if not len(table.pods):
        return np.zeros(0, dtype=np.bool_)
    moves = (
        leaves_band(table.cpu.current, sizes.cpu_millicores, policy.dead_band.cpu_millicores, policy)
        | leaves_band(table.memory.current, sizes.memory_bytes, policy.dead_band.memory_bytes, policy)
        | leaves_band(table.cpu_limit, sizes.cpu_limit_millicores, policy.dead_band.cpu_millicores, policy)
        | leaves_band(table.memory_limit, sizes.memory_limit_bytes, policy.dead_band.memory_bytes, policy)
    )
    return np.asarray(np.logical_or.reduceat(moves, table.first_container), dtype=np.bool_)


def leaves_band(current: Int64Array, wanted: Int64Array, least: int, policy: Policy) -> NDArray[np.bool_]:
    """Tell for each value whether it moves by `least` at least, and by the policy's share of what it is now."""
    step = np.abs(wanted - current)
    return np.asarray((step >= least) & (step >= current * policy.dead_band_share), dtype=np.bool_)


def _target(container: Container, cpu: int, memory: int, cpu_limit: int, memory_limit: int) -> ContainerTarget:
    limits = Amounts(cpu_limit or None, memory_limit or None) if cpu_limit or memory_limit else NO_AMOUNTS
    return ContainerTarget(container.name, container.role, Amounts(cpu or None, memory or None), limits)


def _pending(
    pod: Touchable, policy: Policy, refused: Mapping[str, RefusedTarget], now: datetime
) -> tuple[ResizePod | None, Hold | None]:
    """Withdraw a resize that the kubelet cannot do, or has put off for too long; leave a younger one be."""
    state, one = pod.pod.resize, pod.pod
    deferred = state.pending is ResizePending.DEFERRED
    left = Hold(one.namespace, one.name, Reason.RESIZE_DEFERRED if deferred else Reason.RESIZE_INFEASIBLE)
    waited = state.pending_since is not None and now - state.pending_since >= policy.deferred_patience
    if deferred and not waited:
        until = None if state.pending_since is None else state.pending_since + policy.deferred_patience
        return None, replace(left, until=until)
    targets = tuple(withdrawn_target(container) for container in pod.sized)
    if all(container.requests == target.requests for container, target in zip(pod.sized, targets, strict=True)):
        return None, left
    earlier = refused.get(one.uid)
    if earlier is not None and earlier.containers == targets:
        return None, replace(left, detail="the API server refuses to take it back")
    return _resize(one, targets, Resources(), Reason.WITHDRAWN), None


def withdrawn_target(container: Container) -> ContainerTarget:
    """Return what the kubelet has granted, for each resource that the spec asks for.

    A limit that was to fall may be under the granted request by now, and one in force is safe: the largest stays.
    """
    granted = container.allocated if container.allocated is not None else container.requests
    actual = container.actual_limits if container.actual_limits is not None else NO_AMOUNTS
    asked, limits = container.requests, container.limits
    cpu = asked.cpu_millicores if granted.cpu_millicores is None else granted.cpu_millicores
    memory = asked.memory_bytes if granted.memory_bytes is None else granted.memory_bytes
    return ContainerTarget(
        container.name,
        container.role,
        Amounts(cpu, memory),
        Amounts(
            _limit_above(limits.cpu_millicores, actual.cpu_millicores, cpu),
            _limit_above(limits.memory_bytes, actual.memory_bytes, memory),
        ),
    )


def _limit_above(stated: int | None, actual: int | None, request: int | None) -> int | None:
    return None if stated is None else max(stated, actual or 0, request or 0)


def without_growth(pod: Pod, resize: ResizePod, ranges: Sequence[LimitRangeItem], policy: Policy) -> ResizePod | None:
    """Return the part of a resize that takes no room: requests that would rise stay as they are.

    None where nothing is left that leaves the dead band, or where the API server would refuse the rest. Two pods that
    wait for what the other gives back, one of CPU and one of memory, would otherwise wait for ever.
    """
    named = {container.name: container for container in pod.containers}
    targets = tuple([_not_above(target, named[target.container].requests) for target in resize.containers])
    moves = any(
        _steps(was.resources, now.resources, policy)
        for target in targets
        for was, now in (
            (named[target.container].requests, target.requests),
            (named[target.container].limits, target.limits),
        )
    )
    if not moves or becomes_guaranteed(pod, targets) or (ranges and breaks_limit_range(pod, targets, ranges)):
        return None
    return replace(resize, containers=targets, growth=NO_RESOURCES)


def _not_above(target: ContainerTarget, current: Amounts) -> ContainerTarget:
    cpu, memory = target.requests.cpu_millicores, target.requests.memory_bytes
    kept = Amounts(
        None if cpu is None or current.cpu_millicores is None else min(cpu, current.cpu_millicores),
        None if memory is None or current.memory_bytes is None else min(memory, current.memory_bytes),
    )
    # The API server makes a limit without a request the request.
    limits = Amounts(
        None if kept.cpu_millicores is None else target.limits.cpu_millicores,
        None if kept.memory_bytes is None else target.limits.memory_bytes,
    )
    return replace(target, requests=kept, limits=limits)


def was_refused(targets: Sequence[ContainerTarget], earlier: RefusedTarget, policy: Policy) -> bool:
    """Tell whether the targets of all of a pod's containers are refused as an earlier one was.

    What the API server refused is not asked again as it was; what the kubelet had no room for, only for less.
    """
    if earlier.reason is Reason.REFUSED:
        return _like(targets, earlier.containers, policy)
    return not _asks_for_less(targets, earlier.containers, policy)


def _like(targets: Sequence[ContainerTarget], earlier: Sequence[ContainerTarget], policy: Policy) -> bool:
    """Tell whether no value is outside the dead band around what was refused."""
    before = {target.container: target for target in earlier}
    return before.keys() == {target.container for target in targets} and not any(
        _steps(was.resources, now.resources, policy)
        for target in targets
        for was, now in (
            (before[target.container].requests, target.requests),
            (before[target.container].limits, target.limits),
        )
    )


def _asks_for_less(targets: Sequence[ContainerTarget], earlier: Sequence[ContainerTarget], policy: Policy) -> bool:
    """Tell whether the sum over the containers has fallen out of the dead band for some resource."""
    now, then = _sum(targets), _sum(earlier)
    fallen = Resources(min(now.cpu_millicores, then.cpu_millicores), min(now.memory_bytes, then.memory_bytes))
    return _steps(then, fallen, policy)


def _steps(before: Resources, after: Resources, policy: Policy) -> bool:
    """Tell whether one of two resources leaves the dead band."""
    cpu, memory = abs(after.cpu_millicores - before.cpu_millicores), abs(after.memory_bytes - before.memory_bytes)
    share, band = policy.dead_band_share, policy.dead_band
    return (cpu >= band.cpu_millicores and cpu >= before.cpu_millicores * share) or (
        memory >= band.memory_bytes and memory >= before.memory_bytes * share
    )


def _sum(targets: Sequence[ContainerTarget]) -> Resources:
    total = Resources()
    for target in targets:
        total += target.requests.resources
    return total


def becomes_guaranteed(pod: Pod, targets: Sequence[ContainerTarget]) -> bool:
    """Tell whether the sizes would make a Burstable pod Guaranteed."""
    # One container whose limit is not its request settles it, long before the class has to be worked out.
    if any(_has_play(target.requests, target.limits) for target in targets):
        return False
    return qos_class(with_sizes(pod, targets)) is QosClass.GUARANTEED


def _has_play(requests: Amounts, limits: Amounts) -> bool:
    """Tell whether a limit is missing, or differs from a stated request."""
    if not limits.cpu_millicores or not limits.memory_bytes:
        return True
    return (requests.cpu_millicores or limits.cpu_millicores) != limits.cpu_millicores or (
        requests.memory_bytes or limits.memory_bytes
    ) != limits.memory_bytes


def _resize(pod: Pod, targets: tuple[ContainerTarget, ...], growth: Resources, reason: Reason) -> ResizePod:
    return ResizePod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, targets, growth, reason)
