"""The largest single headroom of a node, shared by all: one pod at a time may be at its peak."""

import numpy as np

from cruise.decisions.sizing.headroom.risk_level import KeptRisk
from cruise.decisions.sizing.recommendation import Demand
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.resources import ResourceName


class SharedMax:
    """The rule of the original design."""

    def rule(self, resource: ResourceName) -> str:
        """Name the rule."""
        return "shared-max"

    def kept_risk(self, resource: ResourceName) -> KeptRisk | None:
        """Return nothing: no risk is stated."""
        return None

    def extras(self, resource: ResourceName, rows: Int64Array, demand: Demand) -> Float64Array:
        """Sum up nothing."""
        return np.empty((len(rows), 0))

    def of_nodes(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return the largest single headroom."""
        return largest


SHARED_MAX = SharedMax()
