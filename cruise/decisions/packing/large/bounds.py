"""What no packing surpasses, by counting alone: valid at any size, tight where everything can be placed."""

import numpy as np

from cruise.decisions.packing.problem import Objective, Problem


def counted_bound(problem: Problem) -> tuple[int, ...]:
    """For each entry of the objective's key, what exists: pods placed, pods that stay, no weight of evictions."""
    priorities = problem.priorities[problem.pod_class]
    ran = problem.pod_node >= 0
    bound: list[int] = []
    for priority in np.unique(problem.priorities)[::-1].tolist():
        mine = priorities == priority
        bound.append(int(mine.sum()))
        if problem.objective is Objective.PAPER:
            bound.append(int((mine & ran).sum()))
    return tuple(bound) if problem.objective is Objective.PAPER else (*bound, 0)
