"""What is kept of how far demand went beyond what was expected of it."""

from dataclasses import dataclass

from cruise.domain.arrays import Int64Array
from cruise.domain.resources import ResourceName


@dataclass(frozen=True, slots=True)
class DayScores:
    """How often each score was seen on one day, over all nodes: one count a bucket.

    `day` counts days since the Unix epoch; `measure` names what a score was, since scores of another kind say nothing.
    """

    resource: ResourceName
    day: int
    measure: int
    counts: Int64Array


@dataclass(frozen=True, slots=True)
class PlaceScores:
    """How often each score was seen at one place, on its first day and later: one count a bucket.

    A place is a cluster or a trace of one; `measure` is that of `DayScores`.
    """

    place: str
    resource: ResourceName
    measure: int
    first_day: Int64Array
    later: Int64Array


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a container gets of its own headroom on an average node, from 0 to 1: the node's pods share the rest."""

    cpu: float
    memory: float

    def of(self, resource: ResourceName) -> float:
        """Return one resource's share."""
        return self.cpu if resource is ResourceName.CPU else self.memory
