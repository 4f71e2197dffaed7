"""What one container may get: overrides, LimitRanges and the floor joined."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from cruise.domain.annotations import Guidance
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.policy import Bounds, MemoryLimits, Policy
from cruise.domain.resources import ResourceName, Resources

_NO_RATIOS = (math.inf, math.inf)


class ContainerBounds(NamedTuple):
    """What one container may get.

    `whole`: least and largest CPU request, least and largest memory request, caps on the CPU and the memory limit.
    `ratios`: largest limit / request of CPU and of memory. `demanded`: whether a LimitRange asks for a CPU and for a
    memory limit. `memory_limits`: which memory limits may be changed. `stated_least`: the least CPU and memory request
    by overrides and the floor alone.
    """

    whole: tuple[int, int, int, int, int, int]
    ratios: tuple[float, float]
    demanded: tuple[bool, bool] = (False, False)
    memory_limits: MemoryLimits = MemoryLimits.ALWAYS
    stated_least: tuple[int, int] = (0, 0)

    @property
    def adds_memory_limit(self) -> bool:
        """Tell whether a container without a memory limit gets one."""
        demanded = self.demanded[1] and self.memory_limits is MemoryLimits.EXISTING
        return self.memory_limits is MemoryLimits.ALWAYS or demanded

    @property
    def keeps_memory_limit(self) -> bool:
        """Tell whether a memory limit stays as it is."""
        return self.memory_limits is MemoryLimits.NEVER


def container_bounds(
    guidance: Guidance, container: str, items: Sequence[LimitRangeItem], policy: Policy
) -> ContainerBounds:
    """Join an override's bounds with a namespace's LimitRanges.

    A LimitRange wins over an override, since the server would refuse what breaks it; an override wins over the
    floor.
    """
    own, floor = guidance.bounds_of(container), policy.floor
    # The first design gives every container a memory limit.
    stated = (guidance.which_memory_limits(container) or policy.memory_limits) if policy.rules.careful_limits else None
    memory_limits = stated or MemoryLimits.ALWAYS
    if not items:
        return _bounds_alone(own, floor, memory_limits)
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
        (demands_limit(ranges, ResourceName.CPU), demands_limit(ranges, ResourceName.MEMORY)),
        memory_limits,
        (
            min(max(floor.cpu_millicores, own.minimum.cpu_millicores or 0), most_cpu),
            min(max(floor.memory_bytes, own.minimum.memory_bytes or 0), most_memory),
        ),
    )


def demands_limit(items: Sequence[LimitRangeItem], resource: ResourceName) -> bool:
    """Tell whether every container must state a limit.

    A largest limit or a ratio makes the API server refuse a container without one. A default is put on a container
    without a limit at every write, after a webhook as well, and may be under the new request, or under known use.
    """
    return any(
        not item.of_pod
        and (
            item.maximum.of(resource) is not None
            or item.max_ratio(resource) is not None
            or item.default_limits.of(resource) is not None
        )
        for item in items
    )


def _bounds_alone(own: Bounds, floor: Resources, memory_limits: MemoryLimits) -> ContainerBounds:
    """Return what an override's bounds come to where no LimitRange is, as mostly at admission."""
    least, most = own.minimum, own.maximum
    most_cpu = UNBOUNDED if most.cpu_millicores is None else min(most.cpu_millicores, UNBOUNDED)
    most_memory = UNBOUNDED if most.memory_bytes is None else min(most.memory_bytes, UNBOUNDED)
    least_cpu = min(max(floor.cpu_millicores, least.cpu_millicores or 0), most_cpu)
    least_memory = min(max(floor.memory_bytes, least.memory_bytes or 0), most_memory)
    whole = (least_cpu, most_cpu, least_memory, most_memory, UNBOUNDED, UNBOUNDED)
    return ContainerBounds(whole, _NO_RATIOS, memory_limits=memory_limits, stated_least=(least_cpu, least_memory))


def _join(
    least: int | None, most: int | None, ranges: Sequence[tuple[int | None, int | None]], floor: int
) -> tuple[int, int, int]:
    """Return the least and the largest request and the cap that the LimitRanges put on the limit."""
    cap = min((high for _, high in ranges if high is not None), default=UNBOUNDED)
    server_least = max((low or 0 for low, _ in ranges), default=0)
    highest = max(min(UNBOUNDED if most is None else most, cap), server_least)
    lowest = min(max(floor, least or 0, server_least), highest)
    return lowest, highest, cap
