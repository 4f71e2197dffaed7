"""From statistics to demand: base, headroom, bounds and memory limits of every sized container, in columns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.scope import Touchable
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.overrides import Guidance
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources
from cruise.domain.usage import Float64Array, Int64Array, StatisticsTable

# A pebibyte, or a million million cores: over any machine, and thousands of such values still add up in 64 bits.
UNBOUNDED = 1 << 50
UNIT = {ResourceName.CPU: 1, ResourceName.MEMORY: MEBIBYTE}
# Far under the least share that is not zero, far over the rounding error of a product of doubles.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Demand:
    """One resource of C sized containers: what each needs, may get, and has now.

    `base` is the fit's base: the statistic, clamped to [`lower`, `upper`]; `raw_base` and `headroom` are as the
    statistic has them, the headroom already multiplied by its factor. Where the resource is not managed, base and
    headroom are zero. `current` is the request in the spec, 0 where there is none.
    """

    raw_base: Int64Array
    base: Int64Array
    headroom: Int64Array
    lower: Int64Array
    upper: Int64Array
    current: Int64Array
    managed: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DemandTable:
    """The demand of touchable pods: `pods` in order, their sized containers contiguous.

    `first_container` has the index of each pod's first container, `pod_of` the pod of each container.
    """

    pods: Sequence[Touchable]
    first_container: Int64Array
    pod_of: Int64Array
    cpu: Demand
    memory: Demand
    cpu_limit: Int64Array  # 0: none
    memory_limit: Int64Array  # 0: none
    wanted_memory_limit: Int64Array
    safe_memory_limit: Int64Array  # 1.2 x the working set now
    cpu_limit_cap: Int64Array
    memory_limit_cap: Int64Array
    cpu_limit_ratio: Float64Array  # largest limit / request, infinite where free
    memory_limit_ratio: Float64Array


def recommend(
    pods: Sequence[Touchable],
    statistics: StatisticsTable,
    limit_ranges: Mapping[str, Sequence[LimitRangeItem]],
    policy: Policy,
) -> DemandTable:
    """Put the demand of `pods` into columns."""
    counts = np.fromiter((len(pod.rows) for pod in pods), dtype=np.int64, count=len(pods))
    first = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64) if len(pods) else np.zeros(0, np.int64)
    pod_of = np.repeat(np.arange(len(pods), dtype=np.int64), counts)
    rows = np.fromiter(chain.from_iterable([pod.rows for pod in pods]), dtype=np.int64, count=int(counts.sum()))
    bounds = _Bounds(limit_ranges, policy)
    bounded = [number for pod in pods for number in bounds.of_pod(pod)]
    bound_rows = np.array([bound.whole for bound in bounds.found], dtype=np.int64).reshape(-1, 6)[bounded]
    ratios = np.array([bound.ratios for bound in bounds.found], dtype=np.float64).reshape(-1, 2)[bounded]
    stated = chain.from_iterable([pod.stated for pod in pods])
    spec = np.fromiter(stated, dtype=np.int64, count=4 * len(rows)).reshape(-1, 4)
    factor = np.fromiter((pod.guidance.headroom_factor for pod in pods), dtype=np.float64, count=len(pods))[pod_of]
    manages_cpu = np.fromiter((pod.manages_cpu for pod in pods), dtype=np.bool_, count=len(pods))[pod_of]
    manages_memory = np.fromiter((pod.manages_memory for pod in pods), dtype=np.bool_, count=len(pods))[pod_of]
    oom = capped(statistics.oom_memory_bytes[rows])
    return DemandTable(
        pods=pods,
        first_container=first,
        pod_of=pod_of,
        cpu=_demand(
            capped(statistics.cpu_base_millicores[rows]),
            capped(statistics.cpu_peak_millicores[rows]),
            factor,
            bound_rows[:, 0:2],
            spec[:, 0],
            manages_cpu,
        ),
        memory=_demand(
            capped(statistics.memory_base_bytes[rows]),
            np.maximum(capped(statistics.memory_peak_bytes[rows]), oom),
            factor,
            bound_rows[:, 2:4],
            spec[:, 1],
            manages_memory,
        ),
        cpu_limit=spec[:, 2],
        memory_limit=spec[:, 3],
        wanted_memory_limit=memory_limits(capped(statistics.memory_7d_max_bytes[rows]), oom),
        safe_memory_limit=np.ceil(capped(statistics.memory_last_bytes[rows]) * 1.2).astype(np.int64),
        cpu_limit_cap=bound_rows[:, 4],
        memory_limit_cap=bound_rows[:, 5],
        cpu_limit_ratio=ratios[:, 0],
        memory_limit_ratio=ratios[:, 1],
    )


def memory_limits(memory_7d_max: Int64Array, oom_memory: Int64Array) -> Int64Array:
    """Return 2 x the larger of the 7-day maximum and the limit at the last kill."""
    return 2 * np.maximum(memory_7d_max, oom_memory)


def whole_numbers(values: Sequence[int]) -> Int64Array:
    """Return numbers of any size as a column, those beyond ± `UNBOUNDED` brought back to it."""
    try:
        return capped(np.array(values, dtype=np.int64))
    except OverflowError:
        return np.array([max(-UNBOUNDED, min(value, UNBOUNDED)) for value in values], dtype=np.int64)


def capped(values: Int64Array) -> Int64Array:
    """Return a column with what is beyond ± `UNBOUNDED` brought back to it, so that sums cannot overflow."""
    return np.clip(values, -UNBOUNDED, UNBOUNDED)


def round_up(values: NDArray[np.float64], unit: int) -> Int64Array:
    """Round up to whole units, forgiving the rounding error of the arithmetic before."""
    return np.ceil(values / unit - _ROUNDING).astype(np.int64) * unit


def round_up_whole(values: Int64Array, unit: int) -> Int64Array:
    """Round whole numbers up to whole units, exactly."""
    return -(-values // unit) * unit


class ContainerBounds(NamedTuple):
    """What one container may get.

    `whole`: least and largest CPU request, least and largest memory request, caps on the CPU and the memory limit.
    `ratios`: largest limit / request of CPU and of memory.
    """

    whole: tuple[int, int, int, int, int, int]
    ratios: tuple[float, float]


def container_bounds(
    guidance: Guidance, container: str, items: Sequence[LimitRangeItem], floor: Resources
) -> ContainerBounds:
    """Join an override's bounds with a namespace's LimitRanges.

    A LimitRange wins over an override, since the server would refuse what breaks it; an override wins over the
    floor.
    """
    own = guidance.bounds_of(container)
    ranges = [item for item in items if not item.of_pod]
    least_cpu, most_cpu, cpu_cap = _join(
        own.minimum.cpu_millicores,
        own.maximum.cpu_millicores,
        [(item.minimum.cpu_millicores, item.maximum.cpu_millicores) for item in ranges],
        floor.cpu_millicores,
    )
    least_memory, most_memory, memory_cap = _join(
        own.minimum.memory_bytes,
        own.maximum.memory_bytes,
        [(item.minimum.memory_bytes, item.maximum.memory_bytes) for item in ranges],
        floor.memory_bytes,
    )
    return ContainerBounds(
        (least_cpu, most_cpu, least_memory, most_memory, cpu_cap, memory_cap),
        (
            min((item.max_cpu_ratio for item in ranges if item.max_cpu_ratio is not None), default=math.inf),
            min((item.max_memory_ratio for item in ranges if item.max_memory_ratio is not None), default=math.inf),
        ),
    )


def _join(
    least: int | None, most: int | None, ranges: Sequence[tuple[int | None, int | None]], floor: int
) -> tuple[int, int, int]:
    """Return the least and the largest request and the cap that the LimitRanges put on the limit."""
    cap = min((high for _, high in ranges if high is not None), default=UNBOUNDED)
    server_least = max((low or 0 for low, _ in ranges), default=0)
    highest = max(min(UNBOUNDED if most is None else most, cap), server_least)
    lowest = min(max(floor, least or 0, server_least), highest)
    return lowest, highest, cap


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
        # Guidance objects outlive the table that is being built, so their ids are theirs alone meanwhile.
        key = (pod.pod.namespace, id(pod.guidance), container)
        number = self._numbers.get(key)
        if number is None:
            items = self._limit_ranges.get(pod.pod.namespace, ())
            number = self._numbers[key] = len(self.found)
            self.found.append(container_bounds(pod.guidance, container, items, self._floor))
        return number


def _demand(
    base: Int64Array,
    peak: Int64Array,
    factor: NDArray[np.float64],
    bounds: Int64Array,
    current: Int64Array,
    managed: NDArray[np.bool_],
) -> Demand:
    headroom = np.maximum(peak - base, 0)
    scaled = capped(np.where(factor == 1.0, headroom, np.ceil(headroom * factor)).astype(np.int64))
    lower, upper = bounds[:, 0], bounds[:, 1]
    return Demand(
        raw_base=np.where(managed, base, 0),
        base=np.where(managed, np.clip(base, lower, upper), 0),
        headroom=np.where(managed, scaled, 0),
        lower=lower,
        upper=upper,
        current=current,
        managed=managed,
    )
