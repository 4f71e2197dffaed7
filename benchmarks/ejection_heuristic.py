"""The simple way to place pods on a nearly full cluster: a pod goes where one, two or up to six others make room.

It knows demands, eviction limits and what may move; nothing of priorities but the order, and no proof.
"""

import numpy as np

from cruise.packer.arrays import BoolArray, IntArray
from cruise.packer.kernels.compiling import kernel
from cruise.packer.problem import Problem

_NEAR, _FEW, _CHAINS = 400, 6, 24


def place_by_ejections(problem: Problem) -> IntArray:
    """A node for every pod, -1 where none was found; what ran is never left without a place."""
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
    _place_all(order, at, problem.pod_node, problem.pod_class, problem.demands, free, problem.movable, limit_of, left)
    return at


@kernel
def _place_all(
    order: IntArray,
    at: IntArray,
    home: IntArray,
    of: IntArray,
    demands: IntArray,
    free: IntArray,
    movable: BoolArray,
    limit_of: IntArray,
    left: IntArray,
) -> None:
    for p in order:
        n = _best(free, demands[of[p]], -1)
        if n >= 0:
            _put(p, n, at, of, demands, free)
        else:
            _eject(p, at, home, of, demands, free, movable, limit_of, left, 2)


@kernel
def _best(free: IntArray, d: IntArray, ban: int) -> int:
    best, least = -1, np.inf
    for n in range(free.shape[0]):
        if n != ban and (free[n] >= d).all():
            rest = (free[n, 0] - d[0]) / 16000 + (free[n, 1] - d[1]) / 65536
            if rest < least:
                best, least = n, rest
    return best


@kernel
def _put(p: int, n: int, at: IntArray, of: IntArray, demands: IntArray, free: IntArray) -> None:
    if at[p] >= 0:
        free[at[p]] += demands[of[p]]
    if n >= 0:
        free[n] -= demands[of[p]]
    at[p] = n


@kernel
def _eject(
    p: int,
    at: IntArray,
    home: IntArray,
    of: IntArray,
    demands: IntArray,
    free: IntArray,
    movable: BoolArray,
    limit_of: IntArray,
    left: IntArray,
    depth: int,
) -> bool:
    d = demands[of[p]]
    lack = np.maximum(d - free, 0)
    near = np.argsort(lack[:, 0] / 16000 + lack[:, 1] / 65536)[:_NEAR]
    for many in (1, 2, _FEW):
        for n in near:
            if _make_room(p, at, home, of, demands, free, movable, limit_of, left, n, many):
                return True
    if depth > 1:
        for n in near[:_CHAINS]:
            for q in range(at.shape[0]):
                fits = at[q] == n and (free[n] + demands[of[q]] >= d).all()
                if fits and _may_go(q, at, home, of, movable, limit_of, left):
                    _leave(q, at, home, of, demands, free, limit_of, left)
                    _put(p, n, at, of, demands, free)
                    if _eject(q, at, home, of, demands, free, movable, limit_of, left, depth - 1):
                        return True
                    _put(p, -1, at, of, demands, free)
                    _return(q, n, at, home, of, demands, free, limit_of, left)
    return False


@kernel
def _make_room(
    p: int,
    at: IntArray,
    home: IntArray,
    of: IntArray,
    demands: IntArray,
    free: IntArray,
    movable: BoolArray,
    limit_of: IntArray,
    left: IntArray,
    n: int,
    many: int,
) -> bool:
    """Put a pod on a node, for which up to so many others find another place; nothing changes where that fails."""
    d = demands[of[p]]
    gone = np.empty(_FEW, np.int64)
    count = 0
    while count < many and not (free[n] >= d).all():
        pick, fewest = -1, np.inf
        for q in range(at.shape[0]):
            if at[q] == n and _may_go(q, at, home, of, movable, limit_of, left) and _best(free, demands[of[q]], n) >= 0:
                over = np.maximum(d - free[n] - demands[of[q]], 0)
                size = demands[of[q], 0] / 16000 + demands[of[q], 1] / 65536
                score = 100.0 * (over[0] / 16000 + over[1] / 65536) + size
                if score < fewest:
                    pick, fewest = q, score
        if pick < 0:
            break
        to = _best(free, demands[of[pick]], n)
        _leave(pick, at, home, of, demands, free, limit_of, left)
        _put(pick, to, at, of, demands, free)
        gone[count] = pick
        count += 1
    if (free[n] >= d).all():
        _put(p, n, at, of, demands, free)
        return True
    for k in range(count - 1, -1, -1):
        _return(gone[k], n, at, home, of, demands, free, limit_of, left)
    return False


@kernel
def _may_go(
    q: int, at: IntArray, home: IntArray, of: IntArray, movable: BoolArray, limit_of: IntArray, left: IntArray
) -> bool:
    limit = limit_of[of[q]]
    return bool(movable[of[q]]) and not (home[q] == at[q] and limit >= 0 and left[limit] <= 0)


@kernel
def _leave(
    q: int,
    at: IntArray,
    home: IntArray,
    of: IntArray,
    demands: IntArray,
    free: IntArray,
    limit_of: IntArray,
    left: IntArray,
) -> None:
    if home[q] == at[q] and limit_of[of[q]] >= 0:
        left[limit_of[of[q]]] -= 1
    _put(q, -1, at, of, demands, free)


@kernel
def _return(
    q: int,
    n: int,
    at: IntArray,
    home: IntArray,
    of: IntArray,
    demands: IntArray,
    free: IntArray,
    limit_of: IntArray,
    left: IntArray,
) -> None:
    _put(q, n, at, of, demands, free)
    if home[q] == n and limit_of[of[q]] >= 0:
        left[limit_of[of[q]]] += 1
