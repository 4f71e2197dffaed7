"""Which pods go where, once it is known how many of each class do: the fewest leave, and none profits unduly."""

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.problem import Problem, copies_of
from cruise.packer.rules.profiting import profits_unduly, taken_by_timid

# So often the pods of a class change places with each other before an assignment is left as it is.
_ROUNDS = 4


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


def fairly_matched(problem: Problem, pod_node: IntArray) -> IntArray:
    """The same numbers of each class on each node, such that no pod profits unduly where that is found."""
    for _ in range(_ROUNDS):
        if not profits_unduly(problem, pod_node):
            break
        pod_node = _matched_again(problem, pod_node)
    return pod_node


def _matched_again(problem: Problem, pod_node: IntArray) -> IntArray:
    """Those that leave nodes which the timid take find a place first, and best one that no pod leaves."""
    taken, found = taken_by_timid(problem, pod_node), pod_node.copy()
    left = (problem.pod_node >= 0) & (pod_node != problem.pod_node)
    leaving = np.bincount(problem.pod_node[left], minlength=problem.node_count)
    changes = left | ((pod_node >= 0) & (problem.pod_node < 0))
    for c in np.unique(problem.pod_class[left]).tolist():
        mine = np.flatnonzero(changes & (problem.pod_class == c))
        homes, targets = problem.pod_node[mine], pod_node[mine][pod_node[mine] >= 0]
        first = mine[np.lexsort((mine, ~taken[homes], homes < 0))]
        found[mine] = -1
        found[first[: len(targets)]] = targets[np.lexsort((targets, leaving[targets] > 0, ~taken[targets]))]
    return found
