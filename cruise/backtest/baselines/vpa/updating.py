"""Which pods the Vertical Pod Autoscaler's updater touches, and how many of a group at once.

Source: kubernetes/autoscaler, tag vertical-pod-autoscaler/v1.8.1, pkg/updater: priority/priority_processor.go,
priority/update_priority_calculator.go, restriction/pods_restriction_factory.go. The rules are the same for updates in
place and for evictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.backtest.baselines.vpa.recommender import Recommendation
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array

QUICK_KILL_SECONDS = 600
_SMALLEST_DIFFERENCE = 0.1
_LIFETIME_SECONDS = 12 * 3600
_EVICTION_TOLERANCE = 0.5


@dataclass(frozen=True, slots=True)
class Demand:
    """One resource of P pods of one container: what they request and should; `known` is whether use was seen."""

    requested: Int64Array
    recommended: Recommendation
    known: BoolArray


@dataclass(frozen=True, slots=True)
class Priorities:
    """How much pods need an update, one entry each; the difference is summed over resources, relative to requests."""

    outside: BoolArray
    grows: BoolArray
    difference: Float64Array

    def accepted(self, age_seconds: Int64Array, killed_quickly: BoolArray) -> BoolArray:
        """Tell which pods are to be updated: out of bounds or killed soon at once, others when old and far off."""
        old_and_far = (age_seconds >= _LIFETIME_SECONDS) & (self.difference >= _SMALLEST_DIFFERENCE)
        in_vain = killed_quickly & (self.difference == 0)
        accepted: BoolArray = (self.outside | killed_quickly | old_and_far) & ~in_vain
        return accepted

    def order(self, places: Int64Array) -> Int64Array:
        """Sort places: what grows first, then what is furthest off, then as they were."""
        return places[np.lexsort((-self.difference[places], ~self.grows[places]))]


def prioritise(demands: Sequence[Demand]) -> Priorities:
    """Compare requests with recommendations; a resource without a request is out of bounds, and wants to grow."""
    count = len(demands[0].requested)
    outside, grows = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    difference = np.zeros(count)
    for demand in demands:
        requested, wanted = demand.requested, demand.recommended
        missing = requested == 0
        grows |= demand.known & (missing | (wanted.target > requested))
        outside |= demand.known & (missing | (requested < wanted.lower) | (requested > wanted.upper))
        base = np.maximum(requested, 1)
        difference += np.where(demand.known, np.abs(base - wanted.target) / base, 0)
    return Priorities(outside, grows, difference)


def touched_at_once(configured: Int64Array, running: Int64Array, smallest_group: int) -> Int64Array:
    """Return how many pods of each group one loop of the updater may touch: half of it, or a pod that is alone."""
    tolerance = (configured * _EVICTION_TOLERANCE).astype(np.int64)
    spare = np.maximum(running - (configured - tolerance), 0)
    alone = (tolerance == 0) & (configured == running)
    return np.where(running < smallest_group, 0, np.where(alone, np.maximum(spare, 1), spare))


def within_budget(groups: Int64Array, budget: Int64Array) -> BoolArray:
    """Tell which of a sequence, first come first served, are within their group's budget."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    within = np.empty(len(groups), dtype=np.bool_)
    within[order] = np.arange(len(groups)) - starts < budget[ordered]
    return within
