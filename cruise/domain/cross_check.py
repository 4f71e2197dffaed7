"""What kubelets say themselves of containers whose use is read from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cruise.domain.arrays import Float64Array
from cruise.domain.usage import ContainerKey


@dataclass(frozen=True, slots=True)
class NodeTold:
    """What a kubelet told of its containers at a time, in Unix seconds; one entry a container and id of the runtime.

    NaN where it did not tell.
    """

    node: str
    at: float
    keys: Sequence[ContainerKey]
    series: Sequence[str]
    cpu_seconds: Float64Array
    memory_bytes: Float64Array


class Disagreement(NamedTuple):
    """A figure of a container that its kubelet contradicts: seconds counted, or bytes."""

    node: str
    resource: str
    shown: float
    told: float


@dataclass(slots=True)
class CrossCheck:
    """How many nodes were asked and could not be read, which containers were compared, and which figures differ."""

    nodes: int = 0
    unread: int = 0
    compared: set[ContainerKey] = field(default_factory=set)
    disagreements: dict[ContainerKey, Disagreement] = field(default_factory=dict)
    why_unread: str = ""


@dataclass(frozen=True, slots=True)
class CrossTally:
    """Comparisons of a process so far: nodes asked, those of them that could not be read, and containers compared."""

    nodes: int = 0
    unread: int = 0
    agreeing: int = 0
    disagreeing: int = 0

    def plus(self, found: CrossCheck) -> "CrossTally":
        """Return it with one pass more."""
        disagreeing = len(found.disagreements)
        return CrossTally(
            self.nodes + found.nodes,
            self.unread + found.unread,
            self.agreeing + len(found.compared) - disagreeing,
            self.disagreeing + disagreeing,
        )
