"""User minimums: what workloads' own annotations request beyond their templates, granted from free capacity only.

Everything else is decided without them. The remaining capacity of a node is granted to the smallest first. ADR 0013.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cruise.decisions.sizing.demand import ResourceDemand
from cruise.decisions.sizing.fitting import NodeFit
from cruise.decisions.sizing.memory_limit import MemoryLimitCeilings
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.pod_columns import UserMinimums
from cruise.decisions.sizing.resizes import SizeDecision, SizeDecisions
from cruise.decisions.sizing.trimming import SizesByResource
from cruise.domain.arrays import BoolArray, Int64Array, round_up_integers
from cruise.domain.resources import ROUNDING_UNIT, ResourceName


@dataclass(frozen=True, slots=True)
class UserMinimumGrants:
    """By resource and container: what user minimums requested, and what was granted; empty if there are none.

    `sizes_before` are the sizes without grants.
    """

    requested: SizesByResource = field(default_factory=dict)
    granted: SizesByResource = field(default_factory=dict)
    sizes_before: SizesByResource = field(default_factory=dict)


NO_USER_MINIMUM_GRANTS = UserMinimumGrants()


def count_protected_pods_at_submitted_requests(columns: NodePodColumns, nodes: Sequence[int]) -> NodePodColumns:
    """Count pods that rank themselves `high` or `never` at their submitted requests on the given nodes.

    The nodes are short of a resource, and a pod's own ranking must not cost another pod its node. What it needs beyond
    its submitted requests becomes a user minimum.
    """
    user_minimums = columns.candidates.user_minimums
    if user_minimums is None or not nodes or not user_minimums.has_own_protection.any():
        return columns
    is_short = np.zeros(len(columns.nodes), dtype=np.bool_)
    is_short[nodes] = True
    cpu, memory = (_reduce_to_submitted(columns, user_minimums, is_short, resource) for resource in ResourceName)
    table = columns.table
    if cpu is table.cpu and memory is table.memory:
        return columns
    return NodePodColumns(
        columns.nodes, columns.available, columns.node_of_pod, columns.counted, replace(table, cpu=cpu, memory=memory)
    )


def _reduce_to_submitted(
    columns: NodePodColumns, user_minimums: UserMinimums, is_short: BoolArray, resource: ResourceName
) -> ResourceDemand:
    demand = columns.table.get_resource(resource)
    short = is_short & (
        columns.base_by_node[resource] + columns.largest_headroom_by_node[resource] > columns.available[resource]
    )
    protected = (
        user_minimums.has_own_protection[columns.candidates.pod_of_container]
        & short[columns.node_of_container]
        & demand.managed
    )
    # What a pod that runs to completion keeps is the least that it may request, not a need: as a base it would get
    # headroom on top in every pass, and what was granted to it would evict other pods.
    completes = columns.candidates.runs_to_completion[columns.candidates.pod_of_container]
    lower = np.where(completes, columns.candidates.minimum[resource], demand.lower)
    base = np.minimum(demand.base, np.maximum(user_minimums.submitted[resource], lower))
    reduced = protected & (base < demand.base)
    if not reduced.any():
        return demand
    excess = np.where(reduced, np.maximum(demand.base - np.maximum(base, demand.lower), 0), 0)
    return replace(
        demand,
        base=np.where(reduced, base, demand.base),
        raw_base=np.where(reduced, base, demand.raw_base),
        user_minimum=demand.user_minimum + excess,
    )


def grant_user_minimums(
    columns: NodePodColumns, fit: NodeFit, sizes: SizesByResource, ceilings: MemoryLimitCeilings | None = None
) -> UserMinimumGrants:
    """Increase `sizes`, in place, towards the user minimums as far as the nodes have free capacity, the smallest first.

    Memory that would raise a limit above its ceiling is not granted.
    """
    user_minimums = columns.candidates.user_minimums
    if user_minimums is None:
        return NO_USER_MINIMUM_GRANTS
    sizes_before = {resource: final.copy() for resource, final in sizes.items()}
    requested, granted = dict[ResourceName, Int64Array](), dict[ResourceName, Int64Array]()
    for resource, final in sizes.items():
        demand, unit = columns.table.get_resource(resource), ROUNDING_UNIT[resource]
        may_grow = (fit.remains & fit.fits[resource][columns.node_of_pod])[columns.candidates.pod_of_container]
        rounded = round_up_integers(np.maximum(final + demand.user_minimum, user_minimums.minimum[resource]), unit)
        maximum = demand.upper
        if resource is ResourceName.MEMORY and ceilings is not None:
            maximum = np.minimum(maximum, ceilings.absolute)
        if fit.evicted:
            # Replacements need the free capacity: nothing more is granted until they run.
            maximum = np.minimum(maximum, np.maximum(demand.current, final))
        wanted = np.where(demand.managed & may_grow, np.minimum(rounded, maximum) - final, 0)
        sums = np.where(fit.remains, columns.candidates.sum_by_pod(resource, final), 0)
        free_capacity = columns.available[resource] - columns.sum_by_node(sums)
        amounts = columns.share_smallest_first(wanted, free_capacity) // unit * unit
        final += amounts
        requested[resource], granted[resource] = np.maximum(wanted, 0), amounts
    return UserMinimumGrants(requested, granted, sizes_before)


def release_user_minimums(
    columns: NodePodColumns, fit: NodeFit, sizes: SizesByResource, decisions: SizeDecisions
) -> None:
    """Have pods written, in `decisions`, that request more than is granted now where their nodes need the capacity.

    An update threshold around a large grant would withhold capacity that other pods need.
    """
    user_minimums = columns.candidates.user_minimums
    if user_minimums is None:
        return
    for resource, final in sizes.items():
        demand, managed = columns.table.get_resource(resource), columns.candidates.manages[resource]
        sums, counted = columns.candidates.sum_by_pod(resource, final), columns.counted[resource]
        planned = np.where(decisions == SizeDecision.RIGHTSIZED, sums, np.where(managed, counted, 0))
        short = columns.sum_by_node(np.where(fit.remains, planned, 0)) > columns.available[resource]
        exceeds_grant = (
            columns.candidates.any_by_pod(demand.managed & (demand.current > final)) & user_minimums.has_user_minimum
        )
        decisions[exceeds_grant & (decisions == SizeDecision.NO_CHANGE_NEEDED) & short[columns.node_of_pod]] = (
            SizeDecision.RIGHTSIZED
        )
