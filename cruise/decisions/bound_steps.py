"""Shows which rule set the bounds of a request."""

from collections.abc import Sequence
from dataclasses import dataclass

from cruise.domain.annotations import EffectivePolicy
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.policy import ResizeDirection
from cruise.domain.resources import ResourceName


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One bound of a request and its source; both None without a bound.

    Sources: `floor`, `override`, `hpa`, `limit-range`, `quota`, `memory-limit` (what the limit may rise to),
    `largest-use` (of a Guaranteed pod), `earlier-runs` (the peak of a pod that runs to completion), `heap` (what its
    process may take), `direction`, `cpu-limit` (one that stays), or `submitted` (an override that applies up to the
    submitted request).
    """

    value: int | None
    source: str | None


def build_bound_steps(
    resource: ResourceName,
    bounds: tuple[int, int],
    effective_policy: EffectivePolicy,
    container: str,
    items: Sequence[LimitRangeItem],
    submitted: int | None,
) -> tuple[BoundStep, BoundStep]:
    """Return the bounds and which rule set them; their values are those of the columns.

    `submitted` is the request that the pod was submitted with, None if it does not matter.
    """
    lower, upper = bounds
    own = effective_policy.get_for_container(container)
    override, direction = own.bounds, own.direction
    ranges = [item for item in items if not item.is_for_pod]
    lowest = [item.minimum.get(resource) for item in ranges]
    highest = [item.maximum.get(resource) for item in ranges]
    if lower in lowest:
        low = BoundStep(lower, "limit-range")
    elif lower == override.minimum.get(resource):
        low = BoundStep(lower, "override")
    elif submitted is not None and lower == submitted:
        low = BoundStep(lower, "submitted")
    elif direction is ResizeDirection.GROW:
        low = BoundStep(lower, "direction")
    else:
        low = BoundStep(lower, "floor")
    if upper >= UNBOUNDED:
        high = BoundStep(None, None)
    else:
        is_range = upper in highest or upper in lowest
        is_override = upper == override.maximum.get(resource) or direction is not ResizeDirection.SHRINK
        # Without a maximum of its own, a CPU request is bounded by a CPU limit that stays.
        is_limit = override.maximum.get(resource) is None and direction is not ResizeDirection.SHRINK
        source = "limit-range" if is_range else "cpu-limit" if is_limit else "override" if is_override else "direction"
        high = BoundStep(upper, source)
    return low, high
