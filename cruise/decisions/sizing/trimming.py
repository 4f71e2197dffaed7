"""What is taken back so that a node holds what is written: roundings over its room, and grows without room."""

from collections.abc import Mapping

import numpy as np

from cruise.decisions.sizing.fitting import Fit
from cruise.decisions.sizing.node_columns import NodeColumns
from cruise.decisions.sizing.recommendation import UNIT
from cruise.domain.arrays import BoolArray, Int64Array, round_up_whole
from cruise.domain.resources import ResourceName

Sizes = Mapping[ResourceName, Int64Array]


def trim_to_room(columns: NodeColumns, fit: Fit, sizes: Sizes) -> None:
    """Take back, in place, what is over the room of nodes.

    Where not even the bases fit, that is growth towards them. Elsewhere rounding put it there, and it is taken from the
    largest shares first; what is over even with every base rounded up, from the roundings of the bases.
    """
    for resource, final in sizes.items():
        demand, unit = columns.table.of(resource), UNIT[resource]
        whole = np.clip(round_up_whole(demand.base, unit), demand.lower, demand.upper)
        least = np.clip(demand.base // unit * unit, demand.lower, demand.upper)
        scarce = _level_growth(columns, fit, resource, final, whole)
        for floor in (whole, least):
            excess = -_room(columns, fit, resource, final)
            for node in np.flatnonzero((excess > 0) & fit.grows[resource] & ~scarce).tolist():
                pods = [pod for pod in columns.pods_of(node) if fit.stays[pod]]
                _cut(columns, resource, final, floor, dict.fromkeys(pods, int(excess[node])), int(excess[node]))


def _level_growth(
    columns: NodeColumns, fit: Fit, resource: ResourceName, final: Int64Array, bases: Int64Array
) -> BoolArray:
    """End growth, in place, at one level on each node that is short, and does not even hold the `bases`.

    So small containers get what they need. Nobody is cut under what it has now, and what would be left under its least
    value stays as it is. Tell which nodes these are.
    """
    demand, unit = columns.table.of(resource), UNIT[resource]
    short = fit.grows[resource] & ~fit.fits[resource]
    if not short.any():
        return short
    wanted = np.where(demand.managed, np.minimum(final, bases), final)
    scarce = short & (_room(columns, fit, resource, wanted) < 0)
    final[:] = np.where(scarce[columns.node_of], wanted, final)
    growing = scarce[columns.node_of] & fit.stays[columns.candidates.pod_of] & (final > demand.current)
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


def _room(columns: NodeColumns, fit: Fit, resource: ResourceName, sizes: Int64Array) -> Int64Array:
    sums = np.where(fit.stays, columns.candidates.pod_sum(resource, sizes), 0)
    return columns.available[resource] - columns.node_sum(sums)


def trim_growth(columns: NodeColumns, fit: Fit, sizes: Sizes, patched: BoolArray, without: Sizes) -> list[int]:
    """Take back, in place, growth for which pods that are not patched, or are yet to come, leave no room.

    Return the pods cut.

    A pod inside its dead band or held back may ask for more than its size. Were others to grow by the sizes alone,
    their grows would wait for that room for ever. `patched` flags the pods whose `sizes` are to be written. Nothing is
    cut under what it is now, and what would be left under its least value stays as it is. What is granted over the
    sizes `without` wishes, if there are any, goes first.
    """
    touched: set[int] = set()
    for resource, final in sizes.items():
        demand, managed = columns.table.of(resource), columns.candidates.manages[resource]
        sums, counted = columns.candidates.pod_sum(resource, final), columns.counted[resource]
        floors = [demand.current]
        if resource in without:
            floors.insert(0, np.maximum(demand.current, without[resource]))
        growth = np.where(patched & managed, np.maximum(sums - counted, 0), 0)
        after = np.where(patched, sums, np.where(managed, counted, 0))
        # Of several pods that are to leave a node, budgets may let go only one, and its replacement comes all the same.
        there = fit.stays | np.isin(columns.node_of_pod, list(fit.promised))
        excess = columns.node_sum(np.where(there, after, 0)) - columns.available[resource]
        for node, room in fit.promised.items():
            excess[node] += room.of(resource)
        for node in np.flatnonzero((excess > 0) & (columns.node_sum(growth) > 0)).tolist():
            growers = {pod: int(growth[pod]) for pod in columns.pods_of(node) if growth[pod]}
            over = int(excess[node])
            for floor in floors:
                before = sum(growers.values())
                touched |= _cut(columns, resource, final, floor, growers, over)
                over -= before - sum(growers.values())
        short = demand.managed & (demand.current < final) & (final < demand.lower)
        final[short] = demand.current[short]
    return sorted(touched)


def _cut(
    columns: NodeColumns,
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
    table, unit = columns.table, UNIT[resource]
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
        before = columns.candidates.sum_of(resource, pod, final)
        whole = int(final[at])
        final[at] = whole - min(share, -(-wanted // unit) * unit)
        freed = before - columns.candidates.sum_of(resource, pod, final)
        final[at] = max(int(final[at]), whole - -(-freed // unit) * unit)
        if final[at] < whole:
            touched.add(pod)
        excess -= freed
        most_of_pod[pod] -= freed
    return touched
