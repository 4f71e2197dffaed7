"""The update threshold: how far a request or limit must move to be written."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, overload

from cruise.domain.actions import ContainerTarget
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Container
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName, Resources


@dataclass(frozen=True, slots=True)
class UpdateThreshold:
    """A value is written if it moves by at least `minimum`, and by at least `share` of its present value."""

    share: float
    minimum: Resources

    @overload
    def is_exceeded(self, resource: ResourceName, before: int, after: int) -> bool: ...
    @overload
    def is_exceeded(self, resource: ResourceName, before: Int64Array, after: Int64Array) -> BoolArray: ...
    def is_exceeded(
        self, resource: ResourceName, before: int | Int64Array, after: int | Int64Array
    ) -> bool | BoolArray:
        """Return whether a value, or each value of a column of containers, moves far enough."""
        change: Any = abs(after - before)
        exceeded: bool | BoolArray = (change >= self.minimum.get(resource)) & (change >= before * self.share)
        return exceeded

    def is_any_exceeded(self, before: Resources, after: Resources) -> bool:
        """Return whether either resource moves far enough."""
        return any(self.is_exceeded(resource, before.get(resource), after.get(resource)) for resource in ResourceName)

    def is_exceeded_by(self, changes: Iterable[tuple[Container | ContainerTarget, ContainerTarget]]) -> bool:
        """Return whether any request or limit of the (before, after) pairs moves far enough."""
        return any(
            self.is_any_exceeded(before.requests.resources, after.requests.resources)
            or self.is_any_exceeded(before.limits.resources, after.limits.resources)
            for before, after in changes
        )


def get_update_threshold(policy: Policy) -> UpdateThreshold:
    """Return the configured update threshold."""
    return UpdateThreshold(policy.update_threshold_share, policy.update_threshold)
