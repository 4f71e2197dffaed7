"""Cuts container sizes until they fit the capacity of their nodes."""

from collections.abc import Mapping

import numpy as np

from cruise.decisions.sizing.demand import compute_kept_requests
from cruise.decisions.sizing.fitting import NodeFit
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.domain.arrays import BoolArray, Int64Array, round_up_integers
from cruise.domain.resources import ROUNDING_UNIT, ResourceName

SizesByResource = Mapping[ResourceName, Int64Array]
NO_BOUND = np.iinfo(np.int64).max


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


def compute_growth_bounds(columns: NodePodColumns, resource: ResourceName, needed: Int64Array) -> Int64Array:
    """Return the most that each container may grow to, `NO_BOUND` where nothing that it grows to counts as needed.

    What it keeps (`compute_kept_requests`), and what a LimitRange requires, counts as needed from the next pass on.
    That may grow into what bases and the `needed` headroom of the node leave free: more would evict other pods. What an
    HPA requires is not bounded: it would add replicas instead.
    """
    demand, unit = columns.table.get_resource(resource), ROUNDING_UNIT[resource]
    largest = np.minimum(demand.peak_with_margin, demand.upper)
    most = np.maximum(np.minimum(compute_kept_requests(columns.candidates, resource, demand), largest), demand.lower)
    hpa_bounds = columns.table.utilisation_bounds.get(resource)
    if hpa_bounds is not None:
        most = np.where(hpa_bounds[0] > 0, 0, most)
    kept = np.where(demand.managed, np.maximum(most - np.maximum(demand.base, demand.current), 0), 0)
    if not kept.any():
        return np.full_like(kept, NO_BOUND)
    free = np.maximum(columns.available[resource] - columns.base_by_node[resource] - needed, 0)
    shared = columns.share_smallest_first(kept, free)
    highest = (np.maximum(demand.base, demand.current) + shared) // unit * unit
    # The API server rejects less than a LimitRange requires.
    bounds = np.where(highest >= demand.lower, np.maximum(highest, demand.current), demand.current)
    return np.where(shared < kept, bounds, NO_BOUND)


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
    # Budgets may allow only some of the planned evictions, but replacements are created anyway.
    occupying = fit.remains
    if fit.reserved_for_replacements:
        occupying = occupying | np.isin(columns.node_of_pod, list(fit.reserved_for_replacements))
    for resource, final in sizes.items():
        demand, managed = columns.table.get_resource(resource), columns.candidates.manages[resource]
        sums, counted = columns.candidates.sum_by_pod(resource, final), columns.counted[resource]
        floors = [demand.current]
        if resource in sizes_without_grants:
            floors.insert(0, np.maximum(demand.current, sizes_without_grants[resource]))
        growth = np.where(written & managed, np.maximum(sums - counted, 0), 0)
        planned = np.where(written, sums, np.where(managed, counted, 0))
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
