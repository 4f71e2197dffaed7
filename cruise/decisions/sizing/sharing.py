"""Computes container sizes from demand: headroom per node, its shares, rounding, and the cuts that make them fit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.fitting import NodeFit
from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array, round_up, round_up_integers
from cruise.domain.records import HeadroomSharing
from cruise.domain.resources import NO_RESOURCES, ROUNDING_UNIT, ResourceName, Resources

SizesByResource = Mapping[ResourceName, Int64Array]


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


def compute_average_sharing(shared: Iterable[tuple[Resources, Resources]]) -> HeadroomSharing:
    """Return which share of its own headroom a container gets on average, 1 if no container has any."""
    given = own = NO_RESOURCES
    for of_node, own_of_node in shared:
        given += of_node.min_with(own_of_node)
        own += own_of_node
    return HeadroomSharing(
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
    extras = headroom.get_extras(resource, columns.table.rows, demand)
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


def trim_to_capacity(columns: NodePodColumns, fit: NodeFit, sizes: SizesByResource) -> None:
    """Decrease sizes, in place, until they fit the capacity of their nodes.

    If not even the bases fit, growth towards them is cut to one level (max-min fairness, ADR 0006). Elsewhere only
    rounding exceeded the capacity: it is removed from the largest shares first, then from the rounded-up bases.
    """
    for resource, final in sizes.items():
        demand, unit = columns.table.get_resource(resource), ROUNDING_UNIT[resource]
        rounded_bases = np.clip(round_up_integers(demand.base, unit), demand.lower, demand.upper)
        truncated_bases = np.clip(demand.base // unit * unit, demand.lower, demand.upper)
        short = _level_growth(columns, fit, resource, final, rounded_bases)
        for floor in (rounded_bases, truncated_bases):
            excess = -_compute_free_capacity(columns, fit, resource, final)
            for node in np.flatnonzero((excess > 0) & fit.may_grow[resource] & ~short).tolist():
                pods = [pod for pod in columns.get_pods_on_node(node) if fit.remains[pod]]
                _cut(columns, resource, final, floor, dict.fromkeys(pods, int(excess[node])), int(excess[node]))


def _level_growth(
    columns: NodePodColumns, fit: NodeFit, resource: ResourceName, final: Int64Array, bases: Int64Array
) -> BoolArray:
    """Limit growth, in place, to one level on each node that cannot hold the bases; return which nodes these are.

    Small containers get what they need. No request falls below its present value, and one that would end below its
    lower bound is unchanged.
    """
    demand, unit = columns.table.get_resource(resource), ROUNDING_UNIT[resource]
    short = fit.may_grow[resource] & ~fit.fits[resource]
    if not short.any():
        return short
    wanted = np.where(demand.managed, np.minimum(final, bases), final)
    limited = short & (_compute_free_capacity(columns, fit, resource, wanted) < 0)
    final[:] = np.where(limited[columns.node_of_container], wanted, final)
    growing = (
        limited[columns.node_of_container] & fit.remains[columns.candidates.pod_of_container] & (final > demand.current)
    )
    if not growing.any():
        return limited
    minimum, maximum = demand.current, final.copy()

    def at_most(level: Int64Array) -> Int64Array:
        cut = np.minimum(np.maximum(level[columns.node_of_container], minimum), maximum)
        return np.where(growing, np.where((cut < maximum) & (cut < demand.lower), minimum, cut), final)

    # Bisection, since a pod's sum need not rise with its containers: an init container may request more than they do.
    level = np.zeros(len(columns.nodes), dtype=np.int64)
    step = 1 << int(maximum[growing].max() // unit).bit_length()
    while step := step // 2:
        tried = level + step * unit
        level = np.where(_compute_free_capacity(columns, fit, resource, at_most(tried)) >= 0, tried, level)
    final[:] = at_most(level)
    return limited


def _compute_free_capacity(
    columns: NodePodColumns, fit: NodeFit, resource: ResourceName, sizes: Int64Array
) -> Int64Array:
    sums = np.where(fit.remains, columns.candidates.sum_by_pod(resource, sizes), 0)
    return columns.available[resource] - columns.sum_by_node(sums)


def trim_growth_to_capacity(
    columns: NodePodColumns,
    fit: NodeFit,
    sizes: SizesByResource,
    written: BoolArray,
    sizes_without_grants: SizesByResource,
) -> list[int]:
    """Cut growth, in place, that does not fit next to pods that keep their sizes or are yet to be created.

    Return the pods that were cut. A pod within its update threshold, or skipped, may request more than its target;
    others would wait for that capacity forever if they grew by the targets alone. `written` marks the pods whose
    `sizes` are written. No request falls below its present value, and one that would end below its lower bound stays as
    it is. Grants above `sizes_without_grants` are cut first.
    """
    changed: set[int] = set()
    for resource, final in sizes.items():
        demand, managed = columns.table.get_resource(resource), columns.candidates.manages[resource]
        sums, counted = columns.candidates.sum_by_pod(resource, final), columns.counted[resource]
        floors = [demand.current]
        if resource in sizes_without_grants:
            floors.insert(0, np.maximum(demand.current, sizes_without_grants[resource]))
        growth = np.where(written & managed, np.maximum(sums - counted, 0), 0)
        planned = np.where(written, sums, np.where(managed, counted, 0))
        # Budgets may allow only some of the planned evictions, but replacements are created anyway.
        occupying = fit.remains | np.isin(columns.node_of_pod, list(fit.reserved_for_replacements))
        excess = columns.sum_by_node(np.where(occupying, planned, 0)) - columns.available[resource]
        for node, reserved in fit.reserved_for_replacements.items():
            excess[node] += reserved.get(resource)
        for node in np.flatnonzero((excess > 0) & (columns.sum_by_node(growth) > 0)).tolist():
            growth_by_pod = {pod: int(growth[pod]) for pod in columns.get_pods_on_node(node) if growth[pod]}
            remaining = int(excess[node])
            for floor in floors:
                before = sum(growth_by_pod.values())
                changed |= _cut(columns, resource, final, floor, growth_by_pod, remaining)
                remaining -= before - sum(growth_by_pod.values())
        below_lower_bound = demand.managed & (demand.current < final) & (final < demand.lower)
        final[below_lower_bound] = demand.current[below_lower_bound]
    return sorted(changed)


def _cut(
    columns: NodePodColumns,
    resource: ResourceName,
    final: Int64Array,
    floor: Int64Array,
    maximum_by_pod: dict[int, int],
    excess: int,
) -> set[int]:
    """Cut `excess` from the containers of the given pods, in whole units, the largest shares above `floor` first.

    A pod is cut by at most its entry in `maximum_by_pod`. One round is enough: a cut that frees nothing, because an
    init container determines the pod's sum, frees nothing after other cuts either.
    """
    table, unit = columns.table, ROUNDING_UNIT[resource]
    containers = [
        (int(table.candidates.first_container[pod]) + offset, pod)
        for pod in maximum_by_pod
        if columns.candidates.manages[resource][pod]
        for offset in range(len(table.candidates.pods[pod].sized))
    ]
    changed = set()
    for at, pod in sorted(containers, key=lambda entry: (int(floor[entry[0]] - final[entry[0]]), entry[0])):
        share, wanted = int(final[at] - floor[at]), min(excess, maximum_by_pod[pod])
        if share <= 0 or wanted <= 0:
            continue
        sum_before = columns.candidates.sum_pod(resource, pod, final)
        before_cut = int(final[at])
        final[at] = before_cut - min(share, -(-wanted // unit) * unit)
        freed = sum_before - columns.candidates.sum_pod(resource, pod, final)
        final[at] = max(int(final[at]), before_cut - -(-freed // unit) * unit)
        if final[at] < before_cut:
            changed.add(pod)
        excess -= freed
        maximum_by_pod[pod] -= freed
    return changed
