"""The resizable pods of a pass in columns: what statistics and computed sizes do not change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from cruise.decisions.pod_policy.container_bounds import ContainerBounds, compute_container_bounds
from cruise.decisions.pod_policy.limit_ranges import PodLimitRanges, collect_pod_limit_ranges, select_limit_ranges
from cruise.decisions.pod_policy.quotas import has_own_eviction_protection
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.sizing.bound_columns import (
    HpaMetricGroups,
    apply_heap_floors,
    build_hpa_metric_groups,
    find_heap_floors,
)
from cruise.decisions.sizing.pod_level_containers import PodLevelContainers
from cruise.decisions.sizing.update_threshold import UpdateThreshold, get_update_threshold
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.arrays import UNBOUNDED, BoolArray, Float64Array, Int64Array, convert_to_int64
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import POD_LEVEL, ContainerRole, QosClass
from cruise.domain.pod_resources import count_container_requests
from cruise.domain.policy import CpuLimitPolicy, Policy
from cruise.domain.resources import NO_RESOURCES, ResizePending, ResourceName, Resources

PerResource = Mapping[ResourceName, Int64Array]


@dataclass(frozen=True, slots=True)
class InitContainerMinimums:
    """The requests of regular init containers, one row each: their pods, and the sidecars that run next to them.

    `container_requests` is what they and the sidecars that keep their size request, beyond all containers that do. The
    other sidecars are the sized containers [`first`, `last`) of the table: a pod's sized containers begin with its
    sidecars. The rows of a pod are contiguous.
    """

    pod: Int64Array
    container_requests: dict[ResourceName, Int64Array]
    first: Int64Array
    last: Int64Array

    def apply_to_sums(self, resource: ResourceName, values: Int64Array, sums: Int64Array) -> None:
        """Raise the sums of pods whose init containers request more, given the sidecars' `values`."""
        if not len(self.pod):
            return
        before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
        np.maximum.at(sums, self.pod, self.container_requests[resource] + before[self.last] - before[self.first])

    def get_for_pod(self, resource: ResourceName, index: int, values: Int64Array) -> int:
        """Return the least that one pod's sum counts, 0 without regular init containers."""
        rows = range(*np.searchsorted(self.pod, [index, index + 1]).tolist())
        needs = [
            int(self.container_requests[resource][row] + values[self.first[row] : self.last[row]].sum()) for row in rows
        ]
        return max(needs, default=0)


def count_kept_requests(resizable: ResizablePod) -> Resources:
    """Return what kube-scheduler counts for the containers of a pod that keep their size."""
    infeasible = resizable.pod.resize.pending is ResizePending.INFEASIBLE
    return sum((count_container_requests(one, infeasible) for one in resizable.kept_containers), NO_RESOURCES)


def build_init_container_minimums(pods: Sequence[ResizablePod], first_container: Int64Array) -> InitContainerMinimums:
    """Put the regular init containers of `pods` into columns; `first_container` is each pod's first sized one."""
    rows: list[tuple[int, int, int, int]] = []
    for index, resizable in enumerate(pods):
        containers = resizable.pod.containers
        if len(containers) == len(resizable.sized) or resizable.pod.pod_level is not None:
            continue
        infeasible = resizable.pod.resize.pending is ResizePending.INFEASIBLE
        kept_names, beyond = (
            {one.name for one in resizable.kept_containers},
            NO_RESOURCES - count_kept_requests(resizable),
        )
        sidecars = 0
        for container in containers:
            if container.name in kept_names:
                is_sidecar = container.role is ContainerRole.SIDECAR
                beyond += count_container_requests(container, infeasible) if is_sidecar else NO_RESOURCES
            elif container.role is ContainerRole.SIDECAR:
                sidecars += 1
            elif container.role is ContainerRole.INIT:
                counted = count_container_requests(container, infeasible) + beyond
                rows.append((index, counted.cpu_millicores, counted.memory_bytes, sidecars))
    pod, cpu, memory, sidecars_before = (convert_to_int64([row[column] for row in rows]) for column in range(4))
    first = first_container[pod]
    return InitContainerMinimums(
        pod, {ResourceName.CPU: cpu, ResourceName.MEMORY: memory}, first, first + sidecars_before
    )


@dataclass(frozen=True, slots=True)
class UserMinimums:
    """What workloads' own annotations request beyond their submitted requests and what administrators configured.

    Per container: `minimum` is the smallest request, `headroom_factor` the factor of its headroom, and `submitted` what
    its template states. Per pod: whether it requests a user minimum, and whether its own ranking protects it from
    eviction.
    """

    minimum: PerResource
    headroom_factor: Float64Array
    submitted: PerResource
    has_user_minimum: BoolArray
    has_own_protection: BoolArray


@dataclass(frozen=True, slots=True)
class ResizablePodColumns:
    """Resizable pods in order, their sized containers contiguous.

    `first_container` is the index of each pod's first container, `pod_of_container` the pod of each container. Per
    container: `minimum` and `maximum` bound its request (`stated_minimum`: the minimum without LimitRanges),
    `limit_cap` and `limit_ratio` (infinite if there is none) bound its limit, `adds_limit`: whether it gets a limit if
    it has none, `keeps_memory_limit` and `keeps_cpu_limit` whether its limit stays, `raises_cpu_limit` whether its CPU
    limit only rises with use, `may_grow` and `may_shrink` in which direction it may change, `heap_limit` is what its
    heap needs as its limit, 0 for nothing, `kept_heap_request` up to which request its heap keeps growth, and
    `headroom_factor` multiplies its headroom. `pod_ranges` holds LimitRanges of type Pod by pod index. `manages`,
    `guaranteed` (the QoS class) and `runs_to_completion` have an entry per pod, `manages_container` one per container;
    `resizing` are those with a pending resize. `metric_groups` are the bounds of HPAs. A pod with pod-level resources
    has one entry, `POD_LEVEL`; `pod_level` has its containers, `near_container_limit` those where one's limit is short.
    """

    pods: Sequence[ResizablePod]
    first_container: Int64Array
    pod_of_container: Int64Array
    minimum: PerResource
    stated_minimum: PerResource
    maximum: PerResource
    limit_cap: PerResource
    limit_ratio: Mapping[ResourceName, Float64Array]
    adds_limit: Mapping[ResourceName, BoolArray]
    keeps_memory_limit: BoolArray
    keeps_cpu_limit: BoolArray
    raises_cpu_limit: BoolArray
    may_grow: BoolArray
    may_shrink: BoolArray
    pod_ranges: Mapping[int, PodLimitRanges]
    headroom_factor: Float64Array
    manages: Mapping[ResourceName, BoolArray]
    manages_container: Mapping[ResourceName, BoolArray]
    init_container_minimums: InitContainerMinimums
    update_threshold: UpdateThreshold
    guaranteed: BoolArray
    runs_to_completion: BoolArray
    resizing: Sequence[int]
    heap_limit: Int64Array
    kept_heap_request: Int64Array
    user_minimums: UserMinimums | None = None
    metric_groups: Mapping[ResourceName, HpaMetricGroups] = field(default_factory=dict)
    pod_level: Mapping[int, PodLevelContainers] = field(default_factory=dict)
    near_container_limit: Sequence[int] = ()

    def sum_by_pod(self, resource: ResourceName, values: Int64Array) -> Int64Array:
        """Sum containers by pod, at least what their regular init containers request, without overhead.

        The sum is zero if the pod's resource is not managed.
        """
        if not len(self.pods):
            return np.zeros(0, dtype=np.int64)
        sums: Int64Array = np.add.reduceat(values, self.first_container)
        self.init_container_minimums.apply_to_sums(resource, values, sums)
        sums[~self.manages[resource]] = 0
        return sums

    def sum_pod(self, resource: ResourceName, pod: int, values: Int64Array) -> int:
        """Return the sum of one managed pod, as `sum_by_pod` computes it."""
        first = int(self.first_container[pod])
        own = int(values[first : first + len(self.pods[pod].sized)].sum())
        return max(own, self.init_container_minimums.get_for_pod(resource, pod, values))

    def max_by_pod(self, values: Int64Array) -> Int64Array:
        """Return the largest value among each pod's containers."""
        return np.maximum.reduceat(values, self.first_container) if len(self.pods) else np.zeros(0, dtype=np.int64)

    def get_max_limit(self, resource: ResourceName, requests: Int64Array) -> Int64Array:
        """Return the largest limit that LimitRanges allow at each request, unbounded if they allow any."""
        ratio = self.limit_ratio[resource]
        product = np.where(np.isinf(ratio), UNBOUNDED, requests * np.minimum(ratio, UNBOUNDED))
        return np.minimum(self.limit_cap[resource], np.minimum(product, UNBOUNDED).astype(np.int64))

    @property
    def adds_cpu_limit(self) -> BoolArray:
        """Return for each container whether it gets a CPU limit if it has none."""
        return self.adds_limit[ResourceName.CPU]

    def narrow_bounds(self, stated: Int64Array) -> "ResizablePodColumns":
        """Return the columns with the bounds of requests that what the containers state now leaves.

        Requests do not change if their resource is not managed, nor against the container's direction, and do not
        exceed a CPU limit that stays. `stated` has a row per container: CPU request, memory request, CPU limit, memory
        limit, 0 for none.
        """
        is_free = self.may_grow & self.may_shrink & ~self.keeps_cpu_limit
        if (is_free & np.logical_and.reduce(list(self.manages_container.values()))).all():
            return self
        minimum, least, maximum = {}, {}, {}
        for at, resource in enumerate(ResourceName):
            current, high = stated[:, at], self.maximum[resource]
            if resource is ResourceName.CPU:
                high = np.where(self.keeps_cpu_limit & (stated[:, 2] > 0), np.minimum(high, stated[:, 2]), high)
            high = np.where(self.may_grow, high, np.minimum(high, current))
            lows = [np.minimum(one[resource], high) for one in (self.minimum, self.stated_minimum)]
            lows = [np.where(self.may_shrink, low, np.maximum(low, current)) for low in lows]
            managed = self.manages_container[resource]
            minimum[resource], least[resource] = (np.where(managed, low, current) for low in lows)
            maximum[resource] = np.where(managed, np.maximum(high, lows[0]), current)
        return replace(self, minimum=minimum, stated_minimum=least, maximum=maximum)

    def any_by_pod(self, flags: BoolArray) -> BoolArray:
        """Return for each pod whether one of its containers is flagged."""
        return np.logical_or.reduceat(flags, self.first_container) if len(self.pods) else np.zeros(0, dtype=np.bool_)


def build_resizable_pod_columns(
    pods: Sequence[ResizablePod],
    limit_ranges: Mapping[str, Sequence[LimitRangeItem]],
    policy: Policy,
    pod_level: Mapping[int, PodLevelContainers] = MappingProxyType({}),
) -> ResizablePodColumns:
    """Put `pods` into columns; `pod_level` has those with pod-level resources, by index."""
    counts = np.fromiter((len(pod.rows) for pod in pods), dtype=np.int64, count=len(pods))
    first = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64) if len(pods) else np.zeros(0, np.int64)
    pod_of = np.repeat(np.arange(len(pods), dtype=np.int64), counts)
    bounds = _BoundsCache(limit_ranges, policy)
    bounds_by_container = [number for pod in pods for number in bounds.get_numbers(pod)]
    whole_unit_bounds = np.array([bound.whole_unit_bounds for bound in bounds.found], dtype=np.int64).reshape(-1, 6)[
        bounds_by_container
    ]
    ratios = np.array([bound.ratios for bound in bounds.found], dtype=np.float64).reshape(-1, 2)[bounds_by_container]
    stated = np.array([bound.stated_minimum for bound in bounds.found], dtype=np.int64).reshape(-1, 2)[
        bounds_by_container
    ]
    limit_rules = np.array(
        [
            (
                bound.adds_cpu_limit,
                bound.adds_memory_limit,
                bound.keeps_memory_limit,
                bound.keeps_cpu_limit,
                bound.cpu_limits is CpuLimitPolicy.RAISE,
                bound.may_grow,
                bound.may_shrink,
            )
            for bound in bounds.found
        ],
        dtype=np.bool_,
    ).reshape(-1, 7)[bounds_by_container]
    factors = np.array([one.headroom_factor for one in bounds.policies], dtype=np.float64)[bounds_by_container]
    for index, one in pod_level.items():
        least, at = one.get_minimum_requests(), first[index]
        for column, amount in ((0, least.cpu_millicores), (2, least.memory_bytes)):
            whole_unit_bounds[at, column] = max(whole_unit_bounds[at, column], amount)
            whole_unit_bounds[at, column + 1] = max(whole_unit_bounds[at, column + 1], amount)
            stated[at, column // 2] = max(stated[at, column // 2], amount)
    minimum = {ResourceName.CPU: whole_unit_bounds[:, 0], ResourceName.MEMORY: whole_unit_bounds[:, 2]}
    with_user_minimum = [index for index, pod in enumerate(pods) if pod.submitted_requests]
    user_minimums = (
        _extract_user_minimums(pods, with_user_minimum, first, minimum, factors, bounds) if with_user_minimum else None
    )
    maximum = {ResourceName.CPU: whole_unit_bounds[:, 1], ResourceName.MEMORY: whole_unit_bounds[:, 3]}
    heap_limit, kept_heap_request = apply_heap_floors(
        find_heap_floors(pods, pod_level, first, policy),
        (minimum[ResourceName.MEMORY], stated[:, 1]),
        maximum[ResourceName.MEMORY],
        limit_rules[:, 1],
    )
    manages = {
        ResourceName.CPU: np.fromiter((pod.manages_cpu for pod in pods), dtype=np.bool_, count=len(pods)),
        ResourceName.MEMORY: np.fromiter((pod.manages_memory for pod in pods), dtype=np.bool_, count=len(pods)),
    }
    managed_alone = _find_managed_containers(pods, first, len(pod_of))
    return ResizablePodColumns(
        pods=pods,
        first_container=first,
        pod_of_container=pod_of,
        minimum=minimum,
        stated_minimum={one: np.minimum(stated[:, at], minimum[one]) for at, one in enumerate(ResourceName)},
        maximum=maximum,
        limit_cap={ResourceName.CPU: whole_unit_bounds[:, 4], ResourceName.MEMORY: whole_unit_bounds[:, 5]},
        limit_ratio={ResourceName.CPU: ratios[:, 0], ResourceName.MEMORY: ratios[:, 1]},
        adds_limit={
            ResourceName.CPU: limit_rules[:, 0] & policy.rules.memory_limit_safeguards,
            ResourceName.MEMORY: limit_rules[:, 1],
        },
        keeps_memory_limit=limit_rules[:, 2],
        keeps_cpu_limit=limit_rules[:, 3],
        raises_cpu_limit=limit_rules[:, 4],
        may_grow=limit_rules[:, 5],
        may_shrink=limit_rules[:, 6],
        pod_ranges=collect_pod_limit_ranges(pods, limit_ranges)
        if policy.rules.memory_limit_safeguards and limit_ranges
        else {},
        headroom_factor=factors,
        manages=manages,
        manages_container={one: manages[one][pod_of] & is_managed for one, is_managed in managed_alone.items()},
        init_container_minimums=build_init_container_minimums(pods, first),
        update_threshold=get_update_threshold(policy),
        runs_to_completion=np.fromiter((pod.pod.runs_to_completion for pod in pods), dtype=np.bool_, count=len(pods)),
        guaranteed=np.fromiter((pod.pod.qos is QosClass.GUARANTEED for pod in pods), dtype=np.bool_, count=len(pods)),
        heap_limit=heap_limit,
        kept_heap_request=kept_heap_request,
        resizing=[index for index, pod in enumerate(pods) if pod.pod.resize.pending is not None],
        user_minimums=user_minimums,
        metric_groups=build_hpa_metric_groups(pods, first),
        pod_level=pod_level,
        near_container_limit=[index for index, one in pod_level.items() if one.needs_larger_limit()],
    )


def _find_managed_containers(
    pods: Sequence[ResizablePod], first: Int64Array, count: int
) -> dict[ResourceName, BoolArray]:
    """Return for each of `count` containers whether a resource is managed, if it is for its pod."""
    managed = {resource: np.ones(count, dtype=np.bool_) for resource in ResourceName}
    for index in [index for index, pod in enumerate(pods) if pod.managed_by_container]:
        for at, resources in enumerate(pods[index].managed_by_container, int(first[index])):
            for resource, is_managed in managed.items():
                is_managed[at] = resource in resources
    return managed


def _extract_user_minimums(
    pods: Sequence[ResizablePod],
    with_user_minimum: Sequence[int],
    first: Int64Array,
    minimum: PerResource,
    factors: Float64Array,
    bounds: "_BoundsCache",
) -> UserMinimums:
    """Move what is only a user minimum out of `minimum` and `factors`, in place."""
    user_minimums = UserMinimums(
        {resource: values.copy() for resource, values in minimum.items()},
        factors.copy(),
        {resource: np.zeros_like(values) for resource, values in minimum.items()},
        np.zeros(len(pods), dtype=np.bool_),
        np.zeros(len(pods), dtype=np.bool_),
    )
    user_minimums.has_user_minimum[with_user_minimum] = True
    for index in with_user_minimum:
        pod, administered = pods[index], pods[index].effective_policy.set_by_administrator
        assert administered is not None
        # If the template is unknown, nothing shows that the pod uses more than it was submitted with.
        user_minimums.has_own_protection[index] = (
            has_own_eviction_protection(pod.effective_policy) and None not in pod.submitted_requests
        )
        administered_bounds = bounds.get_numbers(pod._replace(effective_policy=administered))
        for at, number, submitted in zip(
            range(first[index], len(factors)), administered_bounds, pod.submitted_requests, strict=False
        ):
            cpu, _, memory, *_ = bounds.found[number].whole_unit_bounds
            for resource, administered_minimum in zip(ResourceName, (cpu, memory), strict=True):
                submitted_request = 0 if submitted is None else submitted.get(resource)
                user_minimums.submitted[resource][at] = submitted_request
                minimum[resource][at] = min(int(minimum[resource][at]), max(administered_minimum, submitted_request))
            factors[at] = min(float(factors[at]), max(1.0, bounds.policies[number].headroom_factor))
    return user_minimums


class _BoundsCache:
    """The bounds of containers, computed once per effective policy and namespace.

    `found` lists them by number, `policies` the policies of their containers.
    """

    def __init__(self, limit_ranges: Mapping[str, Sequence[LimitRangeItem]], policy: Policy) -> None:
        self._limit_ranges = limit_ranges
        self._policy = policy
        self._numbers: dict[tuple[str, int, str], int] = {}
        self.found: list[ContainerBounds] = []
        self.policies: list[EffectivePolicy] = []

    def get_numbers(self, pod: ResizablePod) -> list[int]:
        """Return the number of each sized container's bounds."""
        if pod.pod.pod_level is not None:
            return [self._number(pod, POD_LEVEL)]
        policy = pod.effective_policy
        if not policy.containers:
            # Most pods: looked up here, because a call for each takes as long as the lookup.
            number = self._numbers.get((pod.pod.namespace, id(policy), ""))
            return [self._number(pod, "") if number is None else number] * len(pod.sized)
        return [self._number(pod, container.name) for container in pod.sized]

    def _number(self, pod: ResizablePod, container: str) -> int:
        # Effective policies outlive the columns that are being built, so their ids are unique meanwhile.
        key = (pod.pod.namespace, id(pod.effective_policy), container)
        number = self._numbers.get(key)
        if number is None:
            items = self._limit_ranges.get(pod.pod.namespace, ())
            if container == POD_LEVEL:
                items = select_limit_ranges(pod.sized[0], items)
            number = self._numbers[key] = len(self.found)
            self.found.append(compute_container_bounds(pod.effective_policy, container, items, self._policy))
            self.policies.append(pod.effective_policy.get_for_container(container))
        return number
