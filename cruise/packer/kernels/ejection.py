"""Placing pods on a nearly full cluster: others make room and find room themselves, in chains of some depth.

Each kernel changes the cluster's state pod by pod, logs what it changed, and takes it back where it led nowhere.
"""

import numpy as np

from cruise.packer.kernels.cluster_state import (
    PackedClusterState,
    compute_shortage,
    find_best_node,
    has_capacity,
    is_allowed,
    may_be_ejected,
    may_have_capacity,
    move_pod,
    undo_changes,
    update_skyline,
)
from cruise.packer.kernels.compilation import compile_kernel, compile_without_allocation, read_monotonic_seconds
from cruise.packer.problem import FloatArray, IntArray

# Nodes looked at for one pod, those that lack least; of what could be ejected there, how much is tried.
_NEAR = 400
_TRIED = 32
_CROWD = 256
_DRAW_SKY_EVERY = 8
# Deeper chains try fewer first ejections.
_SECOND, _THIRD = 24, 10
# At first, and once that does not help.
_MANY, _VERY_MANY = 6, 12
# So many may fit nowhere else, and one more for each four that do; what would still be lacking weighs that much more
# than what has to go.
_STUCK, _LACKING = 4, 100.0
# A pod that is away from home already, or was pending, costs nothing to move again.
_COSTLESS = 0.5


@compile_kernel
def place_by_ejection(
    s: PackedClusterState, pods: IntArray, depth: int, below: int, deadline: float, work: float
) -> int:
    """Place pods in their order, each by ejections up to a depth; how many are placed.

    From its home nothing is ejected whose rank is not at least `below` ranks under the pod's own.
    """
    placed = 0
    since = _DRAW_SKY_EVERY
    failed = np.zeros(s.demands.shape[0], np.bool_)
    for i in range(pods.shape[0]):
        p = pods[i]
        # What its siblings did not find will not be there for it.
        if s.node[p] >= 0 or failed[s.pod_class[p]]:
            continue
        if (deadline < np.inf and read_monotonic_seconds() > deadline) or s.spent[0] > work:
            break
        if since >= _DRAW_SKY_EVERY:
            update_skyline(s)
            since = 0
        s.logged[0] = 0
        if _insert(s, p, depth, s.ranks[s.pod_class[p]] + below):
            placed += 1
            since += 1
        else:
            failed[s.pod_class[p]] = True
        s.logged[0] = 0
    return placed


@compile_kernel
def _insert(s: PackedClusterState, p: int, depth: int, rank: int) -> bool:
    if _direct(s, p, -1):
        return True
    if depth >= 1 and (
        place_by_single_ejection(s, p, rank) or _by_two(s, p, rank) or _by_many(s, p, rank, _TRIED, _MANY)
    ):
        return True
    if depth >= 2 and _by_many(s, p, rank, _NEAR, _VERY_MANY):
        return True
    if depth >= 2 and (_by_chain(s, p, rank) or _by_many(s, p, rank, _NEAR, _CROWD)):
        return True
    return depth >= 3 and _by_long_chain(s, p, rank)


@compile_without_allocation
def _direct(s: PackedClusterState, p: int, ban: int) -> bool:
    n = find_best_node(s, p, ban)
    if n < 0:
        return False
    move_pod(s, p, n)
    return True


@compile_without_allocation
def _swap(s: PackedClusterState, gone: int, p: int, n: int) -> bool:
    """Take a pod out and another one in, unless a rule forbids that once the first is gone."""
    move_pod(s, gone, -1)
    if not is_allowed(s, p, n):
        return False
    move_pod(s, p, n)
    return True


@compile_kernel
def _near_nodes(s: PackedClusterState, p: int) -> IntArray:
    """The nodes of the span that lack least for a pod, of those where it may arrive."""
    c = s.pod_class[p]
    most = s.free.shape[0] // s.span[1] + 1
    lacks, near = np.empty(most, np.float64), np.empty(most, np.int64)
    found = 0
    s.spent[0] += most
    for n in range(s.span[0], s.free.shape[0], s.span[1]):
        # Where only guests may leave, a node without any makes no room.
        if s.rooted[0] and s.foreign_pods[n] == 0:
            continue
        if is_allowed(s, p, n):
            lacks[found], near[found] = compute_shortage(s, c, n, -1), n
            found += 1
    if found <= _NEAR:
        return near[:found]
    limit = np.partition(lacks[:found], _NEAR)[_NEAR]
    k = 0
    for i in range(found):
        if k < 2 * _NEAR and lacks[i] <= limit:
            near[k] = near[i]
            k += 1
    return near[:k]


@compile_without_allocation
def _room_after(s: PackedClusterState, c: int, n: int, gone: int, also: int) -> float:
    """What a node keeps if one or two pods leave it and one of the class comes; -1 where that does not fit."""
    total = 0.0
    for r in range(s.free.shape[1]):
        d, h = s.demands[c, r], s.headroom[c, r]
        wide = s.largest[n, r]
        freed = s.demands[s.pod_class[gone], r]
        if also >= 0:
            freed += s.demands[s.pod_class[also], r]
        if wide > h:
            wide = 0
            other = s.first_pod[n]
            while other >= 0:
                if other != gone and other != also:
                    wide = max(wide, s.headroom[s.pod_class[other], r])
                other = s.next_pod[other]
        left = s.free[n, r] + freed - d - max(h, wide)
        if left < 0 and (d > 0 or h > 0):
            return -1.0
        total += left * s.shares[r]
    return total


@compile_without_allocation
def _keep_best(scores: FloatArray, found: IntArray, held: int, score: float, first: int, second: int, node: int) -> int:
    """Keep a candidate among the best so far, as a row of `found`; their number afterwards."""
    k = held
    if held == scores.shape[0]:
        k = 0
        for i in range(1, held):
            if scores[i] > scores[k]:
                k = i
        if scores[k] <= score:
            return held
    scores[k], found[k, 0], found[k, 1], found[k, 2] = score, first, second, node
    return int(min(held + 1, scores.shape[0]))


@compile_kernel
def _singles(s: PackedClusterState, p: int, rank: int, many: int, sure: bool) -> IntArray:
    """Rows of (pod, -1, node): single pods whose leaving lets a pod in, the best first.

    `sure`: only those the skyline has a place for.
    """
    c = s.pod_class[p]
    scores, found = np.empty(many, np.float64), np.empty((many, 3), np.int64)
    held = 0
    near = _near_nodes(s, p)
    for i in range(near.shape[0]):
        n = near[i]
        gone = s.first_pod[n]
        while gone >= 0:
            s.spent[0] += 1
            g = s.pod_class[gone]
            if g != c and may_be_ejected(s, gone) and (s.ranks[g] >= rank or s.node[gone] != s.home_node[gone]):
                score = _room_after(s, c, n, gone, -1)
                if score >= 0 and (not sure or may_have_capacity(s, g)):
                    if s.node[gone] != s.home_node[gone]:
                        score *= _COSTLESS
                    held = _keep_best(scores, found, held, score, gone, -1, n)
            gone = s.next_pod[gone]
    return found[np.argsort(scores[:held])]


@compile_kernel
def place_by_single_ejection(s: PackedClusterState, p: int, rank: int) -> bool:
    """Let a pod in for one other that fits elsewhere; `rank`: nothing of a higher priority leaves its home for it."""
    found = _singles(s, p, rank, _TRIED, True)
    for i in range(found.shape[0]):
        start = s.logged[0]
        if _swap(s, found[i, 0], p, found[i, 2]) and _direct(s, found[i, 0], found[i, 2]):
            return True
        undo_changes(s, start)
    return False


@compile_kernel
def _by_two(s: PackedClusterState, p: int, rank: int) -> bool:
    c = s.pod_class[p]
    scores, found = np.empty(_TRIED, np.float64), np.empty((_TRIED, 3), np.int64)
    held = 0
    near = _near_nodes(s, p)
    crowd = np.empty(_CROWD, np.int64)
    for i in range(near.shape[0]):
        n = near[i]
        count = _leaving(s, n, c, rank, crowd)
        if not _would_do(s, c, n, crowd[:count], 2):
            continue
        for a in range(count):
            for b in range(a + 1, count):
                s.spent[0] += 1
                score = _room_after(s, c, n, crowd[a], crowd[b])
                if score >= 0:
                    held = _keep_best(scores, found, held, score, crowd[a], crowd[b], n)
    order = np.argsort(scores[:held])
    for i in range(held):
        first, second, n = found[order[i], 0], found[order[i], 1], found[order[i], 2]
        start = s.logged[0]
        move_pod(s, first, -1)
        if may_be_ejected(s, second):
            move_pod(s, second, -1)
            if has_capacity(s, c, n) and is_allowed(s, p, n):
                move_pod(s, p, n)
                if _direct(s, first, n) and _direct(s, second, n):
                    return True
        undo_changes(s, start)
    return False


@compile_without_allocation
def _leaving(s: PackedClusterState, n: int, c: int, rank: int, crowd: IntArray) -> int:
    """The pods of a node that may leave and have a place elsewhere by the skyline; how many."""
    count = 0
    other = s.first_pod[n]
    while other >= 0 and count < crowd.shape[0]:
        g = s.pod_class[other]
        if (
            g != c
            and may_have_capacity(s, g)
            and may_be_ejected(s, other)
            and (s.ranks[g] >= rank or s.node[other] != s.home_node[other])
        ):
            crowd[count] = other
            count += 1
        other = s.next_pod[other]
    return count


@compile_kernel
def _by_many(s: PackedClusterState, p: int, rank: int, nodes: int, most: int) -> bool:
    """Eject up to so many pods of one of some nodes, one after the other to where it fits.

    The nodes that lack least come first, and of their pods those that leave least lacking.
    """
    c = s.pod_class[p]
    near = _near_nodes(s, p)
    lacks = np.empty(near.shape[0], np.float64)
    for i in range(near.shape[0]):
        lacks[i] = compute_shortage(s, c, near[i], -1)
    order = np.argsort(lacks)
    crowd = np.empty(_CROWD, np.int64)
    for i in range(min(near.shape[0], nodes)):
        n = near[order[i]]
        start, out, stuck = s.logged[0], 0, 0
        count = _leaving(s, n, c, rank, crowd)
        if not _would_do(s, c, n, crowd[:count], most):
            continue
        while count > 0 and out < most and stuck < _STUCK + out // _STUCK and not has_capacity(s, c, n):
            k = _most_useful(s, c, n, crowd[:count])
            gone = crowd[k]
            count -= 1
            crowd[k] = crowd[count]
            if not may_be_ejected(s, gone):
                continue
            before = s.logged[0]
            move_pod(s, gone, -1)
            if _direct(s, gone, n):
                out += 1
            else:
                stuck += 1
                undo_changes(s, before)
        if has_capacity(s, c, n) and is_allowed(s, p, n):
            move_pod(s, p, n)
            return True
        undo_changes(s, start)
    return False


@compile_without_allocation
def _would_do(s: PackedClusterState, c: int, n: int, crowd: IntArray, most: int) -> bool:
    """Whether so many of some pods may make room for a class: as many as the largest in each resource, or all."""
    s.spent[0] += crowd.shape[0]
    for r in range(s.free.shape[1]):
        if s.demands[c, r] > s.free[n, r]:
            total, largest = 0, 0
            for k in range(crowd.shape[0]):
                demand = s.demands[s.pod_class[crowd[k]], r]
                total += demand
                largest = max(largest, demand)
            if s.free[n, r] + min(total, most * largest) < s.demands[c, r]:
                return False
    return True


@compile_without_allocation
def _most_useful(s: PackedClusterState, c: int, n: int, crowd: IntArray) -> int:
    """Which of some pods leaves least lacking for a class, and of equal ones is the smallest."""
    best, least = 0, np.inf
    for k in range(crowd.shape[0]):
        g = s.pod_class[crowd[k]]
        score = 0.0
        for r in range(s.free.shape[1]):
            score += s.demands[g, r] * s.shares[r]
        if s.node[crowd[k]] != s.home_node[crowd[k]]:
            score *= _COSTLESS
        score += _LACKING * compute_shortage(s, c, n, g)
        if score < least:
            best, least = k, score
    s.spent[0] += crowd.shape[0]
    return best


@compile_kernel
def _by_chain(s: PackedClusterState, p: int, rank: int) -> bool:
    """Eject one that fits nowhere, for which others make room."""
    found = _singles(s, p, rank, _SECOND, False)
    s.protected_nodes[p] = True
    for i in range(found.shape[0]):
        start = s.logged[0]
        if _swap(s, found[i, 0], p, found[i, 2]) and (
            place_by_single_ejection(s, found[i, 0], rank) or _by_two(s, found[i, 0], rank)
        ):
            s.protected_nodes[p] = False
            return True
        undo_changes(s, start)
    s.protected_nodes[p] = False
    return False


@compile_kernel
def _by_long_chain(s: PackedClusterState, p: int, rank: int) -> bool:
    found = _singles(s, p, rank, _THIRD, False)
    s.protected_nodes[p] = True
    for i in range(found.shape[0]):
        start = s.logged[0]
        if _swap(s, found[i, 0], p, found[i, 2]) and _by_chain(s, found[i, 0], rank):
            s.protected_nodes[p] = False
            return True
        undo_changes(s, start)
    s.protected_nodes[p] = False
    return False
