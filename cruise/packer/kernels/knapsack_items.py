"""Prepares the items of a node's knapsack, sorted by value for the capacity they use."""

import math
from typing import NamedTuple

import numpy as np

from cruise.packer.kernels.compilation import compile_inline
from cruise.packer.problem import FloatArray, IntArray

_TUNINGS = 4


class KnapsackItems(NamedTuple):
    """The nodes to fill, in groups of equal ones, with the scratch arrays of a search.

    `running[group, class]` copies may stay, which adds value. The largest `headroom[class, resource]` of a pattern (no
    rows without any), at least `floor[group, resource]`, must fit as well: `peak[0]` is that of the items taken,
    `peak[1 + depth]` the one before the item of a depth, `reserve[0]` the share of the surrogate capacity it uses.
    `mix[group, resource]` weights resources in the surrogate bound and is kept between searches. `found[k]` are copies
    by class. Items are sorted by value for load; `full_value` and `full_load` are those of all copies.
    """

    demands: IntArray
    headroom: IntArray
    free_capacity: IntArray
    floor: IntArray
    limits: IntArray
    running: IntArray
    mix: FloatArray
    found: IntArray
    found_group: IntArray
    item_class: IntArray
    item_bound: IntArray
    item_stays: IntArray
    item_value: FloatArray
    item_load: FloatArray
    full_value: FloatArray
    full_load: FloatArray
    item_weight: IntArray
    item_head: IntArray
    peak: IntArray
    reserve: FloatArray
    minimum_load: IntArray
    stack: IntArray
    taken: IntArray
    left: IntArray
    use: FloatArray
    trial: FloatArray
    nodes: IntArray


def create_knapsack_items(
    demands: IntArray,
    headroom: IntArray,
    room: IntArray,
    floor: IntArray,
    limits: IntArray,
    running: IntArray,
    patterns: int,
) -> KnapsackItems:
    """Return items with space for some patterns; `limits` and `running` are per group and class."""
    classes, resources = demands.shape
    groups, items = len(room), 2 * classes
    return KnapsackItems(
        demands=demands,
        headroom=headroom,
        free_capacity=room,
        floor=floor,
        limits=limits,
        running=running,
        mix=np.full((groups, resources), 1.0 / max(resources, 1)),
        found=np.zeros((patterns, classes), np.int64),
        found_group=np.zeros(patterns, np.int64),
        item_class=np.zeros(items, np.int64),
        item_bound=np.zeros(items, np.int64),
        item_stays=np.zeros(items, np.int64),
        item_value=np.zeros(items),
        item_load=np.zeros(items),
        full_value=np.zeros(items),
        full_load=np.zeros(items),
        item_weight=np.zeros((items, resources), np.int64),
        item_head=np.zeros((items, resources), np.int64),
        peak=np.zeros((items + 2, resources), np.int64),
        reserve=np.zeros(1),
        minimum_load=np.zeros((items + 1, resources), np.int64),
        stack=np.zeros(items + 1, np.int64),
        taken=np.zeros(items + 1, np.int64),
        left=np.zeros(resources, np.int64),
        use=np.zeros(resources),
        trial=np.zeros(resources),
        nodes=np.zeros(1, np.int64),
    )


@compile_inline
def add_item(s: KnapsackItems, count: int, c: int, bound: int, stays: int, value: float) -> int:
    """Add an item, copies of a class, and return the number of items."""
    s.item_class[count], s.item_bound[count], s.item_stays[count] = c, bound, stays
    s.item_value[count] = value
    for r in range(s.demands.shape[1]):
        s.item_weight[count, r] = s.demands[c, r]
        if s.headroom.shape[0] > 0:
            s.item_head[count, r] = s.headroom[c, r]
    return count + 1


@compile_inline
def count_fitting_alone(s: KnapsackItems, g: int, c: int, most: int) -> int:
    """Return how many copies of a class, at most `most`, fit on an empty node of a group."""
    if most <= 0:
        return 0
    for r in range(s.demands.shape[1]):
        room = s.free_capacity[g, r]
        if s.headroom.shape[0] > 0:
            room -= max(s.floor[g, r], s.headroom[c, r])
        if s.demands[c, r] > 0:
            most = min(most, room // s.demands[c, r])
        elif room < 0:
            most = 0
    return int(max(most, 0))


@compile_inline
def collect_items(
    s: KnapsackItems, g: int, value: FloatArray, stay_bonus: FloatArray, counts: IntArray, floor: float
) -> int:
    """Collect the items of a group's node that are worth more than `floor`; return how many."""
    count = 0
    for c in range(s.demands.shape[0]):
        limit = count_fitting_alone(s, g, c, min(s.limits[g, c], counts[c]))
        if limit <= 0:
            continue
        stays = 0
        if stay_bonus[c] > 0.0:
            stays = min(s.running[g, c], limit)
        # Running copies of the node are not among those that may arrive.
        others = min(limit - stays, counts[c] - (s.running[g, c] if stay_bonus[c] > 0.0 else 0))
        if stays > 0 and value[c] + stay_bonus[c] > floor:
            count = add_item(s, count, c, stays, 1, value[c] + stay_bonus[c])
        if others > 0 and value[c] > floor:
            count = add_item(s, count, c, others, 0, value[c])
    return count


@compile_inline
def swap_items(s: KnapsackItems, a: int, b: int) -> None:
    """Exchange two items."""
    s.item_class[a], s.item_class[b] = s.item_class[b], s.item_class[a]
    s.item_bound[a], s.item_bound[b] = s.item_bound[b], s.item_bound[a]
    s.item_stays[a], s.item_stays[b] = s.item_stays[b], s.item_stays[a]
    s.item_value[a], s.item_value[b] = s.item_value[b], s.item_value[a]
    s.item_load[a], s.item_load[b] = s.item_load[b], s.item_load[a]
    for r in range(s.demands.shape[1]):
        s.item_weight[a, r], s.item_weight[b, r] = s.item_weight[b, r], s.item_weight[a, r]
        if s.headroom.shape[0] > 0:
            s.item_head[a, r], s.item_head[b, r] = s.item_head[b, r], s.item_head[a, r]


@compile_inline
def compute_item_loads(s: KnapsackItems, g: int, count: int, mix: FloatArray) -> None:
    """Compute the loads of the items by a mix of resources."""
    for i in range(count):
        load = 0.0
        for r in range(len(mix)):
            load += mix[r] * s.item_weight[i, r] / max(s.free_capacity[g, r], 1)
        s.item_load[i] = max(load, 1e-12)


@compile_inline
def sort_items(s: KnapsackItems, g: int, count: int, mix: FloatArray) -> None:
    """Compute loads by a mix of resources, and sort the items by value for load (shell sort: often nearly sorted)."""
    compute_item_loads(s, g, count, mix)
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            k = i
            while k >= gap and s.item_value[k] * s.item_load[k - gap] > s.item_value[k - gap] * s.item_load[k]:
                swap_items(s, k, k - gap)
                k -= gap
        gap //= 3


@compile_inline
def solve_fractional(s: KnapsackItems, g: int, count: int) -> float:
    """Return the value of the fractional pattern of an empty node; `use` becomes the share of each resource it uses."""
    space, value = 1.0, 0.0
    for r in range(len(s.use)):
        s.use[r] = 0.0
    for i in range(count):
        part = min(float(s.item_bound[i]), space / s.item_load[i])
        space -= part * s.item_load[i]
        value += part * s.item_value[i]
        for r in range(len(s.use)):
            s.use[r] += part * s.item_weight[i, r] / max(s.free_capacity[g, r], 1)
        if space <= 0.0:
            break
    return value


@compile_inline
def tune_resource_mix(s: KnapsackItems, g: int, count: int) -> float:
    """Move the group's mix towards the resource that the fractional pattern overuses, while the bound decreases."""
    sort_items(s, g, count, s.mix[g])
    bound = solve_fractional(s, g, count)
    step = 0.6
    for _ in range(_TUNINGS):
        total = 0.0
        for r in range(len(s.trial)):
            s.trial[r] = max(s.mix[g, r], 1e-4) * math.exp(step * min(max(s.use[r] - 1.0, -1.0), 1.0))
            total += s.trial[r]
        for r in range(len(s.trial)):
            s.trial[r] /= total
        sort_items(s, g, count, s.trial)
        tried = solve_fractional(s, g, count)
        if tried < bound - 1e-12:
            bound = tried
            for r in range(len(s.trial)):
                s.mix[g, r] = s.trial[r]
        else:
            step *= 0.4
            sort_items(s, g, count, s.mix[g])
            solve_fractional(s, g, count)
    sort_items(s, g, count, s.mix[g])
    precompute_item_sums(s, count)
    return float(bound)


@compile_inline
def precompute_item_sums(s: KnapsackItems, count: int) -> None:
    """For the items in order, record the value of all copies and the least load of later ones."""
    for i in range(count):
        s.full_value[i] = s.item_value[i] * s.item_bound[i]
        s.full_load[i] = s.item_load[i] * s.item_bound[i]
    for r in range(len(s.use)):
        s.minimum_load[count, r] = 9223372036854775807
    for i in range(count - 1, -1, -1):
        for r in range(len(s.use)):
            s.minimum_load[i, r] = min(s.minimum_load[i + 1, r], s.item_weight[i, r])


_TURNS = 8
# Initial step of a mix, and the overuse at which it is a full step.
_FIRST, _SHARP = 0.4, 20.0
# An overuse below this counts as balanced.
_EVEN = 0.0002
# Items with so much less value for their load than the last one are no candidates: at first, and at last.
_NEARLY, _LEAST = 0.9, 0.5


@compile_inline
def _find_scarcest(s: KnapsackItems) -> int:
    """Return the resource of which the fractional pattern uses most."""
    scarcest = 0
    for r in range(len(s.use)):
        if s.use[r] > s.use[scarcest]:
            scarcest = r
    return scarcest


@compile_inline
def _step_mix(s: KnapsackItems, step: float) -> None:
    """Move the tried mix towards the overused resource."""
    total = 0.0
    for r in range(len(s.trial)):
        over = min(max(_SHARP * (s.use[r] - 1.0), -1.0), 1.0)
        s.trial[r] = max(s.trial[r], 1e-4) * math.exp(step * over)
        total += s.trial[r]
    for r in range(len(s.trial)):
        s.trial[r] /= total


@compile_inline
def _list_candidates(s: KnapsackItems, count: int, least: float) -> int:
    """List the items worth more than `least` for their load, the best first; return how many."""
    listed = 0
    for i in range(count):
        if s.full_value[i] > least:
            s.stack[listed] = i
            listed += 1
    gap = 1
    while gap < listed // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for a in range(gap, listed):
            i, k = s.stack[a], a
            while k >= gap and s.full_value[i] > s.full_value[s.stack[k - gap]]:
                s.stack[k] = s.stack[k - gap]
                k -= gap
            s.stack[k] = i
        gap //= 3
    return listed


@compile_inline
def _solve_fraction(s: KnapsackItems, g: int, count: int, mix: FloatArray, rate: float) -> tuple[float, float]:
    """Return the value of the fractional pattern of an empty node for a mix, and the rate of its last item.

    `use` becomes the share of each resource it uses. Only items near the `rate` are sorted, or all of them if those do
    not fill the node.
    """
    for r in range(len(mix)):
        s.use[r] = mix[r] / max(s.free_capacity[g, r], 1)
    for i in range(count):
        load = 0.0
        for r in range(len(mix)):
            load += s.use[r] * s.item_weight[i, r]
        s.item_load[i] = max(load, 1e-12)
        s.full_value[i] = s.item_value[i] / s.item_load[i]
    least = _NEARLY * rate
    while True:
        space, value, last = 1.0, 0.0, 0.0
        for r in range(len(mix)):
            s.use[r] = 0.0
        for k in range(_list_candidates(s, count, least)):
            i = s.stack[k]
            part = min(float(s.item_bound[i]), space / s.item_load[i])
            space -= part * s.item_load[i]
            value += part * s.item_value[i]
            for r in range(len(mix)):
                s.use[r] += part * s.item_weight[i, r] / max(s.free_capacity[g, r], 1)
            if space <= 0.0:
                last = s.full_value[i]
                break
        if space <= 0.0 or least <= 0.0:
            return value, last
        least = least * _NEARLY if least > _LEAST * rate else 0.0


@compile_inline
def balance_resource_mix(s: KnapsackItems, g: int, count: int, rate: float) -> tuple[float, float]:
    """Change a node's mix until the fractional pattern uses the scarce resources alike.

    Returns the least bound, and the rate of its last item, for which `rate` is a guess; `item_load` is by another mix
    then. If many items have about the same value for their load, a slightly wrong mix bounds badly and the search takes
    many times as long; the small steps of `tune_resource_mix` are not enough then.
    """
    bound, critical = _solve_fraction(s, g, count, s.mix[g], rate)
    rate, step, last = critical, _FIRST, -1
    for r in range(len(s.trial)):
        s.trial[r] = s.mix[g, r]
    for _ in range(_TURNS):
        scarcest = _find_scarcest(s)
        if s.use[scarcest] - 1.0 < _EVEN:
            break
        # If another resource is overused now, the step was too large.
        if last >= 0 and scarcest != last:
            step *= 0.5
        last = scarcest
        _step_mix(s, step)
        tried, rate = _solve_fraction(s, g, count, s.trial, rate)
        if tried < bound - 1e-12:
            bound, critical = tried, rate
            for r in range(len(s.trial)):
                s.mix[g, r] = s.trial[r]
    return bound, critical


@compile_inline
def drop_worthless_items(s: KnapsackItems, count: int, rate: float, surplus: float) -> int:
    """Drop each item of which one copy is worth less than its load at a rate by a surplus or more."""
    kept = 0
    for i in range(count):
        if rate * s.item_load[i] - s.item_value[i] < surplus:
            if kept < i:
                swap_items(s, kept, i)
            kept += 1
    return kept
