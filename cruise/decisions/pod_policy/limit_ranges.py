"""LimitRanges of type Pod: what the API server asks of the sums over a pod's containers, and sizes that keep to it.

The sums are those of LimitRanger: containers and native sidecars, and at least what an init container states.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cruise.decisions.pod_policy.eligibility import ResizablePod
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Container, ContainerRole, LimitRangeItem, Pod
from cruise.domain.pod_resources import replace_spec_resources
from cruise.domain.resources import MEBIBYTE, UNBOUNDED, ResourceName, StatedResources

# Whether the API server would refuse sizes under a namespace's LimitRanges.


def violates_limit_range(pod: Pod, targets: Sequence[ContainerTarget], ranges: Sequence[LimitRangeItem]) -> bool:
    """Tell whether the pod with the targets' sizes is outside a range.

    Every container counts, resized or not, since the server looks at the whole pod. Source: LimitRanger.
    """
    containers = replace_spec_resources(pod, targets).containers
    for item in ranges:
        if item.is_for_pod:
            requests = _of_pod(containers, [container.requests for container in containers])
            limits = _of_pod(containers, [container.limits for container in containers])
            if _outside(requests, limits, item):
                return True
        elif any(_outside(container.requests, container.limits, item) for container in containers):
            return True
    return False


def forbids_resize(pod: Pod, targets: Sequence[ContainerTarget], ranges: Sequence[LimitRangeItem]) -> bool:
    """Tell whether a resize to the targets' sizes would break a range, or have more done to the pod than it says.

    The API server puts a default limit on each container without one, when a pod is resized as well: on pods that are
    older than the LimitRange, whatever they use.
    """
    return violates_limit_range(pod, targets, ranges) or any(
        item.default_limits.get(resource) is not None and container.limits.get(resource) is None
        for container in replace_spec_resources(pod, targets).containers
        if container.role is not ContainerRole.INIT
        for item in ranges
        if not item.is_for_pod
        for resource in ResourceName
    )


def _of_pod(containers: Sequence[Container], stated: Sequence[StatedResources]) -> StatedResources:
    roles = [container.role for container in containers]
    return StatedResources(
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


def _outside(requests: StatedResources, limits: StatedResources, item: LimitRangeItem) -> bool:
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


UNITS = {ResourceName.CPU: 1, ResourceName.MEMORY: MEBIBYTE}


@dataclass(frozen=True, slots=True)
class PodLimitRange:
    """What the sums of one resource over a pod's sized containers must keep to.

    `least` and `most` bound the sum of the requests and that of the limits, `ratio` is the largest sum of limits / sum
    of requests. `init_request` and `init_limit` are the largest of an init container.
    """

    minimum: int
    maximum: int
    ratio: float
    init_request: int
    init_limit: int
    unit: int

    @property
    def requires_limit(self) -> bool:
        """Tell whether some container of the pod must state a limit."""
        return self.maximum < UNBOUNDED or self.ratio < math.inf

    def get_minimum_requests(
        self, now: Sequence[int], wanted: Sequence[int], most: Sequence[int], least_limits: Sequence[int]
    ) -> list[int]:
        """Return the least request of each container, so that their sum is enough beside the least limits.

        What the containers request `now` stays enough where it is; else they share the rest by what is `wanted`.
        """
        least = [0] * len(now) if self.ratio == math.inf else self._beside(now, least_limits)
        need = 0 if self.init_request >= self.minimum else self.minimum
        if self.ratio < math.inf and self.init_request * self.ratio < self.init_limit:
            need = max(need, math.ceil(self.init_limit / self.ratio))
        goals = [max(pair) for pair in zip(now, least, strict=True)]
        if sum(goals) < need:
            goals = [max(pair) for pair in zip(goals, wanted, strict=True)]
        # Rounded up, since less would not be enough.
        found = [self._whole(one) for one in self._filled(least, goals, max(need, sum(least)))]
        return _raised([min(pair) for pair in zip(found, most, strict=True)], most, need)

    def _beside(self, now: Sequence[int], least_limits: Sequence[int]) -> list[int]:
        """Return requests beside which the sum of the limits may be what the least limits, and the requests, need.

        Each limit / the ratio is enough. Containers that request less now are left at that while the others have what
        they lack.
        """
        shares = [math.ceil(limit / self.ratio) for limit in least_limits]
        lacking = sum(
            limit - self.ratio * request
            for request, share, limit in zip(now, shares, least_limits, strict=True)
            if request < share
        )
        if lacking <= 0:
            return [self._whole(share) for share in shares]
        beyond = sum(
            self.ratio * request - (max(limit, request) if limit else 0)
            for request, share, limit in zip(now, shares, least_limits, strict=True)
            if request >= share
        )
        if beyond < lacking:
            return [self._whole(share) for share in shares]
        part = lacking / beyond
        return [
            request if request < share else min(request, self._whole(share + math.ceil((request - share) * part)))
            for request, share in zip(now, shares, strict=True)
        ]

    def _whole(self, value: int) -> int:
        return -(-value // self.unit) * self.unit

    def get_maximum_requests(
        self, least: Sequence[int], base: Sequence[int], peak: Sequence[int], least_limits: Sequence[int]
    ) -> list[int] | None:
        """Return the largest request of each container, so that their sum leaves room for the least limits.

        None where there is no largest sum, or not even the least sizes are within it.
        """
        floors = [max(pair) for pair in zip(least, least_limits, strict=True)]
        if self.maximum >= UNBOUNDED or sum(floors) > self.maximum:
            return None
        most = self._filled(self._filled(floors, base, self.maximum), peak, self.maximum)
        spare = (self.maximum - sum(most)) // len(most)
        return [max(floor, (one + spare) // self.unit * self.unit) for one, floor in zip(most, floors, strict=True)]

    def limits(
        self,
        requests: Sequence[int],
        least: Sequence[int],
        wanted: Sequence[int],
        most: Sequence[int],
    ) -> list[int]:
        """Return the limit of each container beside its request: between the `least` and the `wanted` one, 0 for none.

        Where no limits are within the range, those that are returned are outside it.
        """
        room = self.maximum
        if self.ratio < math.inf:
            room = min(room, int(self.ratio * max(sum(requests), self.init_request)))
        floors = [max(low, request) if high else 0 for low, request, high in zip(least, requests, wanted, strict=True)]
        found = self._filled(floors, wanted, room)
        if not any(found) or max(sum(found), self.init_limit) >= self.minimum:
            return found
        return _raised(
            found, [cap if one else 0 for one, cap in zip(found, most, strict=True)], min(self.minimum, room)
        )

    def _filled(self, floors: Sequence[int], goals: Sequence[int], room: int) -> list[int]:
        """Raise `floors` towards the `goals`, all by the same share, as far as their sum leaves them room."""
        missing = [max(0, goal - floor) for floor, goal in zip(floors, goals, strict=True)]
        spare, wanted = room - sum(floors), sum(missing)
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


def get_pod_limit_ranges(pod: Pod, items: Sequence[LimitRangeItem]) -> PodLimitRanges:
    """Return what the LimitRanges of a pod's namespace ask of its sums, by resource; empty where they ask nothing."""
    of_pod = [item for item in items if item.is_for_pod]
    found = ((resource, _range(pod, of_pod, resource)) for resource in ResourceName) if of_pod else ()
    return {resource: one for resource, one in found if one is not None}


def collect_pod_limit_ranges(
    pods: Sequence[ResizablePod], limit_ranges: Mapping[str, Sequence[LimitRangeItem]]
) -> dict[int, PodLimitRanges]:
    """Return what LimitRanges ask of the sums of pods, by their indices, for those that they ask something of."""
    concerned = {namespace for namespace, items in limit_ranges.items() if any(item.is_for_pod for item in items)}
    if not concerned:
        return {}
    found = {
        index: get_pod_limit_ranges(pod.pod, limit_ranges[pod.pod.namespace])
        for index, pod in enumerate(pods)
        if pod.pod.namespace in concerned
    }
    return {index: ranges for index, ranges in found.items() if ranges}


def _range(pod: Pod, items: Sequence[LimitRangeItem], resource: ResourceName) -> PodLimitRange | None:
    least = max((item.minimum.get(resource) or 0 for item in items), default=0)
    most = min((high for item in items if (high := item.maximum.get(resource)) is not None), default=UNBOUNDED)
    ratio = min((top for item in items if (top := item.max_ratio(resource)) is not None), default=math.inf)
    if not least and most >= UNBOUNDED and ratio == math.inf:
        return None
    init = [one for one in pod.containers if one.role is ContainerRole.INIT]
    init_limit = max((one.limits.get(resource) or 0 for one in init), default=0)
    init_request = max((one.requests.get(resource) or 0 for one in init), default=0)
    if most < UNBOUNDED and any(one.role is ContainerRole.SIDECAR for one in pod.containers):
        # Sidecars run beside init containers: with this much less for all of them, those are within the range as well.
        most -= max(init_limit, init_request)
    return PodLimitRange(least, most, ratio, init_request, init_limit, UNITS[resource])


def _raised(values: Sequence[int], most: Sequence[int], total: int) -> list[int]:
    """Return values with what their sum lacks of a total, as far as each may be raised."""
    raised = list(values)
    for at, cap in enumerate(most):
        raised[at] = max(raised[at], min(cap, raised[at] + max(0, total - sum(raised))))
    return raised
