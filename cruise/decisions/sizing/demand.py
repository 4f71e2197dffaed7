"""From statistics to demand: base, headroom, bounds and limits of every sized container, in columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.pod_policy.usable_statistics import get_largest_weekly_usage
from cruise.decisions.sizing.bound_columns import compute_hpa_request_bounds
from cruise.decisions.sizing.cpu_limit import compute_min_cpu_limits
from cruise.decisions.sizing.memory_limit import (
    MemoryLimitCeilings,
    MemoryLimitDemand,
    compute_limit_ceilings_from_templates,
    compute_limit_demand,
)
from cruise.decisions.sizing.pod_columns import PerResource, ResizablePodColumns, build_resizable_pod_columns
from cruise.decisions.sizing.pod_level_containers import collect_pod_level_containers
from cruise.domain.arrays import (
    UNBOUNDED,
    BoolArray,
    Float64Array,
    Int64Array,
    cap_against_overflow,
    round_up,
    round_up_integers,
)
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE, ROUNDING_UNIT, ResourceName
from cruise.domain.usage import StatisticColumns, StatisticsTable

# Margin above its target that an increased request gets, so that the next rise needs no write; no request exceeds the
# container's own peak by more.
PEAK_MARGIN_SHARE = {ResourceName.CPU: 0.1, ResourceName.MEMORY: 0.1}


def compute_min_memory_limits(
    candidates: ResizablePodColumns, current: Int64Array, demand: MemoryLimitDemand, ceiling: MemoryLimitCeilings | None
) -> Int64Array:
    """Return the least that each container's memory limit may be, 0 if it has and gets none."""
    known = demand.known
    if ceiling is not None:
        highest = np.where(demand.was_oom_killed | demand.is_varying, ceiling.absolute, ceiling.without_cause)
        known = np.minimum(known, np.maximum(highest, current))
    minimum = np.where(demand.may_fall, known, np.maximum(known, current))
    minimum = np.maximum(minimum, np.minimum(candidates.heap_limit, current))
    minimum = np.where(candidates.keeps_memory_limit | ~candidates.may_shrink, current, minimum)
    minimum = np.where(candidates.may_grow, minimum, np.minimum(minimum, current))
    needed = np.maximum(demand.known, candidates.heap_limit)
    minimum_if_added = np.where(candidates.adds_limit[ResourceName.MEMORY], needed, 0)
    return np.where(current > 0, minimum, minimum_if_added)


@dataclass(frozen=True, slots=True)
class ResourceDemand:
    """The demand of C sized containers for one resource: what each needs, may get, and has now.

    `base` is the statistic clamped to [`lower`, `upper`]; what a LimitRange requires above the present request is no
    need. `raw_base`, `peak` and `headroom` are the statistic's, the headroom multiplied by its factor. Base and
    headroom are zero if the pod's resource is not managed. A container that is not managed in a pod that is has its
    present request as base, and no headroom. `peak_with_margin` is the largest target that use alone causes.
    `current` is the request in the spec, 0 for none. `user_minimum` is what the workload's own annotations request
    beyond all of this; a smallest request of theirs is added separately.
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
    """What quotas restrict: whether each container's limits stay, and whether each pod's growth is withheld."""

    quotas: Mapping[str, Sequence[ResourceQuota]]
    keeps_limits: Mapping[ResourceName, BoolArray]
    withholds_growth: BoolArray


@dataclass(frozen=True, slots=True)
class DemandTable:
    """The demand of resizable pods, in the order of `candidates`; `rows` are the rows of their statistics.

    `cpu_limit` and `memory_limit` are those in the spec, 0 for none. `ceilings` is None if limits have none, `quotas`
    if no quota applies to a pod. `minimum_limit` is what a container's limit is not lowered below, 0 if it has and gets
    none; None under the first rule set. `utilisation_bounds` are the smallest and largest requests that HPAs allow, by
    resource, without resources that none bounds.
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
    utilisation_bounds: Mapping[ResourceName, tuple[Int64Array, Int64Array]] = field(default_factory=dict)

    def get_resource(self, resource: ResourceName) -> ResourceDemand:
        """Return the demand for one resource."""
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
    pod_level = collect_pod_level_containers(pods, statistics, policy)
    candidates = build_resizable_pod_columns(pods, limit_ranges, policy, pod_level)
    return compute_demand(candidates, stated.reshape(-1, 4), statistics, rows, policy)


def compute_demand(
    candidates: ResizablePodColumns, stated: Int64Array, statistics: StatisticColumns, rows: Int64Array, policy: Policy
) -> DemandTable:
    """Compute what containers need by their statistics, at `rows`, and what they state now.

    `stated` has a row per container: CPU request, memory request, CPU limit, memory limit, 0 for none.
    """
    candidates = candidates.narrow_bounds(stated)
    cpu_peak = cap_against_overflow(statistics.cpu_peak_millicores[rows])
    memory_peak = np.maximum(
        cap_against_overflow(statistics.memory_peak_bytes[rows]),
        cap_against_overflow(statistics.oom_memory_bytes[rows]),
    )
    cpu_base, memory_base = (
        cap_against_overflow(statistics.cpu_base_millicores[rows]),
        cap_against_overflow(statistics.memory_base_bytes[rows]),
    )
    limit_demand = compute_limit_demand(statistics, rows, policy)
    memory = _compute_resource_demand(memory_base, memory_peak, candidates, ResourceName.MEMORY, stated[:, 1], policy)
    ceilings = (
        _compute_ceilings(candidates, stated[:, 3], limit_demand, policy) if policy.rules.memory_limit_ceiling else None
    )
    table = DemandTable(
        candidates=candidates,
        rows=rows,
        cpu=_compute_resource_demand(cpu_base, cpu_peak, candidates, ResourceName.CPU, stated[:, 0], policy),
        memory=memory if ceilings is None else _cap_at_limit_ceilings(memory, stated[:, 3], ceilings),
        cpu_limit=stated[:, 2],
        memory_limit=stated[:, 3],
        limit_demand=limit_demand,
        ceilings=ceilings,
    )
    if not policy.rules.memory_limit_safeguards:
        return table
    minimum_limits = {
        ResourceName.CPU: compute_min_cpu_limits(candidates, table.cpu_limit, table.cpu.peak),
        ResourceName.MEMORY: compute_min_memory_limits(candidates, table.memory_limit, limit_demand, ceilings),
    }
    return _apply_utilisation_bounds(apply_min_limits(table, minimum_limits), statistics)


def apply_min_limits(table: DemandTable, minimum_limits: PerResource) -> DemandTable:
    """Return the demand with the given least limits, and with the requests that LimitRanges require for them."""
    cpu = _apply_min_limit(
        table.cpu, table.cpu_limit, table.candidates, ResourceName.CPU, minimum_limits[ResourceName.CPU]
    )
    memory = _apply_min_limit(
        table.memory, table.memory_limit, table.candidates, ResourceName.MEMORY, minimum_limits[ResourceName.MEMORY]
    )
    return replace(table, cpu=cpu, memory=memory, minimum_limit=minimum_limits)


def _apply_utilisation_bounds(table: DemandTable, statistics: StatisticColumns) -> DemandTable:
    """Return the demand within the bounds of HPAs, which take precedence over all others, except in growing back."""
    for resource, groups in table.candidates.metric_groups.items():
        demand = table.get_resource(resource)
        use = get_largest_weekly_usage(statistics, table.rows, resource)
        lower, upper = compute_hpa_request_bounds(groups, resource, demand.current, use)
        # The present requests may stay, but others bound how far they are restored.
        lower = np.minimum(lower, np.maximum(demand.current, demand.upper))
        bounded = replace(
            demand,
            lower=np.clip(demand.lower, lower, upper),
            upper=np.clip(demand.upper, lower, upper),
            # Requests that are restored evict no other pod.
            base=np.where(demand.managed, np.clip(demand.base, np.minimum(lower, demand.current), upper), 0),
        )
        bounds = {**table.utilisation_bounds, resource: (lower, upper)}
        if resource is ResourceName.CPU:
            table = replace(table, cpu=bounded, utilisation_bounds=bounds)
        else:
            table = replace(table, memory=bounded, utilisation_bounds=bounds)
    return table


def _apply_min_limit(
    demand: ResourceDemand,
    limit: Int64Array,
    candidates: ResizablePodColumns,
    resource: ResourceName,
    minimum_limit: Int64Array,
) -> ResourceDemand:
    lower, upper = _apply_limit_ranges(demand, limit, candidates, resource, minimum_limit)
    if lower is demand.lower and upper is demand.upper:
        return demand
    base = np.clip(demand.base, np.minimum(lower, demand.current), upper)
    return replace(demand, lower=lower, upper=upper, base=np.where(demand.managed, base, demand.base))


def _apply_limit_ranges(
    demand: ResourceDemand,
    limit: Int64Array,
    candidates: ResizablePodColumns,
    resource: ResourceName,
    minimum_limit: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    """Return the smallest and the largest request of each container that LimitRanges allow with the least limits.

    A limit is not lowered below known use, nor on a short history. If a LimitRange has a maximum limit/request ratio,
    the request rises to what that limit needs; if no request is enough, the pod is skipped.
    """
    lower, upper = _raise_to_limit_ratio(candidates, resource, demand, minimum_limit), demand.upper
    if not candidates.pod_ranges:
        return lower, upper
    lower, upper = lower.copy(), upper.copy()
    for index, ranges in candidates.pod_ranges.items():
        first = int(candidates.first_container[index])
        containers, pod_range = slice(first, first + len(candidates.pods[index].sized)), ranges.get(resource)
        if pod_range is None or not candidates.manages[resource][index]:
            continue
        minimums, maximums, limits = (
            lower[containers].tolist(),
            upper[containers].tolist(),
            minimum_limit[containers].tolist(),
        )
        base, current = (
            np.maximum(demand.base[containers], lower[containers]).tolist(),
            demand.current[containers].tolist(),
        )
        # The present limit may stay if no larger one is allowed.
        kept_limits = np.where(
            limit[containers] > 0,
            np.minimum(limit[containers], minimum_limit[containers]),
            minimum_limit[containers],
        ).tolist()
        allowed = pod_range.get_maximum_requests(minimums, base, demand.peak[containers].tolist(), kept_limits)
        if allowed is not None:
            maximums = [max(floor, min(pair)) for floor, *pair in zip(minimums, maximums, allowed, strict=True)]
        required = pod_range.get_minimum_requests(current, base, maximums, limits)
        lower[containers], upper[containers] = np.maximum(lower[containers], required), maximums
    return lower, upper


def _raise_to_limit_ratio(
    candidates: ResizablePodColumns, resource: ResourceName, demand: ResourceDemand, minimum_limit: Int64Array
) -> Int64Array:
    ratio, unit = candidates.limit_ratio[resource], ROUNDING_UNIT[resource]
    applies = demand.managed & (minimum_limit > 0) & ~np.isinf(ratio)
    if not applies.any():
        return demand.lower
    finite = np.where(applies, ratio, 1.0)
    needed = round_up_integers(np.ceil(minimum_limit / finite).astype(np.int64), unit)
    needed += np.where(needed * finite < minimum_limit, unit, 0)
    return np.where(applies & (needed <= demand.upper), np.maximum(demand.lower, needed), demand.lower)


def _cap_at_limit_ceilings(memory: ResourceDemand, limit: Int64Array, ceilings: MemoryLimitCeilings) -> ResourceDemand:
    """Cap requests above their bases at what the limits may rise to.

    A share of a node's headroom may exceed everything that the container ever used, and would raise its limit.
    """
    return replace(memory, upper=np.minimum(memory.upper, compute_max_requests(memory, limit, ceilings)))


def compute_kept_requests(
    candidates: ResizablePodColumns, resource: ResourceName, demand: ResourceDemand
) -> Int64Array:
    """Return up to which request each container keeps what it grows to, 0 where that may be cut again.

    A container that may not shrink keeps all of it, one of a pod that runs to completion as far as its peak, and one
    with a heap as far as the heap's floor, which rises with the request.
    """
    completes = candidates.runs_to_completion[candidates.pod_of_container]
    kept = np.where(completes, round_up(demand.peak.astype(np.float64), ROUNDING_UNIT[resource]), 0)
    if resource is ResourceName.MEMORY:
        kept = np.maximum(kept, candidates.kept_heap_request)
    return np.where(candidates.may_shrink, kept, UNBOUNDED)


def compute_max_requests(memory: ResourceDemand, limit: Int64Array, ceilings: MemoryLimitCeilings) -> Int64Array:
    """Return the largest memory request of each container that fits what its limit may rise to."""
    minimum = np.maximum(memory.lower, round_up_integers(memory.base, MEBIBYTE))
    return np.where(limit > 0, np.maximum.reduce([ceilings.absolute, limit, minimum]), UNBOUNDED)


def _compute_ceilings(
    candidates: ResizablePodColumns, current: Int64Array, demand: MemoryLimitDemand, policy: Policy
) -> MemoryLimitCeilings:
    """Return the ceilings of limits that might rise; others stay, and their templates are not read.

    A limit may rise because of use or because of a user minimum. A container without a limit has none in its template,
    since a limit cannot be removed in place.
    """
    template = np.where(current > 0, current, UNBOUNDED)
    has_user_minimum = (
        False
        if candidates.user_minimums is None
        else candidates.user_minimums.has_user_minimum[candidates.pod_of_container]
    )
    might_rise = (
        (current == 0) & candidates.adds_limit[ResourceName.MEMORY] | (demand.target > current) | has_user_minimum
    )
    for at in np.flatnonzero((current > 0) & might_rise).tolist():
        pod = int(candidates.pod_of_container[at])
        resizable = candidates.pods[pod]
        if resizable.template_limits is None:
            template[at] = -1
        else:
            container = resizable.sized[at - int(candidates.first_container[pod])]
            template[at] = min(resizable.template_limits.get(container.name, UNBOUNDED), UNBOUNDED)
    ceilings = compute_limit_ceilings_from_templates(template, current, policy)
    return replace(ceilings, absolute=np.where(might_rise, ceilings.absolute, current))


def _compute_resource_demand(
    base: Int64Array,
    peak: Int64Array,
    candidates: ResizablePodColumns,
    resource: ResourceName,
    current: Int64Array,
    policy: Policy,
) -> ResourceDemand:
    factor, managed = candidates.headroom_factor, candidates.manages_container[resource]
    headroom = np.maximum(peak - base, 0)
    scaled = _multiply_headroom(headroom, factor)
    user_minimums = candidates.user_minimums
    user_minimum = (
        np.zeros_like(scaled)
        if user_minimums is None
        else _multiply_headroom(headroom, user_minimums.headroom_factor) - scaled
    )
    lower, upper = candidates.minimum[resource], candidates.maximum[resource]
    unmanaged_base = np.where(candidates.manages[resource][candidates.pod_of_container], current, 0)
    # The API server checks a LimitRange only when something is written: adding one makes no pod need more.
    required = lower
    if policy.rules.memory_limit_safeguards:
        required = np.maximum(candidates.stated_minimum[resource], np.minimum(lower, current))
    if policy.rules.run_histories and candidates.runs_to_completion.any():
        # Its present use says little about its next step, and an earlier run reached this peak.
        completes = candidates.runs_to_completion[candidates.pod_of_container] & managed
        reserved = np.where(completes, np.minimum(np.minimum(current, peak), upper), 0)
        lower, required = np.maximum(lower, reserved), np.maximum(required, reserved)
    peak_with_margin = np.full_like(base, UNBOUNDED)
    if policy.rules.limit_to_own_peak:
        # A factor below 1 reduces the margin as well.
        peak_with_margin = cap_against_overflow(
            ((base + scaled) * (1 + PEAK_MARGIN_SHARE[resource] * np.minimum(factor, 1.0))).astype(np.int64)
        )
    # What a container may not request beyond its present size is shared by the others.
    peak_with_margin = np.where(candidates.may_grow, peak_with_margin, np.minimum(peak_with_margin, upper))
    return ResourceDemand(
        raw_base=np.where(managed, base, 0),
        peak=peak,
        base=np.where(managed, np.clip(base, required, upper), unmanaged_base),
        headroom=np.where(managed, scaled, 0),
        peak_with_margin=peak_with_margin,
        lower=lower,
        upper=upper,
        current=current,
        managed=managed,
        user_minimum=user_minimum,
    )


def get_headroom_above_base(candidates: ResizablePodColumns, demand: ResourceDemand) -> Int64Array:
    """Return the headroom of each container that its base does not cover.

    What a pod that runs to completion keeps is part of its base, and covers its own peak: with all of its headroom on
    top, growing it would leave no room for the other pods of its node.
    """
    completes = candidates.runs_to_completion[candidates.pod_of_container]
    kept = np.where(completes, np.maximum(demand.base - demand.raw_base, 0), 0)
    return np.maximum(demand.headroom - kept, 0)


def _multiply_headroom(headroom: Int64Array, factor: Float64Array) -> Int64Array:
    return cap_against_overflow(np.where(factor == 1.0, headroom, np.ceil(headroom * factor)).astype(np.int64))
