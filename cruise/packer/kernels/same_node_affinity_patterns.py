"""Prices patterns of nodes that hold some copies in any case, for classes with affinity by node."""

from typing import NamedTuple

import numpy as np

from cruise.packer.kernels.compilation import compile_inline, compile_without_allocation, read_monotonic_seconds
from cruise.packer.kernels.knapsack import solve_knapsack
from cruise.packer.kernels.knapsack_items import KnapsackItems, collect_items, tune_resource_mix
from cruise.packer.problem import BoolArray, FloatArray, IntArray

_TINY = 1e-9
# A group is split by affinity into at most so many parts.
MAX_PARTS = 40


class GroupCopyBounds(NamedTuple):
    """The bounds of copies of each group, with the groups' `free_capacity`, `floor` and `running`.

    A node of a group without `targets[rule, class]` has at most `max_alone[rule, group]` copies of class
    `holder[rule]`. `fewest` and `limits` are parts of a group that are not priced yet.
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


def build_group_copy_bounds(s: KnapsackItems, holder: IntArray, targets: BoolArray, alone: IntArray) -> GroupCopyBounds:
    """Return the initial bounds of the groups, without minimums."""
    classes = s.limits.shape[1]
    return GroupCopyBounds(
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
def _find_unaccompanied(h: GroupCopyBounds, g: int, pattern: IntArray) -> int:
    """Return the first rule that a pattern breaks, -1 for none."""
    for rule in range(len(h.holder)):
        if pattern[h.holder[rule]] > h.max_alone[rule, g]:
            met = False
            for c in range(len(pattern)):
                if h.targets[rule, c] and pattern[c] > 0:
                    met = True
            if not met:
                return rule
    return -1


@compile_inline
def _open_part(s: KnapsackItems, h: GroupCopyBounds, g: int, part: int, counts: IntArray) -> bool:
    """Prepare the items for what a part of a group holds above its minimum; False if the minimum does not fit."""
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
def _split_part(h: GroupCopyBounds, part: int, rule: int, g: int) -> int:
    """Split a part in two, with the first of a rule's targets and without; return the number of parts."""
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
def _compute_value(h: GroupCopyBounds, g: int, pattern: IntArray, value: FloatArray, stay_bonus: FloatArray) -> float:
    total = 0.0
    for c in range(len(pattern)):
        if pattern[c] > 0:
            total += pattern[c] * value[c] + min(pattern[c], h.running[g, c]) * stay_bonus[c]
    return total


@compile_inline
def _start_group(h: GroupCopyBounds, g: int) -> None:
    """Start with the whole group as the only part."""
    for c in range(h.minimum.shape[1]):
        h.fewest[0, c], h.limits[0, c] = h.minimum[g, c], h.maximum[g, c]


@compile_inline
def _write_minimum(s: KnapsackItems, where: int) -> int:
    """Write the pattern of only the minimum."""
    for c in range(s.found.shape[1]):
        s.found[where, c] = 0
    return 1


@compile_inline
def _drop_unaccompanied(h: GroupCopyBounds, g: int, pattern: IntArray) -> bool:
    """Remove copies without their targets from a pattern; return whether it still has the minimum of its group."""
    rule = _find_unaccompanied(h, g, pattern)
    while rule >= 0:
        pattern[h.holder[rule]] = h.max_alone[rule, g]
        rule = _find_unaccompanied(h, g, pattern)
    for c in range(len(pattern)):
        if pattern[c] < h.minimum[g, c]:
            return False
    return True


@compile_inline
def _keep_found(
    s: KnapsackItems,
    h: GroupCopyBounds,
    g: int,
    part: int,
    span: tuple[int, int],
    where: tuple[int, int],
    best: float,
    value: FloatArray,
    stay_bonus: FloatArray,
) -> tuple[int, int, float]:
    """Keep the patterns found for a part that are better than the best; return the rule that the best one breaks.

    Returns this rule (-1 for none), the number of kept patterns, and the best value. The oldest patterns are
    overwritten first.
    """
    broken, greatest, kept = -1, -1e300, where[1]
    for k in range(span[0], span[1]):
        for c in range(s.found.shape[1]):
            s.found[k, c] += h.fewest[part, c]
        worth = _compute_value(h, g, s.found[k], value, stay_bonus)
        if worth > greatest:
            greatest, broken = worth, _find_unaccompanied(h, g, s.found[k])
        if not _drop_unaccompanied(h, g, s.found[k]):
            continue
        worth = _compute_value(h, g, s.found[k], value, stay_bonus)
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
    h: GroupCopyBounds,
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
    """Price every open group; `bounds` become the groups' upper bounds, at least what is `known`.

    If the best pattern of a group breaks a rule, its parts with and without the targets are priced. Returns how many
    patterns were written into `found`, which has space for `per_group` more, or -1 at the deadline.
    """
    written = 0
    for g in range(len(bounds)):
        bounds[g] = 0.0
        if open_groups[g] <= 0:
            continue
        if read_monotonic_seconds() > deadline:
            return -1
        best, top, mine, pending, parts = known[g], known[g], 0, 1, 0
        _start_group(h, g)
        while pending > 0:
            pending -= 1
            part, first = pending, written + per_group
            if not _open_part(s, h, g, part, counts):
                continue
            parts += 1
            fixed = _compute_value(h, g, h.fewest[part], value[g], stay_bonus)
            count = collect_items(s, g, value[g], stay_bonus, h.counts, _TINY)
            tune_resource_mix(s, g, count)
            _, upper, found = solve_knapsack(s, g, count, max(best - fixed, 0.0), first, per_group, most_nodes)
            if found == 0 and fixed > best + _TINY:
                found = _write_minimum(s, first)
            span, where = (first, first + found), (written, mine)
            broken, mine, best = _keep_found(s, h, g, part, span, where, best, value[g], stay_bonus)
            if broken >= 0 and parts < MAX_PARTS:
                pending = _split_part(h, part, broken, g)
            else:
                top = max(top, upper + fixed)
        written += min(mine, per_group)
        bounds[g] = max(top, best)
    return written
