"""From statistics to demand: base, headroom, bounds and limits of every sized container, in columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from cruise.decisions.pod_policy.eligibility import ResizablePod
from cruise.decisions.pod_policy.limit_ranges import UNITS
from cruise.decisions.sizing.candidate_columns import PerResource, ResizablePodColumns, build_resizable_pod_columns
from cruise.decisions.sizing.memory_limit import (
    MemoryLimitCeilings,
    MemoryLimitDemand,
    compute_limit_ceilings,
    compute_limit_demand,
)
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.cluster_policies import ResourceQuota
from cruise.domain.policy import Policy
from cruise.domain.resources import (
    MEBIBYTE,
    UNBOUNDED,
    BoolArray,
    Float64Array,
    Int64Array,
    ResourceName,
    cap_to_bounds,
    round_up_integers,
)
from cruise.domain.usage import StatisticColumns, StatisticsTable

# What LimitRanges ask of pods that run: requests that are large enough beside the limits that they must keep. A limit is not lowered below known use, nor on a short history. So where a LimitRange has a largest limit / request, the request rises to what that limit needs. Where no request is enough, the pod is held.


@dataclass(frozen=True, slots=True)
class LimitRangeBounds:
    """The smallest and the largest request of each container, and what it needs and has now; `limit` 0 is none."""

    lower: Int64Array
    upper: Int64Array
    base: Int64Array
    peak: Int64Array
    current: Int64Array
    limit: Int64Array
    managed: BoolArray


def compute_min_cpu_limits(candidates: ResizablePodColumns, current: Int64Array, peak: Int64Array) -> Int64Array:
    """Return the least that each container's CPU limit may be, 0 where it has and gets none.

    A CPU limit does not kill, but a container is throttled below its peak.
    """
    adds = candidates.adds_limit[ResourceName.CPU]
    return np.where(current > 0, np.minimum(current, peak), np.where(adds, peak, 0))


def compute_min_memory_limits(
    candidates: ResizablePodColumns, current: Int64Array, demand: MemoryLimitDemand, ceiling: MemoryLimitCeilings | None
) -> Int64Array:
    """Return the least that each container's memory limit may be, 0 where it has and gets none."""
    known = demand.known
    if ceiling is not None:
        highest = np.where(demand.was_oom_killed | demand.is_varying, ceiling.absolute, ceiling.without_cause)
        known = np.minimum(known, np.maximum(highest, current))
    stated = np.where(demand.may_fall, known, np.maximum(known, current))
    stated = np.where(candidates.keeps_memory_limit, current, stated)
    added = np.where(candidates.adds_limit[ResourceName.MEMORY], demand.known, 0)
    return np.where(current > 0, stated, added)


def apply_limit_ranges(
    candidates: ResizablePodColumns, resource: ResourceName, bounds: LimitRangeBounds, least_limit: Int64Array
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
        most = bound.get_maximum_requests(low, base, bounds.peak[at].tolist(), kept)
        if most is not None:
            high = [max(floor, min(pair)) for floor, *pair in zip(low, high, most, strict=True)]
        least = bound.get_minimum_requests(now, base, high, limits)
        lower[at], upper[at] = np.maximum(lower[at], least), high
    return lower, upper


def _beside_limits(
    candidates: ResizablePodColumns, resource: ResourceName, bounds: LimitRangeBounds, least_limit: Int64Array
) -> Int64Array:
    ratio, unit = candidates.limit_ratio[resource], UNITS[resource]
    bound = bounds.managed & (least_limit > 0) & ~np.isinf(ratio)
    if not bound.any():
        return bounds.lower
    finite = np.where(bound, ratio, 1.0)
    needed = round_up_integers(np.ceil(least_limit / finite).astype(np.int64), unit)
    needed += np.where(needed * finite < least_limit, unit, 0)
    return np.where(bound & (needed <= bounds.upper), np.maximum(bounds.lower, needed), bounds.lower)


ROUNDING_UNIT = {ResourceName.CPU: 1, ResourceName.MEMORY: MEBIBYTE}
# What grows gets this much more than its target, so that the next rise is no write; nothing gets more than its own peak
# and this much more.
PEAK_MARGIN_SHARE = {ResourceName.CPU: 0.1, ResourceName.MEMORY: 0.1}


@dataclass(frozen=True, slots=True)
class ResourceDemand:
    """One resource of C sized containers: what each needs, may get, and has now.

    `base` is the fit's base: the statistic, clamped to [`lower`, `upper`]; what a LimitRange asks beyond the current
    request is no need of the container. `raw_base`, `peak` and `headroom` are as the statistic has them, the headroom
    already multiplied by its factor. Where the resource is not managed, base and headroom are zero. `peak_with_spare`
    is the most that use alone makes a target. `current` is the request in the spec, 0 where there is none. `wished` is
    what annotations of the workload's own ask beyond all of this, over any size; a smallest request that is asked for
    comes on top.
    """

    raw_base: Int64Array
    peak: Int64Array
    base: Int64Array
    headroom: Int64Array
    peak_with_margin: Int64Array
    lower: Int64Array
    upper: Int64Array
    current: Int64Array
    managed: BoolArray
    user_minimum: Int64Array


@dataclass(frozen=True, slots=True)
class QuotaConstraints:
    """What quotas hold back: `limits_stay` tells it of each container's limits, `short` of each pod's growth."""

    quotas: Mapping[str, Sequence[ResourceQuota]]
    keeps_limits: Mapping[ResourceName, BoolArray]
    withholds_growth: BoolArray


@dataclass(frozen=True, slots=True)
class DemandTable:
    """The demand of touchable pods, in the order of `candidates`; `rows` are the rows of their statistics.

    `cpu_limit` and `memory_limit` are those in the spec, 0 where there is none; `ceilings` is None where limits have
    none, `quotas` where no quota concerns a pod. `least_limit` is what each container's limits are not lowered below, 0
    where it has and gets none; None by the first design.
    """

    candidates: ResizablePodColumns
    rows: Int64Array
    cpu: ResourceDemand
    memory: ResourceDemand
    cpu_limit: Int64Array
    memory_limit: Int64Array
    limit_demand: MemoryLimitDemand
    ceilings: MemoryLimitCeilings | None = None
    quotas: QuotaConstraints | None = None
    minimum_limit: PerResource | None = None

    def get_resource(self, resource: ResourceName) -> ResourceDemand:
        """Return one resource's demand."""
        return self.cpu if resource is ResourceName.CPU else self.memory


def build_demand_table(
    pods: Sequence[ResizablePod],
    statistics: StatisticsTable,
    limit_ranges: Mapping[str, Sequence[LimitRangeItem]],
    policy: Policy,
) -> DemandTable:
    """Put the demand of `pods` into columns."""
    count = sum(len(pod.rows) for pod in pods)
    rows = np.fromiter(chain.from_iterable([pod.rows for pod in pods]), dtype=np.int64, count=count)
    stated = np.fromiter(chain.from_iterable([pod.stated_resources for pod in pods]), dtype=np.int64, count=4 * count)
    return compute_demand(
        build_resizable_pod_columns(pods, limit_ranges, policy), stated.reshape(-1, 4), statistics, rows, policy
    )


def compute_demand(
    candidates: ResizablePodColumns, stated: Int64Array, statistics: StatisticColumns, rows: Int64Array, policy: Policy
) -> DemandTable:
    """Put together what containers need by their statistics, at `rows`, and what they state now.

    `stated` has a row a container: CPU request, memory request, CPU limit, memory limit, 0 for what is absent.
    """
    cpu_peak = cap_to_bounds(statistics.cpu_peak_millicores[rows])
    memory_peak = np.maximum(
        cap_to_bounds(statistics.memory_peak_bytes[rows]), cap_to_bounds(statistics.oom_memory_bytes[rows])
    )
    cpu_base, memory_base = (
        cap_to_bounds(statistics.cpu_base_millicores[rows]),
        cap_to_bounds(statistics.memory_base_bytes[rows]),
    )
    of_limits = compute_limit_demand(statistics, rows, policy)
    memory = _demand(memory_base, memory_peak, candidates, ResourceName.MEMORY, stated[:, 1], policy)
    highest = _ceilings(candidates, stated[:, 3], of_limits, policy) if policy.rules.memory_limit_ceiling else None
    table = DemandTable(
        candidates=candidates,
        rows=rows,
        cpu=_demand(cpu_base, cpu_peak, candidates, ResourceName.CPU, stated[:, 0], policy),
        memory=memory if highest is None else _within_limits(memory, stated[:, 3], highest),
        cpu_limit=stated[:, 2],
        memory_limit=stated[:, 3],
        limit_demand=of_limits,
        ceilings=highest,
    )
    if not policy.rules.memory_limit_safeguards:
        return table
    least = {
        ResourceName.CPU: compute_min_cpu_limits(candidates, table.cpu_limit, table.cpu.peak),
        ResourceName.MEMORY: compute_min_memory_limits(candidates, table.memory_limit, of_limits, highest),
    }
    return apply_min_limits(table, least)


def apply_min_limits(table: DemandTable, least: PerResource) -> DemandTable:
    """Return the demand with limits that are not lowered below `least`, and with requests that LimitRanges ask for."""
    cpu = _beside(table.cpu, table.cpu_limit, table.candidates, ResourceName.CPU, least[ResourceName.CPU])
    memory = _beside(
        table.memory, table.memory_limit, table.candidates, ResourceName.MEMORY, least[ResourceName.MEMORY]
    )
    return replace(table, cpu=cpu, memory=memory, minimum_limit=least)


def _beside(
    demand: ResourceDemand,
    limit: Int64Array,
    candidates: ResizablePodColumns,
    resource: ResourceName,
    least: Int64Array,
) -> ResourceDemand:
    bounds = LimitRangeBounds(
        demand.lower, demand.upper, demand.base, demand.peak, demand.current, limit, demand.managed
    )
    lower, upper = apply_limit_ranges(candidates, resource, bounds, least)
    if lower is demand.lower and upper is demand.upper:
        return demand
    base = np.clip(demand.base, np.minimum(lower, demand.current), upper)
    return replace(demand, lower=lower, upper=upper, base=np.where(demand.managed, base, 0))


def _within_limits(memory: ResourceDemand, limit: Int64Array, highest: MemoryLimitCeilings) -> ResourceDemand:
    """Keep what requests have above their bases within what the limits may rise to.

    A share of a node's headroom may be more than a container ever used, and a request above a limit would lift it.
    """
    return replace(memory, upper=np.minimum(memory.upper, compute_max_requests(memory, limit, highest)))


def compute_max_requests(memory: ResourceDemand, limit: Int64Array, highest: MemoryLimitCeilings) -> Int64Array:
    """Return the largest memory request of each container under what its limit may rise to."""
    least = np.maximum(memory.lower, round_up_integers(memory.base, MEBIBYTE))
    return np.where(limit > 0, np.maximum.reduce([highest.absolute, limit, least]), UNBOUNDED)


def _ceilings(
    candidates: ResizablePodColumns, current: Int64Array, demand: MemoryLimitDemand, policy: Policy
) -> MemoryLimitCeilings:
    """Return the ceilings of the limits that might rise; others stay, and their templates are not looked at.

    Use may lift a limit, and so may a wish for a request above it. Where there is no limit the template states none,
    since none is ever removed in place.
    """
    template = np.where(current > 0, current, UNBOUNDED)
    asking = (
        False
        if candidates.user_minimums is None
        else candidates.user_minimums.has_user_minimum[candidates.pod_of_container]
    )
    might_rise = (current == 0) & candidates.adds_limit[ResourceName.MEMORY] | (demand.target > current) | asking
    for at in np.flatnonzero((current > 0) & might_rise).tolist():
        pod = int(candidates.pod_of_container[at])
        touchable = candidates.pods[pod]
        if touchable.template_limits is None:
            template[at] = -1
        else:
            container = touchable.sized[at - int(candidates.first_container[pod])]
            template[at] = min(touchable.template_limits.get(container.name, UNBOUNDED), UNBOUNDED)
    found = compute_limit_ceilings(template, current, policy)
    return replace(found, absolute=np.where(might_rise, found.absolute, current))


def _demand(
    base: Int64Array,
    peak: Int64Array,
    candidates: ResizablePodColumns,
    resource: ResourceName,
    current: Int64Array,
    policy: Policy,
) -> ResourceDemand:
    factor, managed = candidates.headroom_factor, candidates.manages[resource][candidates.pod_of_container]
    headroom = np.maximum(peak - base, 0)
    scaled = _scaled(headroom, factor)
    wishes = candidates.user_minimums
    wished = np.zeros_like(scaled) if wishes is None else _scaled(headroom, wishes.headroom_factor) - scaled
    lower, upper = candidates.minimum[resource], candidates.maximum[resource]
    # The server checks a LimitRange where something is written: that it was added makes no pod need more.
    needed = lower
    if policy.rules.memory_limit_safeguards:
        needed = np.maximum(candidates.stated_least[resource], np.minimum(lower, current))
    most = np.full_like(base, UNBOUNDED)
    if policy.rules.limit_to_own_peak:
        # A factor below 1 asks for less than usual, and gets less to spare as well.
        most = cap_to_bounds(
            ((base + scaled) * (1 + PEAK_MARGIN_SHARE[resource] * np.minimum(factor, 1.0))).astype(np.int64)
        )
    return ResourceDemand(
        raw_base=np.where(managed, base, 0),
        peak=peak,
        base=np.where(managed, np.clip(base, needed, upper), 0),
        headroom=np.where(managed, scaled, 0),
        peak_with_margin=most,
        lower=lower,
        upper=upper,
        current=current,
        managed=managed,
        user_minimum=wished,
    )


def _scaled(headroom: Int64Array, factor: Float64Array) -> Int64Array:
    return cap_to_bounds(np.where(factor == 1.0, headroom, np.ceil(headroom * factor)).astype(np.int64))
