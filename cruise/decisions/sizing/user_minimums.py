"""What workloads' own annotations ask beyond what is theirs: it costs no neighbour, so it is granted from free room.

Everything else is decided without it. What the nodes have left then goes to the smallest wishes first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cruise.decisions.sizing.candidate_columns import UserMinimums
from cruise.decisions.sizing.fitting import NodeFit
from cruise.decisions.sizing.memory_limit import MemoryLimitCeilings
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.recommendation import ROUNDING_UNIT, ResourceDemand
from cruise.decisions.sizing.resizes import SizeDecision, SizeDecisions
from cruise.domain.resources import BoolArray, Int64Array, ResourceName, round_up_integers

SizesByResource = Mapping[ResourceName, Int64Array]


@dataclass(frozen=True, slots=True)
class UserMinimumGrants:
    """By resource and container what was wished for and what was granted, both empty where nothing was wished for.

    `without` are the sizes before.
    """

    requested: SizesByResource = field(default_factory=dict)
    granted: SizesByResource = field(default_factory=dict)
    sizes_before: SizesByResource = field(default_factory=dict)


NO_USER_MINIMUM_GRANTS = UserMinimumGrants()


def count_at_submitted_requests(columns: NodePodColumns, nodes: Sequence[int]) -> NodePodColumns:
    """Count pods that rank themselves `high` or `never` at what they were submitted with, on `nodes` that are short.

    So their rank costs no other pod its place. What they need beyond is one of their wishes.
    """
    wishes = columns.candidates.user_minimums
    if wishes is None or not nodes or not wishes.has_own_protection.any():
        return columns
    concerned = np.zeros(len(columns.nodes), dtype=np.bool_)
    concerned[nodes] = True
    cpu, memory = (_yielding(columns, wishes, concerned, resource) for resource in ResourceName)
    table = columns.table
    if cpu is table.cpu and memory is table.memory:
        return columns
    return NodePodColumns(
        columns.nodes, columns.available, columns.node_of_pod, columns.counted, replace(table, cpu=cpu, memory=memory)
    )


def _yielding(
    columns: NodePodColumns, wishes: UserMinimums, nodes: BoolArray, resource: ResourceName
) -> ResourceDemand:
    demand = columns.table.get_resource(resource)
    short = nodes & (
        columns.base_by_node[resource] + columns.largest_headroom_by_node[resource] > columns.available[resource]
    )
    shields = wishes.has_own_protection[columns.candidates.pod_of] & short[columns.node_of] & demand.managed
    beyond = np.where(shields, np.maximum(demand.base - np.maximum(wishes.submitted[resource], demand.lower), 0), 0)
    if not beyond.any():
        return demand
    base = demand.base - beyond
    raw_base = np.where(beyond > 0, base, demand.raw_base)
    return replace(demand, base=base, raw_base=raw_base, user_minimum=demand.user_minimum + beyond)


def grant_user_minimums(
    columns: NodePodColumns, fit: NodeFit, sizes: SizesByResource, ceilings: MemoryLimitCeilings | None = None
) -> UserMinimumGrants:
    """Raise `sizes`, in place, by what is wished for, as far as the nodes have room left, the smallest wishes first.

    No memory is granted that would lift a limit above its ceiling.
    """
    wishes = columns.candidates.user_minimums
    if wishes is None:
        return NO_USER_MINIMUM_GRANTS
    grants = UserMinimumGrants({}, {}, {resource: final.copy() for resource, final in sizes.items()})
    wished, granted = dict(grants.requested), dict(grants.granted)
    for resource, final in sizes.items():
        demand, unit = columns.table.get_resource(resource), ROUNDING_UNIT[resource]
        there = (fit.remains & fit.fits[resource][columns.node_of_pod])[columns.candidates.pod_of]
        whole = round_up_integers(np.maximum(final + demand.user_minimum, wishes.minimum[resource]), unit)
        most = demand.upper
        if resource is ResourceName.MEMORY and ceilings is not None:
            most = np.minimum(most, ceilings.absolute)
        if fit.evicted:
            # Replacements go where there is room: nothing new is granted before they are there.
            most = np.minimum(most, np.maximum(demand.current, final))
        wants = np.where(demand.managed & there, np.minimum(whole, most) - final, 0)
        order = np.flatnonzero(wants > 0)
        order = order[np.lexsort((order, wants[order], columns.node_of[order]))]
        sums = np.where(fit.remains, columns.candidates.sum_by_pod(resource, final), 0)
        room = columns.available[resource] - columns.sum_by_node(sums)
        given = np.zeros_like(final)
        given[order] = _smallest_first(wants[order], columns.node_of[order], room) // unit * unit
        final += given
        wished[resource], granted[resource] = np.maximum(wants, 0), given
    return UserMinimumGrants(wished, granted, grants.sizes_before)


def _smallest_first(wants: Int64Array, nodes: Int64Array, room: Int64Array) -> Int64Array:
    """Share each node's room among wishes, which are sorted by node and then in the order of their turns."""
    before = np.cumsum(wants) - wants
    first = np.searchsorted(nodes, nodes)
    left = np.maximum(room[nodes] - (before - before[first]), 0)
    return np.minimum(wants, left)


def release_user_minimums(columns: NodePodColumns, fit: NodeFit, sizes: SizesByResource, causes: SizeDecisions) -> None:
    """Have pods written, in `causes`, that hold more than is granted now, where their nodes need it.

    A dead band around a large grant would keep from its neighbours what they need.
    """
    wishes = columns.candidates.user_minimums
    if wishes is None:
        return
    for resource, final in sizes.items():
        demand, managed = columns.table.get_resource(resource), columns.candidates.manages[resource]
        sums, counted = columns.candidates.sum_by_pod(resource, final), columns.counted[resource]
        after = np.where(causes == SizeDecision.RIGHTSIZED, sums, np.where(managed, counted, 0))
        short = columns.sum_by_node(np.where(fit.remains, after, 0)) > columns.available[resource]
        held = columns.candidates.any_by_pod(demand.managed & (demand.current > final)) & wishes.requested
        causes[held & (causes == SizeDecision.NO_CHANGE_NEEDED) & short[columns.node_of_pod]] = SizeDecision.RIGHTSIZED
