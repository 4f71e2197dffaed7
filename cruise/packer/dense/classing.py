"""From pods on nodes to copies of classes on nodes, and back."""

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.dense.instance import Instance
from cruise.packer.problem import Objective, Problem, copies_of
from cruise.packer.rules.profiting import fairly_matched


def instance_of(problem: Problem) -> Instance:
    """The problem's classes and nodes, without rules between pods.

    Two rules of arrivals are left out, which a filling of one node cannot express: what is over its capacity takes
    nothing more, here it takes as much as runs there, and all classes preempt.
    """
    running = copies_of(problem, problem.pod_node)
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
        capacities=np.maximum(problem.capacities, usage_of(problem, running)),
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


def usage_of(problem: Problem, assignment: IntArray) -> IntArray:
    """What the copies on each node take: the sum of their demands, and the largest headroom once."""
    usage = assignment.T @ problem.demands
    if problem.headroom.any():
        for node, here in enumerate((assignment > 0).T):
            usage[node] += problem.headroom[here].max(axis=0, initial=0)
    return usage


def pod_node_of(problem: Problem, assignment: IntArray) -> IntArray:
    """An assignment of pods that puts as many copies on each node, and leaves where it is what may stay.

    Running pods that leave come before pending ones of their class, and among them first those that make room for
    classes that never preempt.
    """
    pod_node = problem.pod_node.copy()
    running = copies_of(problem, problem.pod_node)
    kept = np.minimum(assignment, running)
    by_class = np.argsort(problem.pod_class, kind="stable")
    starts = np.searchsorted(problem.pod_class[by_class], np.arange(problem.class_count + 1))
    shy = (assignment > running)[~problem.preempt].any(axis=0)
    order = np.argsort(~shy, kind="stable")
    for c in np.flatnonzero((assignment != running).any(axis=1)).tolist():
        mine = by_class[starts[c] : starts[c + 1]]
        homes = problem.pod_node[mine]
        left = order[(running[c] > kept[c])[order]]
        leaving = [mine[homes == node][kept[c, node] :] for node in left.tolist()]
        free = np.concatenate([*leaving, mine[homes < 0]])
        targets = np.repeat(np.arange(problem.node_count), assignment[c] - kept[c])
        pod_node[free] = -1
        pod_node[free[: len(targets)]] = targets
    return fairly_matched(problem, pod_node)
