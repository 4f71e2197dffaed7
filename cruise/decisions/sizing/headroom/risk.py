"""The headroom that a node's demand passes in at most a stated share of intervals.

Each interval of each node gives one score: how far the largest summed demand went beyond what was expected, in units
of what could be expected from its pods' own statistics. As these units are of the pods that the node has at the time,
scores of all nodes and days are alike, and can be counted together (`scores`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.headroom.margins import Margin
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.recommendation import Demand
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.policy import HeadroomStart
from cruise.domain.resources import ResourceName

# Of the bases, beside the scale: even pods that never spiked may.
BASE_SHARE = 0.05
_HEADROOM, _RISEN, _RECENT = range(3)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of nodes: demand will be `expected`, give or take the `scale`; one entry a node."""

    expected: Float64Array
    scale: Float64Array

    def scores(self, demand: Float64Array) -> Float64Array:
        """Return how far each node's demand went beyond what was expected, in units of the scale."""
        return (demand - self.expected) / self.scale


class Risk:
    """The headroom is what pods have risen above their bases by now, and a margin learned from scores.

    With `start` shared-max it is the largest single headroom until there are scores of a week. Where nobody has scores
    enough for the risk, the margin is the largest one seen, and the headroom at least the sum of all single ones.
    """

    def __init__(
        self,
        past: PastDemand,
        margins: Mapping[ResourceName, Margin],
        start: HeadroomStart = HeadroomStart.SUM_OF_PEAKS,
    ) -> None:
        self._past = past
        self._margins = margins
        self._start = start

    def rule(self, resource: ResourceName) -> str:
        """Name the rule: until there is a week of scores it may be another one."""
        waits = self._start is HeadroomStart.SHARED_MAX and not self._margins[resource].settled
        return "shared-max" if waits else "risk"

    def extras(self, resource: ResourceName, rows: Int64Array, demand: Demand) -> Float64Array:
        """Sum up headrooms, what containers are above their bases now, and squares of the last hour's headrooms."""
        recent = self._past.recent[resource][rows].astype(np.float64)
        base = demand.base.astype(np.float64)
        sampled = ~np.isnan(recent).all(axis=1)
        last, largest = recent[:, -1], np.fmax.reduce(recent, axis=1)
        risen = np.where(np.isnan(last), 0.0, np.maximum(last - base, 0.0))
        hour = np.where(sampled, np.maximum(largest - base, 0.0), demand.headroom)
        return np.column_stack((demand.headroom, risen, hour**2))

    def of_nodes(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return the expected rise and the margin."""
        margin, forecast = self._margins[resource], forecast_of(base, extras)
        if self.rule(resource) == "shared-max":
            return largest
        headroom = forecast.expected - base + margin.score * forecast.scale
        if not margin.proven:
            headroom = np.maximum(headroom, np.maximum(extras[:, _HEADROOM], largest.astype(np.float64)))
        return np.ceil(headroom - 1e-6).astype(np.int64)


def forecast_of(base: Int64Array, extras: Float64Array) -> Forecast:
    """Return what is expected of nodes with these sums of bases and of what `Risk` sums up.

    The scale is the geometric mean of two views: all headrooms together, as if all pods spiked at once, and those of
    the last hour as if they were independent; never below a share of the bases, and never zero.
    """
    together = np.maximum(extras[:, _HEADROOM], 0.0)
    apart = np.sqrt(np.maximum(extras[:, _RECENT], 0.0))
    bases = base.astype(np.float64)
    return Forecast(bases + np.maximum(extras[:, _RISEN], 0.0), np.sqrt(together * apart) + BASE_SHARE * bases + 1.0)
