"""Packs greedily without compiled code: running pods stay, pending pods are placed, then lower priorities preempted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.packer.answer import (
    Packing,
    PackingNote,
    PackingNoteCode,
    build_packing,
    compute_counting_bound,
    compute_figures,
)
from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem, compute_loads
from cruise.packer.rules.by_class import RulesByClass, build_rules_by_class
from cruise.packer.rules.domain_counts import RuleCounts
from cruise.packer.rules.preemption import find_nodes_freed_by_preemption, find_nodes_used_by_non_preempting_pods
from cruise.packer.verification import find_rule_violations

# Nodes that are tried for a preemption, those that lack least first.
_CANDIDATES = 8
_MAX_PREEMPTIONS = 200


@dataclass(slots=True, eq=False)
class _GreedyState:
    """An assignment in progress, with the demands (`sums`) and largest headroom on each node."""

    problem: PackingProblem
    rules: RulesByClass
    counts: RuleCounts
    sums: IntArray
    largest: IntArray
    # After a preemption, only pods that preempt may arrive there.
    preempted: bool
    shares: FloatArray

    @property
    def pod_node(self) -> IntArray:
        """Return the node of each pod, -1 for none."""
        return self.counts.pod_node

    def find_nodes(self, c: int) -> IntArray:
        """Return every node where a pod of the class may arrive now."""
        return np.flatnonzero(self.allowed(c) & self.fits(c))

    def fits(self, c: int) -> BoolArray:
        """Return the nodes with capacity for one more pod."""
        problem = self.problem
        open_nodes = np.ones(problem.node_count, dtype=np.bool_)
        for r in np.flatnonzero((problem.demands[c] > 0) | (problem.headroom[c] > 0)).tolist():
            after = self.sums[:, r] + problem.demands[c, r] + np.maximum(self.largest[:, r], problem.headroom[c, r])
            open_nodes &= after <= problem.capacities[:, r]
        return open_nodes

    def allowed(self, c: int) -> BoolArray:
        """Return the nodes where every rule except capacity accepts one more pod."""
        problem = self.problem
        open_nodes: BoolArray = problem.allowed_nodes[problem.node_mask_of_class[c]].copy()
        if not problem.preempt[c] and self.preempted:
            open_nodes &= ~find_nodes_freed_by_preemption(problem, self.pod_node)
        siblings = self.rules.get_pods(np.array([c], dtype=np.int64))
        if problem.max_on_node[c] <= len(siblings):
            nodes = self.pod_node[siblings]
            count = np.bincount(nodes[nodes >= 0], minlength=problem.node_count)
            open_nodes &= count < problem.max_on_node[c]
        return open_nodes & self.counts.get_allowed_nodes(c)

    def best_node(self, c: int, nodes: IntArray) -> int:
        """Return the node that the pod fills best; -1 if there is none."""
        if len(nodes) == 0:
            return -1
        problem = self.problem
        left = problem.capacities[nodes] - self.sums[nodes] - np.maximum(self.largest[nodes], problem.headroom[c])
        return int(nodes[np.argmin((left * self.shares).sum(axis=1))])

    def put(self, pod: int, node: int) -> None:
        """Place a pod."""
        c = self.problem.pod_class[pod]
        self.counts.place(pod, node)
        self.sums[node] += self.problem.demands[c]
        np.maximum(self.largest[node], self.problem.headroom[c], out=self.largest[node])

    def take(self, pod: int) -> None:
        """Remove a pod from its node."""
        node = int(self.pod_node[pod])
        self.counts.evict(pod)
        self.sums[node] -= self.problem.demands[self.problem.pod_class[pod]]
        remaining = self.problem.pod_class[self.pod_node == node]
        self.largest[node] = self.problem.headroom[remaining].max(axis=0, initial=0)


def _create_state(problem: PackingProblem, pod_node: IntArray) -> _GreedyState:
    sums, largest = compute_loads(problem, pod_node)
    preempted = bool(((problem.pod_node >= 0) & (pod_node < 0)).any())
    shares = 1.0 / np.maximum(problem.capacities.sum(axis=0), 1).astype(np.float64)
    rules = build_rules_by_class(problem)
    return _GreedyState(problem, rules, RuleCounts(problem, rules, pod_node), sums, largest, preempted, shares)


def assign_greedily(problem: PackingProblem) -> IntArray:
    """Return nodes for all pods: pending pods are placed by priority and size where they fit best.

    The others preempt lower priorities, whose pods are then placed elsewhere if possible.
    """
    state = _create_state(problem, problem.pod_node)
    unplaced = _place_all(state, order_pending_pods(problem, problem.pod_node))
    remaining_evictions = _RemainingEvictions(problem, state.rules)
    preemption_count, failed_classes = 0, set[int]()
    for pod in unplaced:
        c = int(problem.pod_class[pod])
        if c in failed_classes or preemption_count >= _MAX_PREEMPTIONS:
            continue
        if _preempt_for(state, pod, remaining_evictions):
            preemption_count += 1
        else:
            failed_classes.add(c)
    return state.pod_node


def add_non_preempting_pods(problem: PackingProblem, pod_node: IntArray) -> IntArray:
    """Return an assignment with more pods that never preempt, where there is free capacity."""
    state = _create_state(problem, pod_node)
    never_preempts = ~problem.preempt[problem.pod_class]
    _place_all(state, [pod for pod in order_pending_pods(problem, pod_node) if never_preempts[pod]])
    return state.pod_node


def order_pending_pods(problem: PackingProblem, pod_node: IntArray) -> list[int]:
    """Return pods without a node, the highest priority first, then the largest."""
    pods = np.flatnonzero(pod_node < 0)
    classes = problem.pod_class[pods]
    sizes = (problem.demands / np.maximum(problem.capacities.sum(axis=0), 1)).sum(axis=1)
    order: list[int] = pods[np.lexsort((pods, classes, -sizes[classes], -problem.priorities[classes]))].tolist()
    return order


def _place_all(state: _GreedyState, pods: list[int]) -> list[int]:
    """Place pods in order, and again those that others attract or spread, until no more fit; return the rest."""
    problem, rules = state.problem, state.rules
    unplaced = pods
    while True:
        failed_classes: set[int] = set()
        remaining = []
        for pod in unplaced:
            c = int(problem.pod_class[pod])
            node = -1 if c in failed_classes else state.best_node(c, state.find_nodes(c))
            if node < 0:
                failed_classes.add(c)
                remaining.append(pod)
            else:
                state.put(pod, node)
        may_fit_later = {c for c in failed_classes if c in rules.attracted or c in rules.spread}
        if len(remaining) == len(unplaced) or not may_fit_later:
            return remaining
        unplaced = remaining


class _RemainingEvictions:
    """The evictions that remain of each limit and node, while every running pod is on its node or evicted."""

    def __init__(self, problem: PackingProblem, rules: RulesByClass) -> None:
        self._problem, self._limits = problem, rules.limits
        self._by_limit = [limit.allowed for limit in problem.rules.eviction_limits]
        most = problem.rules.max_evicted_by_node
        self._by_node = None if most is None else most.copy()

    def allows(self, pod: int) -> bool:
        """Return whether this pod may be evicted."""
        node = self._problem.pod_node[pod]
        on_node = self._by_node is None or self._by_node[node] > 0
        return bool(on_node) and all(self._by_limit[limit] > 0 for limit in self._get_limits(pod))

    def spend(self, pod: int, count: int = 1) -> None:
        """Count the eviction of a pod, or (-1) its return."""
        for limit in self._get_limits(pod):
            self._by_limit[limit] -= count
        if self._by_node is not None:
            self._by_node[self._problem.pod_node[pod]] -= count

    def _get_limits(self, pod: int) -> Sequence[int]:
        return self._limits.get(int(self._problem.pod_class[pod]), ())


def _preempt_for(state: _GreedyState, pod: int, remaining_evictions: _RemainingEvictions) -> bool:
    """Free capacity for a pod on one node by evicting lower priorities."""
    problem = state.problem
    c = int(problem.pod_class[pod])
    if not problem.preempt[c]:
        return False
    evictable = (problem.priorities < problem.priorities[c]) & problem.movable & problem.preemptible
    evictable &= ~state.rules.anchored
    if not evictable.any():
        return False
    victims = np.flatnonzero(
        evictable[problem.pod_class] & (state.pod_node >= 0) & (state.pod_node == problem.pod_node)
    )
    reclaimed = np.zeros_like(state.sums)
    np.add.at(reclaimed, state.pod_node[victims], problem.demands[problem.pod_class[victims]])
    missing = state.sums + problem.demands[c] + np.maximum(state.largest, problem.headroom[c]) - problem.capacities
    missing[:, (problem.demands[c] == 0) & (problem.headroom[c] == 0)] = 0
    open_nodes = (
        state.allowed(c)
        & (missing <= reclaimed).all(axis=1)
        & ~find_nodes_used_by_non_preempting_pods(problem, state.pod_node)
    )
    nodes = np.flatnonzero(open_nodes)
    cost = (np.maximum(missing[nodes], 0) * state.shares).sum(axis=1)
    for node in nodes[np.argsort(cost, kind="stable")[:_CANDIDATES]].tolist():
        if _evict_until_fits(state, pod, node, victims[state.pod_node[victims] == node], remaining_evictions):
            return True
    return False


def _evict_until_fits(
    state: _GreedyState, pod: int, node: int, victims: IntArray, remaining_evictions: _RemainingEvictions
) -> bool:
    """Evict the fewest victims, lowest priority first, until the pod fits; undo that if it never does."""
    problem = state.problem
    c = int(problem.pod_class[pod])
    classes = problem.pod_class[victims]
    sizes = (problem.demands[classes] * state.shares).sum(axis=1)
    evicted: list[int] = []
    for victim in victims[np.lexsort((victims, -sizes, problem.priorities[classes]))].tolist():
        if not remaining_evictions.allows(victim):
            continue
        state.take(victim)
        evicted.append(victim)
        remaining_evictions.spend(victim)
        if state.fits(c)[node]:
            break
    if not state.fits(c)[node]:
        for victim in evicted:
            _restore(state, victim, node, remaining_evictions)
        return False
    state.put(pod, node)
    # Pods evicted first may still fit next to the pod, or elsewhere.
    for victim in sorted(evicted, key=lambda v: (-int(problem.priorities[problem.pod_class[v]]), v)):
        victim_class = int(problem.pod_class[victim])
        if state.fits(victim_class)[node]:
            _restore(state, victim, node, remaining_evictions)
            continue
        target = state.best_node(victim_class, state.find_nodes(victim_class))
        if target >= 0:
            state.put(victim, target)
        else:
            state.preempted = True
    return True


def _restore(state: _GreedyState, victim: int, node: int, remaining_evictions: _RemainingEvictions) -> None:
    state.put(victim, node)
    remaining_evictions.spend(victim, -1)


def pack_quickly(problem: PackingProblem) -> Packing:
    """Return a valid packing without compiled code, never worse than the present one, within milliseconds if small."""
    pod_node = assign_greedily(problem)
    bound = compute_counting_bound(problem)
    current, planned = compute_figures(problem, problem.pod_node), compute_figures(problem, pod_node)
    violations = find_rule_violations(problem, pod_node)
    if violations:
        return build_packing(
            problem, problem.pod_node.copy(), bound, (PackingNote(PackingNoteCode.PACKING_DROPPED, violations[0]),)
        )
    is_worse = planned.get_key(problem.objective) < current.get_key(problem.objective)
    return build_packing(problem, problem.pod_node.copy() if is_worse else pod_node, bound)
