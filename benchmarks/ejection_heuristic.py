"""A simple heuristic to place pods on a nearly full cluster: evict one, two or up to six other pods to free capacity.

It knows demands, eviction limits and movable pods; priorities only as the order of pods; and proves nothing.
"""

from typing import NamedTuple

import numpy as np

from cruise.packer.kernels.compilation import compile_kernel, read_monotonic_seconds
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem

# The nodes tried for a pod, and for a pod of a chain; the most pods moved for another one.
_NEAR, _CHAINS, _FEW = 400, 24, 6
_BUCKETS = 128


class _Board(NamedTuple):
    """Where pods are and were, what they take of what is free, and how many evictions are left of each limit.

    `of[pod]` is its class, `limit_of[class]` -1 for none; `first[node]`, `after[pod]` and `before[pod]` link the pods
    of a node. `shares[resource]` make sizes comparable; `sky[bucket]` is the most of the second resource that is free
    where at least so much of the first is.
    """

    at: IntArray
    home: IntArray
    of: IntArray
    demands: IntArray
    free: IntArray
    movable: BoolArray
    limit_of: IntArray
    left: IntArray
    first: IntArray
    after: IntArray
    before: IntArray
    shares: FloatArray
    sky: IntArray


def place_by_ejections(problem: PackingProblem, deadline_seconds: float = np.inf) -> IntArray:
    """Return a node for every pod, -1 if none was found; running pods always keep a node."""
    pods = np.flatnonzero(problem.pod_node < 0)
    size = (problem.demands / problem.capacities.sum(axis=0)).sum(axis=1)
    classes = problem.pod_class[pods]
    order = pods[np.lexsort((-size[classes], -problem.priorities[classes]))]
    limit_of = np.full(problem.class_count, -1, dtype=np.int64)
    for number, limit in enumerate(problem.rules.eviction_limits):
        limit_of[limit.members] = number
    left = np.array([limit.allowed for limit in problem.rules.eviction_limits] or [0], dtype=np.int64)
    at = problem.pod_node.copy()
    free = problem.capacities.copy()
    placed = at >= 0
    np.subtract.at(free, at[placed], problem.demands[problem.pod_class[placed]])
    first = np.full(problem.node_count, -1, dtype=np.int64)
    after, before = np.full(problem.pod_count, -1, dtype=np.int64), np.full(problem.pod_count, -1, dtype=np.int64)
    board = _Board(
        at, problem.pod_node, problem.pod_class, problem.demands, free, problem.movable, limit_of, left,
        first, after, before, 1.0 / np.maximum(problem.capacities.max(axis=0), 1), np.zeros(_BUCKETS, dtype=np.int64),
    )  # fmt: skip
    _place_all(board, order, deadline_seconds)
    return at


@compile_kernel
def _place_all(b: _Board, order: IntArray, deadline: float) -> None:
    for p in range(b.at.shape[0]):
        if b.at[p] >= 0:
            _link(b, p, b.at[p])
    for p in order:
        if read_monotonic_seconds() > deadline:
            break
        _draw_sky(b)
        n = _best(b, b.of[p], -1)
        if n >= 0:
            _put(b, p, n)
        else:
            _eject(b, p, 2, _NEAR)


@compile_kernel
def _draw_sky(b: _Board) -> None:
    b.sky[:] = -1
    for n in range(b.free.shape[0]):
        k = _bucket(b, b.free[n, 0])
        b.sky[k] = max(b.sky[k], b.free[n, 1])
    for k in range(_BUCKETS - 2, -1, -1):
        b.sky[k] = max(b.sky[k], b.sky[k + 1])


@compile_kernel
def _bucket(b: _Board, amount: int) -> int:
    return min(int(amount * b.shares[0] * _BUCKETS), _BUCKETS - 1)


@compile_kernel
def _fits(b: _Board, c: int, n: int) -> bool:
    for r in range(b.free.shape[1]):
        if b.free[n, r] < b.demands[c, r]:
            return False
    return True


@compile_kernel
def _lack(b: _Board, c: int, n: int, gone: int) -> float:
    """Return the capacity that a node lacks for a class, without a pod of the class `evicted` (-1: none)."""
    lack = 0.0
    for r in range(b.free.shape[1]):
        freed = b.demands[gone, r] if gone >= 0 else 0
        lack += max(b.demands[c, r] - b.free[n, r] - freed, 0) * b.shares[r]
    return lack


@compile_kernel
def _best(b: _Board, c: int, ban: int) -> int:
    best, least = -1, np.inf
    for n in range(b.free.shape[0]):
        if n != ban and _fits(b, c, n):
            rest = 0.0
            for r in range(b.free.shape[1]):
                rest += b.free[n, r] * b.shares[r]
            if rest < least:
                best, least = n, rest
    return best


@compile_kernel
def _put(b: _Board, p: int, n: int) -> None:
    if b.at[p] >= 0:
        b.free[b.at[p]] += b.demands[b.of[p]]
        if b.before[p] >= 0:
            b.after[b.before[p]] = b.after[p]
        else:
            b.first[b.at[p]] = b.after[p]
        if b.after[p] >= 0:
            b.before[b.after[p]] = b.before[p]
    if n >= 0:
        b.free[n] -= b.demands[b.of[p]]
        _link(b, p, n)
    b.at[p] = n


@compile_kernel
def _link(b: _Board, p: int, n: int) -> None:
    b.before[p], b.after[p] = -1, b.first[n]
    if b.first[n] >= 0:
        b.before[b.first[n]] = p
    b.first[n] = p


@compile_kernel
def _pods_on(b: _Board, n: int) -> IntArray:
    """Return the present pods of a node."""
    count, q = 0, b.first[n]
    while q >= 0:
        count, q = count + 1, b.after[q]
    pods = np.empty(count, np.int64)
    q = b.first[n]
    for k in range(count):
        pods[k], q = q, b.after[q]
    return pods


@compile_kernel
def _eject(b: _Board, p: int, depth: int, looks: int) -> bool:
    c = b.of[p]
    lacks = np.empty(b.free.shape[0], np.float64)
    for n in range(lacks.shape[0]):
        lacks[n] = _lack(b, c, n, -1)
    near = np.argsort(lacks)[:looks]
    for many in (1, 2, _FEW):
        for n in near:
            if _make_room(b, p, n, many):
                return True
    if depth > 1:
        for n in near[:_CHAINS]:
            for q in _pods_on(b, n):
                if _may_go(b, q) and _lack(b, c, n, b.of[q]) == 0:
                    _leave(b, q)
                    _put(b, p, n)
                    if _eject(b, q, depth - 1, min(looks, _CHAINS)):
                        return True
                    _put(b, p, -1)
                    _return(b, q, n)
    return False


@compile_kernel
def _make_room(b: _Board, p: int, n: int, many: int) -> bool:
    """Place a pod on a node by moving up to so many other pods; return False, without a change, if that fails."""
    c = b.of[p]
    gone = np.empty(_FEW, np.int64)
    count = 0
    pods = _pods_on(b, n)
    while count < many and not _fits(b, c, n):
        pick, fewest = -1, np.inf
        for k in range(pods.shape[0]):
            q = pods[k]
            if q >= 0 and _may_go(b, q) and b.sky[_bucket(b, b.demands[b.of[q], 0])] >= b.demands[b.of[q], 1]:
                score = 100.0 * _lack(b, c, n, b.of[q])
                for r in range(b.free.shape[1]):
                    score += b.demands[b.of[q], r] * b.shares[r]
                if score < fewest:
                    pick, fewest = k, score
        if pick < 0:
            break
        q, pods[pick] = pods[pick], -1
        to = _best(b, b.of[q], n)
        if to >= 0:
            _leave(b, q)
            _put(b, q, to)
            gone[count] = q
            count += 1
    if _fits(b, c, n):
        _put(b, p, n)
        return True
    for k in range(count - 1, -1, -1):
        _return(b, gone[k], n)
    return False


@compile_kernel
def _may_go(b: _Board, q: int) -> bool:
    limit = b.limit_of[b.of[q]]
    return bool(b.movable[b.of[q]]) and not (b.home[q] == b.at[q] and limit >= 0 and b.left[limit] <= 0)


@compile_kernel
def _leave(b: _Board, q: int) -> None:
    if b.home[q] == b.at[q] and b.limit_of[b.of[q]] >= 0:
        b.left[b.limit_of[b.of[q]]] -= 1
    _put(b, q, -1)


@compile_kernel
def _return(b: _Board, q: int, n: int) -> None:
    _put(b, q, n)
    if b.home[q] == n and b.limit_of[b.of[q]] >= 0:
        b.left[b.limit_of[b.of[q]]] += 1
