"""The most valuable fillings of nodes that hold some copies in any case, of classes that want company on the node."""

from typing import NamedTuple

import numpy as np

from cruise.packer.kernels.compilation import compile_inline, compile_without_allocation, read_monotonic_seconds
from cruise.packer.kernels.knapsack import solve_knapsack
from cruise.packer.kernels.knapsack_items import KnapsackItems, collect_items, tune_resource_mix
from cruise.packer.problem import BoolArray, FloatArray, IntArray

_TINY = 1e-9
# A node is parted by company no further than into so many.
MAX_PARTS = 40


class PatternBounds(NamedTuple):
    """What groups hold: at least `least[group, class]` copies, at most `most`, of `room`, `floor` and `running`.

    Of class `holder[rule]` a node of a group has no more than `alone[rule, group]` copies where it has none of the
    `targets[rule, class]`. `fewest` and `limits` are parts of a group that are not looked at yet.
    """

    free_capacity: IntArray
    floor: IntArray
    running: IntArray
    minimum: IntArray
    maximum: IntArray
    holder: IntArray
    targets: BoolArray
    max_alone: IntArray
    fewest: IntArray
    limits: IntArray
    counts: IntArray


def build_pattern_bounds(s: KnapsackItems, holder: IntArray, targets: BoolArray, alone: IntArray) -> PatternBounds:
    """What a shelf's groups hold at first: nothing in any case."""
    classes = s.limits.shape[1]
    return PatternBounds(
        s.free_capacity.copy(),
        s.floor.copy(),
        s.running.copy(),
        np.zeros_like(s.limits),
        s.limits.copy(),
        holder,
        targets,
        alone,
        np.zeros((2 * MAX_PARTS + 2, classes), np.int64),
        np.zeros((2 * MAX_PARTS + 2, classes), np.int64),
        np.zeros(classes, np.int64),
    )


@compile_inline
def _lonely(h: PatternBounds, g: int, filling: IntArray) -> int:
    """The first rule that a filling breaks, -1 for none."""
    for rule in range(len(h.holder)):
        if filling[h.holder[rule]] > h.max_alone[rule, g]:
            met = False
            for c in range(len(filling)):
                if h.targets[rule, c] and filling[c] > 0:
                    met = True
            if not met:
                return rule
    return -1


@compile_inline
def _open(s: KnapsackItems, h: PatternBounds, g: int, part: int, counts: IntArray) -> bool:
    """Let the shelf fill what a part of a group has besides the least; False where that alone is too much."""
    for r in range(s.free_capacity.shape[1]):
        s.free_capacity[g, r], s.floor[g, r] = h.free_capacity[g, r], h.floor[g, r]
    fits = True
    for c in range(len(counts)):
        copies = h.fewest[part, c]
        s.limits[g, c] = h.limits[part, c] - copies
        s.running[g, c] = max(h.running[g, c] - copies, 0)
        h.counts[c] = counts[c] - copies
        if s.limits[g, c] < 0:
            fits = False
        if copies > 0:
            for r in range(s.free_capacity.shape[1]):
                s.free_capacity[g, r] -= copies * s.demands[c, r]
                if s.headroom.shape[0] > 0:
                    s.floor[g, r] = max(s.floor[g, r], s.headroom[c, r])
    for r in range(s.free_capacity.shape[1]):
        if s.free_capacity[g, r] < s.floor[g, r]:
            fits = False
    return fits


@compile_inline
def _part(h: PatternBounds, part: int, rule: int, g: int) -> int:
    """Two parts for one, the last: with the first of a rule's targets, and without; how many parts there are then."""
    target, others, into = -1, 0, part + 1
    for c in range(h.limits.shape[1]):
        h.fewest[into, c] = h.fewest[part, c]
        h.limits[into, c] = h.limits[part, c]
        if h.targets[rule, c] and h.limits[part, c] > 0:
            if target < 0:
                target = c
            else:
                others += 1
    if target >= 0:
        h.fewest[into, target] = 1
        h.limits[part, target] = 0
    if others == 0:
        holder = h.holder[rule]
        h.limits[part, holder] = min(h.limits[part, holder], h.max_alone[rule, g])
    return into + 1 if target >= 0 else into


@compile_inline
def _worth(h: PatternBounds, g: int, filling: IntArray, value: FloatArray, stay_bonus: FloatArray) -> float:
    total = 0.0
    for c in range(len(filling)):
        if filling[c] > 0:
            total += filling[c] * value[c] + min(filling[c], h.running[g, c]) * stay_bonus[c]
    return total


@compile_inline
def _begin(h: PatternBounds, g: int) -> None:
    """Begin with the whole group as the only part."""
    for c in range(h.minimum.shape[1]):
        h.fewest[0, c], h.limits[0, c] = h.minimum[g, c], h.maximum[g, c]


@compile_inline
def _nothing_besides(s: KnapsackItems, where: int) -> int:
    """Write a filling of nothing besides the least."""
    for c in range(s.found.shape[1]):
        s.found[where, c] = 0
    return 1


@compile_inline
def _accompanied(h: PatternBounds, g: int, filling: IntArray) -> bool:
    """Leave out of a filling what lacks company; whether it still has the least of its group."""
    rule = _lonely(h, g, filling)
    while rule >= 0:
        filling[h.holder[rule]] = h.max_alone[rule, g]
        rule = _lonely(h, g, filling)
    for c in range(len(filling)):
        if filling[c] < h.minimum[g, c]:
            return False
    return True


@compile_inline
def _take(
    s: KnapsackItems,
    h: PatternBounds,
    g: int,
    part: int,
    span: tuple[int, int],
    where: tuple[int, int],
    best: float,
    value: FloatArray,
    stay_bonus: FloatArray,
) -> tuple[int, int, float]:
    """Keep what was found in a span for a part, if better than the best; the rule that the greatest of it breaks.

    Returns this rule (-1 for none), how many fillings were kept, and the best value then. Of more than fit the oldest
    give way: `where` is their place and how many were kept before.
    """
    broken, greatest, kept = -1, -1e300, where[1]
    for k in range(span[0], span[1]):
        for c in range(s.found.shape[1]):
            s.found[k, c] += h.fewest[part, c]
        worth = _worth(h, g, s.found[k], value, stay_bonus)
        if worth > greatest:
            greatest, broken = worth, _lonely(h, g, s.found[k])
        if not _accompanied(h, g, s.found[k]):
            continue
        worth = _worth(h, g, s.found[k], value, stay_bonus)
        if worth > best + _TINY:
            best = worth
            row = where[0] + kept % (span[0] - where[0])
            kept += 1
            s.found_group[row] = g
            for c in range(s.found.shape[1]):
                s.found[row, c] = s.found[k, c]
    return broken, kept, best


@compile_without_allocation
def price_patterns(
    s: KnapsackItems,
    h: PatternBounds,
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
    """Fill every group that is open; `bounds` become the groups' upper bounds, never less than what is `known`.

    Where the best filling of a group breaks a rule, its parts with and without the company are filled. Returns how many
    fillings were written into `found`, which has space for `per_group` more, or -1 when the deadline came first.
    """
    written = 0
    for g in range(len(bounds)):
        bounds[g] = 0.0
        if open_groups[g] <= 0:
            continue
        if read_monotonic_seconds() > deadline:
            return -1
        best, top, mine, pending, parts = known[g], known[g], 0, 1, 0
        _begin(h, g)
        while pending > 0:
            pending -= 1
            part, first = pending, written + per_group
            if not _open(s, h, g, part, counts):
                continue
            parts += 1
            fixed = _worth(h, g, h.fewest[part], value[g], stay_bonus)
            count = collect_items(s, g, value[g], stay_bonus, h.counts, _TINY)
            tune_resource_mix(s, g, count)
            _, upper, found = solve_knapsack(s, g, count, max(best - fixed, 0.0), first, per_group, most_nodes)
            if found == 0 and fixed > best + _TINY:
                found = _nothing_besides(s, first)
            span, where = (first, first + found), (written, mine)
            broken, mine, best = _take(s, h, g, part, span, where, best, value[g], stay_bonus)
            if broken >= 0 and parts < MAX_PARTS:
                pending = _part(h, part, broken, g)
            else:
                top = max(top, upper + fixed)
        written += min(mine, per_group)
        bounds[g] = max(top, best)
    return written
