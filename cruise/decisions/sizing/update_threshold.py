"""The dead band: how far a value has to move to be written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from cruise.decisions.pod_policy.eligibility import ResizablePod
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Container, Pod
from cruise.domain.policy import Policy
from cruise.domain.resources import BoolArray, Int64Array, ResourceName, Resources


@dataclass(frozen=True, slots=True)
class UpdateThreshold:
    """A value is written where it moves by `least` at least, and by `share` of what it is now."""

    share: float
    minimum: Resources

    def for_container(self, index: int) -> "UpdateThreshold":
        """Return the dead band of one container of the columns."""
        return self

    @overload
    def is_exceeded(self, resource: ResourceName, before: int, after: int) -> bool: ...
    @overload
    def is_exceeded(self, resource: ResourceName, before: Int64Array, after: Int64Array) -> BoolArray: ...
    def is_exceeded(
        self, resource: ResourceName, before: int | Int64Array, after: int | Int64Array
    ) -> bool | BoolArray:
        """Tell whether a value, or each of a column with an entry a container, moves far enough."""
        step: Any = abs(after - before)
        far: bool | BoolArray = (step >= self.minimum.get(resource)) & (step >= before * self.share)
        return far

    def is_any_exceeded(self, before: Resources, after: Resources) -> bool:
        """Tell whether one of the two resources moves far enough."""
        return any(self.is_exceeded(resource, before.get(resource), after.get(resource)) for resource in ResourceName)

    def is_exceeded_by(self, changes: Iterable[tuple[Container | ContainerTarget, ContainerTarget]]) -> bool:
        """Tell whether a request or a limit of some containers, before and after, moves far enough."""
        return any(
            self.is_any_exceeded(before.requests.resources, after.requests.resources)
            or self.is_any_exceeded(before.limits.resources, after.limits.resources)
            for before, after in changes
        )


def get_default_update_threshold(policy: Policy) -> UpdateThreshold:
    """Return the dead band of pods for which nothing else is stated."""
    return UpdateThreshold(policy.update_threshold_share, policy.update_threshold)


def get_update_threshold(pod: Pod, policy: Policy) -> UpdateThreshold:
    """Return the dead band of a pod."""
    return get_default_update_threshold(policy)


def get_update_thresholds(pods: Sequence[ResizablePod], policy: Policy) -> UpdateThreshold:
    """Return the dead bands of the sized containers of `pods`, to compare columns with."""
    return get_default_update_threshold(policy)
