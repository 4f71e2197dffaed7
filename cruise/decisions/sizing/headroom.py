"""Headroom models: how much capacity above their bases the pods of a node need, so that their peaks find it.

The default model, `risk`, keeps a stated risk: the share of intervals in which a node's demand may exceed its requests
(docs: headroom page, ADR 0007).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.demand import ResourceDemand
from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.decisions.usage.usage_columns import RecentUsage, compute_row_percentiles
from cruise.domain.arrays import Float32Array, Float64Array, Int64Array
from cruise.domain.resources import ResourceName

Risks = Mapping[ResourceName, ObservedRisk]
# The last hour counts by its largest samples of 5 minutes, earlier days by the largest samples of a clock hour.
WINDOW_PART_SECONDS = 300
# Quantile of the last hour's 5-minute maxima, and of earlier days' hourly maxima.
RISE_QUANTILE = 0.75


class HeadroomModel(Protocol):
    """A headroom model, prepared for the statistics of one pass.

    It computes a node's headroom from the sum of its bases, its largest single headroom, and sums over its containers.
    """

    name: str

    def get_observed_risk(self, resource: ResourceName) -> ObservedRisk | None:
        """Return how often demand exceeded requests recently; None for a model without a stated risk."""
        return None

    def get_columns_to_sum(self, resource: ResourceName, rows: Int64Array, demand: ResourceDemand) -> Float64Array:
        """Return the values that the caller sums over each node's containers: (C, W), W may be 0.

        `rows` are the containers' rows in the statistics.
        """

    def compute_node_headroom(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return each node's headroom from its sum of bases, largest single headroom, and summed extras (N, W)."""


class HourlyMaxima:
    """The largest samples of the clock hours that count towards peaks: (hours, keys), NaN where nothing was sampled.

    Past hours do not change, so that what is computed from them holds for as long as they count.
    """

    def __init__(self, peaks: Mapping[ResourceName, NDArray[np.floating]]) -> None:
        self.peaks = peaks
        self._usual: dict[ResourceName, Float64Array] = {}

    def get_usual(self, resource: ResourceName) -> Float64Array:
        """Return the upper quartile of each key's peaks, NaN without any."""
        if resource not in self._usual:
            by_key = self.peaks[resource].T.astype(np.float32)
            self._usual[resource], _ = compute_row_percentiles(by_key, RISE_QUANTILE)
        return self._usual[resource]


NO_HOURS = HourlyMaxima(dict.fromkeys(ResourceName, np.empty((0, 0), dtype=np.float32)))


@dataclass(frozen=True, slots=True)
class PastDemand:
    """The largest samples of past intervals, one row per row of the statistics, NaN where nothing was sampled.

    `recent` has a column for each 5 minutes of the last hour, oldest first; `numbers` holds each row's column in
    `hours`, -1 for none.
    """

    recent: Mapping[ResourceName, Float32Array]
    hours: HourlyMaxima
    numbers: Int64Array

    def get_recent(self, resource: ResourceName, rows: Int64Array) -> Float32Array:
        """Return the rows' samples of the last hour; a row that was added later, such as a pod's sum, has none."""
        return _select_rows(self.recent[resource], rows)

    def get_hours(self, resource: ResourceName, rows: Int64Array) -> Float32Array:
        """Return the rows' samples of clock hours, as `get_recent`."""
        return _select_rows(self.hours.peaks[resource].T, self._get_numbers(rows)).astype(np.float32)

    def get_usual_maxima(self, resource: ResourceName, rows: Int64Array) -> Float64Array:
        """Return the upper quartile of the rows' samples of clock hours, NaN without any."""
        return _select_rows(self.hours.get_usual(resource), self._get_numbers(rows))

    def _get_numbers(self, rows: Int64Array) -> Int64Array:
        numbers = np.full(len(rows), -1, dtype=np.int64)
        is_known = rows < len(self.numbers)
        numbers[is_known] = self.numbers[rows[is_known]]
        return numbers

    @staticmethod
    def create_empty(rows: int) -> "PastDemand":
        """Return the past demand of containers without samples."""
        nothing = np.empty((rows, 0), dtype=np.float32)
        return PastDemand(dict.fromkeys(ResourceName, nothing), NO_HOURS, np.full(rows, -1, dtype=np.int64))

    @staticmethod
    def create(usage: RecentUsage, rows: Int64Array, numbers: Int64Array, hours: HourlyMaxima) -> "PastDemand":
        """Select the samples of each row of the statistics from recent usage and from the peaks of clock hours.

        `rows` holds the row in `usage`, `numbers` the column in `hours`; -1 for none.
        """
        parts = max(1, len(usage.columns) * WINDOW_PART_SECONDS // 3600)
        return PastDemand(
            recent={
                ResourceName.CPU: _select_interval_maxima(usage.cpu_demand_millicores, usage.columns, rows, parts),
                ResourceName.MEMORY: _select_interval_maxima(usage.memory_bytes, usage.columns, rows, parts),
            },
            hours=hours,
            numbers=numbers,
        )


def _select_rows(values: NDArray[Any], rows: Int64Array) -> NDArray[Any]:
    """Return some rows of an array, NaN for rows that it does not have."""
    is_known = (rows >= 0) & (rows < len(values))
    if is_known.all():
        return values[rows]
    selected = np.full((len(rows), *values.shape[1:]), np.nan, dtype=values.dtype)
    selected[is_known] = values[rows[is_known]]
    return selected


def _select_interval_maxima(
    samples: NDArray[np.floating], columns: Int64Array, rows: Int64Array, part_size: int
) -> Float32Array:
    """Return the largest sample of each `size` columns, for some rows."""
    firsts = np.arange(0, len(columns), part_size)
    largest = np.fmax.reduceat(samples[:, columns], firsts, axis=1).astype(np.float32)
    return _select_rows(largest, rows)


class SharedMaxHeadroom(HeadroomModel):
    """A node's headroom is its largest single headroom: one pod at a time may be at its peak (CruiseKube)."""

    name = "shared-max"

    def get_columns_to_sum(self, resource: ResourceName, rows: Int64Array, demand: ResourceDemand) -> Float64Array:
        """Return no columns."""
        return np.empty((len(rows), 0))

    def compute_node_headroom(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return the largest single headroom."""
        return largest


SHARED_MAX_HEADROOM = SharedMaxHeadroom()


class JointPeakHeadroom(HeadroomModel):
    """A node's headroom covers the largest demand that its pods had together at one of the past intervals.

    This is an upper bound: only the largest sample of each interval is known. In the last hour a container without a
    sample counts with its peak; in an earlier clock hour it did not exist yet and counts nothing.
    """

    name = "joint-peak"

    def __init__(self, past: PastDemand) -> None:
        self._past = past

    def get_columns_to_sum(self, resource: ResourceName, rows: Int64Array, demand: ResourceDemand) -> Float64Array:
        """Return the demand of each container in each interval."""
        peak = (demand.base + demand.headroom).astype(np.float64)
        recent = self._past.get_recent(resource, rows).astype(np.float64)
        recent = np.where(np.isnan(recent), peak[:, np.newaxis], recent)
        return np.concatenate((recent, np.nan_to_num(self._past.get_hours(resource, rows).astype(np.float64))), axis=1)

    def compute_node_headroom(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return by how much the largest sum exceeds the bases, at least the largest single headroom."""
        together = extras.max(axis=1, initial=0.0)
        headroom: Int64Array = np.maximum(np.ceil(together - base).astype(np.int64), largest)
        return headroom


# Margin as a share of usage: even pods that never rose may rise.
USAGE_SHARE = 0.05
_ABOVE, _RISE, _HEADROOM = range(3)


class RiskHeadroom:
    """A node's demand is expected to stay below Σ level + multiple × Σ rise (ADR 0007).

    A container's `level` is the upper quartile of its last hour; for memory at least its last sample, which is not
    given back. Its `rise` is the distance from there to the last hour's maximum, or to the upper quartile of the same
    hours' maxima on earlier days if that is larger. The multiple is the same for all nodes (see `headroom_level`).
    """

    name = "risk"

    def __init__(self, past: PastDemand, risks: Mapping[ResourceName, ObservedRisk]) -> None:
        self._past = past
        self._risks = risks

    def get_observed_risk(self, resource: ResourceName) -> ObservedRisk | None:
        """Return the observed risk with the present multiple."""
        return self._risks[resource]

    def get_columns_to_sum(self, resource: ResourceName, rows: Int64Array, demand: ResourceDemand) -> Float64Array:
        """Return for each container its level above the base, its rise, and its headroom.

        A container without a sample in the last hour is expected between its base and its peak.
        """
        recent = self._past.get_recent(resource, rows)
        base, headroom = demand.base.astype(np.float64), np.maximum(demand.peak - demand.base, 0).astype(np.float64)
        level, _ = compute_row_percentiles(recent, RISE_QUANTILE)
        usual_maximum = self._past.get_usual_maxima(resource, rows)
        highest = np.fmax.reduce(recent, axis=1, initial=np.nan)
        if resource is ResourceName.MEMORY and recent.shape[1]:
            level = np.fmax(level, recent[:, -1])
        sampled = ~np.isnan(level)
        level = np.where(sampled, level, base)
        highest = np.where(sampled, np.fmax(highest, usual_maximum), base + headroom)
        # The headroom factor of an annotation multiplies the rise as well.
        factor = np.divide(demand.headroom, headroom, out=np.zeros_like(headroom), where=headroom > 0)
        above = np.where(demand.managed, level - base, 0.0)
        rise = np.where(demand.managed, np.maximum(highest - level, 0.0) * factor, 0.0)
        return np.column_stack((above, rise, demand.headroom))

    def compute_node_headroom(
        self, resource: ResourceName, base: Int64Array, largest: Int64Array, extras: Float64Array
    ) -> Int64Array:
        """Return each node's headroom: level and rises above the bases plus a margin.

        It is at most the sum of the containers' headrooms plus that margin: memory that only grows is always at its
        peak.
        """
        multiple, above = max(self._risks[resource].level, 0.0), extras[:, _ABOVE]
        margin = multiple * USAGE_SHARE * (base + above)
        highest = np.maximum(extras[:, _HEADROOM], 0.0)
        wanted = np.clip(above + multiple * extras[:, _RISE], 0.0, highest) + np.maximum(margin, 0.0)
        return np.ceil(wanted - 1e-6).astype(np.int64)


@dataclass(frozen=True, slots=True)
class HeadroomModelRegistration:
    """How to prepare a model, and which inputs it needs; those that it does not need are empty.

    `reads_usage` needs the last hour's samples and the peaks of earlier clock hours, `learns_level` the observed risks.
    """

    prepare: Callable[[PastDemand, Risks], HeadroomModel]
    reads_usage: bool = False
    learns_level: bool = False


HEADROOM_MODELS: Mapping[str, HeadroomModelRegistration] = MappingProxyType(
    {
        "shared-max": HeadroomModelRegistration(lambda past, risks: SHARED_MAX_HEADROOM),
        "joint-peak": HeadroomModelRegistration(lambda past, risks: JointPeakHeadroom(past), reads_usage=True),
        "risk": HeadroomModelRegistration(RiskHeadroom, reads_usage=True, learns_level=True),
    }
)
