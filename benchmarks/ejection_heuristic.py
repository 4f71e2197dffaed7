"""The simple way to place pods on a nearly full cluster: a pod goes where one, two or up to six others make room.

It knows demands, eviction limits and what may move; nothing of priorities but the order, and no proof.
"""

import numba
import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.problem import Problem

_NEAR, _FEW = 400, 6


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


@numba.njit(cache=True)
def _place_all(order, at, home, of, demands, free, movable, limit_of, left):  # type: ignore[no-untyped-def]
    for p in order:
        n = _best(free, demands[of[p]], -1)
        if n >= 0:
            _put(p, n, at, of, demands, free)
        else:
            _eject(p, at, home, of, demands, free, movable, limit_of, left, 2)


@numba.njit(cache=True)
def _best(free, d, ban):  # type: ignore[no-untyped-def]
    best, least = -1, np.inf
    for n in range(free.shape[0]):
        if n != ban and (free[n] >= d).all():
            rest = (free[n, 0] - d[0]) / 16000 + (free[n, 1] - d[1]) / 65536
            if rest < least:
                best, least = n, rest
    return best


@numba.njit(cache=True)
def _put(p, n, at, of, demands, free):  # type: ignore[no-untyped-def]
    if at[p] >= 0:
        free[at[p]] += demands[of[p]]
    if n >= 0:
        free[n] -= demands[of[p]]
    at[p] = n


@numba.njit(cache=True)
def _eject(p, at, home, of, demands, free, movable, limit_of, left, depth):  # type: ignore[no-untyped-def]
    d = demands[of[p]]
    lack = np.maximum(d - free, 0)
    near = np.argsort(lack[:, 0] / 16000 + lack[:, 1] / 65536)[:_NEAR]
    for many in (1, 2, _FEW):
        for n in near:
            gone = np.empty(_FEW, np.int64)
            came = np.full(_FEW, -1, np.int64)
            count = 0
            while count < many and not (free[n] >= d).all():
                pick, fewest = -1, np.inf
                for q in np.flatnonzero(at == n):
                    limit = limit_of[of[q]]
                    if not movable[of[q]] or (home[q] == n and limit >= 0 and left[limit] <= 0):
                        continue
                    over = np.maximum(d - free[n] - demands[of[q]], 0)
                    size = demands[of[q], 0] / 16000 + demands[of[q], 1] / 65536
                    score = 100.0 * (over[0] / 16000 + over[1] / 65536) + size
                    if score < fewest and _best(free, demands[of[q]], n) >= 0:
                        pick, fewest = q, score
                if pick < 0:
                    break
                gone[count], came[count] = pick, _best(free, demands[of[pick]], n)
                if home[pick] == n and limit_of[of[pick]] >= 0:
                    left[limit_of[of[pick]]] -= 1
                _put(pick, came[count], at, of, demands, free)
                count += 1
            if (free[n] >= d).all():
                _put(p, n, at, of, demands, free)
                return True
            for k in range(count - 1, -1, -1):
                if home[gone[k]] == n and limit_of[of[gone[k]]] >= 0:
                    left[limit_of[of[gone[k]]]] += 1
                _put(gone[k], n, at, of, demands, free)
    if depth > 1:
        for n in near[:24]:
            for q in np.flatnonzero(at == n):
                limit = limit_of[of[q]]
                blocked = home[q] == n and limit >= 0 and left[limit] <= 0
                if movable[of[q]] and not blocked and (free[n] + demands[of[q]] >= d).all():
                    charged = home[q] == n and limit >= 0
                    if charged:
                        left[limit] -= 1
                    _put(q, -1, at, of, demands, free)
                    _put(p, n, at, of, demands, free)
                    if _eject(q, at, home, of, demands, free, movable, limit_of, left, depth - 1):
                        return True
                    _put(p, -1, at, of, demands, free)
                    _put(q, n, at, of, demands, free)
                    if charged:
                        left[limit] += 1
    return False
