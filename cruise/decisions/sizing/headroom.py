"""The headroom for a stated risk: what pods used in the last hour, and a multiple of how far they may rise above that.

The multiple is the same for all nodes. It is steered by how often demand passed the requests in force (`risk_level`),
so that damping, admission and packing count as well, and a stated risk is spent as well as kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.recommendation import ResourceDemand
from cruise.decisions.sizing.risk_level import ObservedRisk
from cruise.decisions.usage.usage_columns import RecentUsage
from cruise.domain.policy import Policy
from cruise.domain.resources import Float32Array, Float64Array, Int64Array, ResourceName

# What a headroom model answers: the room that the pods of a node share above their bases.


class HeadroomModel(Protocol):
    """One model, prepared for the statistics of one pass.

    What it has to know about a node beside the sum of the bases and the largest single headroom are sums over the
    containers of the node's pods that stay.
    """

    def rule(self, resource: ResourceName) -> str:
        """Name the model by which the headroom of a resource is found."""
        ...

    def get_observed_risk(self, resource: ResourceName) -> ObservedRisk | None:
        """Return how the stated risk was kept lately, None for a model without one."""
        ...

    def get_extras(self, resource: ResourceName, rows: Int64Array, demand: ResourceDemand) -> Float64Array:
        """Return what is to be summed up over a node's containers: (C, W), W may be 0.

        `rows` are the containers' rows in the statistics, `demand` what they need of the resource.
        """
        ...

    def compute_node_headroom(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return each node's headroom, from the sum of its bases, its largest single headroom, and its sums (N, W)."""
        ...


# What containers demanded at the times that count: the last hour, and the same clock hours of the days before.

# The largest samples of 5 minutes stand for them, as those of a whole hour do for the days before.
WINDOW_PART_SECONDS = 300


@dataclass(frozen=True, slots=True)
class PastDemand:
    """Demand at past times, one row for each row of the statistics, NaN where nothing was sampled.

    `recent` has one column for each 5 minutes of the last hour, oldest first, `hours` one for each clock hour that
    counts: the largest samples in them.
    """

    recent: Mapping[ResourceName, Float32Array]
    hours: Mapping[ResourceName, Float32Array]

    @staticmethod
    def create_empty(rows: int) -> PastDemand:
        """Return the past of containers of which nothing was sampled."""
        nothing = np.empty((rows, 0), dtype=np.float32)
        return PastDemand(dict.fromkeys(ResourceName, nothing), dict.fromkeys(ResourceName, nothing))

    @staticmethod
    def create(
        usage: RecentUsage, rows: Int64Array, numbers: Int64Array, hours: Mapping[ResourceName, NDArray[np.floating]]
    ) -> PastDemand:
        """Take what belongs to each row of the statistics out of the windows and the peaks of hours.

        `rows` and `numbers` have the row in `usage` and the column in `hours`, matrices (hours, numbers), of each row
        of the statistics; -1 where there is none.
        """
        parts = max(1, len(usage.columns) * WINDOW_PART_SECONDS // 3600)
        return PastDemand(
            recent={
                ResourceName.CPU: _parts(usage.cpu_demand_millicores, usage.columns, rows, parts),
                ResourceName.MEMORY: _parts(usage.memory_bytes, usage.columns, rows, parts),
            },
            hours={resource: _of_numbers(peaks, numbers) for resource, peaks in hours.items()},
        )


def _parts(samples: NDArray[np.floating], columns: Int64Array, rows: Int64Array, size: int) -> Float32Array:
    """Return the largest sample of each `size` columns, for some rows."""
    firsts = np.arange(0, len(columns), size)
    largest = np.fmax.reduceat(samples[:, columns], firsts, axis=1).astype(np.float32)
    found = np.full((len(rows), len(firsts)), np.nan, dtype=np.float32)
    known = rows >= 0
    found[known] = largest[rows[known]]
    return found


def _of_numbers(peaks: NDArray[np.floating], numbers: Int64Array) -> Float32Array:
    found = np.full((len(numbers), len(peaks)), np.nan, dtype=np.float32)
    known = numbers >= 0
    if len(peaks):
        found[known] = peaks.T[numbers[known]]
    return found


# The largest single headroom of a node, shared by all: one pod at a time may be at its peak.


class SharedMaxHeadroom:
    """The rule of the original design."""

    def rule(self, resource: ResourceName) -> str:
        """Name the rule."""
        return "shared-max"

    def get_observed_risk(self, resource: ResourceName) -> ObservedRisk | None:
        """Return nothing: no risk is stated."""
        return None

    def get_extras(self, resource: ResourceName, rows: Int64Array, demand: ResourceDemand) -> Float64Array:
        """Sum up nothing."""
        return np.empty((len(rows), 0))

    def compute_node_headroom(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return the largest single headroom."""
        return largest


SHARED_MAX_HEADROOM = SharedMaxHeadroom()

# The largest demand that the node's pods had together at one of the times that count for peaks.


class JointPeakHeadroom:
    """Sees pods that spike together; an upper bound, since of 5 minutes and of hours only the largest is known.

    A time of the last hour at which a container was not sampled counts with its peak; a clock hour without a sample is
    one before the workload was there, and counts nothing.
    """

    def __init__(self, past: PastDemand) -> None:
        self._past = past

    def rule(self, resource: ResourceName) -> str:
        """Name the rule."""
        return "joint-peak"

    def get_observed_risk(self, resource: ResourceName) -> ObservedRisk | None:
        """Return nothing: no risk is stated."""
        return None

    def get_extras(self, resource: ResourceName, rows: Int64Array, demand: ResourceDemand) -> Float64Array:
        """Sum up the demand at each time."""
        peak = (demand.base + demand.headroom).astype(np.float64)
        recent = self._past.recent[resource][rows].astype(np.float64)
        recent = np.where(np.isnan(recent), peak[:, np.newaxis], recent)
        return np.concatenate((recent, np.nan_to_num(self._past.hours[resource][rows].astype(np.float64))), axis=1)

    def compute_node_headroom(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return what the largest sum is above the bases, and at least the largest single headroom."""
        together = extras.max(axis=1, initial=0.0)
        headroom: Int64Array = np.maximum(np.ceil(together - base).astype(np.int64), largest)
        return headroom


# Of the last hour's 5-minute maxima, and of the maxima of the clock hours that count on the days before.
RISE_QUANTILE = 0.75
# Of what a node's pods use, beside their rises: even pods that never rose may.
USAGE_SHARE = 0.05
_ABOVE, _RISE, _HEADROOM = range(3)


class RiskHeadroom:
    """A node's demand is expected to stay below Σ level + multiple × Σ rise.

    A container's `level` is the upper quartile of its last hour, and for memory at least its last sample, since memory
    does not come back. Its `rise` goes from there to the larger of the last hour's maximum and the upper quartile of
    the maxima of the same hours on the days before.
    """

    def __init__(self, past: PastDemand, risks: Mapping[ResourceName, ObservedRisk]) -> None:
        self._past = past
        self._risks = risks

    def rule(self, resource: ResourceName) -> str:
        """Name the rule."""
        return "risk"

    def get_observed_risk(self, resource: ResourceName) -> ObservedRisk | None:
        """Return how the stated risk was kept lately, with the level that holds."""
        return self._risks[resource]

    def get_extras(self, resource: ResourceName, rows: Int64Array, demand: ResourceDemand) -> Float64Array:
        """Sum up how far levels are above bases, rises, and headrooms.

        A container without a sample of the last hour is expected between its base and its peak.
        """
        recent, hours = self._past.recent[resource][rows], self._past.hours[resource][rows]
        base, room = demand.base.astype(np.float64), np.maximum(demand.peak - demand.base, 0).astype(np.float64)
        level, most = _quantiles(recent, RISE_QUANTILE), np.fmax.reduce(recent, axis=1, initial=np.nan)
        if resource is ResourceName.MEMORY and recent.shape[1]:
            level = np.fmax(level, recent[:, -1])
        sampled = ~np.isnan(level)
        level = np.where(sampled, level, base)
        most = np.where(sampled, np.fmax(most, _quantiles(hours, RISE_QUANTILE)), base + room)
        # What users make of their headroom by its factor they make of the rise.
        factor = np.divide(demand.headroom, room, out=np.zeros_like(room), where=room > 0)
        above = np.where(demand.managed, level - base, 0.0)
        rise = np.where(demand.managed, np.maximum(most - level, 0.0) * factor, 0.0)
        return np.column_stack((above, rise, demand.headroom))

    def compute_node_headroom(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return what nodes keep above the sum of their bases.

        That is no more than the sum of their headrooms, and a share of their use: memory that only grows is at its peak
        at every time.
        """
        multiple, above = self._risks[resource].level, extras[:, _ABOVE]
        spare = multiple * USAGE_SHARE * (base + above)
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


# Every headroom model by its name: how it is prepared for a pass, and what of the past it needs. A model's module is imported only where one is prepared: settings read the names, and start without numpy.

if TYPE_CHECKING:
    pass
    pass
    from cruise.decisions.sizing.risk_level import ObservedRisk

    Risks = Mapping[ResourceName, ObservedRisk]


@dataclass(frozen=True, slots=True)
class HeadroomModelEntry:
    """How a model is prepared from past demand and kept risks, both empty where it does not read them.

    With `reads_usage` it reads the last hour's samples, with `reads_hours` the peaks of the clock hours that count as
    well, and with `learns` how the stated risks were kept, and the levels that follow.
    """

    prepare: Callable[[PastDemand, Risks, Policy], HeadroomModel]
    reads_usage: bool = False
    reads_hours: bool = False
    learns_risk_level: bool = False


def _shared_max(past: PastDemand, risks: Risks, policy: Policy) -> HeadroomModel:
    pass

    return SHARED_MAX_HEADROOM


def _joint_peak(past: PastDemand, risks: Risks, policy: Policy) -> HeadroomModel:
    pass

    return JointPeakHeadroom(past)


def _risk(past: PastDemand, risks: Risks, policy: Policy) -> HeadroomModel:
    pass

    return RiskHeadroom(past, risks)


HEADROOM_MODELS: Mapping[str, HeadroomModelEntry] = MappingProxyType(
    {
        "shared-max": HeadroomModelEntry(_shared_max),
        "joint-peak": HeadroomModelEntry(_joint_peak, reads_usage=True, reads_hours=True),
        "risk": HeadroomModelEntry(_risk, reads_usage=True, reads_hours=True, learns_risk_level=True),
    }
)
