"""A model of kube-scheduler with default settings and preemption, to compare packing plans with.

The queue is sorted by priority, then age. Filters are resources and allowed nodes. Scores are those of NodeResourcesFit
(LeastAllocated), NodeResourcesBalancedAllocation and PodTopologySpread with its defaults (weight 2), in whole numbers,
for the share of the nodes that the scheduler samples. A pod that fits nowhere preempts pods of lower priority like the
plugin DefaultPreemption; their replacements are queued.
"""

import heapq
import math
import random
from dataclasses import dataclass

import numpy as np

from cruise.packer.problem import BoolArray, IntArray, PackingProblem

SPREAD_WEIGHT = 2
SPREAD_MAX_SKEW = 3
MIN_SCORED_NODES = 100
MIN_CANDIDATES, CANDIDATES_SHARE = 100, 0.10
MAX_SCORE = 100


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The node of every pod (-1 pending), and the evicted pods in order; a pod may be evicted repeatedly."""

    pod_node: IntArray
    evicted: tuple[int, ...]


def schedule(problem: PackingProblem, ages: IntArray, preemption: bool, seed: int = 1) -> Schedule:
    """Run the scheduler until nothing changes; pods with smaller `ages` were created first."""
    assert not (problem.rules.exclusions or problem.rules.attractions or problem.rules.spreads)
    return _Scheduler(problem, ages, preemption, seed).run()


@dataclass(frozen=True, slots=True)
class _PreemptionVictims:
    """The victims of a preemption on one node, and their rank: the least is chosen."""

    node: int
    pods: tuple[int, ...]
    rank: tuple[int, ...]


class _Scheduler:
    def __init__(self, problem: PackingProblem, ages: IntArray, preemption: bool, seed: int) -> None:
        self.problem, self.preemption = problem, preemption
        self.ages = ages.copy()
        self.pod_node = problem.pod_node.copy()
        self.compute_demand = problem.demands[problem.pod_class]
        self.priority = problem.priorities[problem.pod_class]
        self.pods_on: list[set[int]] = [set() for _ in range(problem.node_count)]
        self.used = np.zeros_like(problem.capacities)
        self.of_class = np.zeros((problem.class_count, problem.node_count), dtype=np.int64)
        # The requests on each node of the pods of each priority, by its place in `levels`.
        self.levels = np.unique(problem.priorities)
        self.by_level = np.zeros((len(self.levels), *problem.capacities.shape), dtype=np.int64)
        self.limits = [(set(limit.members.tolist()), limit.allowed) for limit in problem.rules.eviction_limits]
        self.disrupted = [0] * len(self.limits)
        self.evicted: list[int] = []
        self.next_node = 0
        self.rng = random.Random(seed)
        for pod in np.flatnonzero(self.pod_node >= 0).tolist():
            self._bind(pod, int(self.pod_node[pod]))

    def run(self) -> Schedule:
        """Schedule every pending pod, and unschedulable ones again after each preemption."""
        queue = [self._get_queue_key(pod) for pod in np.flatnonzero(self.pod_node < 0).tolist()]
        heapq.heapify(queue)
        unschedulable_pods: list[tuple[int, int, int]] = []
        # Equal pods do not fit either until a preemption.
        unschedulable: set[int] = set()
        while queue:
            entry = heapq.heappop(queue)
            pod = entry[-1]
            pod_class = int(self.problem.pod_class[pod])
            node = -1 if pod_class in unschedulable else self._choose_node(pod)
            victims = self._preempt(pod) if node < 0 and self.preemption and pod_class not in unschedulable else None
            if victims is not None:
                for victim in victims.pods:
                    self._evict(victim)
                    heapq.heappush(queue, self._get_queue_key(victim))
                node = victims.node
                unschedulable.clear()
                for other in unschedulable_pods:
                    heapq.heappush(queue, other)
                unschedulable_pods.clear()
            if node >= 0:
                self._bind(pod, node)
            else:
                unschedulable.add(pod_class)
                unschedulable_pods.append(entry)
        return Schedule(self.pod_node, tuple(self.evicted))

    def _get_queue_key(self, pod: int) -> tuple[int, int, int]:
        return (-int(self.priority[pod]), int(self.ages[pod]), pod)

    def _bind(self, pod: int, node: int) -> None:
        self.pod_node[pod] = node
        self.pods_on[node].add(pod)
        self._count(pod, node, 1)

    def _evict(self, pod: int) -> None:
        node = int(self.pod_node[pod])
        self.pods_on[node].remove(pod)
        self._count(pod, node, -1)
        self.pod_node[pod] = -1
        self.evicted.append(pod)
        # `members` are classes.
        for limit, (members, _) in enumerate(self.limits):
            self.disrupted[limit] += int(self.problem.pod_class[pod]) in members
        # Its replacement is the youngest pod.
        self.ages[pod] = self.ages.max() + 1

    def _count(self, pod: int, node: int, sign: int) -> None:
        self.used[node] += sign * self.compute_demand[pod]
        self.of_class[self.problem.pod_class[pod], node] += sign
        self.by_level[np.searchsorted(self.levels, self.priority[pod]), node] += sign * self.compute_demand[pod]

    def _find_allowed_nodes(self, pod: int) -> BoolArray:
        pod_class = self.problem.pod_class[pod]
        allowed_nodes: BoolArray = self.problem.allowed_nodes[self.problem.node_mask_of_class[pod_class]] & (
            self.of_class[pod_class] < self.problem.max_on_node[pod_class]
        )
        return allowed_nodes

    def _choose_node(self, pod: int) -> int:
        need = self.compute_demand[pod]
        free = self.problem.capacities - self.used
        # Resources that a pod does not request are not checked, even if a node lacks them.
        fits = np.flatnonzero(self._find_allowed_nodes(pod) & ((need == 0) | (free >= need)).all(axis=1))
        if not len(fits):
            return -1
        fits = self._sample_nodes(fits)
        scores = self._scores(pod, fits)
        best = fits[scores == scores.max()]
        return int(best[self.rng.randrange(len(best))])

    def _sample_nodes(self, fits: IntArray) -> IntArray:
        """Return the nodes to score, from where the last search ended."""
        nodes = self.problem.node_count
        wanted = nodes
        if nodes > MIN_SCORED_NODES:
            wanted = max(MIN_SCORED_NODES, nodes * max(5, 50 - nodes // 125) // 100)
        ordered = np.concatenate([fits[fits >= self.next_node], fits[fits < self.next_node]])[:wanted]
        self.next_node = (int(ordered[-1]) + 1) % nodes if len(ordered) == wanted else self.next_node
        return ordered

    def _scores(self, pod: int, nodes: IntArray) -> IntArray:
        # Only CPU and memory, the first two resources, are scored by default.
        capacity = np.maximum(self.problem.capacities[nodes, :2], 1)
        after = np.minimum(self.used[nodes, :2] + self.compute_demand[pod, :2], capacity)
        least = (((capacity - after) * MAX_SCORE) // capacity).sum(axis=1) // 2
        share = after / capacity
        balanced = ((1 - np.abs(share[:, 0] - share[:, 1]) / 2) * MAX_SCORE).astype(np.int64)
        scores: IntArray = least + balanced + SPREAD_WEIGHT * self._spread(pod, nodes)
        return scores

    def _spread(self, pod: int, nodes: IntArray) -> IntArray:
        counts = self.of_class[self.problem.pod_class[pod], nodes]
        spread_scores = np.round(counts * math.log(len(nodes) + 2) + SPREAD_MAX_SKEW - 1).astype(np.int64)
        most, least = int(spread_scores.max()), int(spread_scores.min())
        if most == 0:
            return np.full(len(nodes), MAX_SCORE, dtype=np.int64)
        score: IntArray = MAX_SCORE * (most + least - spread_scores) // most
        return score

    def _preempt(self, pod: int) -> _PreemptionVictims | None:
        if not self.problem.preempt[self.problem.pod_class[pod]]:
            return None
        need = self.compute_demand[pod]
        level = np.searchsorted(self.levels, self.priority[pod])
        free = self.problem.capacities - self.used + self.by_level[:level].sum(axis=0)
        possible = np.flatnonzero(self._find_allowed_nodes(pod) & ((need == 0) | (free >= need)).all(axis=1)).tolist()
        if not possible:
            return None
        nodes = self.problem.node_count
        wanted = min(nodes, max(MIN_CANDIDATES, int(nodes * CANDIDATES_SHARE)))
        start = self.rng.randrange(nodes)
        ordered = [node for node in possible if node >= start] + [node for node in possible if node < start]
        candidates = [self._victims(pod, node) for node in ordered[:wanted]]
        return min((found for found in candidates if found is not None), key=lambda found: found.rank, default=None)

    def _victims(self, pod: int, node: int) -> _PreemptionVictims | None:
        """Remove all pods of lower priority from a node, then restore those that fit, the most important first."""
        lower_pods = [other for other in self.pods_on[node] if self.priority[other] < self.priority[pod]]
        lower_pods.sort(key=lambda other: (-int(self.priority[other]), int(self.ages[other]), other))
        need = self.compute_demand[pod]
        free = self.problem.capacities[node] - self.used[node] + self.compute_demand[lower_pods].sum(axis=0)
        if not ((need == 0) | (free >= need)).all():
            return None
        free = free - need
        violating = self._find_budget_violations(lower_pods)
        victims: list[int] = []
        violations = 0
        # Pods whose eviction would violate a disruption budget are restored first.
        for other in sorted(lower_pods, key=lambda other: other not in violating):
            if (self.compute_demand[other] <= free).all():
                free = free - self.compute_demand[other]
            else:
                victims.append(other)
                violations += other in violating
        if not victims:
            return None
        return _PreemptionVictims(node, tuple(sorted(victims)), self._rank(victims, violations, node))

    def _find_budget_violations(self, pods: list[int]) -> set[int]:
        """Return the pods whose eviction would violate a disruption budget, counted in order."""
        remaining = [allowed - disrupted for (_, allowed), disrupted in zip(self.limits, self.disrupted, strict=True)]
        found = set()
        for pod in pods:
            for limit, (members, _) in enumerate(self.limits):
                if int(self.problem.pod_class[pod]) in members:
                    remaining[limit] -= 1
                    if remaining[limit] < 0:
                        found.add(pod)
        return found

    def _rank(self, victims: list[int], violations: int, node: int) -> tuple[int, ...]:
        """Return the rank: violated budgets, highest priority, sum of priorities, number, age of the highest, node."""
        priorities = [int(self.priority[victim]) for victim in victims]
        highest = max(priorities)
        started = min(int(self.ages[v]) for v in victims if self.priority[v] == highest)
        # Positive for every victim.
        total = sum(priority + 2**31 for priority in priorities)
        return (violations, highest, total, len(victims), -started, node)
