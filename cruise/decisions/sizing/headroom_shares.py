"""Computes the headroom of each node, and the share of it that each container gets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.fitting import NodeFit
from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array, round_up
from cruise.domain.records import AverageHeadroomShare
from cruise.domain.resources import NO_RESOURCES, ROUNDING_UNIT, ResourceName, Resources


@dataclass(frozen=True, slots=True)
class NodeNeeds:
    """What the remaining pods of each node need of one resource, one entry per node.

    `base` is the sum of their bases, `headroom` their need above it; `shared` is the part of the headroom that fits.
    """

    base: Int64Array
    headroom: Int64Array
    shared: Int64Array


@dataclass(frozen=True, slots=True)
class HeadroomShares:
    """How one resource's headroom is shared, one entry per container.

    `share` is `weight` / `total` of the node's headroom. The weight is the container's own headroom, or its base on
    nodes where no container has any (`by_base`). A container that is `at_peak` gets no more than its own peak plus a
    margin; the other containers share the `unallocated` rest by weight, `unallocated_total` being the sum of their
    weights. `rounded` is base + share in whole units, `clamped` is within the bounds and, where requests may not grow,
    within the present.
    """

    share: Float64Array
    total: Float64Array
    by_base: BoolArray
    at_peak: BoolArray
    unallocated: Float64Array
    unallocated_total: Float64Array
    rounded: Int64Array
    clamped: Int64Array


def summarize_node_headroom(
    node_needs: Mapping[ResourceName, NodeNeeds], shares: Mapping[ResourceName, HeadroomShares]
) -> list[tuple[Resources, Resources]]:
    """Return for each node the headroom that its pods share, and the sum of its containers' own headrooms.

    The sum is zero on nodes where headroom is shared by base.
    """
    shared = [node_needs[one].headroom.tolist() for one in ResourceName]
    own = [np.where(shares[one].by_base, 0, shares[one].total).astype(np.int64).tolist() for one in ResourceName]
    pairs = zip(zip(*shared, strict=True), zip(*own, strict=True), strict=True)
    return [(Resources(*of_node), Resources(*own_of_node)) for of_node, own_of_node in pairs]


def compute_average_headroom_share(shared: Iterable[tuple[Resources, Resources]]) -> AverageHeadroomShare:
    """Return which share of its own headroom a container gets on average, 1 if no container has any."""
    given = own = NO_RESOURCES
    for of_node, own_of_node in shared:
        given += of_node.min_with(own_of_node)
        own += own_of_node
    return AverageHeadroomShare(
        cpu=given.cpu_millicores / own.cpu_millicores if own.cpu_millicores else 1.0,
        memory=given.memory_bytes / own.memory_bytes if own.memory_bytes else 1.0,
    )


def sum_node_needs(columns: NodePodColumns, fit: NodeFit, headroom: HeadroomModel, resource: ResourceName) -> NodeNeeds:
    """Sum the needs of the pods that remain on each node, with the headroom that the model computes and that fits."""
    base, largest = columns.base_by_node[resource], columns.largest_headroom_by_node[resource]
    extras_of_pods = _sum_extras_by_pod(columns, headroom, resource)
    if fit.evicted:
        base = columns.sum_by_node(np.where(fit.remains, columns.base[resource], 0))
        largest = columns.max_by_node(np.where(fit.remains, columns.largest_headroom[resource], 0))
        extras_of_pods = np.where(fit.remains[:, np.newaxis], extras_of_pods, 0.0)
    extras = columns.sum_rows_by_node(extras_of_pods)
    wanted = headroom.compute_node_headroom(resource, base, largest, extras)
    free_capacity = columns.available[resource] - base
    needed = np.minimum(wanted, np.maximum(free_capacity, largest))
    shared = np.where(fit.may_grow[resource], np.minimum(needed, np.maximum(free_capacity, 0)), needed)
    return NodeNeeds(base, needed, shared)


def _sum_extras_by_pod(columns: NodePodColumns, headroom: HeadroomModel, resource: ResourceName) -> Float64Array:
    candidates, demand = columns.candidates, columns.table.get_resource(resource)
    extras = headroom.get_columns_to_sum(resource, columns.table.rows, demand)
    if not extras.size:
        return np.empty((len(candidates.pods), extras.shape[1]))
    managed = np.where(demand.managed[:, np.newaxis], extras, 0.0)
    return np.asarray(np.add.reduceat(managed, candidates.first_container))


def share_headroom(
    columns: NodePodColumns, fit: NodeFit, headroom: Int64Array, resource: ResourceName
) -> HeadroomShares:
    """Give each container its base and a proportional share of its node's headroom, up to its own peak plus a margin.

    What that limit takes from one container is shared by the others (ADR 0008). If no container of a node has headroom,
    the node's is shared by base.
    """
    demand, unit, node_of = columns.table.get_resource(resource), ROUNDING_UNIT[resource], columns.node_of_container
    remains = fit.remains[columns.candidates.pod_of_container]
    by_base = (columns.sum_containers_by_node(np.where(remains, demand.headroom, 0)) == 0) & (headroom > 0)
    weight = np.where(by_base[node_of], demand.raw_base, demand.headroom).astype(np.float64)
    total = unallocated_total = columns.sum_containers_by_node(np.where(remains, weight, 0.0))
    largest_share = np.maximum(demand.peak_with_margin - demand.raw_base, 0).astype(np.float64)
    at_peak, unallocated = np.zeros(len(weight), dtype=np.bool_), headroom.astype(np.float64)
    while True:
        ratio = np.divide(unallocated, unallocated_total, out=np.zeros(len(unallocated)), where=unallocated_total > 0)
        share: Float64Array = np.where(at_peak, largest_share, weight * ratio[node_of])
        above_peak = share > largest_share
        if not above_peak.any():
            break
        at_peak |= above_peak
        unallocated = np.maximum(
            headroom - columns.sum_containers_by_node(np.where(remains & at_peak, largest_share, 0.0)), 0.0
        )
        unallocated_total = columns.sum_containers_by_node(np.where(remains & ~at_peak, weight, 0.0))
    wanted: Float64Array = demand.raw_base + share
    rounded = round_up(wanted, unit)
    clamped = np.minimum(np.maximum(rounded, demand.lower), demand.upper)
    clamped = np.where(fit.may_grow[resource][node_of], clamped, np.minimum(clamped, demand.current))
    kept: Int64Array = np.where(demand.managed, clamped, demand.current)
    return HeadroomShares(share, total, by_base, at_peak, unallocated, unallocated_total, rounded, kept)
