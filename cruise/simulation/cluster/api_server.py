"""What the API server accepts of a new pod and of a resize, before any kubelet sees it."""

from collections.abc import Sequence
from dataclasses import replace

from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Container, ContainerRole, LimitRangeItem, Node, Pod
from cruise.domain.qos import qos_class
from cruise.domain.requests import counted_requests
from cruise.domain.resources import Resources
from cruise.errors import Refused
from cruise.simulation.cluster.limit_ranges import breach

MEMORY_LIMIT_MAY_FALL = (1, 34)
POD_LEVEL_RESIZE = (1, 35)
INIT_RESIZE = (1, 36)
NODE_CAPACITY_CHECK = (1, 36)
RESIZE_ON_NODE = (1, 33)


def stated_requests(pod: Pod) -> Resources:
    """Return what the pod's spec alone requests, whatever the kubelet reports."""
    plain = tuple(replace(one, allocated=None, actual=None) for one in pod.containers)
    return counted_requests(replace(pod, containers=plain))


def resized(pod: Pod, targets: Sequence[ContainerTarget]) -> Pod:
    """Return the pod with the targets in its spec. Raises Refused for a container that it does not have."""
    wanted = {target.container: target for target in targets}
    for name in sorted(wanted.keys() - {container.name for container in pod.containers}):
        raise _invalid(pod, f"spec.containers: Forbidden: container {name!r} may not be added", "FieldValueForbidden")
    return replace(
        pod,
        containers=tuple(
            replace(
                one,
                requests=wanted[one.name].requests.or_else(one.requests),
                limits=wanted[one.name].limits.or_else(one.limits),
            )
            if one.name in wanted
            else one
            for one in pod.containers
        ),
    )


def check_creation(pod: Pod, ranges: Sequence[LimitRangeItem]) -> None:
    """Raise Refused for a pod that the API server would not create."""
    _check_values(pod)
    problem = breach(pod, ranges)
    if problem is not None:
        raise _forbidden(pod, problem, "LimitRange")


def check_resize(
    pod: Pod, wanted: Pod, node: Node | None, ranges: Sequence[LimitRangeItem], server: tuple[int, int]
) -> None:
    """Raise Refused for a resize that the API server would not take: `wanted` is `pod` with the new spec."""
    kubelet = server if node is None or node.kubelet_version is None else node.kubelet_version
    _check_kind(pod, kubelet, server)
    _check_values(wanted)
    for old, new in zip(pod.containers, wanted.containers, strict=True):
        _check_change(pod, old, new, kubelet, server)
    if qos_class(wanted) is not pod.qos:
        raise _invalid(pod, "spec: Invalid value: Pod QOS Class may not change as a result of resizing")
    if node is not None and server >= NODE_CAPACITY_CHECK:
        _check_capacity(wanted, node)
    problem = breach(wanted, ranges)
    if problem is not None:
        raise _forbidden(pod, problem, "LimitRange")


def _check_kind(pod: Pod, kubelet: tuple[int, int], server: tuple[int, int]) -> None:
    reasons = (
        (pod.mirror, "static pods cannot be resized"),
        (pod.windows, "windows pods cannot be resized"),
        (
            server < POD_LEVEL_RESIZE and (pod.pod_requests is not None or pod.pod_limits is not None),
            "pods with pod-level resources cannot be resized",
        ),
        (pod.node is not None and kubelet < RESIZE_ON_NODE, "Pod running on node without support for resize"),
    )
    for applies, text in reasons:
        if applies:
            raise _invalid(pod, f"spec: Forbidden: {text}", "FieldValueForbidden")


def _check_values(pod: Pod) -> None:
    for container in pod.containers:
        rows = (
            ("cpu", container.requests.cpu_millicores, container.limits.cpu_millicores),
            ("memory", container.requests.memory_bytes, container.limits.memory_bytes),
        )
        for resource, request, limit in rows:
            field = f"spec.containers[{container.name}].resources.requests"
            if (request or 0) < 0 or (limit or 0) < 0:
                raise _invalid(pod, f"{field}: Invalid value: {resource} must be greater than or equal to 0")
            if request is not None and limit is not None and request > limit:
                raise _invalid(
                    pod, f"{field}: Invalid value: must be less than or equal to {resource} limit of {limit}"
                )


def _check_change(pod: Pod, old: Container, new: Container, kubelet: tuple[int, int], server: tuple[int, int]) -> None:
    changed = (old.requests, old.limits) != (new.requests, new.limits)
    if changed and old.role is ContainerRole.INIT and server < INIT_RESIZE:
        text = "resources for non-sidecar init containers are immutable"
        raise _invalid(pod, f"spec.initContainers[{old.name}]: Forbidden: {text}", "FieldValueForbidden")
    before, after = old.limits.memory_bytes, new.limits.memory_bytes
    falls = after is not None and (before is None or after < before)
    if falls and kubelet < MEMORY_LIMIT_MAY_FALL and not old.memory_resize_restarts:
        text = "memory limits cannot be decreased unless resizePolicy is RestartContainer"
        raise _invalid(pod, f"spec.containers[{old.name}].resources.limits: Forbidden: {text}", "FieldValueForbidden")


def _check_capacity(wanted: Pod, node: Node) -> None:
    need = stated_requests(wanted)
    for resource, requested, allocatable in (
        ("cpu", need.cpu_millicores, node.allocatable.cpu_millicores),
        ("memory", need.memory_bytes, node.allocatable.memory_bytes),
    ):
        if requested > allocatable:
            amounts = f"{resource}, requested: {requested}, allocatable: {allocatable}"
            raise _forbidden(wanted, f"node didn't have enough allocatable resources: {amounts}", "NodeCapacity")


def _invalid(pod: Pod, text: str, cause: str = "FieldValueInvalid") -> Refused:
    return Refused(f'Pod "{pod.name}" is invalid: {text}', cause)


def _forbidden(pod: Pod, text: str, cause: str) -> Refused:
    return Refused(f'pods "{pod.name}" is forbidden: {text}', cause)
