"""The limits that a pod is created with, the requests that LimitRanges require, and sizes of Guaranteed pods."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.container_bounds import ContainerBounds
from cruise.decisions.pod_policy.heap_floors import compute_created_heap_floor
from cruise.decisions.pod_policy.limit_ranges import PodLimitRanges
from cruise.decisions.pod_policy.quotas import counts_limits_of
from cruise.decisions.sizing.cpu_limit import raise_cpu_limits
from cruise.decisions.sizing.guaranteed import GuaranteedBounds, compute_guaranteed_sizes, get_guaranteed_usage
from cruise.decisions.sizing.memory_limit import (
    compute_admission_limit,
    compute_min_admission_limit,
    get_largest_known_usage,
)
from cruise.decisions.sizing.pod_level_containers import PodLevelContainers
from cruise.domain.actions import ContainerTarget
from cruise.domain.arrays import UNBOUNDED, Int64Array, convert_to_int64, round_up_integers
from cruise.domain.autoscalers import ResourceQuota
from cruise.domain.cluster import Container, QosClass
from cruise.domain.policy import CpuLimitPolicy, MemoryLimitPolicy, Policy
from cruise.domain.resources import ROUNDING_UNIT, ResourceName, Resources, StatedResources
from cruise.domain.usage import Statistic, StatisticsTable

AmountT = TypeVar("AmountT", int, int | None)
_CPU, _MEMORY = ResourceName.CPU, ResourceName.MEMORY


def add_heap_and_pod_level_needs(
    sized: Sequence[Container],
    qos: QosClass,
    known: Sequence[Statistic],
    bounds: Sequence[ContainerBounds],
    ceilings: Sequence[int],
    containers: PodLevelContainers | None,
    policy: Policy,
) -> list[ContainerBounds]:
    """Return the bounds with what heaps need, and with what the containers within pod-level resources need."""
    if containers is None:
        return add_heap_needs(sized, qos, known, bounds, ceilings, policy)
    heap = containers.get_heap_floor([get_largest_known_usage(one, policy) for one in containers.statistics])
    present = min(heap.request_bytes, sized[0].requests.memory_bytes or 0)
    least = containers.get_minimum_requests().max_with(Resources(0, present))
    return [bound.raise_minimum(least)._replace(heap=heap) for bound in bounds]


def add_heap_needs(
    sized: Sequence[Container],
    qos: QosClass,
    known: Sequence[Statistic],
    bounds: Sequence[ContainerBounds],
    ceilings: Sequence[int],
    policy: Policy,
) -> list[ContainerBounds]:
    """Return the bounds of a new pod's sized containers with what their heaps need."""
    terms = zip(sized, known, bounds, ceilings, strict=True)
    return [
        bound if container.heap is None else _apply_heap_floor(container, qos, statistic, bound, ceiling, policy)
        for container, statistic, bound, ceiling in terms
    ]


def _apply_heap_floor(
    container: Container, qos: QosClass, statistic: Statistic, bounds: ContainerBounds, ceiling: int, policy: Policy
) -> ContainerBounds:
    """Return bounds whose least request is what the heap needs with the new limit, and at most the present request."""
    known_use = get_largest_known_usage(statistic, policy)
    floor = compute_created_heap_floor(container, known_use, qos, policy)
    bounds = bounds._replace(heap=floor)
    stated, request = container.limits.memory_bytes, container.requests.memory_bytes or 0
    if stated is not None and qos is not QosClass.GUARANTEED:
        # The least limit, whatever is requested.
        unbound = bounds._replace(ratios=(math.inf, math.inf))
        limit = compute_admission_limit(statistic, 1, stated, unbound, policy, ceiling)
        created = replace(container, limits=replace(container.limits, memory_bytes=limit))
        floor = compute_created_heap_floor(created, known_use, qos, policy)
    whole = bounds.whole_unit_bounds
    least = max(whole[2], min(floor.request_bytes, request, whole[3]))
    return bounds._replace(whole_unit_bounds=(*whole[:2], least, *whole[3:]))


@dataclass(frozen=True, slots=True)
class AdmissionLimitInputs:
    """What the limits of one pod depend on; one entry per sized container.

    `ceilings` are what memory limits may rise to, `ranges` what LimitRanges of type Pod require.
    """

    sized: Sequence[Container]
    known: Sequence[Statistic]
    ceilings: Sequence[int]
    bounds: Sequence[ContainerBounds]
    managed: Sequence[frozenset[ResourceName]]
    ranges: PodLimitRanges
    quotas: Sequence[ResourceQuota]
    nodes: NodeIndex
    policy: Policy

    def raise_requests_to_limits(self, targets: Sequence[ContainerTarget]) -> list[ContainerTarget]:
        """Return targets whose requests are large enough, where possible, for the least limits under LimitRanges.

        The first rule set lowers limits instead.
        """
        bound_resources = [one for one in ResourceName if any(self._manages(one)) and self._is_bound(one)]
        if not bound_resources or not self.policy.rules.memory_limit_safeguards:
            return list(targets)
        requests = {one: [target.requests.resources.get(one) for target in targets] for one in ResourceName}
        for resource in bound_resources:
            raised = self._raise_requests(resource, requests[resource])
            requests[resource] = self._select_managed(resource, raised, requests[resource])
        pairs = zip(targets, requests[_CPU], requests[_MEMORY], strict=True)
        return [replace(target, requests=StatedResources(cpu or None, memory or None)) for target, cpu, memory in pairs]

    def _manages(self, resource: ResourceName) -> list[bool]:
        return [resource in one for one in self.managed]

    def _select_managed(
        self, resource: ResourceName, values: Sequence[AmountT], present: Sequence[AmountT]
    ) -> list[AmountT]:
        """Return the values of containers whose resource is managed, and what the others state."""
        return [
            value if is_managed else stated
            for value, stated, is_managed in zip(values, present, self._manages(resource), strict=True)
        ]

    def _is_bound(self, resource: ResourceName) -> bool:
        at = int(resource is _MEMORY)
        return resource in self.ranges or any(bound.ratios[at] < math.inf for bound in self.bounds)

    def _raise_requests(self, resource: ResourceName, requests: Sequence[int]) -> list[int]:
        at, unit = int(resource is _MEMORY), ROUNDING_UNIT[resource]
        minimum_limits, maximums = (
            self._get_minimum_limits(resource),
            [bound.whole_unit_bounds[2 * at + 1] for bound in self.bounds],
        )
        raised = []
        for request, limit, cap, bound in zip(requests, minimum_limits, maximums, self.bounds, strict=True):
            needed = -(-math.ceil(limit / bound.ratios[at]) // unit) * unit
            needed += unit if needed * bound.ratios[at] < limit else 0
            raised.append(max(request, needed) if limit and needed <= cap else request)
        if resource not in self.ranges:
            return raised
        pod_range, present = self.ranges[resource], [one.requests.resources.get(resource) for one in self.sized]
        floors = [bound.whole_unit_bounds[2 * at] for bound in self.bounds]
        highest = pod_range.get_maximum_requests(floors, raised, raised, self._get_kept_limits(resource))
        if highest is not None:
            raised = [min(pair) for pair in zip(raised, highest, strict=True)]
            maximums = [min(pair) for pair in zip(maximums, highest, strict=True)]
        lowest = pod_range.get_minimum_requests(present, raised, maximums, minimum_limits)
        return [max(pair) for pair in zip(raised, lowest, strict=True)]

    def add_limits(self, targets: Sequence[ContainerTarget]) -> list[ContainerTarget]:
        """Return targets with the limits that belong to their requests."""
        cpu, memory = [one.limits.cpu_millicores for one in targets], [one.limits.memory_bytes for one in targets]
        if any(self._manages(_CPU)):
            cpu = self._select_managed(_CPU, self._compute_cpu_limits(targets), cpu)
        if any(self._manages(_MEMORY)):
            memory = self._select_managed(_MEMORY, self._compute_memory_limits(targets), memory)
        # Built as a whole: replacing fields one by one takes several times as long at every admission.
        return [
            ContainerTarget(target.container, target.role, target.requests, StatedResources(*limits))
            for target, *limits in zip(targets, cpu, memory, strict=True)
        ]

    def _compute_memory_limits(self, targets: Sequence[ContainerTarget]) -> list[int | None]:
        adds = self._adds_memory_limit()
        found = [
            compute_admission_limit(
                statistic,
                target.requests.resources.memory_bytes,
                target.limits.memory_bytes,
                bound,
                self.policy,
                high,
                add,
            )
            for target, statistic, high, bound, add in zip(
                targets, self.known, self.ceilings, self.bounds, adds, strict=True
            )
        ]
        found = [
            limit if target.limits.memory_bytes is None else bound.keep_direction(target.limits.memory_bytes, limit)
            for target, limit, bound in zip(targets, found, self.bounds, strict=True)
        ]
        return self._apply_pod_range(_MEMORY, targets, found)

    def _adds_memory_limit(self) -> list[bool]:
        """Return for each container whether it gets a limit if it states none: a quota may reject it otherwise."""
        is_counted = bool(self.quotas) and counts_limits_of(self.quotas, _MEMORY)
        return [
            bound.adds_memory_limit
            or (
                is_counted
                and bound.memory_limits is MemoryLimitPolicy.EXISTING
                and bound.heap.may_add_limit
                and bound.may_shrink
            )
            for bound in self.bounds
        ]

    def _compute_cpu_limits(self, targets: Sequence[ContainerTarget]) -> list[int | None]:
        is_counted = bool(self.quotas) and counts_limits_of(self.quotas, _CPU)
        is_in_pod_range = (
            _CPU in self.ranges and self.ranges[_CPU].requires_limit and self.policy.rules.memory_limit_safeguards
        )
        found: list[int | None] = []
        for target, bound, statistic in zip(targets, self.bounds, self.known, strict=True):
            limit, request = target.limits.cpu_millicores, target.requests.resources.cpu_millicores
            if bound.keeps_cpu_limit or (limit is not None and not bound.may_grow):
                found.append(limit)
            elif limit is not None and bound.cpu_limits is CpuLimitPolicy.RAISE:
                found.append(self._raise_cpu_limit(limit, statistic, request, bound))
            elif is_counted and limit is not None:
                # Without a limit the API server would reject the container; a larger one would use up the quota.
                found.append(max(request, min(limit, self._get_largest_cpu_limit(request, bound))))
            elif bound.adds_cpu_limit or (is_in_pod_range and limit is not None):
                found.append(self._get_largest_cpu_limit(request, bound))
            else:
                found.append(None)
        return self._apply_pod_range(_CPU, targets, found)

    def _raise_cpu_limit(self, limit: int, statistic: Statistic, request: int, bounds: ContainerBounds) -> int:
        """Return a limit that is raised if the peak or the request needs it."""
        columns = (limit, statistic.cpu_peak_millicores, request, self._get_largest_cpu_limit(request, bounds))
        [raised] = raise_cpu_limits(*(convert_to_int64([value]) for value in columns)).tolist()
        return int(raised)

    def _get_largest_cpu_limit(self, request: int, bounds: ContainerBounds) -> int:
        """Return the largest CPU limit that LimitRanges allow and that any node could need."""
        largest = UNBOUNDED if self.nodes.max_cpu_millicores is None else self.nodes.max_cpu_millicores
        return int(max(request, min(bounds.whole_unit_bounds[4], request * bounds.ratios[0], largest)))

    def _apply_pod_range(
        self, resource: ResourceName, targets: Sequence[ContainerTarget], limits: Sequence[int | None]
    ) -> list[int | None]:
        """Return limits whose sum complies with LimitRanges of type Pod, if possible."""
        if resource not in self.ranges or not self.policy.rules.memory_limit_safeguards:
            return list(limits)
        requests = [target.requests.resources.get(resource) for target in targets]
        at = int(resource is _MEMORY)
        found = self.ranges[resource].get_limits(
            requests,
            self._get_kept_limits(resource),
            [limit or 0 for limit in limits],
            [
                min(
                    bound.whole_unit_bounds[4 + at],
                    UNBOUNDED if math.isinf(bound.ratios[at]) else int(min(bound.ratios[at] * request, UNBOUNDED)),
                )
                for bound, request in zip(self.bounds, requests, strict=True)
            ],
        )
        return [one or None for one in found]

    def _get_kept_limits(self, resource: ResourceName) -> list[int]:
        """Return the least limits, at most the stated ones: those may stay if no larger ones are allowed."""
        stated = [one.limits.get(resource) for one in self.sized]
        return [
            least if limit is None else min(least, limit)
            for least, limit in zip(self._get_minimum_limits(resource), stated, strict=True)
        ]

    def _get_minimum_limits(self, resource: ResourceName) -> list[int]:
        """Return the least limit of each container, 0 if it gets none."""
        if resource is _MEMORY:
            terms = zip(self.sized, self.known, self.ceilings, self.bounds, self._adds_memory_limit(), strict=True)
            return [
                bound.keep_direction(
                    one.limits.memory_bytes or 0,
                    compute_min_admission_limit(statistic, one.limits.memory_bytes, bound, self.policy, high, add),
                )
                if one.limits.memory_bytes is not None
                else compute_min_admission_limit(statistic, None, bound, self.policy, high, add)
                for one, statistic, high, bound, add in terms
            ]
        found = []
        for one, statistic, bound in zip(self.sized, self.known, self.bounds, strict=True):
            stated, peak = one.limits.cpu_millicores, statistic.cpu_peak_millicores
            is_least = bound.cpu_limits is not CpuLimitPolicy.REMOVE_AT_CREATION or not bound.may_grow
            if is_least or not bound.may_shrink:
                found.append(stated or 0)
                continue
            gets_limit = bound.required_limits[0] or (_CPU in self.ranges and stated is not None)
            found.append(min(peak, peak if stated is None else stated) if gets_limit else 0)
        return found


_CORE_MILLICORES = 1000
_FIRST_BOUND = {ResourceName.CPU: 0, ResourceName.MEMORY: 2}


@dataclass(frozen=True, slots=True)
class GuaranteedAdmissionInputs:
    """What the sizes of one new pod depend on, with an entry per sized container.

    `submitted` are the requests before any mutation, `rows` those of `statistics`, `memory_ceilings` what memory may
    rise to. With `keeps_template` no size is below what the containers state.
    """

    sized: Sequence[Container]
    submitted: Sequence[StatedResources]
    rows: Sequence[int]
    bounds: Sequence[ContainerBounds]
    memory_ceilings: Sequence[int]
    managed: Sequence[frozenset[ResourceName]]
    keeps_template: bool

    def compute_targets(self, statistics: StatisticsTable, policy: Policy) -> list[ContainerTarget]:
        """Return the containers with their new requests, and equal limits."""
        use = get_guaranteed_usage(statistics, convert_to_int64(self.rows), policy)
        columns = []
        for resource in ResourceName:
            first = _FIRST_BOUND[resource]
            ceilings = self.memory_ceilings if resource is ResourceName.MEMORY else [UNBOUNDED] * len(self.sized)
            lower, upper = (
                convert_to_int64([one.whole_unit_bounds[at] for one in self.bounds]) for at in (first, first + 1)
            )
            submitted = convert_to_int64([one.resources.get(resource) for one in self.submitted])
            bounds = GuaranteedBounds(lower, upper, convert_to_int64(ceilings))
            sizes, _ = compute_guaranteed_sizes(resource, use[resource], submitted, bounds, policy)
            columns.append(self._keep_unmanaged(resource, submitted, sizes).tolist())
        amounts = [StatedResources(*pair) for pair in zip(*columns, strict=True)]
        return [
            ContainerTarget(one.name, one.role, amount, amount) for one, amount in zip(self.sized, amounts, strict=True)
        ]

    def _keep_unmanaged(self, resource: ResourceName, submitted: Int64Array, sizes: Int64Array) -> Int64Array:
        """Return the sizes where they may change, and the stated ones elsewhere.

        Whole cores stay whole: a kubelet with the static CPU manager gives such a container exclusive cores.
        """
        stated = convert_to_int64([one.requests.resources.get(resource) for one in self.sized])
        if resource is ResourceName.CPU:
            sizes = np.where(submitted % _CORE_MILLICORES, sizes, round_up_integers(sizes, _CORE_MILLICORES))
            sizes = np.where([one.keeps_cpu_limit for one in self.bounds], stated, sizes)
        else:
            sizes = np.where([one.keeps_memory_limit for one in self.bounds], stated, sizes)
        sizes = np.maximum(sizes, stated) if self.keeps_template else sizes
        return np.where([resource in one for one in self.managed], sizes, stated)
