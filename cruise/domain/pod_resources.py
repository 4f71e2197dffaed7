"""Resources of pods as kube-scheduler, the kubelet and quotas count them, and QoS classes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from cruise.domain.actions import ContainerTarget
from cruise.domain.annotations import VIRTUAL_NODE_LABELS
from cruise.domain.cluster import Container, ContainerRole, Node, Pod, QosClass
from cruise.domain.resources import NO_RESIZE, NO_RESOURCES, ResizePending, Resources, StatedResources, is_extended
from cruise.domain.scheduling import UNSCHEDULABLE_TAINT


def count_container_requests(container: Container, infeasible: bool = False) -> Resources:
    """Return the counted requests of a container: for each resource the maximum of spec, allocated and actual.

    The spec of an Infeasible resize does not count, unless the kubelet reports nothing. Source: KEP-1287, resource
    accounting in kube-scheduler.
    """
    cpu, memory = _count_container(container, infeasible)
    return Resources(cpu, memory)


def count_pod_requests(pod: Pod) -> Resources:
    """Return the requests that kube-scheduler counts for a pod on its node.

    Main containers and sidecars add up. An init container runs next to the sidecars started before it; the largest such
    sum is a minimum. Pod-level requests replace the sum for the resources that they state, counted as a container's
    are. Overhead is added. A finished pod counts nothing. Source: KEP-753, KEP-1287, KEP-2837, KEP-5419.
    """
    if pod.is_finished:
        return NO_RESOURCES
    infeasible = pod.resize.pending is ResizePending.INFEASIBLE
    cpu, memory = _sum_containers(pod.containers, infeasible)
    whole = pod.pod_level
    if whole is not None:
        whole_cpu, whole_memory = _count_container(whole, infeasible)
        cpu = cpu if whole.requests.cpu_millicores is None else whole_cpu
        memory = memory if whole.requests.memory_bytes is None else whole_memory
    return Resources(cpu + pod.overhead.cpu_millicores, memory + pod.overhead.memory_bytes)


def compute_effective_container_requests(containers: Sequence[Container]) -> Resources:
    """Return what containers of a pod count together, without its overhead and pod-level resources."""
    return Resources(*_sum_containers(containers, infeasible=False))


def _sum_containers(containers: Sequence[Container], infeasible: bool) -> tuple[int, int]:
    if len(containers) == 1:
        return _count_container(containers[0], infeasible)
    cpu = memory = sidecar_cpu = sidecar_memory = floor_cpu = floor_memory = 0
    for container in containers:
        own_cpu, own_memory = _count_container(container, infeasible)
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
    return max(cpu, floor_cpu), max(memory, floor_memory)


def count_pod_limits(pod: Pod) -> Resources:
    """Return the limits that a ResourceQuota counts for a pod.

    They add up as requests do; overhead is added only to resources with a limit, and pod-level limits replace the sum.
    Source: PodLimits in k8s.io/component-helpers/resource.
    """
    if pod.is_finished:
        return NO_RESOURCES
    limits = sum_stated(pod.containers, [container.limits for container in pod.containers])
    if pod.pod_level is not None:
        limits = pod.pod_level.limits.with_defaults(limits)
    whole = limits.resources
    return Resources(
        whole.cpu_millicores + (pod.overhead.cpu_millicores if whole.cpu_millicores else 0),
        whole.memory_bytes + (pod.overhead.memory_bytes if whole.memory_bytes else 0),
    )


def sum_stated(containers: Sequence[Container], stated: Sequence[StatedResources]) -> StatedResources:
    """Return what a pod states with these amounts of its containers, as the API server adds them up."""
    roles = [container.role for container in containers]
    return StatedResources(
        _sum_over_pod(zip(roles, [amounts.cpu_millicores for amounts in stated], strict=True)),
        _sum_over_pod(zip(roles, [amounts.memory_bytes for amounts in stated], strict=True)),
    )


def _sum_over_pod(values: Iterable[tuple[ContainerRole, int | None]]) -> int | None:
    """Sum main containers and sidecars, at least what an init container needs; None if none states a value."""
    running = sidecars = init_minimum = 0
    is_stated = False
    for role, value in values:
        is_stated = is_stated or value is not None
        if role is ContainerRole.INIT:
            init_minimum = max(init_minimum, sidecars + (value or 0))
        else:
            running += value or 0
            sidecars += (value or 0) if role is ContainerRole.SIDECAR else 0
    return max(running, init_minimum) if is_stated else None


def get_memory_limit_at_kill(pod: Pod, limits: StatedResources) -> int | None:
    """Return the memory limit that a container of a pod reached: its own, or the pod's if it states none."""
    if limits.memory_bytes is not None or pod.pod_level is None:
        return limits.memory_bytes
    return (pod.pod_level.actual_limits or pod.pod_level.limits).memory_bytes


def find_containers_sharing_limit(pod: Pod, container: Container) -> tuple[str, ...]:
    """Return the other containers that share a memory limit with a container that states none: those of its pod."""
    if pod.pod_level is None or container.limits.memory_bytes is not None:
        return ()
    return tuple([one.name for one in pod.sized_containers if one.name != container.name])


def compute_init_container_minimum(pod: Pod, sidecar_requests: Mapping[str, Resources]) -> Resources:
    """Return the requests of a pod while its init containers run, without overhead; zero if it has none.

    `sidecar_requests` has planned requests of sidecars by name; others count unchanged. Source: KEP-753.
    """
    infeasible = pod.resize.pending is ResizePending.INFEASIBLE
    sidecars = floor = NO_RESOURCES
    for container in pod.containers:
        if container.role is ContainerRole.SIDECAR:
            planned = sidecar_requests.get(container.name)
            sidecars += count_container_requests(container, infeasible) if planned is None else planned
        elif container.role is ContainerRole.INIT:
            floor = floor.max_with(sidecars + count_container_requests(container, infeasible))
    return floor


def _count_container(container: Container, infeasible: bool) -> tuple[int, int]:
    spec, allocated, actual = container.requests, container.allocated, container.actual
    if allocated is spec and actual is spec:
        # Most containers: the kubelet reports what the spec states.
        return spec.cpu_millicores or 0, spec.memory_bytes or 0
    reported = allocated is not None or actual is not None
    cpu = memory = 0
    if not (infeasible and reported):
        cpu, memory = spec.cpu_millicores or 0, spec.memory_bytes or 0
    if allocated is not None:
        cpu, memory = max(cpu, allocated.cpu_millicores or 0), max(memory, allocated.memory_bytes or 0)
    if actual is not None:
        cpu, memory = max(cpu, actual.cpu_millicores or 0), max(memory, actual.memory_bytes or 0)
    return cpu, memory


def requests_devices(pod: Pod) -> bool:
    """Return whether a pod requests GPUs or other extended resources."""
    # The generator alone takes longer than the usual answer, that there are none.
    return bool(pod.extended_requests) and any(is_extended(resource) for resource, _ in pod.extended_requests)


_FARGATE_SCHEDULER = "fargate-scheduler"


def selects_virtual_node(pod: Pod) -> bool:
    """Return whether a pod asks for a virtual node, as EKS makes the pods of Fargate profiles do."""
    selected = any(pod.placement.requires_label(key, value) for key, value in VIRTUAL_NODE_LABELS.items())
    return selected or pod.scheduler == _FARGATE_SCHEDULER


# Copies of dataclasses, faster than `dataclasses.replace`.

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DataclassT = TypeVar("DataclassT", bound="DataclassInstance")


def create_fast_replace(dataclass: type[DataclassT], *names: str) -> Callable[..., DataclassT]:
    """Return a function of an instance and the values of the named fields that returns a copy.

    Webhook reviews copy pods and containers often. All fields of `dataclass` must be positional.
    """
    every = [field.name for field in fields(dataclass)]
    places = [every.index(name) for name in names]
    get_values = attrgetter(*every)

    def replace_fields(instance: DataclassT, *replacements: Any) -> DataclassT:  # noqa: ANN401 - as the fields are
        values = [*get_values(instance)]
        for place, value in zip(places, replacements, strict=True):
            values[place] = value
        return dataclass(*values)

    return replace_fields


# Requests and limits in a pod's spec.

_replace_resources = create_fast_replace(Container, "requests", "limits")
_replace_parts = create_fast_replace(Pod, "containers", "pod_level")


def replace_spec_resources(pod: Pod, targets: Sequence[ContainerTarget]) -> Pod:
    """Return the pod with the requests and limits of the targets."""
    named = {target.container: target for target in targets}
    containers = tuple([_replace_named(container, named) for container in pod.containers])
    whole = None if pod.pod_level is None else _replace_named(pod.pod_level, named)
    return _replace_parts(pod, containers, whole)


def _replace_named(part: Container, targets: Mapping[str, ContainerTarget]) -> Container:
    target = targets.get(part.name)
    return part if target is None else _replace_resources(part, target.requests, target.limits)


def predict_actuated_pod(pod: Pod, targets: Sequence[ContainerTarget]) -> Pod:
    """Return the pod as it counts after the kubelet has actuated the targets."""
    named = {target.container for target in targets}
    asking = replace_spec_resources(pod, targets)
    return replace(
        asking,
        containers=tuple(_with_allocated_spec(c) if c.name in named else c for c in asking.containers),
        pod_level=_with_allocated_spec(asking.pod_level) if asking.pod_level is not None else None,
    )


def reset_kubelet_status(pod: Pod) -> Pod:
    """Return the pod as a new one, without what a kubelet has reported."""
    containers = tuple([_without_status(container) for container in pod.containers])
    whole = None if pod.pod_level is None else _without_status(pod.pod_level)
    return replace(pod, containers=containers, pod_level=whole, resize=NO_RESIZE)


def _without_status(part: Container) -> Container:
    return replace(part, allocated=None, actual=None, actual_limits=None)


def get_spec_targets(pod: Pod) -> tuple[ContainerTarget, ...]:
    """Return the requests and limits of a pod's spec, without its init containers."""
    return tuple(
        ContainerTarget(part.name, part.role, part.requests, part.limits)
        for part in pod.resizable_parts
        if part.role is not ContainerRole.INIT
    )


def _with_allocated_spec(container: Container) -> Container:
    if container.allocated is None and container.actual is None:
        return container
    return replace(container, allocated=container.requests, actual=container.requests)


# QoS classes, as the API server assigns them at a pod's creation.


def get_qos_class(pod: Pod) -> QosClass:
    """Return the class that follows from the pod's requests and limits, regardless of `pod.qos`."""
    return compute_qos_class(pod.containers, pod.pod_level)


def compute_qos_class(containers: Iterable[Container], pod_level: Container | None) -> QosClass:
    """Return the QoS class of a pod with these containers and pod-level resources.

    Guaranteed: every CPU and memory limit is set and equals its request. BestEffort: nothing is set. Pod-level
    resources count in place of the containers'. Source: Pod Quality of Service Classes.
    """
    parts = containers if pod_level is None else (pod_level,)
    stated = [(part.requests, part.limits) for part in parts]
    # One loop, for speed: webhook reviews call this several times for each pod.
    all_empty = all_equal = True
    for requests, limits in stated:
        all_empty = all_empty and requests.is_empty and limits.is_empty
        all_equal = all_equal and bool(
            limits.cpu_millicores and limits.memory_bytes and requests.with_defaults(limits) == limits
        )
    if all_empty:
        return QosClass.BEST_EFFORT
    return QosClass.GUARANTEED if all_equal else QosClass.BURSTABLE


# Pods on cordoned nodes.


def tolerates_cordon(pod: Pod) -> bool:
    """Return whether kube-scheduler can place a pod on a cordoned node."""
    return pod.placement.tolerates_all((UNSCHEDULABLE_TAINT,))


def may_be_planned_on_cordoned_node(pod: Pod) -> bool:
    """Return whether a plan may place a pod on a cordoned node: only a DaemonSet's pod that tolerates it."""
    return pod.owner_kind == "DaemonSet" and tolerates_cordon(pod)


def accepts_pod_despite_cordon(node: Node, pod: Pod) -> bool:
    """Return whether cordons let a plan place a pod on a node."""
    return not node.unschedulable or may_be_planned_on_cordoned_node(pod)
