"""What is taken back so that a node holds what is written: roundings over its room, and grows without room."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cruise.decisions.sizing.fitting import NodeFit
from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.recommendation import ROUNDING_UNIT
from cruise.domain.records import HeadroomSharing
from cruise.domain.resources import (
    NO_RESOURCES,
    BoolArray,
    Float64Array,
    Int64Array,
    ResourceName,
    Resources,
    round_up,
    round_up_integers,
)

# From demand to sizes, node by node in columns: the shared headroom, its shares, rounding, clamping.


@dataclass(frozen=True, slots=True)
class NodeNeeds:
    """What the pods that stay on each node need of one resource, one entry a node.

    `base` is the sum of their bases, and `headroom` what they need above that. `shared` is as much of the headroom as
    there is room for beside the bases.
    """

    base: Int64Array
    headroom: Int64Array
    shared: Int64Array


@dataclass(frozen=True, slots=True)
class HeadroomShares:
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
    unallocated: Float64Array
    unallocated_total: Float64Array
    rounded: Int64Array
    clamped: Int64Array


def summarize_node_headroom(
    sums: Mapping[ResourceName, NodeNeeds], shares: Mapping[ResourceName, HeadroomShares]
) -> list[tuple[Resources, Resources]]:
    """Return for each node the headroom that its pods share, and the sum of what its containers have by themselves.

    The sum is zero where headroom is not shared by it.
    """
    shared = [sums[one].headroom.tolist() for one in ResourceName]
    own = [np.where(shares[one].by_base, 0, shares[one].total).astype(np.int64).tolist() for one in ResourceName]
    pairs = zip(zip(*shared, strict=True), zip(*own, strict=True), strict=True)
    return [(Resources(*of_node), Resources(*own_of_node)) for of_node, own_of_node in pairs]


def compute_average_sharing(shared: Iterable[tuple[Resources, Resources]]) -> HeadroomSharing:
    """Return what a container gets of its headroom, from what the pods of each node share and have by themselves.

    Where nobody has any, all of it.
    """
    given = own = NO_RESOURCES
    for of_node, own_of_node in shared:
        given += of_node.at_most(own_of_node)
        own += own_of_node
    return HeadroomSharing(
        cpu=given.cpu_millicores / own.cpu_millicores if own.cpu_millicores else 1.0,
        memory=given.memory_bytes / own.memory_bytes if own.memory_bytes else 1.0,
    )


def sum_node_needs(columns: NodePodColumns, fit: NodeFit, headroom: HeadroomModel, resource: ResourceName) -> NodeNeeds:
    """Sum up what stays on each node, with the headroom that the model wants, as far as there is room."""
    base, largest = columns.base_by_node[resource], columns.largest_headroom_by_node[resource]
    extras_of_pods = _extras_of_pods(columns, headroom, resource)
    if fit.evicted:
        base = columns.sum_by_node(np.where(fit.remains, columns.base[resource], 0))
        largest = columns.max_by_node(np.where(fit.remains, columns.largest_headroom[resource], 0))
        extras_of_pods = np.where(fit.remains[:, np.newaxis], extras_of_pods, 0.0)
    extras = columns.sum_resources_by_node(extras_of_pods)
    wanted = headroom.compute_node_headroom(resource, base, largest, extras)
    room = columns.available[resource] - base
    needed = np.minimum(wanted, np.maximum(room, largest))
    shared = np.where(fit.may_grow[resource], np.minimum(needed, np.maximum(room, 0)), needed)
    return NodeNeeds(base, needed, shared)


def _extras_of_pods(columns: NodePodColumns, headroom: HeadroomModel, resource: ResourceName) -> Float64Array:
    candidates, demand = columns.candidates, columns.table.get_resource(resource)
    extras = headroom.get_extras(resource, columns.table.rows, demand)
    if not extras.size:
        return np.empty((len(candidates.pods), extras.shape[1]))
    managed = np.where(demand.managed[:, np.newaxis], extras, 0.0)
    return np.asarray(np.add.reduceat(managed, candidates.first_container))


def share_headroom(
    columns: NodePodColumns, fit: NodeFit, headroom: Int64Array, resource: ResourceName
) -> HeadroomShares:
    """Give each container its base and its proportional share of its node's `headroom`, up to its own peak and a spare.

    What that takes from one is shared by the others. Where no container has any headroom of its own, the node's is
    shared by base.
    """
    demand, unit, node_of = columns.table.get_resource(resource), ROUNDING_UNIT[resource], columns.node_of
    there = fit.remains[columns.candidates.pod_of]
    by_base = (columns.total_by_node(np.where(there, demand.headroom, 0)) == 0) & (headroom > 0)
    weight = np.where(by_base[node_of], demand.raw_base, demand.headroom).astype(np.float64)
    total = left_total = columns.total_by_node(np.where(there, weight, 0.0))
    most = np.maximum(demand.peak_with_margin - demand.raw_base, 0).astype(np.float64)
    at_peak, left = np.zeros(len(weight), dtype=np.bool_), headroom.astype(np.float64)
    while True:
        ratio = np.divide(left, left_total, out=np.zeros(len(left)), where=left_total > 0)
        share: Float64Array = np.where(at_peak, most, weight * ratio[node_of])
        over = share > most
        if not over.any():
            break
        at_peak |= over
        left = np.maximum(headroom - columns.total_by_node(np.where(there & at_peak, most, 0.0)), 0.0)
        left_total = columns.total_by_node(np.where(there & ~at_peak, weight, 0.0))
    wanted: Float64Array = demand.raw_base + share
    rounded = round_up(wanted, unit)
    clamped = np.minimum(np.maximum(rounded, demand.lower), demand.upper)
    clamped = np.where(fit.may_grow[resource][node_of], clamped, np.minimum(clamped, demand.current))
    kept: Int64Array = np.where(demand.managed, clamped, demand.current)
    return HeadroomShares(share, total, by_base, at_peak, left, left_total, rounded, kept)


SizesByResource = Mapping[ResourceName, Int64Array]


def trim_to_capacity(columns: NodePodColumns, fit: NodeFit, sizes: SizesByResource) -> None:
    """Take back, in place, what is over the room of nodes.

    Where not even the bases fit, that is growth towards them. Elsewhere rounding put it there, and it is taken from the
    largest shares first; what is over even with every base rounded up, from the roundings of the bases.
    """
    for resource, final in sizes.items():
        demand, unit = columns.table.get_resource(resource), ROUNDING_UNIT[resource]
        whole = np.clip(round_up_integers(demand.base, unit), demand.lower, demand.upper)
        least = np.clip(demand.base // unit * unit, demand.lower, demand.upper)
        scarce = _level_growth(columns, fit, resource, final, whole)
        for floor in (whole, least):
            excess = -_room(columns, fit, resource, final)
            for node in np.flatnonzero((excess > 0) & fit.may_grow[resource] & ~scarce).tolist():
                pods = [pod for pod in columns.get_pods_on_node(node) if fit.remains[pod]]
                _cut(columns, resource, final, floor, dict.fromkeys(pods, int(excess[node])), int(excess[node]))


def _level_growth(
    columns: NodePodColumns, fit: NodeFit, resource: ResourceName, final: Int64Array, bases: Int64Array
) -> BoolArray:
    """End growth, in place, at one level on each node that is short, and does not even hold the `bases`.

    So small containers get what they need. Nobody is cut under what it has now, and what would be left under its least
    value stays as it is. Tell which nodes these are.
    """
    demand, unit = columns.table.get_resource(resource), ROUNDING_UNIT[resource]
    short = fit.may_grow[resource] & ~fit.fits[resource]
    if not short.any():
        return short
    wanted = np.where(demand.managed, np.minimum(final, bases), final)
    scarce = short & (_room(columns, fit, resource, wanted) < 0)
    final[:] = np.where(scarce[columns.node_of], wanted, final)
    growing = scarce[columns.node_of] & fit.remains[columns.candidates.pod_of] & (final > demand.current)
    if not growing.any():
        return scarce
    before, after = demand.current, final.copy()

    def at_most(level: Int64Array) -> Int64Array:
        cut = np.minimum(np.maximum(level[columns.node_of], before), after)
        return np.where(growing, np.where((cut < after) & (cut < demand.lower), before, cut), final)

    # By halves, since a pod's sum need not rise with its containers: an init container may need more than they do.
    level = np.zeros(len(columns.nodes), dtype=np.int64)
    step = 1 << int(after[growing].max() // unit).bit_length()
    while step := step // 2:
        tried = level + step * unit
        level = np.where(_room(columns, fit, resource, at_most(tried)) >= 0, tried, level)
    final[:] = at_most(level)
    return scarce


def _room(columns: NodePodColumns, fit: NodeFit, resource: ResourceName, sizes: Int64Array) -> Int64Array:
    sums = np.where(fit.remains, columns.candidates.sum_by_pod(resource, sizes), 0)
    return columns.available[resource] - columns.sum_by_node(sums)


def trim_growth_to_capacity(
    columns: NodePodColumns, fit: NodeFit, sizes: SizesByResource, patched: BoolArray, without: SizesByResource
) -> list[int]:
    """Take back, in place, growth for which pods that are not patched, or are yet to come, leave no room.

    Return the pods cut.

    A pod inside its dead band or held back may ask for more than its size. Were others to grow by the sizes alone,
    their grows would wait for that room for ever. `patched` flags the pods whose `sizes` are to be written. Nothing is
    cut under what it is now, and what would be left under its least value stays as it is. What is granted over the
    sizes `without` wishes, if there are any, goes first.
    """
    touched: set[int] = set()
    for resource, final in sizes.items():
        demand, managed = columns.table.get_resource(resource), columns.candidates.manages[resource]
        sums, counted = columns.candidates.sum_by_pod(resource, final), columns.counted[resource]
        floors = [demand.current]
        if resource in without:
            floors.insert(0, np.maximum(demand.current, without[resource]))
        growth = np.where(patched & managed, np.maximum(sums - counted, 0), 0)
        after = np.where(patched, sums, np.where(managed, counted, 0))
        # Of several pods that are to leave a node, budgets may let go only one, and its replacement comes all the same.
        there = fit.remains | np.isin(columns.node_of_pod, list(fit.reserved_for_replacements))
        excess = columns.sum_by_node(np.where(there, after, 0)) - columns.available[resource]
        for node, room in fit.reserved_for_replacements.items():
            excess[node] += room.get(resource)
        for node in np.flatnonzero((excess > 0) & (columns.sum_by_node(growth) > 0)).tolist():
            growers = {pod: int(growth[pod]) for pod in columns.get_pods_on_node(node) if growth[pod]}
            over = int(excess[node])
            for floor in floors:
                before = sum(growers.values())
                touched |= _cut(columns, resource, final, floor, growers, over)
                over -= before - sum(growers.values())
        short = demand.managed & (demand.current < final) & (final < demand.lower)
        final[short] = demand.current[short]
    return sorted(touched)


def _cut(
    columns: NodePodColumns,
    resource: ResourceName,
    final: Int64Array,
    floor: Int64Array,
    most_of_pod: dict[int, int],
    excess: int,
) -> set[int]:
    """Cut `excess` from the containers of the pods named, whole units from the largest shares over `floor` first.

    A pod gives up to its entry of `most_of_pod`. Once is enough: a cut that frees nothing, since an init container
    sets its pod's sum, frees nothing after other cuts either.
    """
    table, unit = columns.table, ROUNDING_UNIT[resource]
    containers = [
        (int(table.candidates.first_container[pod]) + offset, pod)
        for pod in most_of_pod
        if columns.candidates.manages[resource][pod]
        for offset in range(len(table.candidates.pods[pod].sized))
    ]
    touched = set()
    for at, pod in sorted(containers, key=lambda entry: (int(floor[entry[0]] - final[entry[0]]), entry[0])):
        share, wanted = int(final[at] - floor[at]), min(excess, most_of_pod[pod])
        if share <= 0 or wanted <= 0:
            continue
        before = columns.candidates.sum_pod(resource, pod, final)
        whole = int(final[at])
        final[at] = whole - min(share, -(-wanted // unit) * unit)
        freed = before - columns.candidates.sum_pod(resource, pod, final)
        final[at] = max(int(final[at]), whole - -(-freed // unit) * unit)
        if final[at] < whole:
            touched.add(pod)
        excess -= freed
        most_of_pod[pod] -= freed
    return touched
