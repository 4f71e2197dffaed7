"""The headroom for a stated risk: what pods used in the last hour, and a multiple of how far they may rise above that.

The multiple is the same for all nodes. It is steered by how often demand passed the requests in force (`risk_level`),
so that damping, admission and packing count as well, and a stated risk is spent as well as kept.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.risk_level import KeptRisk
from cruise.decisions.sizing.recommendation import Demand
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.resources import ResourceName

# Of the last hour's 5-minute maxima, and of the maxima of the clock hours that count on the days before.
QUANTILE = 0.75
# Of what a node's pods use, beside their rises: even pods that never rose may.
USE_SHARE = 0.05
_ABOVE, _RISE, _HEADROOM = range(3)


class Risk:
    """A node's demand is expected to stay below Σ level + multiple × Σ rise.

    A container's `level` is the upper quartile of its last hour, and for memory at least its last sample, since memory
    does not come back. Its `rise` goes from there to the larger of the last hour's maximum and the upper quartile of
    the maxima of the same hours on the days before.
    """

    def __init__(self, past: PastDemand, risks: Mapping[ResourceName, KeptRisk]) -> None:
        self._past = past
        self._risks = risks

    def rule(self, resource: ResourceName) -> str:
        """Name the rule."""
        return "risk"

    def kept_risk(self, resource: ResourceName) -> KeptRisk | None:
        """Return how the stated risk was kept lately, with the level that holds."""
        return self._risks[resource]

    def extras(self, resource: ResourceName, rows: Int64Array, demand: Demand) -> Float64Array:
        """Sum up how far levels are above bases, rises, and headrooms.

        A container without a sample of the last hour is expected between its base and its peak.
        """
        recent, hours = self._past.recent[resource][rows], self._past.hours[resource][rows]
        base, room = demand.base.astype(np.float64), np.maximum(demand.peak - demand.base, 0).astype(np.float64)
        level, most = _quantiles(recent, QUANTILE), np.fmax.reduce(recent, axis=1, initial=np.nan)
        if resource is ResourceName.MEMORY and recent.shape[1]:
            level = np.fmax(level, recent[:, -1])
        sampled = ~np.isnan(level)
        level = np.where(sampled, level, base)
        most = np.where(sampled, np.fmax(most, _quantiles(hours, QUANTILE)), base + room)
        # What users make of their headroom by its factor they make of the rise.
        factor = np.divide(demand.headroom, room, out=np.zeros_like(room), where=room > 0)
        above = np.where(demand.managed, level - base, 0.0)
        rise = np.where(demand.managed, np.maximum(most - level, 0.0) * factor, 0.0)
        return np.column_stack((above, rise, demand.headroom))

    def of_nodes(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return what nodes keep above the sum of their bases.

        That is no more than the sum of their headrooms, and a share of their use: memory that only grows is at its peak
        at every time.
        """
        multiple, above = self._risks[resource].level, extras[:, _ABOVE]
        spare = multiple * USE_SHARE * (base + above)
        most = np.maximum(extras[:, _HEADROOM], 0.0)
        wanted = np.clip(above + multiple * extras[:, _RISE], 0.0, most) + np.maximum(spare, 0.0)
        return np.ceil(wanted - 1e-6).astype(np.int64)


def _quantiles(samples: NDArray[np.floating], share: float) -> Float64Array:
    """Return a quantile of each row, interpolated linearly, NaN for a row without a sample."""
    if not samples.shape[1]:
        return np.full(len(samples), np.nan)
    # Sorting leaves NaN at the end.
    ordered = np.sort(samples, axis=1).astype(np.float64)
    last = np.maximum((~np.isnan(ordered)).sum(axis=1) - 1, 0)
    places = last * share
    below = np.floor(places).astype(np.int64)
    rows = np.arange(len(ordered))
    lower, upper = ordered[rows, below], ordered[rows, np.minimum(below + 1, last)]
    found: Float64Array = lower + (upper - lower) * (places - below)
    return found
