"""What may go onto one node, sorted for a search by what it is worth for the room that it takes."""

import math
from typing import NamedTuple

import numpy as np

from cruise.packer.arrays import FloatArray, IntArray
from cruise.packer.kernels.compiling import inlined

_TUNINGS = 4


class Shelf(NamedTuple):
    """The nodes to fill, in groups of equal ones, and the scratch of a search.

    `demands[class, resource]`, `room[group, resource]`, `limits[group, class]`; `running[group, class]` copies may
    stay, which is worth more. The largest `headroom[class, resource]` of a filling (no rows where there is none), at
    least `floor[group, resource]`, has to fit in as well: `peak[0]` is that of what is taken, `peak[1 + depth]`
    what it was before the depth's item, `reserve[0]` the share of the surrogate space that it takes.
    `mix[group, resource]` weighs resources in the surrogate bound and is kept from one search to the next. `found[k]`
    are copies by class. The items of one search are sorted by value for their load; `full_value` and `full_load` are
    those of all copies.
    """

    demands: IntArray
    headroom: IntArray
    room: IntArray
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
    least: IntArray
    stack: IntArray
    taken: IntArray
    left: IntArray
    use: FloatArray
    trial: FloatArray
    nodes: IntArray


def shelf_of(
    demands: IntArray,
    headroom: IntArray,
    room: IntArray,
    floor: IntArray,
    limits: IntArray,
    running: IntArray,
    patterns: int,
) -> Shelf:
    """A shelf with space for some patterns; `limits` and `running` are per group and class."""
    classes, resources = demands.shape
    groups, items = len(room), 2 * classes
    return Shelf(
        demands=demands,
        headroom=headroom,
        room=room,
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
        least=np.zeros((items + 1, resources), np.int64),
        stack=np.zeros(items + 1, np.int64),
        taken=np.zeros(items + 1, np.int64),
        left=np.zeros(resources, np.int64),
        use=np.zeros(resources),
        trial=np.zeros(resources),
        nodes=np.zeros(1, np.int64),
    )


@inlined
def _add_item(s: Shelf, count: int, c: int, bound: int, stays: int, value: float) -> int:
    s.item_class[count], s.item_bound[count], s.item_stays[count] = c, bound, stays
    s.item_value[count] = value
    for r in range(s.demands.shape[1]):
        s.item_weight[count, r] = s.demands[c, r]
        if s.headroom.shape[0] > 0:
            s.item_head[count, r] = s.headroom[c, r]
    return count + 1


@inlined
def alone(s: Shelf, g: int, c: int, most: int) -> int:
    """How many copies of a class, at most `most`, fit onto a node of a group that has nothing else to hold."""
    if most <= 0:
        return 0
    for r in range(s.demands.shape[1]):
        room = s.room[g, r]
        if s.headroom.shape[0] > 0:
            room -= max(s.floor[g, r], s.headroom[c, r])
        if s.demands[c, r] > 0:
            most = min(most, room // s.demands[c, r])
        elif room < 0:
            most = 0
    return int(max(most, 0))


@inlined
def collect(s: Shelf, g: int, value: FloatArray, stay_bonus: FloatArray, counts: IntArray, floor: float) -> int:
    """Gather what may go onto a node of a group and is worth more than `floor`; how many items there are."""
    count = 0
    for c in range(s.demands.shape[0]):
        limit = alone(s, g, c, min(s.limits[g, c], counts[c]))
        if limit <= 0:
            continue
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


@inlined
def swap_items(s: Shelf, a: int, b: int) -> None:
    """Let two items change places."""
    s.item_class[a], s.item_class[b] = s.item_class[b], s.item_class[a]
    s.item_bound[a], s.item_bound[b] = s.item_bound[b], s.item_bound[a]
    s.item_stays[a], s.item_stays[b] = s.item_stays[b], s.item_stays[a]
    s.item_value[a], s.item_value[b] = s.item_value[b], s.item_value[a]
    s.item_load[a], s.item_load[b] = s.item_load[b], s.item_load[a]
    for r in range(s.demands.shape[1]):
        s.item_weight[a, r], s.item_weight[b, r] = s.item_weight[b, r], s.item_weight[a, r]
        if s.headroom.shape[0] > 0:
            s.item_head[a, r], s.item_head[b, r] = s.item_head[b, r], s.item_head[a, r]


@inlined
def weigh(s: Shelf, g: int, count: int, mix: FloatArray) -> None:
    """Weigh the items by a mix of resources."""
    for i in range(count):
        load = 0.0
        for r in range(len(mix)):
            load += mix[r] * s.item_weight[i, r] / max(s.room[g, r], 1)
        s.item_load[i] = max(load, 1e-12)


@inlined
def arrange(s: Shelf, g: int, count: int, mix: FloatArray) -> None:
    """Weigh the items by a mix of resources, and sort them by value for load (shell sort: nearly sorted often)."""
    weigh(s, g, count, mix)
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


@inlined
def relaxed(s: Shelf, g: int, count: int) -> float:
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


@inlined
def tune(s: Shelf, g: int, count: int) -> float:
    """Move the group's mix towards the resource that the fractional filling overuses, while the bound falls."""
    arrange(s, g, count, s.mix[g])
    bound = relaxed(s, g, count)
    step = 0.6
    for _ in range(_TUNINGS):
        total = 0.0
        for r in range(len(s.trial)):
            s.trial[r] = max(s.mix[g, r], 1e-4) * math.exp(step * min(max(s.use[r] - 1.0, -1.0), 1.0))
            total += s.trial[r]
        for r in range(len(s.trial)):
            s.trial[r] /= total
        arrange(s, g, count, s.trial)
        tried = relaxed(s, g, count)
        if tried < bound - 1e-12:
            bound = tried
            for r in range(len(s.trial)):
                s.mix[g, r] = s.trial[r]
        else:
            step *= 0.4
            arrange(s, g, count, s.mix[g])
            relaxed(s, g, count)
    arrange(s, g, count, s.mix[g])
    sum_up(s, count)
    return float(bound)


@inlined
def sum_up(s: Shelf, count: int) -> None:
    """Note of the items in their order what all copies are worth, and what the later ones take at least."""
    for i in range(count):
        s.full_value[i] = s.item_value[i] * s.item_bound[i]
        s.full_load[i] = s.item_load[i] * s.item_bound[i]
    for r in range(len(s.use)):
        s.least[count, r] = 9223372036854775807
    for i in range(count - 1, -1, -1):
        for r in range(len(s.use)):
            s.least[i, r] = min(s.least[i + 1, r], s.item_weight[i, r])
