"""What VerticalPodAutoscalers state for containers."""

from dataclasses import dataclass

from cruise.domain.resources import NO_AMOUNTS, Amounts, ResourceName


@dataclass(frozen=True, slots=True)
class ContainerRule:
    """What a VerticalPodAutoscaler states for one container, or for all others where `container` is empty.

    `controlled` is None where nothing is stated, `off` where the container is to be left as it is.
    """

    container: str = ""
    off: bool = False
    controlled: frozenset[ResourceName] | None = None
    minimum: Amounts = NO_AMOUNTS
    maximum: Amounts = NO_AMOUNTS
