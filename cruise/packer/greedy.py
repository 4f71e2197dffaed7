"""A whole feasible assignment at once, without compiled code: keep what runs, place what waits, then preempt."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem, compute_loads
from cruise.packer.rules.by_class import RulesByClass, build_rules_by_class
from cruise.packer.rules.domain_counts import RuleCounts
from cruise.packer.rules.preemption import find_nodes_freed_by_preemption, find_nodes_used_by_non_preempting_pods

# For a pod that fits nowhere this many nodes are looked at, those that lack least.
_CANDIDATES = 8
_PREEMPTIONS = 200


@dataclass(slots=True, eq=False)
class _GreedyState:
    """An assignment in the making: `sums` and `largest` are the demands and headroom on each node, kept in step."""

    problem: PackingProblem
    rules: RulesByClass
    counts: RuleCounts
    sums: IntArray
    largest: IntArray
    # Where preemption made room only pods come that preempt.
    preempted: bool
    shares: FloatArray

    @property
    def pod_node(self) -> IntArray:
        """Where each pod is, -1 without a place."""
        return self.counts.pod_node

    def nodes_for(self, c: int) -> IntArray:
        """Every node where a pod of the class may arrive now."""
        return np.flatnonzero(self.allowed(c) & self.fits(c))

    def fits(self, c: int) -> BoolArray:
        """The nodes with enough left for one more pod."""
        problem = self.problem
        open_nodes = np.ones(problem.node_count, dtype=np.bool_)
        for r in np.flatnonzero((problem.demands[c] > 0) | (problem.headroom[c] > 0)).tolist():
            after = self.sums[:, r] + problem.demands[c, r] + np.maximum(self.largest[:, r], problem.headroom[c, r])
            open_nodes &= after <= problem.capacities[:, r]
        return open_nodes

    def allowed(self, c: int) -> BoolArray:
        """The nodes where every rule but room lets one more pod arrive."""
        problem = self.problem
        open_nodes: BoolArray = problem.allowed_nodes[problem.node_mask_of_class[c]].copy()
        if not problem.preempt[c] and self.preempted:
            open_nodes &= ~find_nodes_freed_by_preemption(problem, self.pod_node)
        siblings = self.rules.get_pods(np.array([c], dtype=np.int64))
        if problem.max_on_node[c] <= len(siblings):
            there = self.pod_node[siblings]
            held = np.bincount(there[there >= 0], minlength=problem.node_count)
            open_nodes &= held < problem.max_on_node[c]
        return open_nodes & self.counts.get_allowed_nodes(c)

    def best(self, c: int, nodes: IntArray) -> int:
        """The node that the pod fills best; -1 where there is none."""
        if len(nodes) == 0:
            return -1
        problem = self.problem
        left = problem.capacities[nodes] - self.sums[nodes] - np.maximum(self.largest[nodes], problem.headroom[c])
        return int(nodes[np.argmin((left * self.shares).sum(axis=1))])

    def put(self, pod: int, node: int) -> None:
        """A pod arrives."""
        c = self.problem.pod_class[pod]
        self.counts.place(pod, node)
        self.sums[node] += self.problem.demands[c]
        np.maximum(self.largest[node], self.problem.headroom[c], out=self.largest[node])

    def take(self, pod: int) -> None:
        """A pod leaves its node."""
        node = int(self.pod_node[pod])
        self.counts.evict(pod)
        self.sums[node] -= self.problem.demands[self.problem.pod_class[pod]]
        stay = self.problem.pod_class[self.pod_node == node]
        self.largest[node] = self.problem.headroom[stay].max(axis=0, initial=0)


def _room_of(problem: PackingProblem, pod_node: IntArray) -> _GreedyState:
    sums, largest = compute_loads(problem, pod_node)
    preempted = bool(((problem.pod_node >= 0) & (pod_node < 0)).any())
    shares = 1.0 / np.maximum(problem.capacities.sum(axis=0), 1).astype(np.float64)
    rules = build_rules_by_class(problem)
    return _GreedyState(problem, rules, RuleCounts(problem, rules, pod_node), sums, largest, preempted, shares)


def assign_greedily(problem: PackingProblem) -> IntArray:
    """Nodes for all pods: what runs stays, what waits is placed by priority and size where it fits best.

    What is left preempts lower priorities, whose pods then look for another place.
    """
    room = _room_of(problem, problem.pod_node)
    waiting = _place_all(room, order_pending_pods(problem, problem.pod_node))
    left = _RemainingEvictions(problem, room.rules)
    done, hopeless = 0, set[int]()
    for pod in waiting:
        c = int(problem.pod_class[pod])
        if c in hopeless or done >= _PREEMPTIONS:
            continue
        if _preempt_for(room, pod, left):
            done += 1
        else:
            hopeless.add(c)
    return room.pod_node


def add_non_preempting_pods(problem: PackingProblem, pod_node: IntArray) -> IntArray:
    """An assignment with what never preempts placed as well, as far as there is room without any preemption."""
    room = _room_of(problem, pod_node)
    timid = ~problem.preempt[problem.pod_class]
    _place_all(room, [pod for pod in order_pending_pods(problem, pod_node) if timid[pod]])
    return room.pod_node


def order_pending_pods(problem: PackingProblem, pod_node: IntArray) -> list[int]:
    """Pods without a place, the highest priority first, then the largest."""
    pods = np.flatnonzero(pod_node < 0)
    classes = problem.pod_class[pods]
    sizes = (problem.demands / np.maximum(problem.capacities.sum(axis=0), 1)).sum(axis=1)
    order: list[int] = pods[np.lexsort((pods, classes, -sizes[classes], -problem.priorities[classes]))].tolist()
    return order


def _place_all(room: _GreedyState, pods: list[int]) -> list[int]:
    """Place pods in their order, and again those that others attract or level out, until nothing more fits."""
    problem, rules = room.problem, room.rules
    waiting = pods
    while True:
        full: set[int] = set()
        left = []
        for pod in waiting:
            c = int(problem.pod_class[pod])
            node = -1 if c in full else room.best(c, room.nodes_for(c))
            if node < 0:
                full.add(c)
                left.append(pod)
            else:
                room.put(pod, node)
        again = {c for c in full if c in rules.attracted or c in rules.spread}
        if len(left) == len(waiting) or not again:
            return left
        waiting = left


class _RemainingEvictions:
    """How many evictions remain of each limit and on each node, while every pod that ran is at home or gone."""

    def __init__(self, problem: PackingProblem, rules: RulesByClass) -> None:
        self._problem, self._limits = problem, rules.limits
        self._of_limits = [limit.allowed for limit in problem.rules.eviction_limits]
        most = problem.rules.max_evicted_by_node
        self._on_nodes = None if most is None else most.copy()

    def allows(self, pod: int) -> bool:
        """Tell whether one more pod may be evicted, this one."""
        node = self._problem.pod_node[pod]
        on_node = self._on_nodes is None or self._on_nodes[node] > 0
        return bool(on_node) and all(self._of_limits[limit] > 0 for limit in self._limits_of(pod))

    def spend(self, pod: int, count: int = 1) -> None:
        """Count the eviction of a pod, or (-1) its return."""
        for limit in self._limits_of(pod):
            self._of_limits[limit] -= count
        if self._on_nodes is not None:
            self._on_nodes[self._problem.pod_node[pod]] -= count

    def _limits_of(self, pod: int) -> Sequence[int]:
        return self._limits.get(int(self._problem.pod_class[pod]), ())


def _preempt_for(room: _GreedyState, pod: int, left: _RemainingEvictions) -> bool:
    """Make room for a pod on one node by taking lower priorities off it."""
    problem = room.problem
    c = int(problem.pod_class[pod])
    if not problem.preempt[c]:
        return False
    weaker = (problem.priorities < problem.priorities[c]) & problem.movable & problem.preemptible
    weaker &= ~room.rules.anchored
    if not weaker.any():
        return False
    victims = np.flatnonzero(weaker[problem.pod_class] & (room.pod_node >= 0) & (room.pod_node == problem.pod_node))
    reclaimed = np.zeros_like(room.sums)
    np.add.at(reclaimed, room.pod_node[victims], problem.demands[problem.pod_class[victims]])
    need = room.sums + problem.demands[c] + np.maximum(room.largest, problem.headroom[c]) - problem.capacities
    need[:, (problem.demands[c] == 0) & (problem.headroom[c] == 0)] = 0
    open_nodes = (
        room.allowed(c)
        & (need <= reclaimed).all(axis=1)
        & ~find_nodes_used_by_non_preempting_pods(problem, room.pod_node)
    )
    nodes = np.flatnonzero(open_nodes)
    lack = (np.maximum(need[nodes], 0) * room.shares).sum(axis=1)
    for node in nodes[np.argsort(lack, kind="stable")[:_CANDIDATES]].tolist():
        if _clear(room, pod, node, victims[room.pod_node[victims] == node], left):
            return True
    return False


def _clear(room: _GreedyState, pod: int, node: int, victims: IntArray, left: _RemainingEvictions) -> bool:
    """Take the fewest victims, weakest first, until the pod fits; undone where it never does."""
    problem = room.problem
    c = int(problem.pod_class[pod])
    classes = problem.pod_class[victims]
    sizes = (problem.demands[classes] * room.shares).sum(axis=1)
    taken: list[int] = []
    for victim in victims[np.lexsort((victims, -sizes, problem.priorities[classes]))].tolist():
        if not left.allows(victim):
            continue
        room.take(victim)
        taken.append(victim)
        left.spend(victim)
        if room.fits(c)[node]:
            break
    if not room.fits(c)[node]:
        for victim in taken:
            _restore(room, victim, node, left)
        return False
    room.put(pod, node)
    # What went first may turn out to fit beside the pod after all, or elsewhere.
    for victim in sorted(taken, key=lambda v: (-int(problem.priorities[problem.pod_class[v]]), v)):
        mine = int(problem.pod_class[victim])
        if room.fits(mine)[node]:
            _restore(room, victim, node, left)
            continue
        target = room.best(mine, room.nodes_for(mine))
        if target >= 0:
            room.put(victim, target)
        else:
            room.preempted = True
    return True


def _restore(room: _GreedyState, victim: int, node: int, left: _RemainingEvictions) -> None:
    room.put(victim, node)
    left.spend(victim, -1)
