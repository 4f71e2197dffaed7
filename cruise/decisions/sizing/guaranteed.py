"""Guaranteed pods: sized by the largest use of their history, with requests that stay equal to their limits.

Both limits are hard: above them the pod is throttled or killed. So it gets no share of its node's headroom, its sizes
decrease only on a long history, and never below the largest known use. It grows into free capacity only: no other pod
is evicted or gets less headroom for it. ADR 0046.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cruise.decisions.pod_policy.container_bounds import ContainerBounds
from cruise.decisions.sizing.demand import DemandTable, ResourceDemand
from cruise.decisions.sizing.memory_limit import (
    AFTER_OOM_KILL_FACTOR,
    has_long_history,
)
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.domain.arrays import UNBOUNDED, BoolArray, Int64Array, cap_against_overflow, round_up_integers
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE, ResourceName, round_up_to_mebibytes
from cruise.domain.usage import OomRecord, Statistic, StatisticColumns

_UNBOUNDED = np.int64(UNBOUNDED)
# systemd rounds CPU limits up to 10m, and a kubelet reports the limit in effect.
_UNITS = {ResourceName.CPU: 10, ResourceName.MEMORY: MEBIBYTE}


@dataclass(frozen=True, slots=True)
class GuaranteedUsage:
    """What is known of the containers' use of a resource: the largest, and whether their history is long."""

    largest: Int64Array
    has_long_history: BoolArray


def get_guaranteed_usage(
    statistics: StatisticColumns, rows: Int64Array, policy: Policy
) -> Mapping[ResourceName, GuaranteedUsage]:
    """Return the largest known use of each resource by the statistics at `rows`.

    While an OOM kill is remembered, the history of memory does not count as long: the use at the kill may be in no
    sample.
    """
    is_long = has_long_history(statistics.history_since[rows], statistics.updated_at[rows], policy)
    oom_memory = statistics.oom_memory_bytes[rows]
    memory = (statistics.memory_7d_max_bytes, statistics.memory_peak_bytes, statistics.memory_last_bytes)
    return {
        ResourceName.CPU: GuaranteedUsage(
            cap_against_overflow(
                np.maximum(statistics.cpu_7d_max_millicores[rows], statistics.cpu_peak_millicores[rows])
            ),
            is_long,
        ),
        ResourceName.MEMORY: GuaranteedUsage(
            cap_against_overflow(np.maximum.reduce([oom_memory, *(column[rows] for column in memory)])),
            is_long & (oom_memory == 0),
        ),
    }


@dataclass(frozen=True, slots=True)
class GuaranteedBounds:
    """The bounds of the containers' sizes, and `highest`: what a size may rise to."""

    lower: Int64Array
    upper: Int64Array
    highest: Int64Array


def compute_guaranteed_sizes(
    resource: ResourceName, use: GuaranteedUsage, current: Int64Array, bounds: GuaranteedBounds, policy: Policy
) -> tuple[Int64Array, Int64Array]:
    """Return the request and limit of each container, and the least that they may be: they do not fall below it.

    Sizes between the two margins above the largest use stay: one that fits need not change, and a peak that is in no
    sample yet needs more than one that was just seen.
    """
    unit = _UNITS[resource]
    largest = round_up_integers(use.largest, unit)
    least = np.minimum(current, np.where(use.has_long_history, largest, current))
    grown, shrunk = (
        round_up_integers(np.ceil(use.largest * margin).astype(np.int64), unit)
        for margin in (policy.guaranteed_growth_margin, policy.guaranteed_shrink_margin)
    )
    grown = np.minimum(grown, np.maximum(bounds.highest, current))
    sizes = np.where(current > shrunk, np.maximum(shrunk, least), np.maximum(current, grown))
    return np.maximum(np.clip(sizes, bounds.lower, bounds.upper), least), least


def apply_guaranteed_sizes(table: DemandTable, statistics: StatisticColumns, policy: Policy) -> DemandTable:
    """Return the demand with the sizes of Guaranteed pods as their bases, without headroom."""
    candidates = table.candidates
    if not candidates.guaranteed.any():
        return table
    use = get_guaranteed_usage(statistics, table.rows, policy)
    keeps_memory = candidates.keeps_memory_limit
    highest_cpu, keeps_cpu = np.full_like(table.rows, _UNBOUNDED), candidates.keeps_cpu_limit
    cpu = _replace_demand(table, ResourceName.CPU, use[ResourceName.CPU], highest_cpu, policy, keeps_cpu)
    memory = _replace_demand(
        table, ResourceName.MEMORY, use[ResourceName.MEMORY], _get_highest_memory(table), policy, keeps_memory
    )
    return replace(table, cpu=cpu, memory=memory)


def _get_highest_memory(table: DemandTable) -> Int64Array:
    """Return what memory may rise to: a leak must reach its limit before the node runs out of memory."""
    if table.ceilings is None:
        return np.full_like(table.rows, _UNBOUNDED)
    has_cause = table.limit_demand.was_oom_killed | table.limit_demand.is_varying
    return np.where(has_cause, table.ceilings.absolute, table.ceilings.without_cause)


def _replace_demand(
    table: DemandTable,
    resource: ResourceName,
    use: GuaranteedUsage,
    highest: Int64Array,
    policy: Policy,
    keeps_size: BoolArray,
) -> ResourceDemand:
    candidates, demand = table.candidates, table.get_resource(resource)
    rows = candidates.guaranteed[candidates.pod_of_container] & demand.managed
    # What a LimitRange requires above the present request is no need.
    lower = np.maximum(candidates.stated_minimum[resource], np.minimum(candidates.minimum[resource], demand.current))
    bounds = GuaranteedBounds(lower, candidates.maximum[resource], highest)
    sizes, least = compute_guaranteed_sizes(resource, use, demand.current, bounds, policy)
    sizes, least = (np.where(keeps_size, demand.current, one) for one in (sizes, least))
    upper = np.maximum(candidates.maximum[resource], sizes)
    lower = np.maximum(np.minimum(candidates.minimum[resource], upper), least)
    if resource in table.utilisation_bounds:
        # HPAs take precedence over all other bounds; the present size, and so the least, is always within theirs.
        sizes, lower, upper = (np.clip(one, *table.utilisation_bounds[resource]) for one in (sizes, lower, upper))
    return replace(
        demand,
        raw_base=np.where(rows, sizes, demand.raw_base),
        peak=np.where(rows, sizes, demand.peak),
        base=np.where(rows, sizes, demand.base),
        headroom=np.where(rows, 0, demand.headroom),
        peak_with_margin=np.where(rows, sizes, demand.peak_with_margin),
        lower=np.where(rows, lower, demand.lower),
        upper=np.where(rows, upper, demand.upper),
        user_minimum=np.where(rows, 0, demand.user_minimum),
    )


def compute_guaranteed_memory_after_oom_kill(
    record: OomRecord, statistic: Statistic | None, current: int, bounds: ContainerBounds, policy: Policy, ceiling: int
) -> int:
    """Return the memory request and limit of a killed container; never lower than before."""
    if bounds.keeps_memory_limit:
        return current
    largest = max(record.oom_memory_bytes, 0 if statistic is None else statistic.memory_7d_max_bytes)
    wanted = max(largest * policy.guaranteed_growth_margin, (record.memory_limit_bytes or 0) * AFTER_OOM_KILL_FACTOR)
    return max(min(round_up_to_mebibytes(math.ceil(wanted)), ceiling, bounds.whole_unit_bounds[3]), current)


def limit_guaranteed_growth(columns: NodePodColumns) -> NodePodColumns:
    """Return columns in which Guaranteed pods grow only into the free capacity of their nodes, the smallest first.

    Old kubelets do not decrease memory limits, so the sizes stay there.
    """
    candidates, table = columns.candidates, columns.table
    if not candidates.guaranteed.any():
        return columns
    rows = candidates.guaranteed[candidates.pod_of_container]
    keeps_memory = rows & table.memory.managed & ~columns.lowers_memory_limit
    raised = np.where(keeps_memory, np.maximum(table.memory.base, table.memory.current), table.memory.base)
    memory = _set_bases(table.memory, raised, keeps_memory)
    # A maximum below the present size would decrease it.
    lower, upper = (
        np.where(keeps_memory, np.maximum(one, memory.current), one) for one in (memory.lower, memory.upper)
    )
    table = replace(table, memory=replace(memory, lower=lower, upper=upper))
    cpu, memory = (_limit_growth(columns, table, one, rows) for one in ResourceName)
    table = replace(table, cpu=cpu, memory=memory)
    return NodePodColumns(columns.nodes, columns.available, columns.node_of_pod, columns.counted, table)


def _limit_growth(
    columns: NodePodColumns, table: DemandTable, resource: ResourceName, rows: BoolArray
) -> ResourceDemand:
    demand, unit, candidates = table.get_resource(resource), _UNITS[resource], columns.candidates
    growth = np.where(rows & demand.managed, np.maximum(demand.base - demand.current, 0), 0)
    if not growth.any():
        return demand
    bases = demand.base - growth
    free = columns.available[resource] - columns.largest_headroom_by_node[resource]
    free = free - columns.sum_by_node(candidates.sum_by_pod(resource, bases))
    shared = columns.share_smallest_first(growth, free)
    bases += np.where(shared == growth, growth, shared // unit * unit)
    return _set_bases(demand, bases, growth > 0)


def _set_bases(demand: ResourceDemand, bases: Int64Array, rows: BoolArray) -> ResourceDemand:
    """Return the demand with other bases in some rows, which are all that the containers need."""
    return replace(
        demand,
        raw_base=np.where(rows, bases, demand.raw_base),
        peak=np.where(rows, bases, demand.peak),
        base=np.where(rows, bases, demand.base),
        peak_with_margin=np.where(rows, bases, demand.peak_with_margin),
    )
