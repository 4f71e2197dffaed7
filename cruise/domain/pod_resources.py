"""What kube-scheduler counts for a pod: the room that it takes on its node."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Container, ContainerRole, Node, Pod, QosClass, ResizePending
from cruise.domain.resources import NO_RESOURCES, Resources, StatedResources
from cruise.domain.scheduling import UNSCHEDULABLE_TAINT


def count_container_requests(container: Container, infeasible: bool = False) -> Resources:
    """Return what counts for one container: for each resource the largest of spec, allocated and actual.

    With an Infeasible resize the spec can never come true, so it does not count, unless the kubelet reports nothing.
    Source: KEP-1287, resource accounting in kube-scheduler.
    """
    cpu, memory = _counted(container, infeasible)
    return Resources(cpu, memory)


def count_pod_requests(pod: Pod, containers: Sequence[Container] | None = None) -> Resources:
    """Return what kube-scheduler counts for a pod on its node, with other containers where some are given.

    Main containers and sidecars are summed; a regular init container needs its own requests beside the sidecars
    started before it, and the largest such need is a floor; pod-level requests replace the result for the resource
    that they state; overhead is added. A terminal pod counts nothing.
    Source: KEP-753, KEP-1287, KEP-2837.
    """
    if pod.is_finished:
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


def count_pod_limits(pod: Pod) -> Resources:
    """Return what a ResourceQuota counts of a pod's limits.

    They add up as requests do: main containers and sidecars together, an init container beside the sidecars before it
    as a floor. Overhead is added to a resource that has a limit, and pod-level limits take the place of the sum.
    Source: PodLimits in k8s.io/component-helpers/resource.
    """
    if pod.is_finished:
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
        whole = pod.pod_limits.with_defaults(StatedResources(whole.cpu_millicores, whole.memory_bytes)).resources
    return Resources(
        whole.cpu_millicores + (pod.overhead.cpu_millicores if whole.cpu_millicores else 0),
        whole.memory_bytes + (pod.overhead.memory_bytes if whole.memory_bytes else 0),
    )


def compute_init_container_minimum(pod: Pod, sidecar_requests: Mapping[str, Resources]) -> Resources:
    """Return what the pod needs while its regular init containers run: a floor of its requests, without overhead.

    `sidecar_requests` are the requests that the sidecars would have, by name; a sidecar that is not named counts as
    it is. Without regular init containers the floor is zero. Source: KEP-753.
    """
    infeasible = pod.resize.pending is ResizePending.INFEASIBLE
    sidecars = floor = NO_RESOURCES
    for container in pod.containers:
        if container.role is ContainerRole.SIDECAR:
            planned = sidecar_requests.get(container.name)
            sidecars += count_container_requests(container, infeasible) if planned is None else planned
        elif container.role is ContainerRole.INIT:
            floor = floor.at_least(sidecars + count_container_requests(container, infeasible))
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


# Copies of dataclasses with some fields replaced, in a fraction of the time that `dataclasses.replace` takes.

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def create_fast_replace(shape: type[T], *names: str) -> Callable[..., T]:
    """Return a function of an instance and of values for the named fields, in this order; it returns the copy.

    It is for places that copy something of many fields at every admission. All fields of `shape` are positional.
    """
    every = [field.name for field in fields(shape)]
    places = [every.index(name) for name in names]
    values_of = attrgetter(*every)

    def replaced(instance: T, *replacements: Any) -> T:  # noqa: ANN401 - as the fields are
        values = [*values_of(instance)]
        for place, value in zip(places, replacements, strict=True):
            values[place] = value
        return shape(*values)

    return replaced


# The sizes in a pod's spec, and the pod with others written into it.

_resized = create_fast_replace(Container, "requests", "limits")


def replace_spec_resources(pod: Pod, targets: Sequence[ContainerTarget]) -> Pod:
    """Return the pod with the targets' requests and limits in place of its own."""
    return replace(pod, containers=replace_container_resources(pod, targets))


def predict_actuated_pod(pod: Pod, targets: Sequence[ContainerTarget]) -> Pod:
    """Return the pod as it counts once the kubelet has carried the sizes out."""
    named = {target.container for target in targets}
    asking = replace_spec_resources(pod, targets)
    return replace(asking, containers=tuple(_settled(c) if c.name in named else c for c in asking.containers))


def replace_container_resources(pod: Pod, targets: Sequence[ContainerTarget]) -> tuple[Container, ...]:
    """Return the pod's containers with the targets' requests and limits in place of their own."""
    named = {target.container: target for target in targets}
    return tuple(
        [
            _resized(container, target.requests, target.limits) if (target := named.get(container.name)) else container
            for container in pod.containers
        ]
    )


def get_spec_targets(pod: Pod) -> tuple[ContainerTarget, ...]:
    """Return a pod's sizes as its spec has them now, without those of its init containers."""
    return tuple(
        ContainerTarget(container.name, container.role, container.requests, container.limits)
        for container in pod.containers
        if container.role is not ContainerRole.INIT
    )


def _settled(container: Container) -> Container:
    if container.allocated is None and container.actual is None:
        return container
    return replace(container, allocated=container.requests, actual=container.requests)


# Kubernetes' quality-of-service classes, as the API server assigns them at a pod's creation.


def get_qos_class(pod: Pod) -> QosClass:
    """Return the class that the pod's stated requests and limits give it, whatever `pod.qos` says."""
    return compute_qos_class(pod.containers, pod.pod_requests, pod.pod_limits)


def compute_qos_class(
    containers: Iterable[Container], pod_requests: StatedResources | None, pod_limits: StatedResources | None
) -> QosClass:
    """Return the class of a pod with these containers, and with resources of its own where it states any.

    Guaranteed: CPU and memory limits everywhere, each equal to its request; BestEffort: nothing stated anywhere.
    Pod-level resources, where there are any, speak for the whole pod. Source: Pod Quality of Service Classes.
    """
    if pod_requests is not None or pod_limits is not None:
        stated = [(pod_requests or StatedResources(), pod_limits or StatedResources())]
    else:
        stated = [(container.requests, container.limits) for container in containers]
    # A loop, since this is called for every pod in creation, some times.
    nothing = everything = True
    for requests, limits in stated:
        nothing = nothing and requests.is_empty and limits.is_empty
        everything = everything and bool(
            limits.cpu_millicores and limits.memory_bytes and requests.with_defaults(limits) == limits
        )
    if nothing:
        return QosClass.BEST_EFFORT
    return QosClass.GUARANTEED if everything else QosClass.BURSTABLE


# Which pods kube-scheduler lets onto a cordoned node, and which of them a plan sends there.


def tolerates_cordon(pod: Pod) -> bool:
    """Tell whether kube-scheduler lets a pod onto a cordoned node."""
    return pod.placement.tolerates_all((UNSCHEDULABLE_TAINT,))


def may_be_planned_on_cordoned_node(pod: Pod) -> bool:
    """Tell whether a plan sends a pod to a cordoned node: a DaemonSet's that tolerates it belongs there."""
    return pod.owner_kind == "DaemonSet" and tolerates_cordon(pod)


def accepts_pod_despite_cordon(node: Node, pod: Pod) -> bool:
    """Tell whether a plan may send a pod to a node, as far as cordons matter."""
    return not node.unschedulable or may_be_planned_on_cordoned_node(pod)
