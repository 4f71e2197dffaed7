"""Resizes of single pods: one that is still pending, one that was refused, and the part that takes no room."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from cruise.decisions.guidance.eligibility import Touchable
from cruise.decisions.guidance.limit_ranges import refuses_resize
from cruise.decisions.sizing.dead_band import DeadBand, dead_band_of
from cruise.domain.actions import ContainerTarget, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.cluster import Container, LimitRangeItem, Pod, QosClass, ResizePending
from cruise.domain.policy import Policy
from cruise.domain.qos import qos_of
from cruise.domain.resources import NO_AMOUNTS, NO_RESOURCES, Amounts, Resources
from cruise.domain.sizes import sized_containers
from cruise.domain.usage import StatisticsTable


def withdraw_pending(
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
    stated, limits = container.requests, container.limits
    cpu = stated.cpu_millicores if granted.cpu_millicores is None else granted.cpu_millicores
    memory = stated.memory_bytes if granted.memory_bytes is None else granted.memory_bytes
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
    targets = tuple([_not_above(target, named[target.container]) for target in resize.containers])
    moves = dead_band_of(pod, policy).is_left((named[target.container], target) for target in targets)
    if not moves or becomes_guaranteed(pod, targets) or (ranges and refuses_resize(pod, targets, ranges)):
        return None
    return replace(resize, containers=targets, growth=NO_RESOURCES)


def _not_above(target: ContainerTarget, container: Container) -> ContainerTarget:
    current, cpu, memory = container.requests, target.requests.cpu_millicores, target.requests.memory_bytes
    kept = Amounts(
        None if cpu is None or current.cpu_millicores is None else min(cpu, current.cpu_millicores),
        None if memory is None or current.memory_bytes is None else min(memory, current.memory_bytes),
    )
    # The API server makes a limit without a request the request.
    memory_limit, before = target.limits.memory_bytes, container.limits.memory_bytes
    if before is not None and memory_limit == memory != kept.memory_bytes:
        # It was raised for the request alone.
        memory_limit = before
    limits = Amounts(
        None if kept.cpu_millicores is None else target.limits.cpu_millicores,
        None if kept.memory_bytes is None else memory_limit,
    )
    return replace(target, requests=kept, limits=limits)


def was_refused(targets: Sequence[ContainerTarget], earlier: RefusedTarget, band: DeadBand) -> bool:
    """Tell whether the targets of all of a pod's containers are refused as an earlier one was.

    What the API server refused is not tried again while no value is outside the dead band around it; what the kubelet
    had no room for, only once some resource's sum over the containers has fallen out of the dead band.
    """
    if earlier.reason is Reason.REFUSED:
        before = {target.container: target for target in earlier.containers}
        if before.keys() != {target.container for target in targets}:
            return False
        return not band.is_left((before[target.container], target) for target in targets)
    now, then = _sum(targets), _sum(earlier.containers)
    fallen = Resources(min(now.cpu_millicores, then.cpu_millicores), min(now.memory_bytes, then.memory_bytes))
    return not band.leaves_any(then, fallen)


def is_forgotten(
    earlier: RefusedTarget, room: Resources, allocatable: Resources, policy: Policy, now: datetime
) -> bool:
    """Tell whether a refusal no longer says anything, so that the same may be asked for again.

    One that a kubelet put off stands until the node has more room for the pod than it had then, and for a few minutes
    at most; one that the node cannot do, until the node is another. `room` is what the node's other pods leave.
    """
    if not policy.rules.fit_by_resource:
        return False
    if earlier.reason is Reason.RESIZE_DEFERRED:
        more = earlier.room is not None and not room.fits_in(earlier.room)
        return more or now - earlier.at >= policy.deferred_memory
    return earlier.reason is Reason.RESIZE_INFEASIBLE and earlier.room is not None and earlier.room != allocatable


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
    return qos_of(sized_containers(pod, targets), pod.pod_requests, pod.pod_limits) is QosClass.GUARANTEED


def _has_play(requests: Amounts, limits: Amounts) -> bool:
    """Tell whether a limit is missing, or differs from a stated request."""
    if not limits.cpu_millicores or not limits.memory_bytes:
        return True
    return (requests.cpu_millicores or limits.cpu_millicores) != limits.cpu_millicores or (
        requests.memory_bytes or limits.memory_bytes
    ) != limits.memory_bytes


def _resize(pod: Pod, targets: tuple[ContainerTarget, ...], growth: Resources, reason: Reason) -> ResizePod:
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
