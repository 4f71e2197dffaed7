"""Solves the knapsack of one node in several resources exactly, by depth-first search."""

import math

from cruise.packer.kernels.compilation import compile_inline, compile_without_allocation
from cruise.packer.kernels.knapsack_items import KnapsackItems, collect_items, tune_resource_mix
from cruise.packer.problem import FloatArray, IntArray

_TINY = 1e-9
# Slightly more than the capacity, so that items without demand fit where none is left.
SEARCH_SPACE = 1.0 + 1e-9


@compile_inline
def item_exceeds_capacity(s: KnapsackItems, i: int) -> bool:
    """Return whether one more copy of an item exceeds the remaining capacity."""
    if s.headroom.shape[0] > 0:
        for r in range(len(s.left)):
            if s.item_weight[i, r] + max(s.peak[0, r], s.item_head[i, r]) > s.left[r]:
                return True
        return False
    for r in range(len(s.left)):
        if s.item_weight[i, r] > s.left[r]:
            return True
    return False


@compile_inline
def compute_bound(s: KnapsackItems, count: int, first: int, space: float, enough: float) -> float:
    """Return what items from `first` on could add in the remaining space, fractions allowed.

    Counting stops beyond `enough`.
    """
    value = 0.0
    if s.headroom.shape[0] > 0:
        space -= s.reserve[0]
    for i in range(first, count):
        if value > enough:
            break
        if item_exceeds_capacity(s, i):
            continue
        if s.full_load[i] > space:
            return float(value + s.item_value[i] * max(space, 0.0) / s.item_load[i])
        space -= s.full_load[i]
        value += s.full_value[i]
    return value


@compile_inline
def count_fitting_copies(s: KnapsackItems, i: int) -> int:
    """Return how many copies of an item fit into the remaining capacity."""
    most = s.item_bound[i]
    for r in range(len(s.left)):
        w, left = s.item_weight[i, r], s.left[r]
        if s.headroom.shape[0] > 0:
            left -= max(s.peak[0, r], s.item_head[i, r])
        if w > left:
            return 0
        if w > 0 and most * w > left:
            most = left // w
    return int(most)


@compile_inline
def is_nothing_left_fitting(s: KnapsackItems, first: int) -> bool:
    """Return whether none of the items from `first` on fits."""
    for r in range(len(s.left)):
        if s.minimum_load[first, r] > s.left[r]:
            return True
    return False


@compile_inline
def add_headroom(s: KnapsackItems, g: int, i: int, depth: int) -> None:
    """Apply the headroom of the item at a depth."""
    if s.headroom.shape[0] > 0:
        for r in range(len(s.left)):
            s.peak[1 + depth, r] = s.peak[0, r]
            s.peak[0, r] = max(s.peak[0, r], s.item_head[i, r])
        _reserve_headroom(s, g)


@compile_inline
def remove_headroom(s: KnapsackItems, g: int, depth: int) -> None:
    """Undo the headroom of the item at a depth."""
    if s.headroom.shape[0] > 0:
        for r in range(len(s.left)):
            s.peak[0, r] = s.peak[1 + depth, r]
        _reserve_headroom(s, g)


@compile_inline
def _reserve_headroom(s: KnapsackItems, g: int) -> None:
    s.reserve[0] = 0.0
    for r in range(len(s.left)):
        s.reserve[0] += s.mix[g, r] * s.peak[0, r] / max(s.free_capacity[g, r], 1)


@compile_inline
def use_capacity(s: KnapsackItems, i: int, copies: int) -> None:
    """Subtract copies of an item from the remaining capacity, or return them."""
    for r in range(len(s.left)):
        s.left[r] -= copies * s.item_weight[i, r]


@compile_inline
def start_empty_node(s: KnapsackItems, g: int, count: int) -> None:
    """Start with an empty node of a group."""
    for r in range(len(s.left)):
        s.left[r] = s.free_capacity[g, r]
        s.peak[0, r] = s.floor[g, r]
    _reserve_headroom(s, g)
    for i in range(count):
        s.taken[i] = 0


@compile_inline
def record_pattern(s: KnapsackItems, g: int, count: int, where: int) -> None:
    """Write the copies taken, by class, into `found`."""
    s.found_group[where] = g
    for c in range(s.found.shape[1]):
        s.found[where, c] = 0
    for i in range(count):
        s.found[where, s.item_class[i]] += s.taken[i]


@compile_inline
def _open_bound(s: KnapsackItems, g: int, count: int, depth: int, value: float, space: float) -> float:
    """Return the largest bound of what an interrupted search has not visited."""
    top = 0.0
    for k in range(depth - 1, -1, -1):
        i = s.stack[k]
        # One copy less of this item, and any later ones.
        copies = s.taken[i]
        value -= copies * s.item_value[i]
        space += copies * s.item_load[i]
        use_capacity(s, i, -copies)
        use_capacity(s, i, copies - 1)
        remove_headroom(s, g, k)
        part = value + (copies - 1) * s.item_value[i]
        top = max(top, part + compute_bound(s, count, i + 1, space - (copies - 1) * s.item_load[i], math.inf))
        use_capacity(s, i, 1 - copies)
    return top


@compile_inline
def solve_knapsack(
    s: KnapsackItems, g: int, count: int, known: float, where: int, most_found: int, most_nodes: int
) -> tuple[float, float, int]:
    """Return the best pattern of a node of a group beyond a known value.

    Returns its value, an upper bound (equal unless the search reached its limit), and how many patterns were written
    into `found` from `where` on, the last one being the best; beyond `most_found` the oldest are overwritten.
    """
    start_empty_node(s, g, count)
    best, value, space = known, 0.0, SEARCH_SPACE
    depth, i, written, spent = 0, 0, 0, 0
    while True:
        pruned = False
        while i < count:
            # No later item has a larger value for its load.
            if (
                is_nothing_left_fitting(s, i)
                or s.item_value[i] * max(space, 0.0) <= (best + _TINY - value) * s.item_load[i]
            ):
                break
            copies = count_fitting_copies(s, i)
            if copies == 0:
                i += 1
                continue
            spent += 1
            if value + compute_bound(s, count, i, space, best + _TINY - value) <= best + _TINY:
                pruned = True
                break
            s.stack[depth] = i
            add_headroom(s, g, i, depth)
            depth += 1
            s.taken[i] = copies
            use_capacity(s, i, copies)
            value += copies * s.item_value[i]
            space -= copies * s.item_load[i]
            i += 1
        if not pruned and value > best + _TINY:
            best = value
            record_pattern(s, g, count, where + written % most_found)
            written += 1
        if depth == 0:
            break
        if spent > most_nodes:
            s.nodes[0] += spent
            return best, max(best, _open_bound(s, g, count, depth, value, space)), min(written, most_found)
        i = s.stack[depth - 1]
        s.taken[i] -= 1
        use_capacity(s, i, -1)
        value -= s.item_value[i]
        space += s.item_load[i]
        if s.taken[i] == 0:
            depth -= 1
            remove_headroom(s, g, depth)
        i += 1
    s.nodes[0] += spent
    return best, best, min(written, most_found)


@compile_inline
def _is_maximal(s: KnapsackItems, count: int) -> bool:
    """Return whether nothing more fits, and copies that stay come before others of their class."""
    for i in range(count):
        if s.taken[i] == s.item_bound[i]:
            continue
        if not item_exceeds_capacity(s, i):
            return False
        if s.item_stays[i] == 1:
            for k in range(count):
                if s.item_class[k] == s.item_class[i] and s.item_stays[k] == 0 and s.taken[k] > 0:
                    return False
    return True


@compile_without_allocation
def list_patterns_of_node(
    s: KnapsackItems,
    g: int,
    value: FloatArray,
    stay_bonus: FloatArray,
    counts: IntArray,
    least_value: float,
    where: int,
    most_nodes: int,
) -> int:
    """Write every maximal pattern worth at least `least_value` into `found` from `where` on.

    Returns how many there are, -1 if `found` is full or the search takes too many steps.
    """
    count = collect_items(s, g, value, stay_bonus, counts, -1.0)
    tune_resource_mix(s, g, count)
    start_empty_node(s, g, count)
    total, space = 0.0, SEARCH_SPACE
    depth, i, written, spent = 0, 0, 0, 0
    while True:
        hopeful = True
        while hopeful and i < count and not is_nothing_left_fitting(s, i):
            copies = count_fitting_copies(s, i)
            if copies > 0:
                spent += 1
                hopeful = total + compute_bound(s, count, i, space, least_value - total) >= least_value
            if copies > 0 and hopeful:
                s.stack[depth] = i
                add_headroom(s, g, i, depth)
                depth += 1
                s.taken[i] = copies
                use_capacity(s, i, copies)
                total += copies * s.item_value[i]
                space -= copies * s.item_load[i]
            i += 1
        if hopeful and total >= least_value and _is_maximal(s, count):
            if where + written >= s.found.shape[0]:
                s.nodes[0] += spent
                return -1
            record_pattern(s, g, count, where + written)
            written += 1
        if depth == 0:
            s.nodes[0] += spent
            return written
        if spent > most_nodes:
            s.nodes[0] += spent
            return -1
        i = s.stack[depth - 1]
        s.taken[i] -= 1
        use_capacity(s, i, -1)
        total -= s.item_value[i]
        space += s.item_load[i]
        if s.taken[i] == 0:
            depth -= 1
            remove_headroom(s, g, depth)
        i += 1
