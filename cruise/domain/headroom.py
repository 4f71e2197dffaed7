"""What is kept of how stated risks were kept, and of how headroom is shared."""

from dataclasses import dataclass

from cruise.domain.resources import ResourceName


@dataclass(frozen=True, slots=True)
class RiskDay:
    """How often demand passed the requests in force on one day, over all nodes.

    `day` counts days since the Unix epoch. Of `intervals` (one for each node and pass) `short` were passed; `level` is
    the level of headroom at the end of the day.
    """

    resource: ResourceName
    day: int
    intervals: int
    short: int
    level: float


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a container gets of its own headroom on an average node, from 0 to 1: the node's pods share the rest."""

    cpu: float
    memory: float

    def of(self, resource: ResourceName) -> float:
        """Return one resource's share."""
        return self.cpu if resource is ResourceName.CPU else self.memory
