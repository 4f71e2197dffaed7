"""How a stated risk is spent and kept: the level of headroom follows what became of the requests in force.

Gibbs and Candès, Adaptive conformal inference under distribution shift (2021): a level that moves up by a step where
demand passed what was kept, and down by a small part of it where it did not, is passed in the stated share of
intervals, whatever the demand is like and whatever else stands between level and request.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.domain.records import RiskDay
from cruise.domain.resources import BoolArray, Float64Array, Int64Array, ResourceName

# From what was used in the last hour to three times the rises, which is above the peaks on every recording.
LEAST_LEVEL, MOST_LEVEL = 0.0, 3.0
# How far one interval in which every node runs short moves the level.
LEVEL_STEP = 0.2
# The share of what was asked that is aimed at: what was asked is not to be passed, and levels move to and fro.
RISK_TARGET_SHARE = 0.85
# How many days count for what is reported.
REPORTED_DAYS = 7
# Where fewer short intervals are expected nothing can be said.
_FEWEST_EXPECTED = 5


@dataclass(frozen=True, slots=True)
class RequestsInForce:
    """The requests in force on nodes after a pass at `at`, in Unix seconds.

    `rows` tells where the containers' samples will stand, -1 for one that has none, `nodes` where each container is,
    of `count` nodes, and `requests` what it requests.
    """

    at: int
    rows: Int64Array
    nodes: Int64Array
    count: int
    requests: Mapping[ResourceName, Int64Array]

    def flag_short_nodes(self, resource: ResourceName, samples: NDArray[np.floating]) -> BoolArray:
        """Return for each node that was sampled whether its demand passed its requests at any time of an interval.

        `samples` (rows, times) are those of the interval. A container without a sample counts on neither side: nobody
        knows what it used.
        """
        known = np.flatnonzero(self.rows >= 0)
        used = samples[self.rows[known]]
        sampled = ~np.isnan(used).all(axis=1)
        known, used = known[sampled], np.nan_to_num(used[sampled])
        at = self.nodes[known]
        requests = np.bincount(at, weights=self.requests[resource][known], minlength=self.count)
        largest: Float64Array = np.zeros(self.count)
        for column in used.T:
            largest = np.maximum(largest, np.bincount(at, weights=column, minlength=self.count))
        there = np.bincount(at, minlength=self.count) > 0
        passed: BoolArray = largest[there] > requests[there]
        return passed


def compute_initial_level(asked: float) -> float:
    """Return the level before anything is known of a cluster: the rarer what is asked, the higher.

    That is 0.6 for 7 in 100 and 1 for 1 in 100, which no recording passes twice as often in its first day.
    """
    return min(max(-math.log10(asked) / 2, LEAST_LEVEL), MOST_LEVEL)


def compute_next_level(level: float, short: BoolArray, asked: float) -> float:
    """Return the level after an interval in which some nodes were `short`, for the share `asked`."""
    if not len(short):
        return level
    moved = level + LEVEL_STEP * (float(short.mean()) - RISK_TARGET_SHARE * asked)
    return min(max(moved, LEAST_LEVEL), MOST_LEVEL)


@dataclass(frozen=True, slots=True)
class ObservedRisk:
    """How a risk `asked` for was kept in the last days: demand passed requests in `short` of `intervals` of nodes.

    `level` is the level of headroom that holds now.
    """

    stated_risk: float
    level: float
    intervals: int
    intervals_short: int

    @property
    def observed(self) -> float:
        """The share of intervals in which demand passed requests, 0 where nothing is known."""
        return self.intervals_short / self.intervals if self.intervals else 0.0

    @property
    def is_known(self) -> bool:
        """Whether there were intervals enough to say how it was kept."""
        return self.intervals * self.stated_risk >= _FEWEST_EXPECTED

    @property
    def is_within_stated_risk(self) -> bool:
        """Whether demand passed requests no more often than asked."""
        return self.observed <= self.stated_risk

    @property
    def is_far_below_stated_risk(self) -> bool:
        """Whether it did so less than half as often as asked: requests are larger than they would have to be."""
        return self.observed < self.stated_risk / 2


def summarize_observed_risk(days: Mapping[int, RiskDay], today: int, level: float, asked: float) -> ObservedRisk:
    """Sum up the days that are reported."""
    recent = [one for day, one in days.items() if today - REPORTED_DAYS < day <= today]
    return ObservedRisk(asked, level, sum(one.intervals for one in recent), sum(one.short for one in recent))
