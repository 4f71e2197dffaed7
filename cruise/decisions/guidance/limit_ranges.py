"""Whether the API server would refuse sizes under a namespace's LimitRanges."""

from collections.abc import Iterable, Sequence

from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Container, ContainerRole, LimitRangeItem, Pod
from cruise.domain.resources import Amounts, ResourceName
from cruise.domain.sizes import with_sizes


def breaks_limit_range(pod: Pod, targets: Sequence[ContainerTarget], ranges: Sequence[LimitRangeItem]) -> bool:
    """Tell whether the pod with the targets' sizes is outside a range.

    Every container counts, resized or not, since the server looks at the whole pod. Source: LimitRanger.
    """
    containers = with_sizes(pod, targets).containers
    for item in ranges:
        if item.of_pod:
            requests = _of_pod(containers, [container.requests for container in containers])
            limits = _of_pod(containers, [container.limits for container in containers])
            if _outside(requests, limits, item):
                return True
        elif any(_outside(container.requests, container.limits, item) for container in containers):
            return True
    return False


def refuses_resize(pod: Pod, targets: Sequence[ContainerTarget], ranges: Sequence[LimitRangeItem]) -> bool:
    """Tell whether a resize to the targets' sizes would break a range, or have more done to the pod than it says.

    The API server puts a default limit on each container without one, when a pod is resized as well: on pods that are
    older than the LimitRange, whatever they use.
    """
    return breaks_limit_range(pod, targets, ranges) or any(
        item.default_limits.of(resource) is not None and container.limits.of(resource) is None
        for container in with_sizes(pod, targets).containers
        if container.role is not ContainerRole.INIT
        for item in ranges
        if not item.of_pod
        for resource in ResourceName
    )


def _of_pod(containers: Sequence[Container], stated: Sequence[Amounts]) -> Amounts:
    roles = [container.role for container in containers]
    return Amounts(
        _sum_over_pod(zip(roles, [amounts.cpu_millicores for amounts in stated], strict=True)),
        _sum_over_pod(zip(roles, [amounts.memory_bytes for amounts in stated], strict=True)),
    )


def _sum_over_pod(values: Iterable[tuple[ContainerRole, int | None]]) -> int | None:
    """Sum main containers and sidecars, at least what an init container needs; None where none states a value."""
    running = sidecars = floor = 0
    stated = False
    for role, value in values:
        stated = stated or value is not None
        if role is ContainerRole.INIT:
            floor = max(floor, sidecars + (value or 0))
        else:
            running += value or 0
            sidecars += (value or 0) if role is ContainerRole.SIDECAR else 0
    return max(running, floor) if stated else None


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
    if least is not None and (request is None or request < least or (limit is not None and limit < least)):
        return True
    if most is not None and (limit is None or limit > most or (request or 0) > most):
        return True
    return ratio is not None and (not request or not limit or limit > ratio * request)
