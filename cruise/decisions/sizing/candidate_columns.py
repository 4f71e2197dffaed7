"""The pods of a pass in columns: all about them that statistics and sizes do not change from pass to pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.guidance.container_bounds import ContainerBounds, container_bounds
from cruise.decisions.guidance.eligibility import Touchable
from cruise.decisions.guidance.own_room import shields_itself
from cruise.decisions.guidance.pod_ranges import PodRanges, pod_ranges_of
from cruise.decisions.sizing.dead_band import DeadBand, dead_bands_of
from cruise.decisions.sizing.init_floors import InitFloors, init_floors
from cruise.domain.arrays import UNBOUNDED, BoolArray, Float64Array, Int64Array
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName

PerResource = Mapping[ResourceName, Int64Array]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What workloads' own annotations ask beyond what they were submitted with and what administrators state.

    One entry a container: `least` is the smallest request asked for, `headroom_factor` what is asked to multiply its
    headroom, and `submitted` what its template states. One entry a pod: whether it is `asking` at all, and whether it
    `shields` itself by its ranking.
    """

    least: PerResource
    headroom_factor: Float64Array
    submitted: PerResource
    asking: BoolArray
    shields: BoolArray


@dataclass(frozen=True, slots=True)
class CandidateColumns:
    """Touchable pods in order, their sized containers contiguous.

    `first_container` has the index of each pod's first container, `pod_of` the pod of each container. One entry a
    container: `least` and `most` bound its requests, and `stated_least` is `least` without what a LimitRange asks;
    `limit_cap` and `limit_ratio` (infinite where free) bound its limits, `adds_limit` tells whether it gets a limit
    where it has none, and `keeps_memory_limit` that its memory limit stays.
    `pod_ranges` has what LimitRanges ask of the sums over a pod's containers, by the indices of the pods concerned.
    `headroom_factor` multiplies its headroom; what is a mere wish is in `wishes`, None where there is none. `manages`
    has one entry a pod; `resizing` are the indices of the pods whose last resize is still pending.
    """

    pods: Sequence[Touchable]
    first_container: Int64Array
    pod_of: Int64Array
    least: PerResource
    stated_least: PerResource
    most: PerResource
    limit_cap: PerResource
    limit_ratio: Mapping[ResourceName, Float64Array]
    adds_limit: Mapping[ResourceName, BoolArray]
    keeps_memory_limit: BoolArray
    pod_ranges: Mapping[int, PodRanges]
    headroom_factor: Float64Array
    manages: Mapping[ResourceName, BoolArray]
    floors: InitFloors
    dead_band: DeadBand
    resizing: Sequence[int]
    wishes: Wishes | None = None

    def pod_sum(self, resource: ResourceName, values: Int64Array) -> Int64Array:
        """Sum containers to pods, floored by what their regular init containers need, without overhead.

        Zero where the resource of a pod is not managed.
        """
        if not len(self.pods):
            return np.zeros(0, dtype=np.int64)
        sums: Int64Array = np.add.reduceat(values, self.first_container)
        self.floors.raise_sums(resource, values, sums)
        sums[~self.manages[resource]] = 0
        return sums

    def sum_of(self, resource: ResourceName, pod: int, values: Int64Array) -> int:
        """Return one managed pod's sum as `pod_sum` has it."""
        first = int(self.first_container[pod])
        own = int(values[first : first + len(self.pods[pod].sized)].sum())
        return max(own, self.floors.of_pod(resource, pod, values))

    def pod_maximum(self, values: Int64Array) -> Int64Array:
        """Return the largest value over each pod's containers."""
        return np.maximum.reduceat(values, self.first_container) if len(self.pods) else np.zeros(0, dtype=np.int64)

    def most_limit(self, resource: ResourceName, requests: Int64Array) -> Int64Array:
        """Return the largest limit that the LimitRanges leave beside each request, unbounded where they say nothing."""
        ratio = self.limit_ratio[resource]
        product = np.where(np.isinf(ratio), UNBOUNDED, requests * np.minimum(ratio, UNBOUNDED))
        return np.minimum(self.limit_cap[resource], np.minimum(product, UNBOUNDED).astype(np.int64))

    def any_of_pod(self, flags: BoolArray) -> BoolArray:
        """Tell for each pod whether one of its containers is flagged."""
        return np.logical_or.reduceat(flags, self.first_container) if len(self.pods) else np.zeros(0, dtype=np.bool_)


def candidate_columns(
    pods: Sequence[Touchable], limit_ranges: Mapping[str, Sequence[LimitRangeItem]], policy: Policy
) -> CandidateColumns:
    """Put `pods` into columns."""
    counts = np.fromiter((len(pod.rows) for pod in pods), dtype=np.int64, count=len(pods))
    first = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64) if len(pods) else np.zeros(0, np.int64)
    pod_of = np.repeat(np.arange(len(pods), dtype=np.int64), counts)
    bounds = _Bounds(limit_ranges, policy)
    bounded = [number for pod in pods for number in bounds.of_pod(pod)]
    whole = np.array([bound.whole for bound in bounds.found], dtype=np.int64).reshape(-1, 6)[bounded]
    ratios = np.array([bound.ratios for bound in bounds.found], dtype=np.float64).reshape(-1, 2)[bounded]
    stated = np.array([bound.stated_least for bound in bounds.found], dtype=np.int64).reshape(-1, 2)[bounded]
    rules = np.array(
        [(bound.demanded[0], bound.adds_memory_limit, bound.keeps_memory_limit) for bound in bounds.found],
        dtype=np.bool_,
    ).reshape(-1, 3)[bounded]
    factors = np.fromiter((pod.guidance.headroom_factor for pod in pods), dtype=np.float64, count=len(pods))
    factors = factors[pod_of]
    least = {ResourceName.CPU: whole[:, 0], ResourceName.MEMORY: whole[:, 2]}
    asking = [index for index, pod in enumerate(pods) if pod.submitted]
    wishes = _take_wishes(pods, asking, first, least, factors, bounds) if asking else None
    return CandidateColumns(
        pods=pods,
        first_container=first,
        pod_of=pod_of,
        least=least,
        stated_least={one: np.minimum(stated[:, at], least[one]) for at, one in enumerate(ResourceName)},
        most={ResourceName.CPU: whole[:, 1], ResourceName.MEMORY: whole[:, 3]},
        limit_cap={ResourceName.CPU: whole[:, 4], ResourceName.MEMORY: whole[:, 5]},
        limit_ratio={ResourceName.CPU: ratios[:, 0], ResourceName.MEMORY: ratios[:, 1]},
        adds_limit={ResourceName.CPU: rules[:, 0] & policy.rules.careful_limits, ResourceName.MEMORY: rules[:, 1]},
        keeps_memory_limit=rules[:, 2],
        pod_ranges=pod_ranges_of(pods, limit_ranges) if policy.rules.careful_limits and limit_ranges else {},
        headroom_factor=factors,
        manages={
            ResourceName.CPU: np.fromiter((pod.manages_cpu for pod in pods), dtype=np.bool_, count=len(pods)),
            ResourceName.MEMORY: np.fromiter((pod.manages_memory for pod in pods), dtype=np.bool_, count=len(pods)),
        },
        floors=init_floors(pods, first),
        dead_band=dead_bands_of(pods, policy),
        resizing=[index for index, pod in enumerate(pods) if pod.pod.resize.pending is not None],
        wishes=wishes,
    )


def _take_wishes(
    pods: Sequence[Touchable],
    asking: Sequence[int],
    first: Int64Array,
    least: PerResource,
    factors: Float64Array,
    bounds: "_Bounds",
) -> Wishes:
    """Take out of `least` and `factors`, in place, what is no more than a wish."""
    wishes = Wishes(
        {resource: values.copy() for resource, values in least.items()},
        factors.copy(),
        {resource: np.zeros_like(values) for resource, values in least.items()},
        np.zeros(len(pods), dtype=np.bool_),
        np.zeros(len(pods), dtype=np.bool_),
    )
    wishes.asking[asking] = True
    for index in asking:
        pod, administered = pods[index], pods[index].guidance.administered
        assert administered is not None
        # Where nothing is known of the template, nothing tells that the pod takes more than it was submitted with.
        wishes.shields[index] = shields_itself(pod.guidance) and None not in pod.submitted
        granted = bounds.of_pod(pod._replace(guidance=administered))
        for at, number, submitted in zip(range(first[index], len(factors)), granted, pod.submitted, strict=False):
            cpu, _, memory, *_ = bounds.found[number].whole
            for resource, administrators in zip(ResourceName, (cpu, memory), strict=True):
                own = 0 if submitted is None else submitted.of(resource)
                wishes.submitted[resource][at] = own
                least[resource][at] = min(int(least[resource][at]), max(administrators, own))
            factors[at] = min(float(factors[at]), max(1.0, administered.headroom_factor))
    return wishes


class _Bounds:
    """Bounds of containers, worked out once for each guidance and namespace, and numbered in `found`."""

    def __init__(self, limit_ranges: Mapping[str, Sequence[LimitRangeItem]], policy: Policy) -> None:
        self._limit_ranges = limit_ranges
        self._policy = policy
        self._numbers: dict[tuple[str, int, str], int] = {}
        self.found: list[ContainerBounds] = []

    def of_pod(self, pod: Touchable) -> list[int]:
        """Return the number of each sized container's bounds."""
        if not pod.guidance.container_bounds and not pod.guidance.container_memory_limits:
            return [self._number(pod, "")] * len(pod.sized)
        return [self._number(pod, container.name) for container in pod.sized]

    def _number(self, pod: Touchable, container: str) -> int:
        # Guidance objects outlive the columns that are being made, so their ids are theirs alone meanwhile.
        key = (pod.pod.namespace, id(pod.guidance), container)
        number = self._numbers.get(key)
        if number is None:
            items = self._limit_ranges.get(pod.pod.namespace, ())
            number = self._numbers[key] = len(self.found)
            self.found.append(container_bounds(pod.guidance, container, items, self._policy))
        return number
