"""What kube-scheduler counts for a pod: the room that it takes on its node."""

from collections.abc import Mapping, Sequence

from cruise.domain.cluster import Container, ContainerRole, Pod, ResizePending
from cruise.domain.resources import NO_RESOURCES, Amounts, Resources


def counted_container(container: Container, infeasible: bool = False) -> Resources:
    """Return what counts for one container: for each resource the largest of spec, allocated and actual.

    With an Infeasible resize the spec can never come true, so it does not count, unless the kubelet reports nothing.
    Source: KEP-1287, resource accounting in kube-scheduler.
    """
    cpu, memory = _counted(container, infeasible)
    return Resources(cpu, memory)


def counted_requests(pod: Pod, containers: Sequence[Container] | None = None) -> Resources:
    """Return what kube-scheduler counts for a pod on its node, with other containers where some are given.

    Main containers and sidecars are summed; a regular init container needs its own requests beside the sidecars
    started before it, and the largest such need is a floor; pod-level requests replace the result for the resource
    that they state; overhead is added. A terminal pod counts nothing.
    Source: KEP-753, KEP-1287, KEP-2837.
    """
    if pod.terminal:
        return NO_RESOURCES
    infeasible = pod.resize.pending is ResizePending.INFEASIBLE
    cpu = memory = sidecar_cpu = sidecar_memory = floor_cpu = floor_memory = 0
    for container in pod.containers if containers is None else containers:
        own_cpu, own_memory = _counted(container, infeasible)
        role = container.role
        if role is ContainerRole.INIT:
            floor_cpu = max(floor_cpu, own_cpu + sidecar_cpu)
            floor_memory = max(floor_memory, own_memory + sidecar_memory)
            continue
        if role is ContainerRole.SIDECAR:
            sidecar_cpu += own_cpu
            sidecar_memory += own_memory
        cpu += own_cpu
        memory += own_memory
    cpu, memory = max(cpu, floor_cpu), max(memory, floor_memory)
    stated = pod.pod_requests
    if stated is not None:
        cpu = cpu if stated.cpu_millicores is None else stated.cpu_millicores
        memory = memory if stated.memory_bytes is None else stated.memory_bytes
    return Resources(cpu + pod.overhead.cpu_millicores, memory + pod.overhead.memory_bytes)


def counted_limits(pod: Pod) -> Resources:
    """Return what a ResourceQuota counts of a pod's limits.

    They add up as requests do: main containers and sidecars together, an init container beside the sidecars before it
    as a floor. Overhead is added to a resource that has a limit, and pod-level limits take the place of the sum.
    Source: PodLimits in k8s.io/component-helpers/resource.
    """
    if pod.terminal:
        return NO_RESOURCES
    running, sidecars, floor = NO_RESOURCES, NO_RESOURCES, NO_RESOURCES
    for container in pod.containers:
        own = container.limits.resources
        if container.role is ContainerRole.INIT:
            floor = floor.at_least(own + sidecars)
            continue
        running += own
        if container.role is ContainerRole.SIDECAR:
            sidecars += own
    whole = running.at_least(floor)
    if pod.pod_limits is not None:
        whole = pod.pod_limits.filled_from(Amounts(whole.cpu_millicores, whole.memory_bytes)).resources
    return Resources(
        whole.cpu_millicores + (pod.overhead.cpu_millicores if whole.cpu_millicores else 0),
        whole.memory_bytes + (pod.overhead.memory_bytes if whole.memory_bytes else 0),
    )


def init_floor(pod: Pod, sidecar_requests: Mapping[str, Resources]) -> Resources:
    """Return what the pod needs while its regular init containers run: a floor of its requests, without overhead.

    `sidecar_requests` are the requests that the sidecars would have, by name; a sidecar that is not named counts as
    it is. Without regular init containers the floor is zero. Source: KEP-753.
    """
    infeasible = pod.resize.pending is ResizePending.INFEASIBLE
    sidecars = floor = NO_RESOURCES
    for container in pod.containers:
        if container.role is ContainerRole.SIDECAR:
            planned = sidecar_requests.get(container.name)
            sidecars += counted_container(container, infeasible) if planned is None else planned
        elif container.role is ContainerRole.INIT:
            floor = floor.at_least(sidecars + counted_container(container, infeasible))
    return floor


def _counted(container: Container, infeasible: bool) -> tuple[int, int]:
    spec, allocated, actual = container.requests, container.allocated, container.actual
    reported = allocated is not None or actual is not None
    cpu = memory = 0
    if not (infeasible and reported):
        cpu, memory = spec.cpu_millicores or 0, spec.memory_bytes or 0
    if allocated is not None:
        cpu, memory = max(cpu, allocated.cpu_millicores or 0), max(memory, allocated.memory_bytes or 0)
    if actual is not None:
        cpu, memory = max(cpu, actual.cpu_millicores or 0), max(memory, actual.memory_bytes or 0)
    return cpu, memory
