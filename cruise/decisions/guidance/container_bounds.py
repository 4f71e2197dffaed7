"""What one container may get: overrides, LimitRanges and the floor joined."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from cruise.domain.annotations import Guidance
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.resources import Resources


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
    if not ranges:
        highest = UNBOUNDED if most is None else max(min(most, UNBOUNDED), 0)
        return min(max(floor, least or 0), highest), highest, UNBOUNDED
    cap = min((high for _, high in ranges if high is not None), default=UNBOUNDED)
    server_least = max((low or 0 for low, _ in ranges), default=0)
    highest = max(min(UNBOUNDED if most is None else most, cap), server_least)
    lowest = min(max(floor, least or 0, server_least), highest)
    return lowest, highest, cap
