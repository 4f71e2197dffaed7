"""LimitRanges: what the API server requires of containers and of the sums over a pod (type Pod), and sizes that comply.

The sums follow the LimitRanger admission plugin: containers and native sidecars, at least what an init container
states.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.domain.actions import ContainerTarget
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, ContainerRole, Pod
from cruise.domain.pod_resources import replace_spec_resources, sum_stated
from cruise.domain.resources import ROUNDING_UNIT, ResourceName, StatedResources


def violates_limit_range(pod: Pod, targets: Sequence[ContainerTarget], ranges: Sequence[LimitRangeItem]) -> bool:
    """Return whether the pod with the targets' sizes violates a LimitRange (source: LimitRanger).

    Every container counts, resized or not, since the API server validates the whole pod.
    """
    sized = replace_spec_resources(pod, targets)
    containers = sized.containers
    for item in ranges:
        if item.is_for_pod:
            requests = sum_stated(containers, [container.requests for container in containers])
            limits = sum_stated(containers, [container.limits for container in containers])
            if sized.pod_level is not None:
                requests = sized.pod_level.requests.with_defaults(requests)
                limits = sized.pod_level.limits.with_defaults(limits)
            if _violates(requests, limits, item):
                return True
        elif any(_violates(container.requests, container.limits, item) for container in containers):
            return True
    return False


def forbids_resize(pod: Pod, targets: Sequence[ContainerTarget], ranges: Sequence[LimitRangeItem]) -> bool:
    """Return whether a resize to the targets' sizes would violate a LimitRange, or change more than it says.

    The API server sets a default limit on each container without one, at a resize as well: also in pods that are older
    than the LimitRange.
    """
    return violates_limit_range(pod, targets, ranges) or any(
        item.default_limits.get(resource) is not None and container.limits.get(resource) is None
        for container in replace_spec_resources(pod, targets).containers
        if container.role is not ContainerRole.INIT
        for item in ranges
        if not item.is_for_pod
        for resource in ResourceName
    )


def _violates(requests: StatedResources, limits: StatedResources, item: LimitRangeItem) -> bool:
    return _violates_for_resource(
        requests.cpu_millicores,
        limits.cpu_millicores,
        (item.minimum.cpu_millicores, item.maximum.cpu_millicores, item.max_cpu_ratio),
    ) or _violates_for_resource(
        requests.memory_bytes,
        limits.memory_bytes,
        (item.minimum.memory_bytes, item.maximum.memory_bytes, item.max_memory_ratio),
    )


def _violates_for_resource(
    request: int | None, limit: int | None, bounds: tuple[int | None, int | None, float | None]
) -> bool:
    least, most, ratio = bounds
    if least is not None and (request is None or request < least or (limit is not None and limit < least)):
        return True
    if most is not None and (limit is None or limit > most or (request or 0) > most):
        return True
    return ratio is not None and (not request or not limit or limit > ratio * request)


@dataclass(frozen=True, slots=True)
class PodLimitRange:
    """What the sums of one resource over a pod's sized containers must comply with.

    `minimum` and `maximum` bound the sums of requests and of limits, `ratio` the sum of limits / the sum of requests.
    `init_request` and `init_limit` are the largest of an init container.
    """

    minimum: int
    maximum: int
    ratio: float
    init_request: int
    init_limit: int
    unit: int

    @property
    def requires_limit(self) -> bool:
        """Return whether some container of the pod must state a limit."""
        return self.maximum < UNBOUNDED or self.ratio < math.inf

    def get_minimum_requests(
        self, current: Sequence[int], wanted: Sequence[int], maximum: Sequence[int], minimum_limits: Sequence[int]
    ) -> list[int]:
        """Return the least request of each container so that their sum is enough for the least limits.

        Present requests remain if they are enough; otherwise the containers share the rest by what is `wanted`.
        """
        minimum = (
            [0] * len(current) if self.ratio == math.inf else self._get_requests_for_limits(current, minimum_limits)
        )
        required_sum = 0 if self.init_request >= self.minimum else self.minimum
        if self.ratio < math.inf and self.init_request * self.ratio < self.init_limit:
            required_sum = max(required_sum, math.ceil(self.init_limit / self.ratio))
        goals = [max(pair) for pair in zip(current, minimum, strict=True)]
        if sum(goals) < required_sum:
            goals = [max(pair) for pair in zip(goals, wanted, strict=True)]
        # Rounded up: less would not be enough.
        found = [self._round_up(one) for one in self._fill(minimum, goals, max(required_sum, sum(minimum)))]
        if self.ratio < math.inf and self.init_request * self.ratio < sum(minimum_limits):
            # What the maximum takes from one container, the others have to request.
            required_sum = max(required_sum, self._round_up(math.ceil(sum(minimum_limits) / self.ratio)))
        return _raise_to_sum([min(pair) for pair in zip(found, maximum, strict=True)], maximum, required_sum)

    def _get_requests_for_limits(self, current: Sequence[int], minimum_limits: Sequence[int]) -> list[int]:
        """Return requests that allow the sum of the least limits.

        Limit / ratio is enough for each container. Containers that request less now keep that while the others have a
        surplus.
        """
        shares = [math.ceil(limit / self.ratio) for limit in minimum_limits]
        shortfall = sum(
            limit - self.ratio * request
            for request, share, limit in zip(current, shares, minimum_limits, strict=True)
            if request < share
        )
        if shortfall <= 0:
            return [self._round_up(share) for share in shares]
        surplus = sum(
            self.ratio * request - (max(limit, request) if limit else 0)
            for request, share, limit in zip(current, shares, minimum_limits, strict=True)
            if request >= share
        )
        if surplus < shortfall:
            return [self._round_up(share) for share in shares]
        fraction = shortfall / surplus
        return [
            request
            if request < share
            else min(request, self._round_up(share + math.ceil((request - share) * fraction)))
            for request, share in zip(current, shares, strict=True)
        ]

    def _round_up(self, value: int) -> int:
        return -(-value // self.unit) * self.unit

    def get_maximum_requests(
        self, minimum: Sequence[int], base: Sequence[int], peak: Sequence[int], minimum_limits: Sequence[int]
    ) -> list[int] | None:
        """Return the largest request of each container so that their sum leaves capacity for the least limits.

        None if there is no largest sum, or not even the least sizes comply.
        """
        floors = [max(pair) for pair in zip(minimum, minimum_limits, strict=True)]
        if self.maximum >= UNBOUNDED or sum(floors) > self.maximum:
            return None
        maximum = self._fill(self._fill(floors, base, self.maximum), peak, self.maximum)
        spare = (self.maximum - sum(maximum)) // len(maximum)
        return [max(floor, (one + spare) // self.unit * self.unit) for one, floor in zip(maximum, floors, strict=True)]

    def get_limits(
        self,
        requests: Sequence[int],
        minimum: Sequence[int],
        wanted: Sequence[int],
        maximum: Sequence[int],
    ) -> list[int]:
        """Return the limit of each container, given its request: between the minimum and the `wanted` one, 0 for none.

        If no limits comply, the returned ones do not.
        """
        largest_sum = self.maximum
        if self.ratio < math.inf:
            largest_sum = min(largest_sum, int(self.ratio * max(sum(requests), self.init_request)))
        floors = [
            max(low, request) if high else 0 for low, request, high in zip(minimum, requests, wanted, strict=True)
        ]
        found = self._fill(floors, wanted, largest_sum)
        if not any(found) or max(sum(found), self.init_limit) >= self.minimum:
            return found
        return _raise_to_sum(
            found, [cap if one else 0 for one, cap in zip(found, maximum, strict=True)], min(self.minimum, largest_sum)
        )

    def _fill(self, floors: Sequence[int], goals: Sequence[int], largest_sum: int) -> list[int]:
        """Raise `floors` towards the `goals`, all by the same share, as far as their sum allows."""
        missing = [max(0, goal - floor) for floor, goal in zip(floors, goals, strict=True)]
        spare, wanted = largest_sum - sum(floors), sum(missing)
        if wanted <= spare:
            return [floor + more for floor, more in zip(floors, missing, strict=True)]
        if spare <= 0:
            return list(floors)
        shares = [
            (floor + more * spare // wanted) // self.unit * self.unit
            for floor, more in zip(floors, missing, strict=True)
        ]
        return [max(pair) for pair in zip(floors, shares, strict=True)]


PodLimitRanges = Mapping[ResourceName, PodLimitRange]


def get_pod_limit_ranges(pod: Pod, items: Sequence[LimitRangeItem], kept: Sequence[Container] = ()) -> PodLimitRanges:
    """Return what LimitRanges of type Pod require of a pod's containers except the `kept` ones, which do not change.

    Next to pod-level resources they require nothing of the containers.
    """
    of_pod = [item for item in items if item.is_for_pod] if pod.pod_level is None else []
    found = ((resource, _build_range(pod, of_pod, resource, kept)) for resource in ResourceName) if of_pod else ()
    return {resource: one for resource, one in found if one is not None}


def select_limit_ranges(part: Container, items: Sequence[LimitRangeItem]) -> Sequence[LimitRangeItem]:
    """Return the LimitRanges of a container; of pod-level resources those of type Pod, as if for a container."""
    if part.role is not ContainerRole.POD:
        return items
    return [replace(item, is_for_pod=False) for item in items if item.is_for_pod]


def collect_pod_limit_ranges(
    pods: Sequence[ResizablePod], limit_ranges: Mapping[str, Sequence[LimitRangeItem]]
) -> dict[int, PodLimitRanges]:
    """Return what LimitRanges of type Pod require, by pod index, for pods that they apply to."""
    namespaces = {namespace for namespace, items in limit_ranges.items() if any(item.is_for_pod for item in items)}
    if not namespaces:
        return {}
    by_index = {
        index: get_pod_limit_ranges(pod.pod, limit_ranges[pod.pod.namespace], pod.kept_containers)
        for index, pod in enumerate(pods)
        if pod.pod.namespace in namespaces and pod.pod.pod_level is None
    }
    return {index: ranges for index, ranges in by_index.items() if ranges}


def _build_range(
    pod: Pod, items: Sequence[LimitRangeItem], resource: ResourceName, kept: Sequence[Container]
) -> PodLimitRange | None:
    minimum = max((item.minimum.get(resource) or 0 for item in items), default=0)
    maximum = min((high for item in items if (high := item.maximum.get(resource)) is not None), default=UNBOUNDED)
    ratio = min((top for item in items if (top := item.get_max_ratio(resource)) is not None), default=math.inf)
    if not minimum and maximum >= UNBOUNDED and ratio == math.inf:
        return None
    init = [one for one in pod.containers if one.role is ContainerRole.INIT]
    init_limit = max((one.limits.get(resource) or 0 for one in init), default=0)
    init_request = max((one.requests.get(resource) or 0 for one in init), default=0)
    if maximum < UNBOUNDED and any(one.role is ContainerRole.SIDECAR for one in pod.containers):
        # Sidecars run next to init containers: reduced by this much, the range holds for those as well.
        maximum -= max(init_limit, init_request)
    if kept:
        # Stricter than the range where the two sums differ; what is written is checked as a whole.
        kept_request, kept_limit = (
            sum(stated.get(resource) or 0 for stated in column)
            for column in ([one.requests for one in kept], [one.limits for one in kept])
        )
        minimum = max(0, minimum - min(kept_request, kept_limit))
        maximum -= max(kept_request, kept_limit) if maximum < UNBOUNDED else 0
    return PodLimitRange(minimum, maximum, ratio, init_request, init_limit, ROUNDING_UNIT[resource])


def _raise_to_sum(values: Sequence[int], maximum: Sequence[int], required_sum: int) -> list[int]:
    """Return values raised, as far as each may be, until their sum reaches what is required."""
    raised = list(values)
    for at, largest in enumerate(maximum):
        raised[at] = max(raised[at], min(largest, raised[at] + max(0, required_sum - sum(raised))))
    return raised
