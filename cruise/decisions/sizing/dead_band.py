"""The dead band: how far a value has to move to be written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from cruise.decisions.guidance.eligibility import Touchable
from cruise.domain.actions import ContainerTarget
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Container, Pod
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName, Resources


@dataclass(frozen=True, slots=True)
class DeadBand:
    """A value is written where it moves by `least` at least, and by `share` of what it is now."""

    share: float
    least: Resources

    def of_container(self, index: int) -> "DeadBand":
        """Return the dead band of one container of the columns."""
        return self

    @overload
    def leaves(self, resource: ResourceName, before: int, after: int) -> bool: ...
    @overload
    def leaves(self, resource: ResourceName, before: Int64Array, after: Int64Array) -> BoolArray: ...
    def leaves(self, resource: ResourceName, before: int | Int64Array, after: int | Int64Array) -> bool | BoolArray:
        """Tell whether a value, or each of a column with an entry a container, moves far enough."""
        step: Any = abs(after - before)
        far: bool | BoolArray = (step >= self.least.of(resource)) & (step >= before * self.share)
        return far

    def leaves_any(self, before: Resources, after: Resources) -> bool:
        """Tell whether one of the two resources moves far enough."""
        return any(self.leaves(resource, before.of(resource), after.of(resource)) for resource in ResourceName)

    def is_left(self, changes: Iterable[tuple[Container | ContainerTarget, ContainerTarget]]) -> bool:
        """Tell whether a request or a limit of some containers, before and after, moves far enough."""
        return any(
            self.leaves_any(before.requests.resources, after.requests.resources)
            or self.leaves_any(before.limits.resources, after.limits.resources)
            for before, after in changes
        )


def default_dead_band(policy: Policy) -> DeadBand:
    """Return the dead band of pods for which nothing else is stated."""
    return DeadBand(policy.dead_band_share, policy.dead_band)


def dead_band_of(pod: Pod, policy: Policy) -> DeadBand:
    """Return the dead band of a pod."""
    return default_dead_band(policy)


def dead_bands_of(pods: Sequence[Touchable], policy: Policy) -> DeadBand:
    """Return the dead bands of the sized containers of `pods`, to compare columns with."""
    return default_dead_band(policy)
