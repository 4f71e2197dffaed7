"""The risk level: a multiple of headroom that follows how often demand exceeded the requests in effect.

Gibbs and Candès, Adaptive Conformal Inference Under Distribution Shift (2021): a level that rises by a step when demand
exceeded requests, and falls by a small part of it otherwise, is exceeded in the stated share of intervals, whatever the
demand is like and whatever lies between level and request. ADR 0007.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.records import RiskDay
from cruise.domain.resources import ResourceName

# From the usage of the last hour to three times the rises, which exceeds the peaks on every recorded trace. Below zero,
# nodes need no less, but may lack a growing share of CPU before requests increase (`damping`).
LEAST_LEVEL, MOST_LEVEL = -1.0, 3.0
# How far an interval in which every node runs short moves the level.
LEVEL_STEP = 0.2
# Share of the stated risk that is aimed at: levels fluctuate, and the stated risk must not be exceeded.
RISK_TARGET_SHARE = 0.85
# Days over which the observed risk is reported.
REPORTED_DAYS = 7
# With fewer expected short intervals the observed risk is not significant.
_FEWEST_EXPECTED = 5


@dataclass(frozen=True, slots=True)
class RequestsInEffect:
    """The requests in effect on nodes after a pass at `at` (Unix seconds).

    Per container: `rows` is the row of its samples (-1 for none), `nodes` the index of its node out of `count`, and
    `requests` what it requests.
    """

    at: int
    rows: Int64Array
    nodes: Int64Array
    count: int
    requests: Mapping[ResourceName, Int64Array]

    def flag_short_nodes(self, resource: ResourceName, samples: NDArray[np.floating]) -> BoolArray:
        """Return for each sampled node whether its demand exceeded its requests at any time of an interval.

        `samples` (rows, times) are those of the interval. A container without a sample counts on neither side.
        """
        known = np.flatnonzero(self.rows >= 0)
        used = samples[self.rows[known]]
        sampled = ~np.isnan(used).all(axis=1)
        known, used = known[sampled], np.nan_to_num(used[sampled])
        node_of_sample = self.nodes[known]
        requests = np.bincount(node_of_sample, weights=self.requests[resource][known], minlength=self.count)
        largest: Float64Array = np.zeros(self.count)
        for column in used.T:
            largest = np.maximum(largest, np.bincount(node_of_sample, weights=column, minlength=self.count))
        has_samples = np.bincount(node_of_sample, minlength=self.count) > 0
        exceeded: BoolArray = largest[has_samples] > requests[has_samples]
        return exceeded


def compute_initial_level(stated_risk: float) -> float:
    """Return the level for a cluster without history: the smaller the stated risk, the higher.

    It is 0.6 for 7 % and 1 for 1 %, which no recorded trace exceeds twice as often in its first day.
    """
    return min(max(-math.log10(stated_risk) / 2, 0.0), MOST_LEVEL)


def get_least_level(resource: ResourceName, policy: Policy) -> float:
    """Return the least level: below zero only where it changes something, which is CPU with write damping."""
    return LEAST_LEVEL if resource is ResourceName.CPU and policy.rules.write_damping else 0.0


def compute_next_level(level: float, short: BoolArray, stated_risk: float, least: float) -> float:
    """Return the level after an interval in which the flagged nodes ran short, at least `least`."""
    if not len(short):
        return level
    moved = level + LEVEL_STEP * (float(short.mean()) - RISK_TARGET_SHARE * stated_risk)
    return min(max(moved, least), MOST_LEVEL)


@dataclass(frozen=True, slots=True)
class ObservedRisk:
    """In how many intervals of nodes demand exceeded requests in the last days, and the present level of headroom."""

    stated_risk: float
    level: float
    intervals: int
    intervals_short: int

    @property
    def observed(self) -> float:
        """The share of intervals in which demand exceeded requests, 0 if nothing is known."""
        return self.intervals_short / self.intervals if self.intervals else 0.0

    @property
    def is_known(self) -> bool:
        """Whether there were enough intervals to compare with the stated risk."""
        return self.intervals * self.stated_risk >= _FEWEST_EXPECTED

    @property
    def is_within_stated_risk(self) -> bool:
        """Whether demand exceeded requests no more often than stated."""
        return self.observed <= self.stated_risk

    @property
    def is_far_below_stated_risk(self) -> bool:
        """Whether it did so less than half as often as stated: requests are larger than necessary."""
        return self.observed < self.stated_risk / 2


def summarize_observed_risk(days: Mapping[int, RiskDay], today: int, level: float, stated_risk: float) -> ObservedRisk:
    """Sum up the reported days."""
    recent = [one for day, one in days.items() if today - REPORTED_DAYS < day <= today]
    return ObservedRisk(stated_risk, level, sum(one.intervals for one in recent), sum(one.short for one in recent))
