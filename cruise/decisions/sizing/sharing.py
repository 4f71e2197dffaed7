"""From demand to sizes, node by node in columns: the shared headroom, its shares, rounding, clamping."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.fitting import Fit
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.node_columns import NodeColumns
from cruise.decisions.sizing.recommendation import UNIT
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array, round_up
from cruise.domain.headroom import Sharing
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources


@dataclass(frozen=True, slots=True)
class NodeSums:
    """What the pods that stay on each node need of one resource, one entry a node.

    `base` is the sum of their bases, and `headroom` what they need above that. `shared` is as much of the headroom as
    there is room for beside the bases.
    """

    base: Int64Array
    headroom: Int64Array
    shared: Int64Array


@dataclass(frozen=True, slots=True)
class Shares:
    """How one resource's headroom is shared, one entry a container.

    `share` is `weight` / `total` of the node's headroom: by the containers' own headrooms, and on the nodes of
    `by_base`, where no container has any, by their bases. A container that is `at_peak` gets no more than its own peak
    and something to spare; the others of its node share what is then left, `left`, by their weights' sum, `left_total`.
    `rounded` is base + share in whole units, and `clamped` is within the bounds and, where the resource may not grow on
    the node, no more than now.
    """

    share: Float64Array
    total: Float64Array
    by_base: BoolArray
    at_peak: BoolArray
    left: Float64Array
    left_total: Float64Array
    rounded: Int64Array
    clamped: Int64Array


def headrooms_of(
    sums: Mapping[ResourceName, NodeSums], shares: Mapping[ResourceName, Shares]
) -> list[tuple[Resources, Resources]]:
    """Return for each node the headroom that its pods share, and the sum of what its containers have by themselves.

    The sum is zero where headroom is not shared by it.
    """
    shared = [sums[one].headroom.tolist() for one in ResourceName]
    own = [np.where(shares[one].by_base, 0, shares[one].total).astype(np.int64).tolist() for one in ResourceName]
    pairs = zip(zip(*shared, strict=True), zip(*own, strict=True), strict=True)
    return [(Resources(*of_node), Resources(*own_of_node)) for of_node, own_of_node in pairs]


def average_sharing(shared: Iterable[tuple[Resources, Resources]]) -> Sharing:
    """Return what a container gets of its headroom, from what the pods of each node share and have by themselves.

    Where nobody has any, all of it.
    """
    given = own = NO_RESOURCES
    for of_node, own_of_node in shared:
        given += of_node.at_most(own_of_node)
        own += own_of_node
    return Sharing(
        cpu=given.cpu_millicores / own.cpu_millicores if own.cpu_millicores else 1.0,
        memory=given.memory_bytes / own.memory_bytes if own.memory_bytes else 1.0,
    )


def sum_up(columns: NodeColumns, fit: Fit, headroom: Headroom, resource: ResourceName) -> NodeSums:
    """Sum up what stays on each node, with the headroom that the model wants, as far as there is room."""
    base, largest = columns.base_of_nodes[resource], columns.spike_of_nodes[resource]
    extras_of_pods = _extras_of_pods(columns, headroom, resource)
    if fit.evicted:
        base = columns.node_sum(np.where(fit.stays, columns.base[resource], 0))
        largest = columns.node_maximum(np.where(fit.stays, columns.spike[resource], 0))
        extras_of_pods = np.where(fit.stays[:, np.newaxis], extras_of_pods, 0.0)
    extras = columns.node_sums(extras_of_pods)
    wanted = headroom.of_nodes(resource, base, largest, extras)
    room = columns.available[resource] - base
    needed = np.minimum(wanted, np.maximum(room, largest))
    shared = np.where(fit.grows[resource], np.minimum(needed, np.maximum(room, 0)), needed)
    return NodeSums(base, needed, shared)


def _extras_of_pods(columns: NodeColumns, headroom: Headroom, resource: ResourceName) -> Float64Array:
    candidates, demand = columns.candidates, columns.table.of(resource)
    extras = headroom.extras(resource, columns.table.rows, demand)
    if not extras.size:
        return np.empty((len(candidates.pods), extras.shape[1]))
    managed = np.where(demand.managed[:, np.newaxis], extras, 0.0)
    return np.asarray(np.add.reduceat(managed, candidates.first_container))


def share_headroom(columns: NodeColumns, fit: Fit, headroom: Int64Array, resource: ResourceName) -> Shares:
    """Give each container its base and its proportional share of its node's `headroom`, up to its own peak and a spare.

    What that takes from one is shared by the others. Where no container has any headroom of its own, the node's is
    shared by base.
    """
    demand, unit, node_of = columns.table.of(resource), UNIT[resource], columns.node_of
    there = fit.stays[columns.candidates.pod_of]
    by_base = (columns.node_total(np.where(there, demand.headroom, 0)) == 0) & (headroom > 0)
    weight = np.where(by_base[node_of], demand.raw_base, demand.headroom).astype(np.float64)
    total = left_total = columns.node_total(np.where(there, weight, 0.0))
    most = np.maximum(demand.peak_with_spare - demand.raw_base, 0).astype(np.float64)
    at_peak, left = np.zeros(len(weight), dtype=np.bool_), headroom.astype(np.float64)
    while True:
        ratio = np.divide(left, left_total, out=np.zeros(len(left)), where=left_total > 0)
        share: Float64Array = np.where(at_peak, most, weight * ratio[node_of])
        over = share > most
        if not over.any():
            break
        at_peak |= over
        left = np.maximum(headroom - columns.node_total(np.where(there & at_peak, most, 0.0)), 0.0)
        left_total = columns.node_total(np.where(there & ~at_peak, weight, 0.0))
    wanted: Float64Array = demand.raw_base + share
    rounded = round_up(wanted, unit)
    clamped = np.minimum(np.maximum(rounded, demand.lower), demand.upper)
    clamped = np.where(fit.grows[resource][node_of], clamped, np.minimum(clamped, demand.current))
    kept: Int64Array = np.where(demand.managed, clamped, demand.current)
    return Shares(share, total, by_base, at_peak, left, left_total, rounded, kept)
