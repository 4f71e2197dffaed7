"""Places pods on a nearly full cluster: others are ejected to other nodes, in chains of limited depth.

Each kernel logs its changes, and undoes them if they lead nowhere.
"""

import numpy as np

from cruise.packer.kernels.cluster_state import (
    ClusterStateArrays,
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

# Nodes tried for one pod, those that lack least; how many ejections are tried; pods of a node that are considered.
_NEAR = 400
_TRIED = 32
_MAX_PODS = 256
_SKYLINE_INTERVAL = 8
# Deeper chains try fewer first ejections.
_SECOND, _THIRD = 24, 10
# Most ejections from one node: at first, and if that does not help.
_MANY, _VERY_MANY = 6, 12
# So many ejected pods may fit nowhere, and one more for each four that fit; missing capacity weighs so much more than
# ejected pods.
_MAX_UNPLACED, _SHORTAGE_WEIGHT = 4, 100.0
# A pod that is not on its home node, or was pending, costs little to move again.
_COSTLESS = 0.5


@compile_kernel
def place_by_ejection(
    s: ClusterStateArrays, pods: IntArray, depth: int, below: int, deadline: float, work: float
) -> int:
    """Place pods in order, each by ejections up to a depth; return how many are placed.

    From its home node only a pod is ejected whose rank is at least `below` ranks below the pod's own.
    """
    placed = 0
    since = _SKYLINE_INTERVAL
    failed = np.zeros(s.demands.shape[0], np.bool_)
    for i in range(pods.shape[0]):
        p = pods[i]
        # A pod fits nowhere if an equal one did not.
        if s.node[p] >= 0 or failed[s.pod_class[p]]:
            continue
        if (deadline < np.inf and read_monotonic_seconds() > deadline) or s.spent[0] > work:
            break
        if since >= _SKYLINE_INTERVAL:
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
def _insert(s: ClusterStateArrays, p: int, depth: int, rank: int) -> bool:
    if _place_directly(s, p, -1):
        return True
    if depth >= 1 and (
        place_by_single_ejection(s, p, rank)
        or _place_by_two_ejections(s, p, rank)
        or _place_by_many_ejections(s, p, rank, _TRIED, _MANY)
    ):
        return True
    if depth >= 2 and _place_by_many_ejections(s, p, rank, _NEAR, _VERY_MANY):
        return True
    if depth >= 2 and (_place_by_chain(s, p, rank) or _place_by_many_ejections(s, p, rank, _NEAR, _MAX_PODS)):
        return True
    return depth >= 3 and _place_by_long_chain(s, p, rank)


@compile_without_allocation
def _place_directly(s: ClusterStateArrays, p: int, ban: int) -> bool:
    n = find_best_node(s, p, ban)
    if n < 0:
        return False
    move_pod(s, p, n)
    return True


@compile_without_allocation
def _replace_pod(s: ClusterStateArrays, gone: int, p: int, n: int) -> bool:
    """Remove a pod and place another one, unless a rule still forbids that."""
    move_pod(s, gone, -1)
    if not is_allowed(s, p, n):
        return False
    move_pod(s, p, n)
    return True


@compile_kernel
def _find_nearest_nodes(s: ClusterStateArrays, p: int) -> IntArray:
    """Return the nodes of the span that lack least for a pod, of those where it may arrive."""
    c = s.pod_class[p]
    most = s.free.shape[0] // s.span[1] + 1
    lacks, near = np.empty(most, np.float64), np.empty(most, np.int64)
    count = 0
    s.spent[0] += most
    for n in range(s.span[0], s.free.shape[0], s.span[1]):
        # If only moved pods may be ejected, a node without any frees nothing.
        if s.rooted[0] and s.foreign_pods[n] == 0:
            continue
        if is_allowed(s, p, n):
            lacks[count], near[count] = compute_shortage(s, c, n, -1), n
            count += 1
    if count <= _NEAR:
        return near[:count]
    limit = np.partition(lacks[:count], _NEAR)[_NEAR]
    k = 0
    for i in range(count):
        if k < 2 * _NEAR and lacks[i] <= limit:
            near[k] = near[i]
            k += 1
    return near[:k]


@compile_without_allocation
def _compute_remaining(s: ClusterStateArrays, c: int, n: int, gone: int, also: int) -> float:
    """Return what a node has left if one or two pods leave and one of the class arrives; -1 if it does not fit."""
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
def _insert_candidate(
    scores: FloatArray, found: IntArray, held: int, score: float, first: int, second: int, node: int
) -> int:
    """Keep a candidate if it is among the best so far, as a row of `found`; return their number."""
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
def _find_single_ejections(s: ClusterStateArrays, p: int, rank: int, many: int, sure: bool) -> IntArray:
    """Return rows of (pod, -1, node): single pods whose ejection lets a pod in, the best first.

    `sure`: only pods for which the skyline shows capacity.
    """
    c = s.pod_class[p]
    scores, found = np.empty(many, np.float64), np.empty((many, 3), np.int64)
    held = 0
    near = _find_nearest_nodes(s, p)
    for i in range(near.shape[0]):
        n = near[i]
        gone = s.first_pod[n]
        while gone >= 0:
            s.spent[0] += 1
            g = s.pod_class[gone]
            if g != c and may_be_ejected(s, gone) and (s.ranks[g] >= rank or s.node[gone] != s.home_node[gone]):
                score = _compute_remaining(s, c, n, gone, -1)
                if score >= 0 and (not sure or may_have_capacity(s, g)):
                    if s.node[gone] != s.home_node[gone]:
                        score *= _COSTLESS
                    held = _insert_candidate(scores, found, held, score, gone, -1, n)
            gone = s.next_pod[gone]
    return found[np.argsort(scores[:held])]


@compile_kernel
def place_by_single_ejection(s: ClusterStateArrays, p: int, rank: int) -> bool:
    """Place a pod by ejecting one other that fits elsewhere, and no pod above `rank` from its home node."""
    found = _find_single_ejections(s, p, rank, _TRIED, True)
    for i in range(found.shape[0]):
        start = s.logged[0]
        if _replace_pod(s, found[i, 0], p, found[i, 2]) and _place_directly(s, found[i, 0], found[i, 2]):
            return True
        undo_changes(s, start)
    return False


@compile_kernel
def _place_by_two_ejections(s: ClusterStateArrays, p: int, rank: int) -> bool:
    c = s.pod_class[p]
    scores, found = np.empty(_TRIED, np.float64), np.empty((_TRIED, 3), np.int64)
    held = 0
    near = _find_nearest_nodes(s, p)
    ejectable = np.empty(_MAX_PODS, np.int64)
    for i in range(near.shape[0]):
        n = near[i]
        count = _collect_ejectable(s, n, c, rank, ejectable)
        if not _may_suffice(s, c, n, ejectable[:count], 2):
            continue
        for a in range(count):
            for b in range(a + 1, count):
                s.spent[0] += 1
                score = _compute_remaining(s, c, n, ejectable[a], ejectable[b])
                if score >= 0:
                    held = _insert_candidate(scores, found, held, score, ejectable[a], ejectable[b], n)
    order = np.argsort(scores[:held])
    for i in range(held):
        first, second, n = found[order[i], 0], found[order[i], 1], found[order[i], 2]
        start = s.logged[0]
        move_pod(s, first, -1)
        if may_be_ejected(s, second):
            move_pod(s, second, -1)
            if has_capacity(s, c, n) and is_allowed(s, p, n):
                move_pod(s, p, n)
                if _place_directly(s, first, n) and _place_directly(s, second, n):
                    return True
        undo_changes(s, start)
    return False


@compile_without_allocation
def _collect_ejectable(s: ClusterStateArrays, n: int, c: int, rank: int, ejectable: IntArray) -> int:
    """Collect the pods of a node that may be ejected and have capacity elsewhere by the skyline; return how many."""
    count = 0
    other = s.first_pod[n]
    while other >= 0 and count < ejectable.shape[0]:
        g = s.pod_class[other]
        if (
            g != c
            and may_have_capacity(s, g)
            and may_be_ejected(s, other)
            and (s.ranks[g] >= rank or s.node[other] != s.home_node[other])
        ):
            ejectable[count] = other
            count += 1
        other = s.next_pod[other]
    return count


@compile_kernel
def _place_by_many_ejections(s: ClusterStateArrays, p: int, rank: int, nodes: int, most: int) -> bool:
    """Eject up to so many pods of one of some nodes, one after the other, to where they fit.

    The nodes that lack least come first, and of their pods those whose ejection leaves least missing.
    """
    c = s.pod_class[p]
    near = _find_nearest_nodes(s, p)
    shortages = np.empty(near.shape[0], np.float64)
    for i in range(near.shape[0]):
        shortages[i] = compute_shortage(s, c, near[i], -1)
    order = np.argsort(shortages)
    ejectable = np.empty(_MAX_PODS, np.int64)
    for i in range(min(near.shape[0], nodes)):
        n = near[order[i]]
        start, ejected, unplaced = s.logged[0], 0, 0
        count = _collect_ejectable(s, n, c, rank, ejectable)
        if not _may_suffice(s, c, n, ejectable[:count], most):
            continue
        while (
            count > 0
            and ejected < most
            and unplaced < _MAX_UNPLACED + ejected // _MAX_UNPLACED
            and not has_capacity(s, c, n)
        ):
            k = _choose_pod_to_eject(s, c, n, ejectable[:count])
            gone = ejectable[k]
            count -= 1
            ejectable[k] = ejectable[count]
            if not may_be_ejected(s, gone):
                continue
            before = s.logged[0]
            move_pod(s, gone, -1)
            if _place_directly(s, gone, n):
                ejected += 1
            else:
                unplaced += 1
                undo_changes(s, before)
        if has_capacity(s, c, n) and is_allowed(s, p, n):
            move_pod(s, p, n)
            return True
        undo_changes(s, start)
    return False


@compile_without_allocation
def _may_suffice(s: ClusterStateArrays, c: int, n: int, ejectable: IntArray, most: int) -> bool:
    """Return whether so many of some pods may free enough for a class: the largest in each resource, or all."""
    s.spent[0] += ejectable.shape[0]
    for r in range(s.free.shape[1]):
        if s.demands[c, r] > s.free[n, r]:
            total, largest = 0, 0
            for k in range(ejectable.shape[0]):
                demand = s.demands[s.pod_class[ejectable[k]], r]
                total += demand
                largest = max(largest, demand)
            if s.free[n, r] + min(total, most * largest) < s.demands[c, r]:
                return False
    return True


@compile_without_allocation
def _choose_pod_to_eject(s: ClusterStateArrays, c: int, n: int, ejectable: IntArray) -> int:
    """Return the pod whose ejection leaves least missing for a class; of equal ones the smallest."""
    best, least = 0, np.inf
    for k in range(ejectable.shape[0]):
        g = s.pod_class[ejectable[k]]
        score = 0.0
        for r in range(s.free.shape[1]):
            score += s.demands[g, r] * s.shares[r]
        if s.node[ejectable[k]] != s.home_node[ejectable[k]]:
            score *= _COSTLESS
        score += _SHORTAGE_WEIGHT * compute_shortage(s, c, n, g)
        if score < least:
            best, least = k, score
    s.spent[0] += ejectable.shape[0]
    return best


@compile_kernel
def _place_by_chain(s: ClusterStateArrays, p: int, rank: int) -> bool:
    """Eject a pod that fits nowhere, for which others are ejected."""
    found = _find_single_ejections(s, p, rank, _SECOND, False)
    s.protected_nodes[p] = True
    for i in range(found.shape[0]):
        start = s.logged[0]
        if _replace_pod(s, found[i, 0], p, found[i, 2]) and (
            place_by_single_ejection(s, found[i, 0], rank) or _place_by_two_ejections(s, found[i, 0], rank)
        ):
            s.protected_nodes[p] = False
            return True
        undo_changes(s, start)
    s.protected_nodes[p] = False
    return False


@compile_kernel
def _place_by_long_chain(s: ClusterStateArrays, p: int, rank: int) -> bool:
    found = _find_single_ejections(s, p, rank, _THIRD, False)
    s.protected_nodes[p] = True
    for i in range(found.shape[0]):
        start = s.logged[0]
        if _replace_pod(s, found[i, 0], p, found[i, 2]) and _place_by_chain(s, found[i, 0], rank):
            s.protected_nodes[p] = False
            return True
        undo_changes(s, start)
    s.protected_nodes[p] = False
    return False
