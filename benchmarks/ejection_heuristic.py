"""A simple heuristic to place pods on a nearly full cluster: evict one, two or up to six other pods to free capacity.

It knows demands, eviction limits and movable pods; priorities only as the order of pods; and proves nothing.
"""

from typing import NamedTuple

import numpy as np

from cruise.packer.kernels.compilation import compile_kernel, read_monotonic_seconds
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem

# The nodes tried for a pod, and for a pod of a chain; the most pods moved for another one.
_MAX_NODES, _MAX_CHAIN_NODES, _MAX_MOVED = 400, 24, 6
_BUCKETS = 128


class _Placements(NamedTuple):
    """The state of a placement.

    `pod_class[pod]` is a pod's class and `limit_of_class[class]` the class's eviction limit, -1 for none; `allowed` has
    the evictions that each limit still allows. `first_pod[node]`, `next_pod[pod]` and `previous_pod[pod]` link the pods
    of a node. `shares[resource]` make sizes comparable. `skyline[bucket]` is the most of the second resource that is
    free on a node with at least the bucket's amount of the first.
    """

    node: IntArray
    original_node: IntArray
    pod_class: IntArray
    demands: IntArray
    free: IntArray
    movable: BoolArray
    limit_of_class: IntArray
    allowed: IntArray
    first_pod: IntArray
    next_pod: IntArray
    previous_pod: IntArray
    shares: FloatArray
    skyline: IntArray


def place_by_ejections(problem: PackingProblem, deadline_seconds: float = np.inf) -> IntArray:
    """Return a node for every pod, -1 if none was found; running pods always keep a node."""
    pods = np.flatnonzero(problem.pod_node < 0)
    size = (problem.demands / problem.capacities.sum(axis=0)).sum(axis=1)
    classes = problem.pod_class[pods]
    order = pods[np.lexsort((-size[classes], -problem.priorities[classes]))]
    limit_of_class = np.full(problem.class_count, -1, dtype=np.int64)
    for number, limit in enumerate(problem.rules.eviction_limits):
        limit_of_class[limit.members] = number
    allowed = np.array([limit.allowed for limit in problem.rules.eviction_limits] or [0], dtype=np.int64)
    node = problem.pod_node.copy()
    free = problem.capacities.copy()
    placed = node >= 0
    np.subtract.at(free, node[placed], problem.demands[problem.pod_class[placed]])
    first_pod = np.full(problem.node_count, -1, dtype=np.int64)
    next_pod, previous_pod = (
        np.full(problem.pod_count, -1, dtype=np.int64),
        np.full(problem.pod_count, -1, dtype=np.int64),
    )
    placements = _Placements(
        node, problem.pod_node, problem.pod_class, problem.demands, free, problem.movable, limit_of_class, allowed,
        first_pod, next_pod, previous_pod, 1.0 / np.maximum(problem.capacities.max(axis=0), 1),
        np.zeros(_BUCKETS, dtype=np.int64),
    )  # fmt: skip
    _place_all(placements, order, deadline_seconds)
    return node


@compile_kernel
def _place_all(b: _Placements, order: IntArray, deadline: float) -> None:
    for p in range(b.node.shape[0]):
        if b.node[p] >= 0:
            _link(b, p, b.node[p])
    for p in order:
        if read_monotonic_seconds() > deadline:
            break
        _update_skyline(b)
        n = _find_best_node(b, b.pod_class[p], -1)
        if n >= 0:
            _place(b, p, n)
        else:
            _place_by_ejection(b, p, 2, _MAX_NODES)


@compile_kernel
def _update_skyline(b: _Placements) -> None:
    b.skyline[:] = -1
    for n in range(b.free.shape[0]):
        k = _bucket(b, b.free[n, 0])
        b.skyline[k] = max(b.skyline[k], b.free[n, 1])
    for k in range(_BUCKETS - 2, -1, -1):
        b.skyline[k] = max(b.skyline[k], b.skyline[k + 1])


@compile_kernel
def _bucket(b: _Placements, amount: int) -> int:
    return min(int(amount * b.shares[0] * _BUCKETS), _BUCKETS - 1)


@compile_kernel
def _fits(b: _Placements, c: int, n: int) -> bool:
    for r in range(b.free.shape[1]):
        if b.free[n, r] < b.demands[c, r]:
            return False
    return True


@compile_kernel
def _compute_shortage(b: _Placements, c: int, n: int, moved: int) -> float:
    """Return the capacity that a node lacks for a class, without a pod of the class `moved` (-1: none)."""
    shortage = 0.0
    for r in range(b.free.shape[1]):
        removed_demand = b.demands[moved, r] if moved >= 0 else 0
        shortage += max(b.demands[c, r] - b.free[n, r] - removed_demand, 0) * b.shares[r]
    return shortage


@compile_kernel
def _find_best_node(b: _Placements, c: int, excluded: int) -> int:
    best, least = -1, np.inf
    for n in range(b.free.shape[0]):
        if n != excluded and _fits(b, c, n):
            rest = 0.0
            for r in range(b.free.shape[1]):
                rest += b.free[n, r] * b.shares[r]
            if rest < least:
                best, least = n, rest
    return best


@compile_kernel
def _place(b: _Placements, p: int, n: int) -> None:
    if b.node[p] >= 0:
        b.free[b.node[p]] += b.demands[b.pod_class[p]]
        if b.previous_pod[p] >= 0:
            b.next_pod[b.previous_pod[p]] = b.next_pod[p]
        else:
            b.first_pod[b.node[p]] = b.next_pod[p]
        if b.next_pod[p] >= 0:
            b.previous_pod[b.next_pod[p]] = b.previous_pod[p]
    if n >= 0:
        b.free[n] -= b.demands[b.pod_class[p]]
        _link(b, p, n)
    b.node[p] = n


@compile_kernel
def _link(b: _Placements, p: int, n: int) -> None:
    b.previous_pod[p], b.next_pod[p] = -1, b.first_pod[n]
    if b.first_pod[n] >= 0:
        b.previous_pod[b.first_pod[n]] = p
    b.first_pod[n] = p


@compile_kernel
def _pods_on(b: _Placements, n: int) -> IntArray:
    """Return the present pods of a node."""
    count, q = 0, b.first_pod[n]
    while q >= 0:
        count, q = count + 1, b.next_pod[q]
    pods = np.empty(count, np.int64)
    q = b.first_pod[n]
    for k in range(count):
        pods[k], q = q, b.next_pod[q]
    return pods


@compile_kernel
def _place_by_ejection(b: _Placements, p: int, depth: int, max_nodes: int) -> bool:
    c = b.pod_class[p]
    shortages = np.empty(b.free.shape[0], np.float64)
    for n in range(shortages.shape[0]):
        shortages[n] = _compute_shortage(b, c, n, -1)
    nearest = np.argsort(shortages)[:max_nodes]
    for max_moved in (1, 2, _MAX_MOVED):
        for n in nearest:
            if _free_capacity(b, p, n, max_moved):
                return True
    if depth > 1:
        for n in nearest[:_MAX_CHAIN_NODES]:
            for q in _pods_on(b, n):
                if _may_move(b, q) and _compute_shortage(b, c, n, b.pod_class[q]) == 0:
                    _remove(b, q)
                    _place(b, p, n)
                    if _place_by_ejection(b, q, depth - 1, min(max_nodes, _MAX_CHAIN_NODES)):
                        return True
                    _place(b, p, -1)
                    _restore(b, q, n)
    return False


@compile_kernel
def _free_capacity(b: _Placements, p: int, n: int, max_moved: int) -> bool:
    """Place a pod on a node by moving up to so many other pods; return False, without a change, if that fails."""
    c = b.pod_class[p]
    moved = np.empty(_MAX_MOVED, np.int64)
    count = 0
    pods = _pods_on(b, n)
    while count < max_moved and not _fits(b, c, n):
        picked, best_score = -1, np.inf
        for k in range(pods.shape[0]):
            q = pods[k]
            if (
                q >= 0
                and _may_move(b, q)
                and b.skyline[_bucket(b, b.demands[b.pod_class[q], 0])] >= b.demands[b.pod_class[q], 1]
            ):
                score = 100.0 * _compute_shortage(b, c, n, b.pod_class[q])
                for r in range(b.free.shape[1]):
                    score += b.demands[b.pod_class[q], r] * b.shares[r]
                if score < best_score:
                    picked, best_score = k, score
        if picked < 0:
            break
        q, pods[picked] = pods[picked], -1
        to = _find_best_node(b, b.pod_class[q], n)
        if to >= 0:
            _remove(b, q)
            _place(b, q, to)
            moved[count] = q
            count += 1
    if _fits(b, c, n):
        _place(b, p, n)
        return True
    for k in range(count - 1, -1, -1):
        _restore(b, moved[k], n)
    return False


@compile_kernel
def _may_move(b: _Placements, q: int) -> bool:
    limit = b.limit_of_class[b.pod_class[q]]
    return bool(b.movable[b.pod_class[q]]) and not (
        b.original_node[q] == b.node[q] and limit >= 0 and b.allowed[limit] <= 0
    )


@compile_kernel
def _remove(b: _Placements, q: int) -> None:
    if b.original_node[q] == b.node[q] and b.limit_of_class[b.pod_class[q]] >= 0:
        b.allowed[b.limit_of_class[b.pod_class[q]]] -= 1
    _place(b, q, -1)


@compile_kernel
def _restore(b: _Placements, q: int, n: int) -> None:
    _place(b, q, n)
    if b.original_node[q] == n and b.limit_of_class[b.pod_class[q]] >= 0:
        b.allowed[b.limit_of_class[b.pod_class[q]]] += 1
