"""The update threshold: how far a request or limit must move to be written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from cruise.decisions.pod_policy.eligibility import ResizablePod
from cruise.domain.actions import ContainerTarget
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Container, Pod
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName, Resources


@dataclass(frozen=True, slots=True)
class UpdateThreshold:
    """A value is written if it moves by at least `minimum`, and by at least `share` of its present value."""

    share: float
    minimum: Resources

    def for_container(self, index: int) -> "UpdateThreshold":
        """Return the update threshold of one container of the columns."""
        return self

        """Return whether a value, or each value of a column of containers, moves far enough."""

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


def get_default_update_threshold(policy: Policy) -> UpdateThreshold:
    """Return the update threshold of pods for which no other is configured."""
    return UpdateThreshold(policy.update_threshold_share, policy.update_threshold)


def get_update_threshold(pod: Pod, policy: Policy) -> UpdateThreshold:
    """Return the update threshold of a pod."""
    return get_default_update_threshold(policy)


def get_update_thresholds(pods: Sequence[ResizablePod], policy: Policy) -> UpdateThreshold:
    """Return the update thresholds of the sized containers of `pods`, for comparing columns."""
    return get_default_update_threshold(policy)
