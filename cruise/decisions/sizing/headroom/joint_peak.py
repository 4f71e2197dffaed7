"""The largest demand that the node's pods had together at one of the times that count for peaks."""

import numpy as np

from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.risk_level import KeptRisk
from cruise.decisions.sizing.recommendation import Demand
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.resources import ResourceName


class JointPeak:
    """Sees pods that spike together; an upper bound, since of 5 minutes and of hours only the largest is known.

    A time of the last hour at which a container was not sampled counts with its peak; a clock hour without a sample is
    one before the workload was there, and counts nothing.
    """

    def __init__(self, past: PastDemand) -> None:
        self._past = past

    def rule(self, resource: ResourceName) -> str:
        """Name the rule."""
        return "joint-peak"

    def kept_risk(self, resource: ResourceName) -> KeptRisk | None:
        """Return nothing: no risk is stated."""
        return None

    def extras(self, resource: ResourceName, rows: Int64Array, demand: Demand) -> Float64Array:
        """Sum up the demand at each time."""
        peak = (demand.base + demand.headroom).astype(np.float64)
        recent = self._past.recent[resource][rows].astype(np.float64)
        recent = np.where(np.isnan(recent), peak[:, np.newaxis], recent)
        return np.concatenate((recent, np.nan_to_num(self._past.hours[resource][rows].astype(np.float64))), axis=1)

    def of_nodes(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return what the largest sum is above the bases, and at least the largest single headroom."""
        together = extras.max(axis=1, initial=0.0)
        headroom: Int64Array = np.maximum(np.ceil(together - base).astype(np.int64), largest)
        return headroom
