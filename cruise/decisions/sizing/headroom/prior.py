"""What stands in for a cluster's own scores until there are enough: those that other places have left.

Each place counts the same, however long it was seen, since the next cluster is one more place: Dunn, Wasserman and
Ramdas, Distribution-Free Prediction Sets for Two-Layer Hierarchical Models (2018).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.headroom.scores import BUCKETS, MEASURE, WANTED
from cruise.domain.arrays import Float64Array
from cruise.domain.headroom import PlaceScores
from cruise.domain.resources import ResourceName

# Peaks of less than a day miss most hours of the day, and demand passes them twice as often. Days are those of the
# calendar: the first is seldom a whole one.
FIRST_DAYS = 2


@dataclass(frozen=True, slots=True)
class Prior:
    """Shares of the buckets that sum to 1, of a place's first day and of later ones.

    `least_risk` is the smallest risk that all of the places have enough scores to speak of.
    """

    first_day: Float64Array
    later: Float64Array
    least_risk: float

    def shares(self, days_seen: int) -> Float64Array:
        """Return the shares for a cluster whose own scores are of so many days."""
        return self.first_day if days_seen <= FIRST_DAYS else self.later


def prior_of(places: Sequence[PlaceScores], resource: ResourceName) -> Prior | None:
    """Pool what places have left of a resource, each with the same weight; None where none did.

    A place that was seen for a day only is taken to go on like that.
    """
    fitting = [one for one in places if one.resource is resource and one.measure == MEASURE]
    fitting = [one for one in fitting if len(one.first_day) == len(one.later) == BUCKETS and one.first_day.sum()]
    if not fitting:
        return None
    first = [one.first_day / one.first_day.sum() for one in fitting]
    later = [one.later / one.later.sum() if one.later.sum() else one.first_day / one.first_day.sum() for one in fitting]
    fewest = min(int(one.first_day.sum()) for one in fitting)
    return Prior(np.mean(first, axis=0), np.mean(later, axis=0), WANTED / fewest)
