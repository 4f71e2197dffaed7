"""What no packing surpasses, by counting alone: valid at any size, tight where everything can be placed."""

from collections.abc import Sequence

import numpy as np

from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.problem import Objective, Problem, price_of


def counted_bound(problem: Problem) -> tuple[int, ...]:
    """For each entry of the objective's key, what no assignment surpasses, whatever the entries before.

    Pods placed: no more than fit all nodes taken as one, the smallest first, beside what cannot go.
    """
    placed = _placed_bounds(problem)
    priorities = problem.priorities[problem.pod_class]
    if problem.objective is Objective.PAPER:
        running = problem.pod_node >= 0
        tiers = np.unique(problem.priorities)[::-1].tolist()
        stays = [int((running & (priorities == priority)).sum()) for priority in tiers]
        return tuple(entry for pair in zip(placed, stays, strict=True) for entry in pair)
    if problem.objective is Objective.FLEET:
        stuck = (problem.pod_node >= 0) & ~problem.movable[problem.pod_class]
        return (*placed, -price_of(problem, np.where(stuck, problem.pod_node, -1)), 0)
    return (*placed, 0)


def bound_beside(
    key: tuple[int, ...], before: tuple[int, ...], bound: Sequence[int], most: Sequence[int]
) -> tuple[int, ...]:
    """What of a bound found beside an assignment of the key `before` holds beside a better one of this key.

    An entry's bound is for what is as good in the entries before. Where the better one is worse in one of them, that
    says nothing about it, and `most` is what nothing surpasses.
    """
    falls = next((entry for entry, value in enumerate(before) if key[entry] < value), len(key))
    return (*bound[: falls + 1], *most[falls + 1 :])


def least_evictions(problem: Problem) -> int:
    """The least weight of evictions with which all pods can be placed.

    What fits on no node as it is goes where something leaves, and takes no more than was free there and left.
    """
    stranded = _stranded(problem)
    needs = problem.demands[problem.pod_class[stranded]].sum(axis=0)
    runs = np.flatnonzero((problem.pod_node >= 0) & problem.movable[problem.pod_class])
    used = np.zeros_like(problem.capacities)
    placed = problem.pod_node >= 0
    np.add.at(used, problem.pod_node[placed], problem.demands[problem.pod_class[placed]])
    free = np.maximum(problem.capacities - used, 0)
    gains = free[problem.pod_node[runs]] + problem.demands[problem.pod_class[runs]]
    weights = problem.weights[problem.pod_class[runs]].astype(np.float64)
    least, lightest = 0.0, float(weights.min(initial=np.inf)) if len(weights) else 0.0
    for r in np.flatnonzero(needs).tolist():
        # Evictions are whole: as many as the greatest gains take, each of at least the least weight.
        most = np.cumsum(np.sort(gains[:, r])[::-1])
        pods = int(np.searchsorted(most, needs[r])) + 1
        least = max(least, pods * lightest, _fractional(gains[:, r], weights, int(needs[r])))
    return int(np.ceil(least - 1e-6))


def _fractional(gains: IntArray, weights: FloatArray, need: int) -> float:
    """The least weight whose gains make up the need, if parts count as well."""
    order = np.argsort(-gains / np.maximum(weights, 1e-9), kind="stable")
    sums = np.cumsum(gains[order])
    whole = int(np.searchsorted(sums, need))
    total = float(weights[order[:whole]].sum())
    if whole < len(order):
        rest = (need - (int(sums[whole - 1]) if whole else 0)) / max(int(gains[order[whole]]), 1)
        total += float(rest * weights[order[whole]])
    return total


def _stranded(problem: Problem) -> IntArray:
    """The pending pods that fit on no node as it is now."""
    placed = problem.pod_node >= 0
    used = np.zeros_like(problem.capacities)
    np.add.at(used, problem.pod_node[placed], problem.demands[problem.pod_class[placed]])
    free = problem.capacities - used
    pending = np.flatnonzero(~placed)
    lonely = np.zeros(problem.class_count, dtype=np.bool_)
    for c in np.unique(problem.pod_class[pending]).tolist():
        wanted = problem.demands[c] > 0
        rooms = (free[:, wanted] >= problem.demands[c, wanted]).all(axis=1)
        lonely[c] = not (rooms & problem.admits[problem.sites[c]]).any()
    return pending[lonely[problem.pod_class[pending]]]


def _placed_bounds(problem: Problem) -> list[int]:
    """For each priority from the highest, how many pods can be placed at most."""
    fixed = _fixed(problem)
    possible = fixed | _fits_somewhere(problem)[problem.pod_class] | (problem.pod_node >= 0)
    base = problem.demands[problem.pod_class[fixed]].sum(axis=0)
    # What stays on a node that is too full already is no measure for the others.
    room = _room(problem, fixed)
    bounds = []
    for priority in np.unique(problem.priorities)[::-1].tolist():
        mine = problem.priorities[problem.pod_class] == priority
        sure = int((mine & fixed).sum())
        open_pods = np.flatnonzero(mine & possible & ~fixed)
        demands = problem.demands[problem.pod_class[open_pods]]
        most = len(open_pods)
        for r in range(problem.capacities.shape[1]):
            sums = np.cumsum(np.sort(demands[:, r]))
            most = min(most, int(np.searchsorted(sums, room[r] - base[r], side="right")))
        bounds.append(sure + most)
    return bounds


def _fixed(problem: Problem) -> BoolArray:
    """The pods that every plan places."""
    stuck = ~problem.movable | ~problem.preemptible
    return (problem.pod_node >= 0) & stuck[problem.pod_class]


def _room(problem: Problem, fixed: BoolArray) -> IntArray:
    """All capacity, where no node counts less than what runs there now."""
    running = problem.pod_node >= 0
    used = np.zeros_like(problem.capacities)
    np.add.at(used, problem.pod_node[running], problem.demands[problem.pod_class[running]])
    room: IntArray = np.maximum(problem.capacities, used).sum(axis=0)
    return room


def _fits_somewhere(problem: Problem) -> BoolArray:
    """Tell of each class whether an empty node that admits it would hold one pod."""
    fits = np.zeros(problem.class_count, dtype=np.bool_)
    for site in np.unique(problem.sites).tolist():
        mine = problem.sites == site
        kinds = np.unique(problem.capacities[problem.admits[site]], axis=0)
        needs = problem.demands[mine] + problem.headroom[mine]
        for kind in kinds:
            fits[mine] |= (needs <= kind).all(axis=1)
    return fits & (problem.most_on_node > 0)
