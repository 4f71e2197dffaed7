"""Which pods go where, once it is known how many of each class do: the fewest leave, and none profits unduly."""

import numpy as np

from cruise.packer.problem import AttractionRule, BoolArray, IntArray, PackingProblem, count_copies
from cruise.packer.rules.by_class import RulesByClass

# Which pods that run now give company to one that arrives before they leave.


class LeavingPods:
    """The pods as they run now, beside each of which another may arrive while it is still there."""

    def __init__(self, problem: PackingProblem, rules: RulesByClass) -> None:
        self._problem, self._rules = problem, rules
        self._running = count_copies(problem, problem.pod_node)
        stuck = np.where(problem.movable[:, None], 0, self._running)
        self._free = problem.capacities - stuck.T @ problem.demands

    def find_companions(self, rule: AttractionRule, topology: int, node: int, home: int = -1) -> bool:
        """Whether a holder may arrive on a node for a target that runs in the domain; itself it may run at `home`."""
        row = self._problem.rules.topologies[topology]
        here = np.flatnonzero((row == row[node]) & (row >= 0))
        cells = np.argwhere(self._running[np.ix_(rule.targets, here)] > 0).tolist()
        return any(self._agree(rule.holder, node, int(rule.targets[t]), int(here[n]), home) for t, n in cells)

    def _agree(self, holder: int, node: int, target: int, there: int, home: int) -> bool:
        """Whether rules and room let a holder come to a node while the target is there."""
        problem = self._problem
        if target == holder and there == home and self._running[target, there] == 1:
            return False
        for _, rule, others in self._rules.excluded.get(holder, ()):
            row = problem.rules.topologies[rule.topology]
            if target in others.tolist() and row[node] == row[there] >= 0:
                return False
        if node != there:
            return True
        both = problem.demands[holder] + problem.demands[target]
        return bool((both <= self._free[node]).all()) and not (target == holder and problem.max_on_node[holder] == 1)


# Which pods have room that preemption made: none that never preempts, not by a chain of moves either.


def find_nodes_freed_by_preemption(problem: PackingProblem, pod_node: IntArray) -> BoolArray:
    """The nodes that something is preempted from, and those from which pods move to such a one."""
    ran = problem.pod_node >= 0
    found = np.zeros(problem.node_count, dtype=np.bool_)
    found[problem.pod_node[ran & (pod_node < 0)]] = True
    if found.any():
        moved = ran & (pod_node >= 0) & (pod_node != problem.pod_node)
        _spread(found, pod_node[moved], problem.pod_node[moved])
    return found


def find_nodes_used_by_non_preempting_pods(problem: PackingProblem, pod_node: IntArray) -> BoolArray:
    """The nodes at which pods arrive that never preempt, and those to which others move from such a one."""
    arrived = (pod_node >= 0) & (pod_node != problem.pod_node)
    found = np.zeros(problem.node_count, dtype=np.bool_)
    found[pod_node[arrived & ~problem.preempt[problem.pod_class]]] = True
    if found.any():
        moved = arrived & (problem.pod_node >= 0)
        _spread(found, problem.pod_node[moved], pod_node[moved])
    return found


def has_undue_profit(problem: PackingProblem, pod_node: IntArray) -> bool:
    """Whether a pod that never preempts arrives where preemption made room, there or at the end of a chain."""
    timid = (pod_node >= 0) & (pod_node != problem.pod_node) & ~problem.preempt[problem.pod_class]
    return bool(timid.any() and find_nodes_freed_by_preemption(problem, pod_node)[pod_node[timid]].any())


def may_have_undue_profit(problem: PackingProblem) -> bool:
    """Whether pods wait that never preempt, while something may be preempted for others."""
    waiting, running = problem.pod_class[problem.pod_node < 0], problem.pod_class[problem.pod_node >= 0]
    return bool((~problem.preempt[waiting]).any() and (problem.preemptible & problem.movable)[running].any())


def _spread(found: BoolArray, reached: IntArray, reaching: IntArray) -> None:
    """Take in the other ends of all moves that reach what is found, until that adds nothing."""
    while True:
        more = reaching[found[reached]]
        if found[more].all():
            return
        found[more] = True


# So often the pods of a class change places with each other before an assignment is left as it is.
_ROUNDS = 4


def match_pods_to_nodes(problem: PackingProblem, assignment: IntArray) -> IntArray:
    """An assignment of pods that puts as many copies on each node, and leaves where it is what may stay.

    Running pods that leave come before pending ones of their class, and among them first those that make room for
    classes that never preempt.
    """
    pod_node = problem.pod_node.copy()
    running = count_copies(problem, problem.pod_node)
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
    return match_without_undue_profit(problem, pod_node)


def match_without_undue_profit(problem: PackingProblem, pod_node: IntArray) -> IntArray:
    """The same numbers of each class on each node, such that no pod profits unduly where that is found."""
    for _ in range(_ROUNDS):
        if not has_undue_profit(problem, pod_node):
            break
        pod_node = _matched_again(problem, pod_node)
    return pod_node


def _matched_again(problem: PackingProblem, pod_node: IntArray) -> IntArray:
    """Those that leave nodes which the timid take find a place first, and best one that no pod leaves."""
    taken, found = find_nodes_used_by_non_preempting_pods(problem, pod_node), pod_node.copy()
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
