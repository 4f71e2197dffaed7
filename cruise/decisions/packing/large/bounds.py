"""What no packing surpasses, by counting alone: valid at any size, tight where everything can be placed."""

import numpy as np

from cruise.decisions.packing.instance import BoolArray, IntArray
from cruise.decisions.packing.problem import Objective, Problem


def counted_bound(problem: Problem) -> tuple[int, ...]:
    """For each entry of the objective's key, what no assignment surpasses, whatever the entries before.

    Pods placed: no more than fit all nodes taken as one, the smallest first, beside what cannot go. Weight of
    evictions: what has to be touched so that everything is placed, where everything can be.
    """
    placed = _placed_bounds(problem)
    priorities = problem.priorities[problem.pod_class]
    if problem.objective is Objective.PAPER:
        running = problem.pod_node >= 0
        tiers = np.unique(problem.priorities)[::-1].tolist()
        stays = [int((running & (priorities == priority)).sum()) for priority in tiers]
        return tuple(entry for pair in zip(placed, stays, strict=True) for entry in pair)
    return (*placed, 0)


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
