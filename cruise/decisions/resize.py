"""Which pods to resize now: the dead band, refused and pending resizes, and what must not be broken on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.recommendation import DemandTable
from cruise.decisions.scope import Touchable
from cruise.domain.actions import ContainerTarget, Hold, Reason, RefusedTarget, ResizePod
from cruise.domain.cluster import Container, LimitRangeItem, Pod, QosClass, ResizePending
from cruise.domain.policy import Policy
from cruise.domain.qos import qos_class
from cruise.domain.resources import NO_AMOUNTS, NO_RESOURCES, Amounts, ResourceName, Resources
from cruise.domain.sizes import with_sizes
from cruise.domain.usage import Int64Array


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
    for index, pod in enumerate(table.pods):
        if pod.pod.resize.pending is not None and sizes.stays[index]:
            resizes[index], holds[index] = _pending(pod, policy, now)
    values = list(
        zip(
            sizes.cpu_millicores.tolist(),
            sizes.memory_bytes.tolist(),
            sizes.cpu_limit_millicores.tolist(),
            sizes.memory_limit_bytes.tolist(),
            strict=True,
        )
    )
    first = table.first_container.tolist()
    growth_cpu, growth_memory = (sizes.growth[resource].tolist() for resource in ResourceName)
    for index in np.flatnonzero(_moved(sizes, policy) & sizes.stays).tolist():
        pod = table.pods[index]
        if pod.pod.resize.pending is not None:
            continue
        at = first[index]
        targets = tuple([_target(container, *values[at + nth]) for nth, container in enumerate(pod.sized)])
        reason = _why_not(pod, targets, limit_ranges, refused)
        if reason is not None:
            holds[index] = Hold(pod.pod.namespace, pod.pod.name, reason)
            continue
        grows = growth_cpu[index] or growth_memory[index]
        growth = Resources(growth_cpu[index], growth_memory[index]) if grows else NO_RESOURCES
        resizes[index] = _resize(pod.pod, targets, growth, Reason.RIGHTSIZED)
    return resizes, holds


def _moved(sizes: PodSizes, policy: Policy) -> NDArray[np.bool_]:
    """Tell for each pod whether any value leaves the dead band."""
    table = sizes.table
    if not len(table.pods):
        return np.zeros(0, dtype=np.bool_)
    moves = (
        _leaves_band(table.cpu.current, sizes.cpu_millicores, policy.dead_band.cpu_millicores, policy)
        | _leaves_band(table.memory.current, sizes.memory_bytes, policy.dead_band.memory_bytes, policy)
        | _leaves_band(table.cpu_limit, sizes.cpu_limit_millicores, policy.dead_band.cpu_millicores, policy)
        | _leaves_band(table.memory_limit, sizes.memory_limit_bytes, policy.dead_band.memory_bytes, policy)
    )
    return np.asarray(np.logical_or.reduceat(moves, table.first_container), dtype=np.bool_)


def _leaves_band(current: Int64Array, wanted: Int64Array, least: int, policy: Policy) -> NDArray[np.bool_]:
    step = np.abs(wanted - current)
    return np.asarray((step >= least) & (step >= current * policy.dead_band_share), dtype=np.bool_)


def _target(container: Container, cpu: int, memory: int, cpu_limit: int, memory_limit: int) -> ContainerTarget:
    limits = Amounts(cpu_limit or None, memory_limit or None) if cpu_limit or memory_limit else NO_AMOUNTS
    return ContainerTarget(container.name, container.role, Amounts(cpu or None, memory or None), limits)


def _pending(pod: Touchable, policy: Policy, now: datetime) -> tuple[ResizePod | None, Hold | None]:
    """Withdraw a resize that the kubelet cannot do, or has put off for too long; leave a younger one be."""
    state = pod.pod.resize
    waited = state.pending_since is not None and now - state.pending_since >= policy.deferred_patience
    if state.pending is ResizePending.DEFERRED and not waited:
        until = None if state.pending_since is None else state.pending_since + policy.deferred_patience
        return None, Hold(pod.pod.namespace, pod.pod.name, Reason.RESIZE_DEFERRED, until=until)
    targets = tuple(
        ContainerTarget(container.name, container.role, _allocated(container), container.limits)
        for container in pod.sized
    )
    if all(container.requests == target.requests for container, target in zip(pod.sized, targets, strict=True)):
        return None, Hold(pod.pod.namespace, pod.pod.name, Reason.RESIZE_INFEASIBLE)
    return _resize(pod.pod, targets, Resources(), Reason.WITHDRAWN), None


def _allocated(container: Container) -> Amounts:
    """Return what the kubelet has granted, for each resource that the spec asks for."""
    granted = container.allocated if container.allocated is not None else container.requests
    asked = container.requests
    return Amounts(
        asked.cpu_millicores if granted.cpu_millicores is None else granted.cpu_millicores,
        asked.memory_bytes if granted.memory_bytes is None else granted.memory_bytes,
    )


def _why_not(
    pod: Touchable,
    targets: Sequence[ContainerTarget],
    limit_ranges: Mapping[str, Sequence[LimitRangeItem]],
    refused: Mapping[str, RefusedTarget],
) -> Reason | None:
    earlier = refused.get(pod.pod.uid)
    if earlier is not None and not _asks_for_less(targets, earlier.containers):
        return Reason.REFUSED
    ranges = limit_ranges.get(pod.pod.namespace)
    if ranges and breaks_limit_range(pod.pod, targets, ranges):
        return Reason.LIMIT_RANGE
    if becomes_guaranteed(pod.pod, targets):
        return Reason.QOS_CHANGE
    return None


def _asks_for_less(targets: Sequence[ContainerTarget], earlier: Sequence[ContainerTarget]) -> bool:
    """Tell whether the new target asks for less of some resource than the refused one, in sum over the containers."""
    now, then = _sum(targets), _sum(earlier)
    return now.cpu_millicores < then.cpu_millicores or now.memory_bytes < then.memory_bytes


def _sum(targets: Sequence[ContainerTarget]) -> Resources:
    total = Resources()
    for target in targets:
        total += target.requests.resources
    return total


def becomes_guaranteed(pod: Pod, targets: Sequence[ContainerTarget]) -> bool:
    """Tell whether the sizes would make a Burstable pod Guaranteed."""
    if not all(target.limits.cpu_millicores for target in targets):
        return False
    return qos_class(with_sizes(pod, targets)) is QosClass.GUARANTEED


def breaks_limit_range(pod: Pod, targets: Sequence[ContainerTarget], ranges: Sequence[LimitRangeItem]) -> bool:
    """Tell whether the API server would refuse the sizes under the namespace's LimitRanges."""
    for item in ranges:
        if item.of_pod:
            requests, limits = _sum(targets), _limit_sum(targets)
            if _outside(Amounts(requests.cpu_millicores, requests.memory_bytes), limits, item):
                return True
        elif any(_outside(target.requests, target.limits, item) for target in targets):
            return True
    return False


def _limit_sum(targets: Sequence[ContainerTarget]) -> Amounts:
    cpu = [target.limits.cpu_millicores for target in targets]
    memory = [target.limits.memory_bytes for target in targets]
    return Amounts(_total(cpu), _total(memory))


def _total(values: Sequence[int | None]) -> int | None:
    stated = [value for value in values if value is not None]
    return sum(stated) if len(stated) == len(values) else None


def _outside(requests: Amounts, limits: Amounts, item: LimitRangeItem) -> bool:
    return _resource_outside(
        requests.cpu_millicores,
        limits.cpu_millicores,
        (item.minimum.cpu_millicores, item.maximum.cpu_millicores, item.max_cpu_ratio),
    ) or _resource_outside(
        requests.memory_bytes,
        limits.memory_bytes,
        (item.minimum.memory_bytes, item.maximum.memory_bytes, item.max_memory_ratio),
    )


def _resource_outside(
    request: int | None, limit: int | None, bounds: tuple[int | None, int | None, float | None]
) -> bool:
    least, most, ratio = bounds
    if least is not None and (request is None or request < least):
        return True
    if most is not None and (limit is None or limit > most or (request or 0) > most):
        return True
    return ratio is not None and (not request or limit is None or limit / request > ratio)


def _resize(pod: Pod, targets: tuple[ContainerTarget, ...], growth: Resources, reason: Reason) -> ResizePod:
    return ResizePod(pod.namespace, pod.name, pod.uid, pod.node, pod.workload, targets, growth, reason)
