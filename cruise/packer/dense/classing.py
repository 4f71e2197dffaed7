"""From pods on nodes to copies of classes on nodes."""

import numpy as np

from cruise.packer.dense.instance import Instance
from cruise.packer.problem import Objective, Problem, copies_of, loads_of


def instance_of(problem: Problem) -> Instance:
    """The problem's classes and nodes, without rules between pods.

    Two rules of arrivals are left out, which a filling of one node cannot express: what is over its capacity takes
    nothing more, here it takes as much as runs there, and all classes preempt.
    """
    running, (sums, largest) = copies_of(problem, problem.pod_node), loads_of(problem, problem.pod_node)
    counts = np.bincount(problem.pod_class, minlength=problem.class_count).astype(np.int64)
    most = np.where(problem.admits[problem.sites], np.minimum(problem.most_on_node, counts)[:, None], 0)
    return Instance(
        demands=problem.demands,
        headroom=problem.headroom,
        priorities=problem.priorities,
        counts=counts,
        movable=problem.movable,
        preemptible=problem.preemptible,
        weights=problem.weights // unit_of(problem),
        running=running,
        most=most,
        capacities=np.maximum(problem.capacities, sums + largest),
        stays_last=problem.objective is Objective.OPERATOR,
    )


def unit_of(problem: Problem) -> int:
    """What all weights of evictions are multiples of."""
    return max(int(np.gcd.reduce(problem.weights)), 1) if len(problem.weights) else 1


def weighed(problem: Problem, entry: int, value: int) -> int:
    """An entry of the instance's vector in the problem's key: weights of evictions, where those of stays are found."""
    if problem.objective is Objective.PAPER or entry < len(np.unique(problem.priorities)):
        return value
    ran = problem.pod_class[problem.pod_node >= 0]
    return unit_of(problem) * value - int(problem.weights[ran].sum())
