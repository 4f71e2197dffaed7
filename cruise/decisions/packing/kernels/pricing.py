"""The most valuable set of copies for one node: exact knapsacks in several resources, by depth-first search."""

import math
from typing import NamedTuple

import numpy as np

from cruise.decisions.packing.instance import FloatArray, IntArray
from cruise.decisions.packing.kernels.clock import seconds
from cruise.decisions.packing.kernels.compiling import lean

EXACT, LIMITED = 0, 1
_TINY = 1e-9
_TUNINGS = 4
CHECK_EVERY = 4096


class Shelf(NamedTuple):
    """The nodes to fill, in groups of equal ones, and the scratch of a search.

    `demands[class, resource]`, `room[group, resource]`, `limits[group, class]`; `running[group, class]` copies may
    stay, which is worth more. `mix[group, resource]` weighs resources in the surrogate bound and is kept from one
    search to the next. `found[k]` are copies by class. The items of one search are sorted by value for their load.
    """

    demands: IntArray
    room: IntArray
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
    item_weight: IntArray
    least: IntArray
    stack: IntArray
    taken: IntArray
    left: IntArray
    use: FloatArray
    trial: FloatArray
    nodes: IntArray


def shelf_of(demands: IntArray, room: IntArray, limits: IntArray, running: IntArray, patterns: int) -> Shelf:
    """A shelf with space for some patterns; `limits` and `running` are per group and class."""
    classes, resources = demands.shape
    groups, items = len(room), 2 * classes
    return Shelf(
        demands=demands,
        room=room,
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
        item_weight=np.zeros((items, resources), np.int64),
        least=np.zeros((items + 1, resources), np.int64),
        stack=np.zeros(items + 1, np.int64),
        taken=np.zeros(items + 1, np.int64),
        left=np.zeros(resources, np.int64),
        use=np.zeros(resources),
        trial=np.zeros(resources),
        nodes=np.zeros(1, np.int64),
    )


@lean
def _add_item(s: Shelf, count: int, c: int, bound: int, stays: int, value: float) -> int:
    s.item_class[count], s.item_bound[count], s.item_stays[count] = c, bound, stays
    s.item_value[count] = value
    for r in range(s.demands.shape[1]):
        s.item_weight[count, r] = s.demands[c, r]
    return count + 1


@lean
def collect(s: Shelf, g: int, value: FloatArray, stay_bonus: FloatArray, counts: IntArray, floor: float) -> int:
    """Gather what may go onto a node of a group and is worth more than `floor`; how many items there are."""
    count = 0
    for c in range(s.demands.shape[0]):
        limit = min(s.limits[g, c], counts[c])
        if limit <= 0:
            continue
        for r in range(s.demands.shape[1]):
            if s.demands[c, r] > 0:
                limit = min(limit, s.room[g, r] // s.demands[c, r])
        stays = 0
        if stay_bonus[c] > 0.0:
            stays = min(s.running[g, c], limit)
        # Copies that run on the node are not among those that could come from elsewhere.
        others = min(limit - stays, counts[c] - (s.running[g, c] if stay_bonus[c] > 0.0 else 0))
        if stays > 0 and value[c] + stay_bonus[c] > floor:
            count = _add_item(s, count, c, stays, 1, value[c] + stay_bonus[c])
        if others > 0 and value[c] > floor:
            count = _add_item(s, count, c, others, 0, value[c])
    return count


@lean
def _swap_items(s: Shelf, a: int, b: int) -> None:
    s.item_class[a], s.item_class[b] = s.item_class[b], s.item_class[a]
    s.item_bound[a], s.item_bound[b] = s.item_bound[b], s.item_bound[a]
    s.item_stays[a], s.item_stays[b] = s.item_stays[b], s.item_stays[a]
    s.item_value[a], s.item_value[b] = s.item_value[b], s.item_value[a]
    s.item_load[a], s.item_load[b] = s.item_load[b], s.item_load[a]
    for r in range(s.demands.shape[1]):
        s.item_weight[a, r], s.item_weight[b, r] = s.item_weight[b, r], s.item_weight[a, r]


@lean
def _arrange(s: Shelf, g: int, count: int, mix: FloatArray) -> None:
    """Weigh the items by a mix of resources, and sort them by value for load (shell sort: nearly sorted often)."""
    for i in range(count):
        load = 0.0
        for r in range(len(mix)):
            load += mix[r] * s.item_weight[i, r] / max(s.room[g, r], 1)
        s.item_load[i] = max(load, 1e-12)
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            k = i
            while k >= gap and s.item_value[k] * s.item_load[k - gap] > s.item_value[k - gap] * s.item_load[k]:
                _swap_items(s, k, k - gap)
                k -= gap
        gap //= 3


@lean
def _relaxed(s: Shelf, g: int, count: int) -> float:
    """The fractional filling of an empty node; `use` becomes the share of each resource that it takes."""
    space, value = 1.0, 0.0
    for r in range(len(s.use)):
        s.use[r] = 0.0
    for i in range(count):
        part = min(float(s.item_bound[i]), space / s.item_load[i])
        space -= part * s.item_load[i]
        value += part * s.item_value[i]
        for r in range(len(s.use)):
            s.use[r] += part * s.item_weight[i, r] / max(s.room[g, r], 1)
        if space <= 0.0:
            break
    return value


@lean
def tune(s: Shelf, g: int, count: int) -> float:
    """Move the group's mix towards the resource that the fractional filling overuses, while the bound falls."""
    _arrange(s, g, count, s.mix[g])
    bound = _relaxed(s, g, count)
    step = 0.6
    for _ in range(_TUNINGS):
        total = 0.0
        for r in range(len(s.trial)):
            s.trial[r] = max(s.mix[g, r], 1e-4) * math.exp(step * min(max(s.use[r] - 1.0, -1.0), 1.0))
            total += s.trial[r]
        for r in range(len(s.trial)):
            s.trial[r] /= total
        _arrange(s, g, count, s.trial)
        tried = _relaxed(s, g, count)
        if tried < bound - 1e-12:
            bound = tried
            for r in range(len(s.trial)):
                s.mix[g, r] = s.trial[r]
        else:
            step *= 0.4
            _arrange(s, g, count, s.mix[g])
            _relaxed(s, g, count)
    _arrange(s, g, count, s.mix[g])
    for r in range(len(s.use)):
        s.least[count, r] = 9223372036854775807
    for i in range(count - 1, -1, -1):
        for r in range(len(s.use)):
            s.least[i, r] = min(s.least[i + 1, r], s.item_weight[i, r])
    return float(bound)


@lean
def bound(s: Shelf, count: int, first: int, space: float) -> float:
    """What items from `first` on could add in the space that is left, fractions allowed."""
    value = 0.0
    for i in range(first, count):
        fits = True
        for r in range(len(s.left)):
            if s.item_weight[i, r] > s.left[r]:
                fits = False
        if not fits:
            continue
        load = s.item_load[i] * s.item_bound[i]
        if load > space:
            return float(value + s.item_value[i] * space / s.item_load[i])
        space -= load
        value += s.item_value[i] * s.item_bound[i]
    return value


@lean
def copies_of(s: Shelf, i: int) -> int:
    """How many copies of an item fit into what is left."""
    most = s.item_bound[i]
    for r in range(len(s.left)):
        w = s.item_weight[i, r]
        if w > s.left[r]:
            return 0
        if w > 0 and most * w > s.left[r]:
            most = s.left[r] // w
    return int(most)


@lean
def hopeless(s: Shelf, first: int) -> bool:
    """Tell whether none of the items from `first` on fits what is left."""
    for r in range(len(s.left)):
        if s.least[first, r] > s.left[r]:
            return True
    return False


@lean
def load(s: Shelf, i: int, copies: int) -> None:
    """Take copies of an item from what is left, or give them back."""
    for r in range(len(s.left)):
        s.left[r] -= copies * s.item_weight[i, r]


@lean
def begin(s: Shelf, g: int, count: int) -> None:
    """Begin with an empty node of a group."""
    for r in range(len(s.left)):
        s.left[r] = s.room[g, r]
    for i in range(count):
        s.taken[i] = 0


@lean
def record(s: Shelf, g: int, count: int, where: int) -> None:
    """Write the copies taken, by class, into `found`."""
    s.found_group[where] = g
    for c in range(s.found.shape[1]):
        s.found[where, c] = 0
    for i in range(count):
        s.found[where, s.item_class[i]] += s.taken[i]


@lean
def _open_bound(s: Shelf, count: int, depth: int, value: float, space: float) -> float:
    """The greatest bound of what an interrupted search has not looked at."""
    top = 0.0
    for k in range(depth - 1, -1, -1):
        i = s.stack[k]
        # One copy fewer of this item, and anything of the later ones.
        copies = s.taken[i]
        value -= copies * s.item_value[i]
        space += copies * s.item_load[i]
        load(s, i, -copies)
        load(s, i, copies - 1)
        part = value + (copies - 1) * s.item_value[i]
        top = max(top, part + bound(s, count, i + 1, space - (copies - 1) * s.item_load[i]))
        load(s, i, 1 - copies)
    return top


@lean
def fill(
    s: Shelf, g: int, count: int, known: float, where: int, most_found: int, most_nodes: int
) -> tuple[float, float, int]:
    """The best filling of a node of a group beyond a known value.

    Returns its value, an upper bound (equal to it unless the search met its limit), and how many fillings were
    written into `found` from `where` on, the last ones being the best; the oldest give way beyond `most_found`.
    """
    begin(s, g, count)
    best, value, space = known, 0.0, 1.0
    depth, i, written, spent = 0, 0, 0, 0
    while True:
        pruned = False
        while i < count:
            if hopeless(s, i):
                break
            copies = copies_of(s, i)
            if copies == 0:
                i += 1
                continue
            spent += 1
            if value + bound(s, count, i, space) <= best + _TINY:
                pruned = True
                break
            s.stack[depth] = i
            depth += 1
            s.taken[i] = copies
            load(s, i, copies)
            value += copies * s.item_value[i]
            space -= copies * s.item_load[i]
            i += 1
        if not pruned and value > best + _TINY:
            best = value
            record(s, g, count, where + written % most_found)
            written += 1
        if depth == 0:
            break
        if spent > most_nodes:
            s.nodes[0] += spent
            return best, max(best, _open_bound(s, count, depth, value, space)), min(written, most_found)
        i = s.stack[depth - 1]
        s.taken[i] -= 1
        load(s, i, -1)
        value -= s.item_value[i]
        space += s.item_load[i]
        if s.taken[i] == 0:
            depth -= 1
        i += 1
    s.nodes[0] += spent
    return best, best, min(written, most_found)


@lean
def fill_all(
    s: Shelf,
    value: FloatArray,
    stay_bonus: FloatArray,
    counts: IntArray,
    open_groups: IntArray,
    known: FloatArray,
    bounds: FloatArray,
    per_group: int,
    most_nodes: int,
    deadline: float,
) -> int:
    """Fill every group that is open; `bounds` become the groups' upper bounds.

    Returns how many fillings were written into `found`, or -1 when the deadline came first.
    """
    written = 0
    for g in range(len(bounds)):
        bounds[g] = 0.0
        if open_groups[g] <= 0:
            continue
        if seconds() > deadline:
            return -1
        count = collect(s, g, value, stay_bonus, counts, _TINY)
        tune(s, g, count)
        _, bounds[g], found = fill(s, g, count, known[g], written, per_group, most_nodes)
        written += found
    return written


@lean
def next_check(spent: int, check: int, deadline: float) -> int:
    """At how many nodes to look at the clock again; 0 once the deadline is over."""
    if spent < check:
        return check
    return spent + CHECK_EVERY if seconds() <= deadline else 0
