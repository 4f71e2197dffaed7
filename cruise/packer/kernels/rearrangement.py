"""Improves a packing: some pods of a few nodes are removed and placed again, unless that is worse."""

import numpy as np
from numpy.typing import NDArray

from cruise.packer.kernels.cluster_state import (
    ClusterStateArrays,
    compute_shortage,
    find_best_node,
    has_capacity,
    is_allowed,
    may_be_ejected,
    move_pod,
    undo_changes,
    update_skyline,
)
from cruise.packer.kernels.compilation import (
    compile_kernel,
    compile_without_allocation,
    draw_integer_below,
    read_monotonic_seconds,
)
from cruise.packer.kernels.ejection import place_by_single_ejection
from cruise.packer.problem import IntArray

# Nodes tried for a pending pod; random draws for a moved pod before a list of them is used, which is rebuilt after so
# many rounds.
_TRIED_NODES, _DRAWS, _LIST_INTERVAL = 8, 64, 1_000
# Nodes of a round, and how many of the pods on their home node are removed.
_NODES, _MAX_REMOVED = 3, 4
_MOST = 256
# With more nodes, placements are searched on so many in a round, and on fewer if another pod must leave.
_SPAN, _NARROW = 1_000, 200
_NONE, _UNTOUCHED = -1, -2


@compile_kernel
def rearrange_nodes(
    s: ClusterStateArrays,
    weights: IntArray,
    paper: bool,
    random: NDArray[np.uint64],
    vain: int,
    patience: int,
    deadline: float,
    work: float,
) -> int:
    """Rearrange a few nodes again and again, until that gained nothing so many times in a row, `vain` so far.

    It returns how many times in a row that then is.

    With `paper` whatever stays counts beside what is placed, for each priority; else the `weights` of evictions in
    the end.
    """
    ranks = 1
    for c in range(s.ranks.shape[0]):
        ranks = max(ranks, s.ranks[c] + 1)
    gains = np.zeros(2 * ranks + 1, np.int64)
    before = np.full(s.node.shape[0], _UNTOUCHED, np.int64)
    out = np.empty(_MOST, np.int64)
    waiting = np.flatnonzero(s.node < 0)
    away = np.flatnonzero((s.home_node >= 0) & (s.node != s.home_node))
    rounds = 0
    while vain < patience and s.spent[0] <= work and (deadline == np.inf or read_monotonic_seconds() <= deadline):
        vain += 1
        s.logged[0] = 0
        s.spent[0] += 1
        rounds += 1
        if rounds % _LIST_INTERVAL == 0:
            away = np.flatnonzero((s.home_node >= 0) & (s.node != s.home_node))
        _set_span(s, _SPAN, random)
        first = _NONE
        if waiting.shape[0] > 0 and draw_integer_below(random, 2) == 0:
            first = waiting[draw_integer_below(random, waiting.shape[0])]
        count = _remove_from_node(s, first, away, out, random)
        if count == 0:
            continue
        kept = _place_again(s, out[:count], first, paper, random)
        if kept and _compare(s, weights, paper, before, gains) >= 0:
            if gains[-1] > 0:
                vain = 0
            # It is placed now, and another pod may be pending instead.
            if first >= 0:
                waiting = np.flatnonzero(s.node < 0)
        else:
            undo_changes(s, 0)
    s.logged[0] = 0
    s.span[0], s.span[1] = 0, 1
    return vain


@compile_without_allocation
def _set_span(s: ClusterStateArrays, most: int, random: NDArray[np.uint64]) -> None:
    """Search placements on so many nodes, spread evenly, or on all."""
    s.span[1] = max(s.free.shape[0] // most, 1)
    s.span[0] = draw_integer_below(random, s.span[1]) if s.span[1] > 1 else 0


@compile_without_allocation
def _remove_from_node(
    s: ClusterStateArrays, first: int, away: IntArray, out: IntArray, random: NDArray[np.uint64]
) -> int:
    """Take pods off a node that one which waits could have, or that one away from home ran on; how many.

    Beside them some of nodes that these came from, or of any.
    """
    if first >= 0:
        out[0], centre = first, _find_nearest_node(s, first, random)
    else:
        p = _draw_moved_pod(s, away, random)
        centre = s.home_node[p] if p >= 0 else _NONE
        if p >= 0:
            out[0] = p
            move_pod(s, p, -1)
    if centre < 0:
        return 0
    count = _remove_pods(s, centre, first >= 0, out, 1, random)
    if first >= 0:
        count = _remove_until_fits(s, s.pod_class[first], centre, out, count, random)
    for _ in range(draw_integer_below(random, _NODES)):
        home = s.home_node[out[draw_integer_below(random, count)]]
        count = _remove_pods(
            s, home if home >= 0 else draw_integer_below(random, s.free.shape[0]), True, out, count, random
        )
    return count


@compile_without_allocation
def _find_nearest_node(s: ClusterStateArrays, p: int, random: NDArray[np.uint64]) -> int:
    """Return the node that lacks least for a pod, of some where it may arrive; -1 for none."""
    best, least = _NONE, np.inf
    for _ in range(_TRIED_NODES):
        n = draw_integer_below(random, s.free.shape[0])
        if is_allowed(s, p, n):
            lacking = compute_shortage(s, s.pod_class[p], n, -1)
            if lacking < least:
                best, least = n, lacking
    return best


@compile_without_allocation
def _draw_moved_pod(s: ClusterStateArrays, away: IntArray, random: NDArray[np.uint64]) -> int:
    """Return a random pod that is not on its home node and may leave; -1 if a few draws find none."""
    for _ in range(_DRAWS):
        p = draw_integer_below(random, s.node.shape[0])
        if _is_moved(s, p):
            return p if may_be_ejected(s, p) else _NONE
    if away.shape[0] == 0:
        return _NONE
    p = away[draw_integer_below(random, away.shape[0])]
    return p if _is_moved(s, p) and may_be_ejected(s, p) else _NONE


@compile_without_allocation
def _is_moved(s: ClusterStateArrays, p: int) -> bool:
    return bool(s.home_node[p] >= 0 and s.node[p] >= 0 and s.node[p] != s.home_node[p])


@compile_without_allocation
def _remove_pods(
    s: ClusterStateArrays, n: int, deep: bool, out: IntArray, count: int, random: NDArray[np.uint64]
) -> int:
    """Remove moved pods from a node, and if `deep` a few on their home node; return how many are out."""
    there = 0
    other = s.first_pod[n]
    while other >= 0:
        there += 1
        other = s.next_pod[other]
    at_home = draw_integer_below(random, _MAX_REMOVED + 1) if deep else 0
    other = s.first_pod[n]
    while other >= 0 and count < out.shape[0]:
        beyond = s.next_pod[other]
        guest = s.node[other] != s.home_node[other]
        if (guest and draw_integer_below(random, 4) > 0) or (
            not guest and at_home > 0 and draw_integer_below(random, there) < _MAX_REMOVED
        ):
            if may_be_ejected(s, other):
                at_home -= not guest
                move_pod(s, other, -1)
                out[count] = other
                count += 1
        other = beyond
    s.spent[0] += there
    return count


@compile_without_allocation
def _remove_until_fits(
    s: ClusterStateArrays, c: int, n: int, out: IntArray, count: int, random: NDArray[np.uint64]
) -> int:
    """Remove any pods from a node until one of a class fits; return how many are out."""
    other = s.first_pod[n]
    while other >= 0 and count < out.shape[0] and not has_capacity(s, c, n):
        beyond = s.next_pod[other]
        s.spent[0] += 1
        if draw_integer_below(random, 2) == 0 and may_be_ejected(s, other):
            move_pod(s, other, -1)
            out[count] = other
            count += 1
        other = beyond
    return count


@compile_kernel
def _place_again(s: ClusterStateArrays, out: IntArray, first: int, paper: bool, random: NDArray[np.uint64]) -> bool:
    """Place the removed pods, the largest first or in random order; False if one that was placed finds no node."""
    noise = 0.5 * draw_integer_below(random, 3)
    sizes = np.empty(out.shape[0], np.float64)
    for k in range(out.shape[0]):
        c = s.pod_class[out[k]]
        size = 0.0
        for r in range(s.free.shape[1]):
            size += s.demands[c, r] * s.shares[r]
        sizes[k] = -size * (1.0 + noise * (draw_integer_below(random, 1024) / 1024.0))
        if out[k] == first:
            sizes[k] = -np.inf
    order = np.argsort(sizes)
    drawn, narrow = False, 0
    for k in range(out.shape[0]):
        p = out[order[k]]
        n = find_best_node(s, p, -1)
        if n >= 0:
            move_pod(s, p, n)
            continue
        begin, step = s.span[0], s.span[1]
        if not drawn:
            _set_span(s, _NARROW, random)
            update_skyline(s)
            narrow, drawn = s.span[0], True
        s.span[0], s.span[1] = narrow, max(s.free.shape[0] // _NARROW, 1)
        s.protected_nodes[p] = True
        if first >= 0:
            s.protected_nodes[first] = True
        done = place_by_single_ejection(s, p, s.ranks[s.pod_class[p]] if paper else -1)
        s.protected_nodes[p] = False
        if first >= 0:
            s.protected_nodes[first] = False
        s.span[0], s.span[1] = begin, step
        if not done and (p == first or s.home_node[p] >= 0 or first < 0):
            return False
    return True


@compile_without_allocation
def _compare(s: ClusterStateArrays, weights: IntArray, paper: bool, before: IntArray, gains: IntArray) -> int:
    """Return whether all changes since the last decision are better (1), worse (-1) or neither.

    `gains` has for each rank how many more are placed and stay, and the answer in the end.
    """
    gains[:] = 0
    for k in range(s.logged[0] - 1, -1, -1):
        before[s.log[k, 0]] = s.log[k, 1]
    weight = 0
    for k in range(s.logged[0]):
        p = s.log[k, 0]
        if before[p] == _UNTOUCHED:
            continue
        c = s.pod_class[p]
        r = s.ranks[c]
        gains[2 * r] += (1 if s.node[p] >= 0 else 0) - (1 if before[p] >= 0 else 0)
        if s.home_node[p] >= 0:
            stays = (1 if s.node[p] == s.home_node[p] else 0) - (1 if before[p] == s.home_node[p] else 0)
            gains[2 * r + 1] += stays
            weight += stays * weights[c]
        before[p] = _UNTOUCHED
    answer = 0
    for k in range(gains.shape[0] - 1):
        if answer == 0 and (paper or k % 2 == 0) and gains[k] != 0:
            answer = 1 if gains[k] > 0 else -1
    if answer == 0 and not paper and weight != 0:
        answer = 1 if weight > 0 else -1
    gains[gains.shape[0] - 1] = answer
    return answer
