"""What workloads' own annotations ask beyond what is theirs: it costs no neighbour, so it is granted from free room.

Everything else is decided without it. What the nodes have left then goes to the smallest wishes first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cruise.decisions.sizing.candidate_columns import Wishes
from cruise.decisions.sizing.causes import Cause, Causes
from cruise.decisions.sizing.fitting import Fit
from cruise.decisions.sizing.memory_limit import Ceilings
from cruise.decisions.sizing.node_columns import NodeColumns
from cruise.decisions.sizing.recommendation import UNIT, Demand
from cruise.domain.arrays import BoolArray, Int64Array, round_up_whole
from cruise.domain.resources import ResourceName

Sizes = Mapping[ResourceName, Int64Array]


@dataclass(frozen=True, slots=True)
class Grants:
    """By resource and container what was wished for and what was granted, both empty where nothing was wished for.

    `without` are the sizes before.
    """

    wished: Sizes = field(default_factory=dict)
    granted: Sizes = field(default_factory=dict)
    without: Sizes = field(default_factory=dict)


NO_GRANTS = Grants()


def yielding(columns: NodeColumns, nodes: Sequence[int]) -> NodeColumns:
    """Count pods that rank themselves `high` or `never` at what they were submitted with, on `nodes` that are short.

    So their rank costs no other pod its place. What they need beyond is one of their wishes.
    """
    wishes = columns.candidates.wishes
    if wishes is None or not nodes or not wishes.shields.any():
        return columns
    concerned = np.zeros(len(columns.nodes), dtype=np.bool_)
    concerned[nodes] = True
    cpu, memory = (_yielding(columns, wishes, concerned, resource) for resource in ResourceName)
    table = columns.table
    if cpu is table.cpu and memory is table.memory:
        return columns
    return NodeColumns(
        columns.nodes, columns.available, columns.node_of_pod, columns.counted, replace(table, cpu=cpu, memory=memory)
    )


def _yielding(columns: NodeColumns, wishes: Wishes, nodes: BoolArray, resource: ResourceName) -> Demand:
    demand = columns.table.of(resource)
    short = nodes & (columns.base_of_nodes[resource] + columns.spike_of_nodes[resource] > columns.available[resource])
    shields = wishes.shields[columns.candidates.pod_of] & short[columns.node_of] & demand.managed
    beyond = np.where(shields, np.maximum(demand.base - np.maximum(wishes.submitted[resource], demand.lower), 0), 0)
    if not beyond.any():
        return demand
    base = demand.base - beyond
    raw_base = np.where(beyond > 0, base, demand.raw_base)
    return replace(demand, base=base, raw_base=raw_base, wished=demand.wished + beyond)


def grant_wishes(columns: NodeColumns, fit: Fit, sizes: Sizes, ceilings: Ceilings | None = None) -> Grants:
    """Raise `sizes`, in place, by what is wished for, as far as the nodes have room left, the smallest wishes first.

    No memory is granted that would lift a limit above its ceiling.
    """
    wishes = columns.candidates.wishes
    if wishes is None:
        return NO_GRANTS
    grants = Grants({}, {}, {resource: final.copy() for resource, final in sizes.items()})
    wished, granted = dict(grants.wished), dict(grants.granted)
    for resource, final in sizes.items():
        demand, unit = columns.table.of(resource), UNIT[resource]
        there = (fit.stays & fit.fits[resource][columns.node_of_pod])[columns.candidates.pod_of]
        whole = round_up_whole(np.maximum(final + demand.wished, wishes.least[resource]), unit)
        most = demand.upper
        if resource is ResourceName.MEMORY and ceilings is not None:
            most = np.minimum(most, ceilings.at_all)
        if fit.evicted:
            # Replacements go where there is room: nothing new is granted before they are there.
            most = np.minimum(most, np.maximum(demand.current, final))
        wants = np.where(demand.managed & there, np.minimum(whole, most) - final, 0)
        order = np.flatnonzero(wants > 0)
        order = order[np.lexsort((order, wants[order], columns.node_of[order]))]
        sums = np.where(fit.stays, columns.candidates.pod_sum(resource, final), 0)
        room = columns.available[resource] - columns.node_sum(sums)
        given = np.zeros_like(final)
        given[order] = _smallest_first(wants[order], columns.node_of[order], room) // unit * unit
        final += given
        wished[resource], granted[resource] = np.maximum(wants, 0), given
    return Grants(wished, granted, grants.without)


def _smallest_first(wants: Int64Array, nodes: Int64Array, room: Int64Array) -> Int64Array:
    """Share each node's room among wishes, which are sorted by node and then in the order of their turns."""
    before = np.cumsum(wants) - wants
    first = np.searchsorted(nodes, nodes)
    left = np.maximum(room[nodes] - (before - before[first]), 0)
    return np.minimum(wants, left)


def give_back(columns: NodeColumns, fit: Fit, sizes: Sizes, causes: Causes) -> None:
    """Have pods written, in `causes`, that hold more than is granted now, where their nodes need it.

    A dead band around a large grant would keep from its neighbours what they need.
    """
    wishes = columns.candidates.wishes
    if wishes is None:
        return
    for resource, final in sizes.items():
        demand, managed = columns.table.of(resource), columns.candidates.manages[resource]
        sums, counted = columns.candidates.pod_sum(resource, final), columns.counted[resource]
        after = np.where(causes == Cause.RIGHTSIZED, sums, np.where(managed, counted, 0))
        short = columns.node_sum(np.where(fit.stays, after, 0)) > columns.available[resource]
        held = columns.candidates.any_of_pod(demand.managed & (demand.current > final)) & wishes.asking
        causes[held & (causes == Cause.SETTLED) & short[columns.node_of_pod]] = Cause.RIGHTSIZED
