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
