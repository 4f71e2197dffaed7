"""Gathers the free capacity of all nodes on one of them, by exchanges of one or two pods, until a pending pod fits."""

import numpy as np
from numpy.typing import NDArray

from cruise.packer.kernels.cluster_state import (
    ClusterStateArrays,
    compute_shortage,
    has_capacity,
    is_allowed,
    may_be_ejected,
    move_pod,
    undo_changes,
)
from cruise.packer.kernels.compilation import (
    compile_kernel,
    compile_without_allocation,
    draw_integer_below,
    read_monotonic_seconds,
)
from cruise.packer.problem import FloatArray, IntArray

# Pods of a node that may be exchanged, and exchanges tried before a pair of nodes is given up.
_MAX_PODS, _TRIED = 40, 6
_SUMS = 1 + _MAX_PODS + _MAX_PODS * (_MAX_PODS - 1) // 2
# The search ends after so many nodes in a row that gathered too little.
_MAX_FAILED = 4


@compile_kernel
def place_by_gathering_capacity(
    s: ClusterStateArrays, waiting: IntArray, below: int, random: NDArray[np.uint64], deadline: float, work: float
) -> int:
    """Place pending pods in order on nodes that gather the free capacity of others; return how many are placed."""
    side = np.empty((2, _SUMS, 2), np.int64)
    sums = np.empty((2, _SUMS, s.free.shape[1]), np.int64)
    scores, found = np.empty(_TRIED, np.float64), np.empty((_TRIED, 2), np.int64)
    tried = np.zeros(s.free.shape[0], np.bool_)
    placed, vain = 0, 0
    s.logged[0] = 0
    while vain < _MAX_FAILED and not _is_exhausted(s, deadline, work):
        first = _find_first_pending(s, waiting)
        if first < 0:
            break
        n = _find_collector(s, first, tried)
        if n < 0:
            break
        tried[n] = True
        rank = s.ranks[s.pod_class[first]] + below
        before = s.node.copy()
        arrived = _place_fitting(s, waiting, n)
        for donor in _sort_by_free_capacity(s, n, random):
            if _is_exhausted(s, deadline, work):
                break
            if _exchange(s, donor, n, rank, side, sums, scores, found):
                arrived += _place_fitting(s, waiting, n)
        placed += arrived
        vain = 0 if arrived else vain + 1
        if arrived:
            tried[:] = False
        else:
            _restore(s, before)
    return placed


@compile_without_allocation
def _restore(s: ClusterStateArrays, before: IntArray) -> None:
    """Return every pod to its earlier node."""
    for back in (False, True):
        for p in range(s.node.shape[0]):
            if s.node[p] != before[p]:
                move_pod(s, p, before[p] if back else -1)
                s.logged[0] = 0


@compile_without_allocation
def _is_exhausted(s: ClusterStateArrays, deadline: float, work: float) -> bool:
    return (deadline < np.inf and read_monotonic_seconds() > deadline) or s.spent[0] > work


@compile_without_allocation
def _find_first_pending(s: ClusterStateArrays, waiting: IntArray) -> int:
    """Return the first pod that is still pending; -1 for none."""
    for k in range(waiting.shape[0]):
        if s.node[waiting[k]] < 0:
            return int(waiting[k])
    return -1


@compile_without_allocation
def _find_collector(s: ClusterStateArrays, p: int, tried: NDArray[np.bool_]) -> int:
    """Return the node that lacks least for a pod, of those that have not failed; -1 for none."""
    best, least = -1, np.inf
    s.spent[0] += s.free.shape[0]
    for n in range(s.free.shape[0]):
        if not tried[n] and is_allowed(s, p, n):
            lacking = compute_shortage(s, s.pod_class[p], n, -1)
            if lacking < least:
                best, least = n, lacking
    return best


@compile_kernel
def _sort_by_free_capacity(s: ClusterStateArrays, but: int, random: NDArray[np.uint64]) -> IntArray:
    """Return all other nodes, roughly by free capacity, the largest first."""
    free_share = np.zeros(s.free.shape[0], np.float64)
    for n in range(s.free.shape[0]):
        for r in range(s.free.shape[1]):
            free_share[n] -= _compute_free_share(s, n, r)
        free_share[n] *= 0.5 + draw_integer_below(random, 1024) / 1024.0
    free_share[but] = np.inf
    return np.argsort(free_share)[:-1]


@compile_without_allocation
def _place_fitting(s: ClusterStateArrays, waiting: IntArray, n: int) -> int:
    """Place the pending pods that fit on a node; return how many."""
    placed = 0
    for k in range(waiting.shape[0]):
        p = waiting[k]
        if s.node[p] < 0 and has_capacity(s, s.pod_class[p], n) and is_allowed(s, p, n):
            move_pod(s, p, n)
            s.logged[0] = 0
            placed += 1
    return placed


@compile_kernel
def _exchange(
    s: ClusterStateArrays,
    donor: int,
    n: int,
    rank: int,
    side: IntArray,
    sums: IntArray,
    scores: FloatArray,
    found: IntArray,
) -> bool:
    """Exchange up to two pods of a donor for up to two of a node, so that the donor has least free capacity left."""
    out = _list_sums(s, donor, n, rank, side[0], sums[0])
    back = _list_sums(s, n, donor, rank, side[1], sums[1])
    resources = s.free.shape[1]
    # The resource of which the donor has less leaves the fewest exchanges.
    tight, other = s.scarcity[0], s.scarcity[1]
    if _compute_free_share(s, donor, other) < _compute_free_share(s, donor, tight):
        tight = other
    order = np.argsort(sums[1, :back, tight])
    keys = sums[1, :back, tight][order]
    held = 0
    free_amount = s.free[donor, tight] - s.largest[donor, tight]
    for a in range(out):
        begin = np.searchsorted(keys, sums[0, a, tight])
        for k in range(begin, back):
            if keys[k] > sums[0, a, tight] + free_amount:
                break
            s.spent[0] += 1
            b = order[k]
            score = 0.0
            for r in range(resources):
                gained = sums[1, b, r] - sums[0, a, r]
                if gained > s.free[donor, r] - s.largest[donor, r] or -gained > s.free[n, r] - s.largest[n, r]:
                    score = -np.inf
                    break
                score += gained * s.shares[r]
            if score > 0:
                held = _insert_candidate(scores, found, held, score, a, b)
    for i in np.argsort(-scores[:held]):
        if _exchange_pods(s, side[0, found[i, 0]], side[1, found[i, 1]], donor, n):
            s.logged[0] = 0
            return True
        undo_changes(s, 0)
    return False


@compile_without_allocation
def _compute_free_share(s: ClusterStateArrays, n: int, r: int) -> float:
    """Return how much of a resource a node has free, weighted by scarcity."""
    return float((s.free[n, r] - s.largest[n, r]) * s.shares[r])


@compile_kernel
def _list_sums(s: ClusterStateArrays, n: int, to: int, rank: int, side: IntArray, sums: IntArray) -> int:
    """List the demands of no pod, each pod and each pair of a node that may move to another node; return how many."""
    candidates, count, p = np.empty(_MAX_PODS, np.int64), 0, s.first_pod[n]
    while p >= 0 and count < _MAX_PODS:
        leaves = may_be_ejected(s, p) and (s.ranks[s.pod_class[p]] >= rank or s.node[p] != s.home_node[p])
        if leaves and is_allowed(s, p, to):
            candidates[count] = p
            count += 1
        p = s.next_pod[p]
    side[0] = -1
    sums[0] = 0
    total = 1
    for i in range(count):
        for j in range(i, count):
            side[total, 0], side[total, 1] = candidates[i], candidates[j] if j > i else -1
            for r in range(s.free.shape[1]):
                sums[total, r] = s.demands[s.pod_class[candidates[i]], r]
                if j > i:
                    sums[total, r] += s.demands[s.pod_class[candidates[j]], r]
            total += 1
    s.spent[0] += total
    return total


@compile_without_allocation
def _insert_candidate(scores: FloatArray, found: IntArray, held: int, score: float, a: int, b: int) -> int:
    """Keep an exchange if it is among the best so far; return their number."""
    k = held
    if held == scores.shape[0]:
        k = 0
        for i in range(1, held):
            if scores[i] < scores[k]:
                k = i
        if scores[k] >= score:
            return held
    scores[k], found[k, 0], found[k, 1] = score, a, b
    return int(min(held + 1, scores.shape[0]))


@compile_without_allocation
def _exchange_pods(s: ClusterStateArrays, out: IntArray, back: IntArray, donor: int, n: int) -> bool:
    """Exchange pods of two nodes; False if a rule or capacity forbids it on the way."""
    for pods in (out, back):
        for k in range(2):
            if pods[k] >= 0:
                if not may_be_ejected(s, pods[k]):
                    return False
                move_pod(s, pods[k], -1)
    for pods, to in ((out, n), (back, donor)):
        for k in range(2):
            if pods[k] >= 0:
                if not has_capacity(s, s.pod_class[pods[k]], to) or not is_allowed(s, pods[k], to):
                    return False
                move_pod(s, pods[k], to)
    return True
