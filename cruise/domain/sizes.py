"""The sizes in a pod's spec, and the pod with others written into it."""

from collections.abc import Sequence
from dataclasses import replace

from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Container, ContainerRole, Pod
from cruise.domain.replacing import replacing

_resized = replacing(Container, "requests", "limits")


def with_sizes(pod: Pod, targets: Sequence[ContainerTarget]) -> Pod:
    """Return the pod with the targets' requests and limits in place of its own."""
    return replace(pod, containers=sized_containers(pod, targets))


def sized(pod: Pod, targets: Sequence[ContainerTarget]) -> Pod:
    """Return the pod as it counts once the kubelet has carried the sizes out."""
    named = {target.container for target in targets}
    asking = with_sizes(pod, targets)
    return replace(asking, containers=tuple(_settled(c) if c.name in named else c for c in asking.containers))


def sized_containers(pod: Pod, targets: Sequence[ContainerTarget]) -> tuple[Container, ...]:
    """Return the pod's containers with the targets' requests and limits in place of their own."""
    named = {target.container: target for target in targets}
    return tuple(
        [
            _resized(container, target.requests, target.limits) if (target := named.get(container.name)) else container
            for container in pod.containers
        ]
    )


def spec_targets(pod: Pod) -> tuple[ContainerTarget, ...]:
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
