"""What LimitRanges ask of pods that run: requests that are large enough beside the limits that they must keep.

A limit is not lowered below known use, nor on a short history. So where a LimitRange has a largest limit / request,
the request rises to what that limit needs. Where no request is enough, the pod is held.
"""

from dataclasses import dataclass

import numpy as np

from cruise.decisions.guidance.pod_ranges import UNITS
from cruise.decisions.sizing.candidate_columns import CandidateColumns
from cruise.decisions.sizing.memory_limit import Ceilings, LimitDemand
from cruise.domain.arrays import BoolArray, Int64Array, round_up_whole
from cruise.domain.resources import ResourceName


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """The smallest and the largest request of each container, and what it needs and has now; `limit` 0 is none."""

    lower: Int64Array
    upper: Int64Array
    base: Int64Array
    peak: Int64Array
    current: Int64Array
    limit: Int64Array
    managed: BoolArray


def least_cpu_limits(candidates: CandidateColumns, current: Int64Array, peak: Int64Array) -> Int64Array:
    """Return the least that each container's CPU limit may be, 0 where it has and gets none.

    A CPU limit does not kill, but a container is throttled below its peak.
    """
    adds = candidates.adds_limit[ResourceName.CPU]
    return np.where(current > 0, np.minimum(current, peak), np.where(adds, peak, 0))


def least_memory_limits(
    candidates: CandidateColumns, current: Int64Array, demand: LimitDemand, ceiling: Ceilings | None
) -> Int64Array:
    """Return the least that each container's memory limit may be, 0 where it has and gets none."""
    known = demand.known
    if ceiling is not None:
        highest = np.where(demand.killed | demand.varying, ceiling.at_all, ceiling.in_passing)
        known = np.minimum(known, np.maximum(highest, current))
    stated = np.where(demand.may_fall, known, np.maximum(known, current))
    stated = np.where(candidates.keeps_memory_limit, current, stated)
    added = np.where(candidates.adds_limit[ResourceName.MEMORY], demand.known, 0)
    return np.where(current > 0, stated, added)


def within_ranges(
    candidates: CandidateColumns, resource: ResourceName, bounds: RequestBounds, least_limit: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Return the smallest and the largest request of each container, as LimitRanges ask for beside the least limits."""
    lower, upper = _beside_limits(candidates, resource, bounds, least_limit), bounds.upper
    if not candidates.pod_ranges:
        return lower, upper
    lower, upper = lower.copy(), upper.copy()
    for index, ranges in candidates.pod_ranges.items():
        first = int(candidates.first_container[index])
        at, bound = slice(first, first + len(candidates.pods[index].sized)), ranges.get(resource)
        if bound is None or not bounds.managed[first]:
            continue
        low, high, limits = lower[at].tolist(), upper[at].tolist(), least_limit[at].tolist()
        base, now = np.maximum(bounds.base[at], lower[at]).tolist(), bounds.current[at].tolist()
        # A limit of now may stay, where no more can be had.
        kept = np.where(bounds.limit[at] > 0, np.minimum(bounds.limit[at], least_limit[at]), least_limit[at]).tolist()
        most = bound.most_requests(low, base, bounds.peak[at].tolist(), kept)
        if most is not None:
            high = [max(floor, min(pair)) for floor, *pair in zip(low, high, most, strict=True)]
        least = bound.least_requests(now, base, high, limits)
        lower[at], upper[at] = np.maximum(lower[at], least), high
    return lower, upper


def _beside_limits(
    candidates: CandidateColumns, resource: ResourceName, bounds: RequestBounds, least_limit: Int64Array
) -> Int64Array:
    ratio, unit = candidates.limit_ratio[resource], UNITS[resource]
    bound = bounds.managed & (least_limit > 0) & ~np.isinf(ratio)
    if not bound.any():
        return bounds.lower
    finite = np.where(bound, ratio, 1.0)
    needed = round_up_whole(np.ceil(least_limit / finite).astype(np.int64), unit)
    needed += np.where(needed * finite < least_limit, unit, 0)
    return np.where(bound & (needed <= bounds.upper), np.maximum(bounds.lower, needed), bounds.lower)
