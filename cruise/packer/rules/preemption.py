"""Assigns pods to nodes given the counts of each class, so that pods that never preempt gain nothing by preemption."""

import numpy as np

from cruise.packer.problem import AttractionRule, BoolArray, IntArray, PackingProblem, count_copies
from cruise.packer.rules.by_class import RulesByClass


class LeavingPods:
    """The running pods, next to which another pod may arrive while they are still there."""

    def __init__(self, problem: PackingProblem, rules: RulesByClass) -> None:
        self._problem, self._rules = problem, rules
        self._running = count_copies(problem, problem.pod_node)
        immovable = np.where(problem.movable[:, None], 0, self._running)
        self._free = problem.capacities - immovable.T @ problem.demands

    def find_supporting_targets(self, rule: AttractionRule, topology: int, node: int, source: int = -1) -> bool:
        """Return whether a holder, perhaps at `home`, may arrive on a node because a target runs in its domain."""
        row = self._problem.rules.topologies[topology]
        nodes = np.flatnonzero((row == row[node]) & (row >= 0))
        class_nodes = np.argwhere(self._running[np.ix_(rule.targets, nodes)] > 0).tolist()
        return any(
            self._are_compatible(rule.holder, node, int(rule.targets[t]), int(nodes[n]), source) for t, n in class_nodes
        )

    def _are_compatible(self, holder: int, node: int, target: int, target_node: int, source: int) -> bool:
        """Return whether rules and capacity allow a holder on a node while the target is there."""
        problem = self._problem
        if target == holder and target_node == source and self._running[target, target_node] == 1:
            return False
        for _, rule, others in self._rules.excluded.get(holder, ()):
            row = problem.rules.topologies[rule.topology]
            if target in others.tolist() and row[node] == row[target_node] >= 0:
                return False
        if node != target_node:
            return True
        demand = problem.demands[holder] + problem.demands[target]
        return bool((demand <= self._free[node]).all()) and not (target == holder and problem.max_on_node[holder] == 1)


def find_nodes_freed_by_preemption(problem: PackingProblem, pod_node: IntArray) -> BoolArray:
    """Return the nodes from which pods are preempted, and those from which pods move to such a node."""
    was_running = problem.pod_node >= 0
    nodes = np.zeros(problem.node_count, dtype=np.bool_)
    nodes[problem.pod_node[was_running & (pod_node < 0)]] = True
    if nodes.any():
        moved = was_running & (pod_node >= 0) & (pod_node != problem.pod_node)
        _add_reachable(nodes, pod_node[moved], problem.pod_node[moved])
    return nodes


def find_nodes_used_by_non_preempting_pods(problem: PackingProblem, pod_node: IntArray) -> BoolArray:
    """Return the nodes at which pods arrive that never preempt, and those to which pods move from such a node."""
    arrived = (pod_node >= 0) & (pod_node != problem.pod_node)
    nodes = np.zeros(problem.node_count, dtype=np.bool_)
    nodes[pod_node[arrived & ~problem.preempt[problem.pod_class]]] = True
    if nodes.any():
        moved = arrived & (problem.pod_node >= 0)
        _add_reachable(nodes, problem.pod_node[moved], pod_node[moved])
    return nodes


def violates_preemption_policy(problem: PackingProblem, pod_node: IntArray) -> bool:
    """Return whether a pod that never preempts arrives where pods are preempted, directly or through a chain."""
    never_preempts = (pod_node >= 0) & (pod_node != problem.pod_node) & ~problem.preempt[problem.pod_class]
    return bool(
        never_preempts.any() and find_nodes_freed_by_preemption(problem, pod_node)[pod_node[never_preempts]].any()
    )


def may_have_undue_profit(problem: PackingProblem) -> bool:
    """Return whether pending pods never preempt while running pods may be preempted for others."""
    pending, running = problem.pod_class[problem.pod_node < 0], problem.pod_class[problem.pod_node >= 0]
    return bool((~problem.preempt[pending]).any() and (problem.preemptible & problem.movable)[running].any())


def _add_reachable(marked: BoolArray, reached: IntArray, reaching: IntArray) -> None:
    """Add the other ends of all moves that reach the marked nodes, until that adds nothing."""
    while True:
        more = reaching[marked[reached]]
        if marked[more].all():
            return
        marked[more] = True


# Pods of a class are exchanged so many times before an assignment is left as it is.
_ROUNDS = 4


def match_pods_to_nodes(problem: PackingProblem, assignment: IntArray) -> IntArray:
    """Return an assignment of pods with these counts, in which as many pods stay as possible.

    Evicted pods are placed before pending ones of their class, first those that free capacity for pods that never
    preempt.
    """
    pod_node = problem.pod_node.copy()
    running = count_copies(problem, problem.pod_node)
    kept = np.minimum(assignment, running)
    by_class = np.argsort(problem.pod_class, kind="stable")
    starts = np.searchsorted(problem.pod_class[by_class], np.arange(problem.class_count + 1))
    has_never_preempting = (assignment > running)[~problem.preempt].any(axis=0)
    order = np.argsort(~has_never_preempting, kind="stable")
    for c in np.flatnonzero((assignment != running).any(axis=1)).tolist():
        pods = by_class[starts[c] : starts[c + 1]]
        sources = problem.pod_node[pods]
        leaving_nodes = order[(running[c] > kept[c])[order]]
        leaving = [pods[sources == node][kept[c, node] :] for node in leaving_nodes.tolist()]
        unplaced = np.concatenate([*leaving, pods[sources < 0]])
        targets = np.repeat(np.arange(problem.node_count), assignment[c] - kept[c])
        pod_node[unplaced] = -1
        pod_node[unplaced[: len(targets)]] = targets
    return match_within_preemption_policy(problem, pod_node)


def match_within_preemption_policy(problem: PackingProblem, pod_node: IntArray) -> IntArray:
    """Return the same counts on each node, so that no pod gains capacity unduly if that is found."""
    for _ in range(_ROUNDS):
        if not violates_preemption_policy(problem, pod_node):
            break
        pod_node = _exchange_pods(problem, pod_node)
    return pod_node


def _exchange_pods(problem: PackingProblem, pod_node: IntArray) -> IntArray:
    """Place the pods first that leave nodes which pods that never preempt need, best on nodes that no pod leaves."""
    taken, matched = find_nodes_used_by_non_preempting_pods(problem, pod_node), pod_node.copy()
    leaving = (problem.pod_node >= 0) & (pod_node != problem.pod_node)
    leaving_count = np.bincount(problem.pod_node[leaving], minlength=problem.node_count)
    changes = leaving | ((pod_node >= 0) & (problem.pod_node < 0))
    for c in np.unique(problem.pod_class[leaving]).tolist():
        pods = np.flatnonzero(changes & (problem.pod_class == c))
        sources, targets = problem.pod_node[pods], pod_node[pods][pod_node[pods] >= 0]
        first = pods[np.lexsort((pods, ~taken[sources], sources < 0))]
        matched[pods] = -1
        matched[first[: len(targets)]] = targets[np.lexsort((targets, leaving_count[targets] > 0, ~taken[targets]))]
    return matched
