"""The pods of a pass in columns: all about them that statistics and sizes do not change from pass to pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.pod_policy.container_bounds import ContainerBounds, compute_container_bounds
from cruise.decisions.pod_policy.eligibility import ResizablePod
from cruise.decisions.pod_policy.limit_ranges import PodLimitRanges, collect_pod_limit_ranges
from cruise.decisions.pod_policy.quotas import has_own_eviction_protection
from cruise.decisions.sizing.update_threshold import UpdateThreshold, get_update_thresholds
from cruise.domain.cluster import ContainerRole, LimitRangeItem, ResizePending
from cruise.domain.pod_resources import count_container_requests
from cruise.domain.policy import Policy
from cruise.domain.resources import UNBOUNDED, BoolArray, Float64Array, Int64Array, ResourceName, convert_to_int64

# What regular init containers demand of their pods' sums, in columns.


@dataclass(frozen=True, slots=True)
class InitContainerMinimums:
    """One row a regular init container: its pod, what it counts, and the sidecars that run beside it.

    The sidecars started before it are the sized containers [`first`, `last`) of the table, since a pod's sized
    containers begin with its sidecars. `row_of_pod` has the rows of a pod, which are contiguous.
    """

    pod: Int64Array
    container_requests: dict[ResourceName, Int64Array]
    first: Int64Array
    last: Int64Array

    def apply_to_sums(self, resource: ResourceName, values: Int64Array, sums: Int64Array) -> None:
        """Raise the sums of pods whose init containers need more beside the sidecars' `values`."""
        if not len(self.pod):
            return
        before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
        np.maximum.at(sums, self.pod, self.container_requests[resource] + before[self.last] - before[self.first])

    def get_for_pod(self, resource: ResourceName, index: int, values: Int64Array) -> int:
        """Return the floor of one pod's sum, 0 without regular init containers."""
        rows = range(*np.searchsorted(self.pod, [index, index + 1]).tolist())
        needs = [
            int(self.container_requests[resource][row] + values[self.first[row] : self.last[row]].sum()) for row in rows
        ]
        return max(needs, default=0)


def build_init_container_minimums(pods: Sequence[ResizablePod], first_container: Int64Array) -> InitContainerMinimums:
    """Put the regular init containers of `pods` into columns; `first_container` has each pod's first sized one."""
    rows: list[tuple[int, int, int, int]] = []
    for index, touchable in enumerate(pods):
        containers = touchable.pod.containers
        if len(containers) == len(touchable.sized):
            continue
        infeasible = touchable.pod.resize.pending is ResizePending.INFEASIBLE
        sidecars = 0
        for container in containers:
            if container.role is ContainerRole.SIDECAR:
                sidecars += 1
            elif container.role is ContainerRole.INIT:
                counted = count_container_requests(container, infeasible)
                rows.append((index, counted.cpu_millicores, counted.memory_bytes, sidecars))
    pod, cpu, memory, sidecars_before = (convert_to_int64([row[column] for row in rows]) for column in range(4))
    first = first_container[pod]
    return InitContainerMinimums(
        pod, {ResourceName.CPU: cpu, ResourceName.MEMORY: memory}, first, first + sidecars_before
    )


PerResource = Mapping[ResourceName, Int64Array]


@dataclass(frozen=True, slots=True)
class UserMinimums:
    """What workloads' own annotations ask beyond what they were submitted with and what administrators state.

    One entry a container: `least` is the smallest request asked for, `headroom_factor` what is asked to multiply its
    headroom, and `submitted` what its template states. One entry a pod: whether it is `asking` at all, and whether it
    `shields` itself by its ranking.
    """

    minimum: PerResource
    headroom_factor: Float64Array
    submitted: PerResource
    requested: BoolArray
    has_own_protection: BoolArray


@dataclass(frozen=True, slots=True)
class ResizablePodColumns:
    """Touchable pods in order, their sized containers contiguous.

    `first_container` has the index of each pod's first container, `pod_of` the pod of each container. One entry a
    container: `least` and `most` bound its requests, and `stated_least` is `least` without what a LimitRange asks;
    `limit_cap` and `limit_ratio` (infinite where free) bound its limits, `adds_limit` tells whether it gets a limit
    where it has none, and `keeps_memory_limit` that its memory limit stays.
    `pod_ranges` has what LimitRanges ask of the sums over a pod's containers, by the indices of the pods concerned.
    `headroom_factor` multiplies its headroom; what is a mere wish is in `wishes`, None where there is none. `manages`
    has one entry a pod; `resizing` are the indices of the pods whose last resize is still pending.
    """

    pods: Sequence[ResizablePod]
    first_container: Int64Array
    pod_of: Int64Array
    minimum: PerResource
    stated_least: PerResource
    maximum: PerResource
    limit_cap: PerResource
    limit_ratio: Mapping[ResourceName, Float64Array]
    adds_limit: Mapping[ResourceName, BoolArray]
    keeps_memory_limit: BoolArray
    pod_ranges: Mapping[int, PodLimitRanges]
    headroom_factor: Float64Array
    manages: Mapping[ResourceName, BoolArray]
    init_container_minimums: InitContainerMinimums
    update_threshold: UpdateThreshold
    resizing: Sequence[int]
    user_minimums: UserMinimums | None = None

    def sum_by_pod(self, resource: ResourceName, values: Int64Array) -> Int64Array:
        """Sum containers to pods, floored by what their regular init containers need, without overhead.

        Zero where the resource of a pod is not managed.
        """
        if not len(self.pods):
            return np.zeros(0, dtype=np.int64)
        sums: Int64Array = np.add.reduceat(values, self.first_container)
        self.init_container_minimums.apply_to_sums(resource, values, sums)
        sums[~self.manages[resource]] = 0
        return sums

    def sum_pod(self, resource: ResourceName, pod: int, values: Int64Array) -> int:
        """Return one managed pod's sum as `pod_sum` has it."""
        first = int(self.first_container[pod])
        own = int(values[first : first + len(self.pods[pod].sized)].sum())
        return max(own, self.init_container_minimums.get_for_pod(resource, pod, values))

    def max_by_pod(self, values: Int64Array) -> Int64Array:
        """Return the largest value over each pod's containers."""
        return np.maximum.reduceat(values, self.first_container) if len(self.pods) else np.zeros(0, dtype=np.int64)

    def get_max_limit(self, resource: ResourceName, requests: Int64Array) -> Int64Array:
        """Return the largest limit that the LimitRanges leave beside each request, unbounded where they say nothing."""
        ratio = self.limit_ratio[resource]
        product = np.where(np.isinf(ratio), UNBOUNDED, requests * np.minimum(ratio, UNBOUNDED))
        return np.minimum(self.limit_cap[resource], np.minimum(product, UNBOUNDED).astype(np.int64))

    def any_by_pod(self, flags: BoolArray) -> BoolArray:
        """Tell for each pod whether one of its containers is flagged."""
        return np.logical_or.reduceat(flags, self.first_container) if len(self.pods) else np.zeros(0, dtype=np.bool_)


def build_resizable_pod_columns(
    pods: Sequence[ResizablePod], limit_ranges: Mapping[str, Sequence[LimitRangeItem]], policy: Policy
) -> ResizablePodColumns:
    """Put `pods` into columns."""
    counts = np.fromiter((len(pod.rows) for pod in pods), dtype=np.int64, count=len(pods))
    first = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64) if len(pods) else np.zeros(0, np.int64)
    pod_of = np.repeat(np.arange(len(pods), dtype=np.int64), counts)
    bounds = _BoundsCache(limit_ranges, policy)
    bounded = [number for pod in pods for number in bounds.of_pod(pod)]
    whole = np.array([bound.whole_unit_bounds for bound in bounds.found], dtype=np.int64).reshape(-1, 6)[bounded]
    ratios = np.array([bound.ratios for bound in bounds.found], dtype=np.float64).reshape(-1, 2)[bounded]
    stated = np.array([bound.stated_least for bound in bounds.found], dtype=np.int64).reshape(-1, 2)[bounded]
    rules = np.array(
        [(bound.required_limits[0], bound.adds_memory_limit, bound.keeps_memory_limit) for bound in bounds.found],
        dtype=np.bool_,
    ).reshape(-1, 3)[bounded]
    factors = np.fromiter((pod.effective_policy.headroom_factor for pod in pods), dtype=np.float64, count=len(pods))
    factors = factors[pod_of]
    least = {ResourceName.CPU: whole[:, 0], ResourceName.MEMORY: whole[:, 2]}
    asking = [index for index, pod in enumerate(pods) if pod.submitted_requests]
    wishes = _take_wishes(pods, asking, first, least, factors, bounds) if asking else None
    return ResizablePodColumns(
        pods=pods,
        first_container=first,
        pod_of=pod_of,
        minimum=least,
        stated_least={one: np.minimum(stated[:, at], least[one]) for at, one in enumerate(ResourceName)},
        maximum={ResourceName.CPU: whole[:, 1], ResourceName.MEMORY: whole[:, 3]},
        limit_cap={ResourceName.CPU: whole[:, 4], ResourceName.MEMORY: whole[:, 5]},
        limit_ratio={ResourceName.CPU: ratios[:, 0], ResourceName.MEMORY: ratios[:, 1]},
        adds_limit={
            ResourceName.CPU: rules[:, 0] & policy.rules.memory_limit_safeguards,
            ResourceName.MEMORY: rules[:, 1],
        },
        keeps_memory_limit=rules[:, 2],
        pod_ranges=collect_pod_limit_ranges(pods, limit_ranges)
        if policy.rules.memory_limit_safeguards and limit_ranges
        else {},
        headroom_factor=factors,
        manages={
            ResourceName.CPU: np.fromiter((pod.manages_cpu for pod in pods), dtype=np.bool_, count=len(pods)),
            ResourceName.MEMORY: np.fromiter((pod.manages_memory for pod in pods), dtype=np.bool_, count=len(pods)),
        },
        init_container_minimums=build_init_container_minimums(pods, first),
        update_threshold=get_update_thresholds(pods, policy),
        resizing=[index for index, pod in enumerate(pods) if pod.pod.resize.pending is not None],
        user_minimums=wishes,
    )


def _take_wishes(
    pods: Sequence[ResizablePod],
    asking: Sequence[int],
    first: Int64Array,
    least: PerResource,
    factors: Float64Array,
    bounds: "_BoundsCache",
) -> UserMinimums:
    """Take out of `least` and `factors`, in place, what is no more than a wish."""
    wishes = UserMinimums(
        {resource: values.copy() for resource, values in least.items()},
        factors.copy(),
        {resource: np.zeros_like(values) for resource, values in least.items()},
        np.zeros(len(pods), dtype=np.bool_),
        np.zeros(len(pods), dtype=np.bool_),
    )
    wishes.requested[asking] = True
    for index in asking:
        pod, administered = pods[index], pods[index].effective_policy.set_by_administrator
        assert administered is not None
        # Where nothing is known of the template, nothing tells that the pod takes more than it was submitted with.
        wishes.has_own_protection[index] = (
            has_own_eviction_protection(pod.effective_policy) and None not in pod.submitted_requests
        )
        granted = bounds.of_pod(pod._replace(effective_policy=administered))
        for at, number, submitted in zip(
            range(first[index], len(factors)), granted, pod.submitted_requests, strict=False
        ):
            cpu, _, memory, *_ = bounds.found[number].whole_unit_bounds
            for resource, administrators in zip(ResourceName, (cpu, memory), strict=True):
                own = 0 if submitted is None else submitted.get(resource)
                wishes.submitted[resource][at] = own
                least[resource][at] = min(int(least[resource][at]), max(administrators, own))
            factors[at] = min(float(factors[at]), max(1.0, administered.headroom_factor))
    return wishes


class _BoundsCache:
    """Bounds of containers, worked out once for each guidance and namespace, and numbered in `found`."""

    def __init__(self, limit_ranges: Mapping[str, Sequence[LimitRangeItem]], policy: Policy) -> None:
        self._limit_ranges = limit_ranges
        self._policy = policy
        self._numbers: dict[tuple[str, int, str], int] = {}
        self.found: list[ContainerBounds] = []

    def of_pod(self, pod: ResizablePod) -> list[int]:
        """Return the number of each sized container's bounds."""
        if not pod.effective_policy.container_bounds and not pod.effective_policy.container_memory_limits:
            return [self._number(pod, "")] * len(pod.sized)
        return [self._number(pod, container.name) for container in pod.sized]

    def _number(self, pod: ResizablePod, container: str) -> int:
        # Guidance objects outlive the columns that are being made, so their ids are theirs alone meanwhile.
        key = (pod.pod.namespace, id(pod.effective_policy), container)
        number = self._numbers.get(key)
        if number is None:
            items = self._limit_ranges.get(pod.pod.namespace, ())
            number = self._numbers[key] = len(self.found)
            self.found.append(compute_container_bounds(pod.effective_policy, container, items, self._policy))
        return number
