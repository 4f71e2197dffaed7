"""The pods of a pass in columns: all about them that statistics and sizes do not change from pass to pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.guidance.container_bounds import ContainerBounds, container_bounds
from cruise.decisions.guidance.eligibility import Touchable
from cruise.decisions.sizing.init_floors import InitFloors, init_floors
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName

PerResource = Mapping[ResourceName, Int64Array]


@dataclass(frozen=True, slots=True)
class Roster:
    """Touchable pods in order, their sized containers contiguous.

    `first_container` has the index of each pod's first container, `pod_of` the pod of each container. One entry a
    container: `least` and `most` bound its requests, `limit_cap` and `limit_ratio` (infinite where free) its limits,
    `headroom_factor` multiplies its headroom. `manages` has one entry a pod.
    """

    pods: Sequence[Touchable]
    first_container: Int64Array
    pod_of: Int64Array
    least: PerResource
    most: PerResource
    limit_cap: PerResource
    limit_ratio: Mapping[ResourceName, Float64Array]
    headroom_factor: Float64Array
    manages: Mapping[ResourceName, BoolArray]
    floors: InitFloors


def call_roster(
    pods: Sequence[Touchable], limit_ranges: Mapping[str, Sequence[LimitRangeItem]], policy: Policy
) -> Roster:
    """Put `pods` into columns."""
    counts = np.fromiter((len(pod.rows) for pod in pods), dtype=np.int64, count=len(pods))
    first = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64) if len(pods) else np.zeros(0, np.int64)
    pod_of = np.repeat(np.arange(len(pods), dtype=np.int64), counts)
    bounds = _Bounds(limit_ranges, policy)
    bounded = [number for pod in pods for number in bounds.of_pod(pod)]
    whole = np.array([bound.whole for bound in bounds.found], dtype=np.int64).reshape(-1, 6)[bounded]
    ratios = np.array([bound.ratios for bound in bounds.found], dtype=np.float64).reshape(-1, 2)[bounded]
    factors = np.fromiter((pod.guidance.headroom_factor for pod in pods), dtype=np.float64, count=len(pods))
    return Roster(
        pods=pods,
        first_container=first,
        pod_of=pod_of,
        least={ResourceName.CPU: whole[:, 0], ResourceName.MEMORY: whole[:, 2]},
        most={ResourceName.CPU: whole[:, 1], ResourceName.MEMORY: whole[:, 3]},
        limit_cap={ResourceName.CPU: whole[:, 4], ResourceName.MEMORY: whole[:, 5]},
        limit_ratio={ResourceName.CPU: ratios[:, 0], ResourceName.MEMORY: ratios[:, 1]},
        headroom_factor=factors[pod_of],
        manages={
            ResourceName.CPU: np.fromiter((pod.manages_cpu for pod in pods), dtype=np.bool_, count=len(pods)),
            ResourceName.MEMORY: np.fromiter((pod.manages_memory for pod in pods), dtype=np.bool_, count=len(pods)),
        },
        floors=init_floors(pods, first),
    )


class _Bounds:
    """Bounds of containers, worked out once for each guidance and namespace, and numbered in `found`."""

    def __init__(self, limit_ranges: Mapping[str, Sequence[LimitRangeItem]], policy: Policy) -> None:
        self._limit_ranges = limit_ranges
        self._floor = policy.floor
        self._numbers: dict[tuple[str, int, str], int] = {}
        self.found: list[ContainerBounds] = []

    def of_pod(self, pod: Touchable) -> list[int]:
        """Return the number of each sized container's bounds."""
        if not pod.guidance.container_bounds:
            return [self._number(pod, "")] * len(pod.sized)
        return [self._number(pod, container.name) for container in pod.sized]

    def _number(self, pod: Touchable, container: str) -> int:
        # Guidance objects outlive the roster that is being called, so their ids are theirs alone meanwhile.
        key = (pod.pod.namespace, id(pod.guidance), container)
        number = self._numbers.get(key)
        if number is None:
            items = self._limit_ranges.get(pod.pod.namespace, ())
            number = self._numbers[key] = len(self.found)
            self.found.append(container_bounds(pod.guidance, container, items, self._floor))
        return number
