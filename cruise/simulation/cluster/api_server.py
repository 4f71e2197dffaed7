"""The API server's checks of new pods and of resizes: LimitRanges, validation and ResourceQuotas."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.domain.actions import ContainerTarget
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import Container, ContainerRole, Node, Pod
from cruise.domain.pod_resources import (
    compute_effective_container_requests,
    count_pod_requests,
    get_qos_class,
    reset_kubelet_status,
)
from cruise.domain.resources import NOTHING_STATED, ResourceName, Resources, StatedResources
from cruise.errors import RefusedError

MEMORY_LIMIT_MAY_FALL = (1, 34)
POD_LEVEL_RESIZE = (1, 36)
INIT_RESIZE = (1, 36)
NODE_CAPACITY_CHECK = (1, 36)
RESIZE_ON_NODE = (1, 33)


def apply_limit_range_defaults(pod: Pod, items: Sequence[LimitRangeItem]) -> Pod:
    """Set missing limits from the maximum, and missing requests from the limit or the minimum."""
    for item in items:
        if not item.is_for_pod:
            pod = replace(pod, containers=tuple(_defaulted(container, item) for container in pod.containers))
    return pod


def find_violated_bound(pod: Pod, items: Sequence[LimitRangeItem]) -> str | None:
    """Return a description of the first bound that the pod's resources violate, if any."""
    for item in items:
        stated = [_pod_sums(pod)] if item.is_for_pod else [(one.requests, one.limits) for one in pod.containers]
        for requests, limits in stated:
            for problem in _problems(item, requests, limits):
                return problem
    return None


def _problems(item: LimitRangeItem, requests: StatedResources, limits: StatedResources) -> Iterable[str]:
    of = "Pod" if item.is_for_pod else "Container"
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


def _pod_sums(pod: Pod) -> tuple[StatedResources, StatedResources]:
    """Return the pod's sums, at least those of init containers; None for a resource that no container has."""
    roles = [container.role for container in pod.containers]
    requests, limits = (
        StatedResources(
            _aggregate(roles, [one.cpu_millicores for one in stated]),
            _aggregate(roles, [one.memory_bytes for one in stated]),
        )
        for stated in ([one.requests for one in pod.containers], [one.limits for one in pod.containers])
    )
    if pod.pod_level is not None:
        return pod.pod_level.requests.with_defaults(requests), pod.pod_level.limits.with_defaults(limits)
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
    limits = container.limits.with_defaults(item.maximum)
    requests = container.requests.with_defaults(limits).with_defaults(item.minimum)
    return replace(container, requests=requests, limits=limits)


def count_spec_requests(pod: Pod) -> Resources:
    """Return the requests of the pod's spec, without the kubelet's status."""
    return count_pod_requests(reset_kubelet_status(pod))


def replace_spec_resources_checked(pod: Pod, targets: Sequence[ContainerTarget]) -> Pod:
    """Return the pod with the targets in its spec. Raises RefusedError for an unknown container."""
    wanted = {target.container: target for target in targets}
    for name in sorted(wanted.keys() - {part.name for part in pod.resizable_parts}):
        raise _invalid(pod, f"spec.containers: Forbidden: container {name!r} may not be added", "FieldValueForbidden")

    def merge(one: Container) -> Container:
        target = wanted.get(one.name)
        if target is None:
            return one
        requests, limits = target.requests.with_defaults(one.requests), target.limits.with_defaults(one.limits)
        return replace(one, requests=requests, limits=limits)

    whole = None if pod.pod_level is None else merge(pod.pod_level)
    return replace(pod, containers=tuple(map(merge, pod.containers)), pod_level=whole)


def check_creation(pod: Pod, ranges: Sequence[LimitRangeItem]) -> None:
    """Raise RefusedError for a pod that the API server would not create."""
    _check_values(pod)
    problem = find_violated_bound(pod, ranges)
    if problem is not None:
        raise _forbidden(pod, problem, "LimitRange")


def check_resize(
    pod: Pod, wanted: Pod, node: Node | None, ranges: Sequence[LimitRangeItem], server: tuple[int, int]
) -> None:
    """Raise RefusedError for a resize that the API server would reject; `wanted` is `pod` with the new spec."""
    kubelet = server if node is None or node.kubelet_version is None else node.kubelet_version
    _check_kind(pod, kubelet, server)
    _check_values(wanted)
    for old, new in zip(pod.containers, wanted.containers, strict=True):
        _check_change(pod, old, new, kubelet, server)
    if get_qos_class(wanted) is not pod.qos:
        raise _invalid(pod, "spec: Invalid value: Pod QOS Class may not change as a result of resizing")
    if node is not None and server >= NODE_CAPACITY_CHECK:
        _check_capacity(wanted, node)
    problem = find_violated_bound(wanted, ranges)
    if problem is not None:
        raise _forbidden(pod, problem, "LimitRange")


def _check_kind(pod: Pod, kubelet: tuple[int, int], server: tuple[int, int]) -> None:
    reasons = (
        (pod.is_mirror_pod, "static pods cannot be resized"),
        (pod.runs_on_windows, "windows pods cannot be resized"),
        (
            server < POD_LEVEL_RESIZE and pod.pod_level is not None,
            "resize of pods with pod-level resources is forbidden when "
            "InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled",
        ),
        (pod.node is not None and kubelet < RESIZE_ON_NODE, "Pod running on node without support for resize"),
    )
    for applies, text in reasons:
        if applies:
            raise _invalid(pod, f"spec: Forbidden: {text}", "FieldValueForbidden")


def _check_values(pod: Pod) -> None:
    _check_pod_level(pod)
    for container in pod.resizable_parts:
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


def _check_pod_level(pod: Pod) -> None:
    """Raise RefusedError if containers request more together, or have larger limits, than the pod states."""
    whole = pod.pod_level
    if whole is None:
        return
    summed = compute_effective_container_requests(reset_kubelet_status(pod).containers)
    for resource in ResourceName:
        request, limit = whole.requests.get(resource), whole.limits.get(resource)
        if request is not None and summed.get(resource) > request:
            text = f"must be greater than or equal to aggregate container requests of {summed.get(resource)}"
            raise _invalid(pod, f"spec.resources.requests[{resource}]: Invalid value: {request}: {text}")
        for one in pod.containers:
            own = one.limits.get(resource)
            if one.role is ContainerRole.MAIN and limit is not None and own is not None and own > limit:
                text = f"must be less than or equal to pod limits of {limit}"
                raise _invalid(pod, f"spec.containers[{one.name}][{resource}].limits: Invalid value: {own}: {text}")


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
    need = count_spec_requests(wanted)
    for resource, requested, allocatable in (
        ("cpu", need.cpu_millicores, node.allocatable.cpu_millicores),
        ("memory", need.memory_bytes, node.allocatable.memory_bytes),
    ):
        if requested > allocatable:
            amounts = f"{resource}, requested: {requested}, allocatable: {allocatable}"
            raise _forbidden(wanted, f"node didn't have enough allocatable resources: {amounts}", "NodeCapacity")


def _invalid(pod: Pod, text: str, cause: str = "FieldValueInvalid") -> RefusedError:
    return RefusedError(f'Pod "{pod.name}" is invalid: {text}', cause)


def _forbidden(pod: Pod, text: str, cause: str) -> RefusedError:
    return RefusedError(f'pods "{pod.name}" is forbidden: {text}', cause)


@dataclass(frozen=True, slots=True)
class ResourceQuotaSpec:
    """The hard requests and limits of a ResourceQuota; None for resources that it does not count."""

    namespace: str
    name: str
    requests: StatedResources = NOTHING_STATED
    limits: StatedResources = NOTHING_STATED

    @property
    def bounds(self) -> Iterator[tuple[str, ResourceName, int]]:
        """Each bound: `requests` or `limits`, the resource and the amount."""
        for field, hard in (("requests", self.requests), ("limits", self.limits)):
            for resource in ResourceName:
                bound = hard.get(resource)
                if bound is not None:
                    yield field, resource, bound


@dataclass(frozen=True, slots=True)
class _QuotaUsage:
    """The requests and limits that count against a quota."""

    requests: Resources = Resources()
    limits: Resources = Resources()

    def get(self, field: str, resource: ResourceName) -> int:
        return (self.requests if field == "requests" else self.limits).get(resource)


class SimulatedQuotas:
    """The quotas of a cluster. A pod counts with the largest of spec, allocated and actual, until it has finished.

    Source: the ResourceQuota admission plugin and its evaluator of pods.
    """

    def __init__(self, rules: Sequence[ResourceQuotaSpec]) -> None:
        self._rules: dict[str, list[ResourceQuotaSpec]] = {}
        for rule in sorted(rules, key=lambda rule: (rule.namespace, rule.name)):
            self._rules.setdefault(rule.namespace, []).append(rule)

    def get_remaining(self, pods: Sequence[Pod]) -> Mapping[str, tuple[ResourceQuota, ...]]:
        """Return what remains of each namespace's quotas; `pods` are those of the cluster."""
        found = {}
        for namespace, rules in self._rules.items():
            used = _used(pod for pod in pods if pod.namespace == namespace)
            found[namespace] = tuple(_quota(rule, used) for rule in rules)
        return found

    def check_creation(self, pod: Pod, pods: Iterable[Pod]) -> None:
        """Raise RefusedError for a new pod that exceeds a quota, or lacks a request or limit that a quota counts."""
        for rule in self._rules.get(pod.namespace, ()):
            for field, resource, _ in rule.bounds:
                open_at = (
                    []
                    if pod.pod_level
                    else [one.name for one in pod.containers if getattr(one, field).get(resource) is None]
                )
                if open_at:
                    text = f"failed quota: {rule.name}: must specify {field}.{resource} for: {','.join(open_at)}"
                    raise RefusedError(f'pods "{pod.name}" is forbidden: {text}', "AdmissionDenied")
        self._check(pod, _QuotaUsage(), pods)

    def check_resize(self, pod: Pod, wanted: Pod, pods: Iterable[Pod]) -> None:
        """Raise RefusedError for a resize that exceeds a quota; `wanted` is `pod` with the new spec."""
        self._check(wanted, _usage(pod), pods)

    def _check(self, wanted: Pod, before: _QuotaUsage, pods: Iterable[Pod]) -> None:
        rules = self._rules.get(wanted.namespace)
        if not rules:
            return
        after, used = _usage(wanted), _used(one for one in pods if one.namespace == wanted.namespace)
        for rule in rules:
            for field, resource, hard in rule.bounds:
                more, counted = after.get(field, resource) - before.get(field, resource), used.get(field, resource)
                if more > 0 and counted + more > hard:
                    name = f"{field}.{resource}"
                    amounts = f"requested: {name}={more}, used: {name}={counted}, limited: {name}={hard}"
                    text = f"exceeded quota: {rule.name}, {amounts}"
                    raise RefusedError(f'pods "{wanted.name}" is forbidden: {text}', "QuotaExceeded")


def _used(pods: Iterable[Pod]) -> _QuotaUsage:
    requests, limits = Resources(), Resources()
    for pod in pods:
        one = _usage(pod)
        requests, limits = requests + one.requests, limits + one.limits
    return _QuotaUsage(requests, limits)


def _usage(pod: Pod) -> _QuotaUsage:
    # Limits are summed like requests.
    limited = tuple(
        replace(one, requests=one.limits, allocated=None, actual=one.actual_limits) for one in pod.containers
    )
    whole = pod.pod_level
    if whole is not None:
        whole = replace(whole, requests=whole.limits, allocated=None, actual=whole.actual_limits)
    return _QuotaUsage(count_pod_requests(pod), count_pod_requests(replace(pod, containers=limited, pod_level=whole)))


def _quota(rule: ResourceQuotaSpec, used: _QuotaUsage) -> ResourceQuota:
    left = {(field, resource): max(0, hard - used.get(field, resource)) for field, resource, hard in rule.bounds}
    requests, limits = (
        StatedResources(left.get((field, ResourceName.CPU)), left.get((field, ResourceName.MEMORY)))
        for field in ("requests", "limits")
    )
    return ResourceQuota(requests, limits)
