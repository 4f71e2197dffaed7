"""LimitRanges as the API server applies them: defaults at creation, bounds at creation and at every resize."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cruise.domain.cluster import Container, ContainerRole, LimitRangeItem, Pod
from cruise.domain.resources import Amounts


def with_defaults(pod: Pod, items: Sequence[LimitRangeItem]) -> Pod:
    """Return the pod with what its containers leave open: limits from the maximum, requests from limit or minimum."""
    for item in items:
        if not item.of_pod:
            pod = replace(pod, containers=tuple(_defaulted(container, item) for container in pod.containers))
    return pod


def breach(pod: Pod, items: Sequence[LimitRangeItem]) -> str | None:
    """Return the first bound that the pod's stated resources break, in words, None if there is none."""
    for item in items:
        stated = [_pod_sums(pod)] if item.of_pod else [(one.requests, one.limits) for one in pod.containers]
        for requests, limits in stated:
            for problem in _problems(item, requests, limits):
                return problem
    return None


def _problems(item: LimitRangeItem, requests: Amounts, limits: Amounts) -> Iterable[str]:
    of = "Pod" if item.of_pod else "Container"
    for name, column, ratio in (
        ("cpu", "cpu_millicores", item.max_cpu_ratio),
        ("memory", "memory_bytes", item.max_memory_ratio),
    ):
        request, limit, minimum, maximum = (
            getattr(amounts, column) for amounts in (requests, limits, item.minimum, item.maximum)
        )
        if minimum is not None:
            yield from _below(f"minimum {name} usage per {of} is {minimum}", request, limit, minimum)
        if maximum is not None:
            yield from _above(f"maximum {name} usage per {of} is {maximum}", request, limit, maximum)
        if ratio is not None:
            yield from _apart(f"{name} max limit to request ratio per {of} is {ratio:g}", request, limit, ratio)


def _below(rule: str, request: int | None, limit: int | None, minimum: int) -> Iterable[str]:
    if request is None:
        yield f"{rule}.  No request is specified"
    elif request < minimum:
        yield f"{rule}, but request is {request}"
    if limit is not None and limit < minimum:
        yield f"{rule}, but limit is {limit}"


def _above(rule: str, request: int | None, limit: int | None, maximum: int) -> Iterable[str]:
    if limit is None:
        yield f"{rule}.  No limit is specified"
    elif limit > maximum:
        yield f"{rule}, but limit is {limit}"
    if request is not None and request > maximum:
        yield f"{rule}, but request is {request}"


def _apart(rule: str, request: int | None, limit: int | None, ratio: float) -> Iterable[str]:
    if not request:
        yield f"{rule}, but no request is specified or request is 0"
    elif not limit:
        yield f"{rule}, but no limit is specified or limit is 0"
    elif limit > ratio * request:
        yield f"{rule}, but provided ratio is {limit / request:.6f}"


def _pod_sums(pod: Pod) -> tuple[Amounts, Amounts]:
    """Return the pod's sums, init containers as a floor; a resource is stated where any container states it."""
    roles = [container.role for container in pod.containers]
    requests, limits = (
        Amounts(
            _aggregate(roles, [one.cpu_millicores for one in stated]),
            _aggregate(roles, [one.memory_bytes for one in stated]),
        )
        for stated in ([one.requests for one in pod.containers], [one.limits for one in pod.containers])
    )
    return requests, limits


def _aggregate(roles: Sequence[ContainerRole], values: Sequence[int | None]) -> int | None:
    total: int | None = None
    for role, value in zip(roles, values, strict=True):
        if role is not ContainerRole.INIT and value is not None:
            total = (total or 0) + value
    for role, value in zip(roles, values, strict=True):
        if role is ContainerRole.INIT and value is not None:
            total = max(total or 0, value)
    return total


def _defaulted(container: Container, item: LimitRangeItem) -> Container:
    limits = container.limits.or_else(item.maximum)
    requests = container.requests.or_else(limits).or_else(item.minimum)
    return replace(container, requests=requests, limits=limits)
