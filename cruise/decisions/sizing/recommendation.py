"""From statistics to demand: base, headroom, bounds and limits of every sized container, in columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from cruise.decisions.guidance.eligibility import Touchable
from cruise.decisions.sizing.candidate_columns import CandidateColumns, PerResource, candidate_columns
from cruise.decisions.sizing.memory_limit import Ceilings, LimitDemand, ceilings, limit_demand
from cruise.decisions.sizing.range_bounds import (
    RequestBounds,
    least_cpu_limits,
    least_memory_limits,
    within_ranges,
)
from cruise.domain.arrays import UNBOUNDED, BoolArray, Float64Array, Int64Array, capped, round_up_whole
from cruise.domain.cluster import LimitRangeItem
from cruise.domain.policy import Policy
from cruise.domain.quotas import Quota
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.domain.usage import StatisticColumns, StatisticsTable

UNIT = {ResourceName.CPU: 1, ResourceName.MEMORY: MEBIBYTE}
# What grows gets this much more than its target, so that the next rise is no write; nothing gets more than its own peak
# and this much more.
SPARE = {ResourceName.CPU: 0.1, ResourceName.MEMORY: 0.1}


@dataclass(frozen=True, slots=True)
class Demand:
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
    peak_with_spare: Int64Array
    lower: Int64Array
    upper: Int64Array
    current: Int64Array
    managed: BoolArray
    wished: Int64Array


@dataclass(frozen=True, slots=True)
class QuotaBounds:
    """What quotas hold back: `limits_stay` tells it of each container's limits, `short` of each pod's growth."""

    quotas: Mapping[str, Sequence[Quota]]
    limits_stay: Mapping[ResourceName, BoolArray]
    short: BoolArray


@dataclass(frozen=True, slots=True)
class DemandTable:
    """The demand of touchable pods, in the order of `candidates`; `rows` are the rows of their statistics.

    `cpu_limit` and `memory_limit` are those in the spec, 0 where there is none; `ceilings` is None where limits have
    none, `quotas` where no quota concerns a pod. `least_limit` is what each container's limits are not lowered below, 0
    where it has and gets none; None by the first design.
    """

    candidates: CandidateColumns
    rows: Int64Array
    cpu: Demand
    memory: Demand
    cpu_limit: Int64Array
    memory_limit: Int64Array
    limit_demand: LimitDemand
    ceilings: Ceilings | None = None
    quotas: QuotaBounds | None = None
    least_limit: PerResource | None = None

    def of(self, resource: ResourceName) -> Demand:
        """Return one resource's demand."""
        return self.cpu if resource is ResourceName.CPU else self.memory


def recommend(
    pods: Sequence[Touchable],
    statistics: StatisticsTable,
    limit_ranges: Mapping[str, Sequence[LimitRangeItem]],
    policy: Policy,
) -> DemandTable:
    """Put the demand of `pods` into columns."""
    count = sum(len(pod.rows) for pod in pods)
    rows = np.fromiter(chain.from_iterable([pod.rows for pod in pods]), dtype=np.int64, count=count)
    stated = np.fromiter(chain.from_iterable([pod.stated for pod in pods]), dtype=np.int64, count=4 * count)
    return demand_table(candidate_columns(pods, limit_ranges, policy), stated.reshape(-1, 4), statistics, rows, policy)


def demand_table(
    candidates: CandidateColumns, stated: Int64Array, statistics: StatisticColumns, rows: Int64Array, policy: Policy
) -> DemandTable:
    """Put together what containers need by their statistics, at `rows`, and what they state now.

    `stated` has a row a container: CPU request, memory request, CPU limit, memory limit, 0 for what is absent.
    """
    cpu_peak = capped(statistics.cpu_peak_millicores[rows])
    memory_peak = np.maximum(capped(statistics.memory_peak_bytes[rows]), capped(statistics.oom_memory_bytes[rows]))
    cpu_base, memory_base = capped(statistics.cpu_base_millicores[rows]), capped(statistics.memory_base_bytes[rows])
    of_limits = limit_demand(statistics, rows, policy)
    memory = _demand(memory_base, memory_peak, candidates, ResourceName.MEMORY, stated[:, 1], policy)
    highest = _ceilings(candidates, stated[:, 3], of_limits, policy) if policy.rules.ceiling else None
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
    if not policy.rules.careful_limits:
        return table
    least = {
        ResourceName.CPU: least_cpu_limits(candidates, table.cpu_limit, table.cpu.peak),
        ResourceName.MEMORY: least_memory_limits(candidates, table.memory_limit, of_limits, highest),
    }
    return with_least_limits(table, least)


def with_least_limits(table: DemandTable, least: PerResource) -> DemandTable:
    """Return the demand with limits that are not lowered below `least`, and with requests that LimitRanges ask for."""
    cpu = _beside(table.cpu, table.cpu_limit, table.candidates, ResourceName.CPU, least[ResourceName.CPU])
    memory = _beside(
        table.memory, table.memory_limit, table.candidates, ResourceName.MEMORY, least[ResourceName.MEMORY]
    )
    return replace(table, cpu=cpu, memory=memory, least_limit=least)


def _beside(
    demand: Demand, limit: Int64Array, candidates: CandidateColumns, resource: ResourceName, least: Int64Array
) -> Demand:
    bounds = RequestBounds(demand.lower, demand.upper, demand.base, demand.peak, demand.current, limit, demand.managed)
    lower, upper = within_ranges(candidates, resource, bounds, least)
    if lower is demand.lower and upper is demand.upper:
        return demand
    base = np.clip(demand.base, np.minimum(lower, demand.current), upper)
    return replace(demand, lower=lower, upper=upper, base=np.where(demand.managed, base, 0))


def _within_limits(memory: Demand, limit: Int64Array, highest: Ceilings) -> Demand:
    """Keep what requests have above their bases within what the limits may rise to.

    A share of a node's headroom may be more than a container ever used, and a request above a limit would lift it.
    """
    return replace(memory, upper=np.minimum(memory.upper, most_under_limits(memory, limit, highest)))


def most_under_limits(memory: Demand, limit: Int64Array, highest: Ceilings) -> Int64Array:
    """Return the largest memory request of each container under what its limit may rise to."""
    least = np.maximum(memory.lower, round_up_whole(memory.base, MEBIBYTE))
    return np.where(limit > 0, np.maximum.reduce([highest.at_all, limit, least]), UNBOUNDED)


def _ceilings(candidates: CandidateColumns, current: Int64Array, demand: LimitDemand, policy: Policy) -> Ceilings:
    """Return the ceilings of the limits that might rise; others stay, and their templates are not looked at.

    Use may lift a limit, and so may a wish for a request above it. Where there is no limit the template states none,
    since none is ever removed in place.
    """
    template = np.where(current > 0, current, UNBOUNDED)
    asking = False if candidates.wishes is None else candidates.wishes.asking[candidates.pod_of]
    might_rise = (current == 0) & candidates.adds_limit[ResourceName.MEMORY] | (demand.wanted > current) | asking
    for at in np.flatnonzero((current > 0) & might_rise).tolist():
        pod = int(candidates.pod_of[at])
        touchable = candidates.pods[pod]
        if touchable.template_limits is None:
            template[at] = -1
        else:
            container = touchable.sized[at - int(candidates.first_container[pod])]
            template[at] = min(touchable.template_limits.get(container.name, UNBOUNDED), UNBOUNDED)
    found = ceilings(template, current, policy)
    return replace(found, at_all=np.where(might_rise, found.at_all, current))


def _demand(
    base: Int64Array,
    peak: Int64Array,
    candidates: CandidateColumns,
    resource: ResourceName,
    current: Int64Array,
    policy: Policy,
) -> Demand:
    factor, managed = candidates.headroom_factor, candidates.manages[resource][candidates.pod_of]
    headroom = np.maximum(peak - base, 0)
    scaled = _scaled(headroom, factor)
    wishes = candidates.wishes
    wished = np.zeros_like(scaled) if wishes is None else _scaled(headroom, wishes.headroom_factor) - scaled
    lower, upper = candidates.least[resource], candidates.most[resource]
    # The server checks a LimitRange where something is written: that it was added makes no pod need more.
    needed = lower
    if policy.rules.careful_limits:
        needed = np.maximum(candidates.stated_least[resource], np.minimum(lower, current))
    most = np.full_like(base, UNBOUNDED)
    if policy.rules.own_peak:
        # A factor below 1 asks for less than usual, and gets less to spare as well.
        most = capped(((base + scaled) * (1 + SPARE[resource] * np.minimum(factor, 1.0))).astype(np.int64))
    return Demand(
        raw_base=np.where(managed, base, 0),
        peak=peak,
        base=np.where(managed, np.clip(base, needed, upper), 0),
        headroom=np.where(managed, scaled, 0),
        peak_with_spare=most,
        lower=lower,
        upper=upper,
        current=current,
        managed=managed,
        wished=wished,
    )


def _scaled(headroom: Int64Array, factor: Float64Array) -> Int64Array:
    return capped(np.where(factor == 1.0, headroom, np.ceil(headroom * factor)).astype(np.int64))
