"""Determines which nodes a pod cannot be placed on because of other pods: capacity, affinity, topology spread."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from cruise.decisions.packing.node_masks import (
    EVICTION_OBSTACLES,
    ObstacleMasks,
    PlacementObstacle,
    get_obstacle_rank,
    get_resource_obstacle,
)
from cruise.decisions.packing.problem import BuiltProblem
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Pod
from cruise.domain.reasons import BlockingPodKind, ReasonDetailCode, parse_detail_code
from cruise.packer.problem import AttractionRule, compute_loads
from cruise.packer.rules.by_class import build_rules_by_class
from cruise.packer.rules.domain_counts import (
    AttractionCheck,
    ExclusionCheck,
    RuleCounts,
    SpreadCheck,
    SpreadTargetCheck,
)

_UNPROTECTED = -1
_LOWEST = -(2**62)


@dataclass(frozen=True, slots=True)
class IgnoredPods:
    """The placed pods that a question ignores: those `below_priority` that only `protections` protect.

    With `ignores_protected`, all pods below the priority are ignored, with `ignores_movable` the movable pods of any
    priority; with both, also what kube-scheduler may preempt.
    """

    below_priority: int = _LOWEST
    protections: tuple[int, ...] = ()
    ignores_protected: bool = False
    ignores_movable: bool = False


class PlacedPodsByClass:
    """The pods where a packing places them.

    `protection[pod]` is the index in EVICTION_OBSTACLES of what protects a placed pod from preemption, -1 for nothing.
    """

    def __init__(self, built: BuiltProblem, pod_node: Int64Array) -> None:
        self.problem = problem = built.problem
        self.pod_node = pod_node
        self.priority = problem.priorities[problem.pod_class]
        was_running = problem.pod_node >= 0
        self.immovable = was_running & ~problem.movable[problem.pod_class]
        self.preempted_from = np.zeros(problem.node_count, dtype=np.bool_)
        self.preempted_from[problem.pod_node[was_running & (pod_node < 0)]] = True
        self.protection = _find_protections(built, pod_node, self.immovable)
        self._placed = pod_node >= 0
        self._loads: dict[IgnoredPods, tuple[Int64Array, Int64Array]] = {}
        self._protections_by_priority: dict[int | None, tuple[int, ...]] = {}

    def get_used(self, ignored: IgnoredPods, headroom: Int64Array) -> Int64Array:
        """Return the use of each node without the ignored pods, with the larger of their headroom and `headroom`."""
        if ignored not in self._loads:
            self._loads[ignored] = compute_loads(
                self.problem, np.where(self._get_remaining(ignored), self.pod_node, -1)
            )
        sums, largest = self._loads[ignored]
        return np.asarray(sums + np.maximum(largest, headroom), dtype=np.int64)

    def get_protections(self, below: int | None) -> tuple[int, ...]:
        """Return what protects placed pods below a priority, or (None) the immovable pods."""
        if below not in self._protections_by_priority:
            pods = self.immovable if below is None else self._placed & (self.priority < below)
            self._protections_by_priority[below] = tuple(
                np.unique(self.protection[pods & (self.protection >= 0)]).tolist()
            )
        return self._protections_by_priority[below]

    def find_nodes_helped_by_preemption(self, below: int) -> BoolArray:
        """Return which nodes hold pods below a priority that no plan evicts but kube-scheduler may preempt."""
        helps = np.zeros(self.problem.node_count, dtype=np.bool_)
        helps[self.problem.pod_node[self.immovable & (self.priority < below)]] = True
        return helps

    def _get_remaining(self, ignored: IgnoredPods) -> BoolArray:
        dropped = np.isin(self.protection, ignored.protections)
        if ignored.ignores_movable:
            return self.immovable & ~dropped & ~(ignored.ignores_protected & (self.priority < ignored.below_priority))
        # Pods of lower priority could be evicted for a pod that preempts, even if no pending pod does.
        unprotected = self.problem.movable[self.problem.pod_class] & (self.protection < 0)
        evicted = (self.priority < ignored.below_priority) & (unprotected | dropped | ignored.ignores_protected)
        return self._placed & ~evicted


def _find_protections(built: BuiltProblem, pod_node: Int64Array, immovable: BoolArray) -> Int64Array:
    """Return what protects each pod: an exhausted eviction limit, or the reason why it is immovable."""
    problem = built.problem
    evicted = (problem.pod_node >= 0) & (pod_node != problem.pod_node)
    evicted_by_class = np.bincount(problem.pod_class[evicted], minlength=problem.class_count)
    protection = np.full(problem.pod_count, _UNPROTECTED, dtype=np.int64)
    for limit, obstacle in zip(problem.rules.eviction_limits, built.limit_obstacles, strict=True):
        if evicted_by_class[limit.members].sum() >= limit.allowed:
            covered = np.isin(problem.pod_class, limit.members) & (problem.pod_node >= 0) & ~evicted
            protection[covered] = EVICTION_OBSTACLES.index(obstacle)
    max_evicted = problem.rules.max_evicted_by_node
    if max_evicted is not None:
        exhausted = np.bincount(problem.pod_node[evicted], minlength=problem.node_count) >= max_evicted
        protected = (problem.pod_node >= 0) & exhausted[problem.pod_node] & ~evicted
        protection[protected] = EVICTION_OBSTACLES.index(PlacementObstacle.EVICTION_LIMIT)
    for pod in np.flatnonzero(immovable).tolist():
        protection[pod] = EVICTION_OBSTACLES.index(
            _get_obstacle(built.immovable_reasons[pod] if built.immovable_reasons else None)
        )
    return protection


def _get_obstacle(immovable_reason: str | None) -> PlacementObstacle:
    detail = parse_detail_code(immovable_reason or "")
    if detail in (ReasonDetailCode.SEVERAL_BUDGETS, ReasonDetailCode.BUDGET_EXHAUSTED):
        return PlacementObstacle.DISRUPTION_BUDGET
    return (
        PlacementObstacle.EVICTION_LIMIT
        if detail is ReasonDetailCode.EVICTIONS_SPENT
        else PlacementObstacle.NOT_EVICTABLE
    )


class PodObstacles:
    """For a class, the nodes that each obstacle closes to its next pod: as packed, or in any plan."""

    def __init__(self, built: BuiltProblem, placed_pods: PlacedPodsByClass) -> None:
        self._built, self._placed_pods, self._problem = built, placed_pods, built.problem
        self._rules = build_rules_by_class(built.problem)
        self._packed = RuleCounts(built.problem, self._rules, placed_pods.pod_node)
        self._with_immovable = RuleCounts(
            built.problem, self._rules, np.where(placed_pods.immovable, placed_pods.pod_node, -1)
        )
        self._with_not_preemptible: dict[int, RuleCounts] = {}

    def get_for_packing(self, pod_class: int, pod: Pod, fixed: ObstacleMasks) -> ObstacleMasks:
        """Return the obstacles to one more pod of the class after the packing, in addition to `fixed` ones."""
        obstacles = fixed | self._find_full_nodes(pod_class, pod, self._packed)
        if not self._problem.preempt[pod_class]:
            _add_obstacle(obstacles, PlacementObstacle.PREEMPTION_POLICY, self._placed_pods.preempted_from)
        for rule in self._packed.get_checks(pod_class):
            _add_obstacle(obstacles, self._get_obstacle(rule), ~rule.get_allowed_nodes())
        for guard in self._packed.get_target_checks(pod_class):
            if isinstance(guard, SpreadTargetCheck):
                _add_obstacle(obstacles, PlacementObstacle.TOPOLOGY_SPREAD, ~guard.get_allowed_nodes())
        return obstacles

    def get_for_any_plan(self, pod_class: int, pod: Pod, fixed: ObstacleMasks) -> ObstacleMasks:
        """Return the obstacles that no eviction or move removes, in addition to `fixed` ones."""
        return self._find_lasting_obstacles(self._with_immovable, pod_class, pod, fixed)

    def get_after_preemption(self, pod_class: int, pod: Pod, fixed: ObstacleMasks) -> ObstacleMasks:
        """Return the obstacles that remain even if kube-scheduler preempts what no plan evicts."""
        priority = int(self._problem.priorities[pod_class])
        if priority not in self._with_not_preemptible:
            immovable = self._placed_pods.immovable & (self._placed_pods.priority >= priority)
            self._with_not_preemptible[priority] = RuleCounts(
                self._problem, self._rules, np.where(immovable, self._placed_pods.pod_node, -1)
            )
        return self._find_lasting_obstacles(self._with_not_preemptible[priority], pod_class, pod, fixed)

    def _find_lasting_obstacles(
        self, counts: RuleCounts, pod_class: int, pod: Pod, fixed: ObstacleMasks
    ) -> ObstacleMasks:
        obstacles = fixed | self._find_full_nodes(pod_class, pod, counts)
        for rule in counts.get_checks(pod_class):
            if isinstance(rule, ExclusionCheck):
                _add_obstacle(obstacles, self._get_obstacle(rule), ~rule.get_allowed_nodes())
        for attraction in self._get_attractions(pod_class):
            _add_obstacle(obstacles, PlacementObstacle.AFFINITY, self._find_nodes_without_targets(attraction))
        return obstacles

    def is_contradictory(self, pod_class: int) -> bool:
        """Return whether anti-affinity separates the class from all pods that its affinity requires."""
        return self._excludes_affinity_targets(pod_class, including_itself=False)

    def repels_itself(self, pod_class: int) -> bool:
        """Return whether that is so of its own pods too, so that only the first of them can be placed."""
        return self._excludes_affinity_targets(pod_class, including_itself=True)

    def _excludes_affinity_targets(self, pod_class: int, *, including_itself: bool) -> bool:
        topologies = self._problem.rules.topologies
        for attraction in self._get_attractions(pod_class):
            targets = set(attraction.targets.tolist())
            if not targets or (pod_class in targets) != including_itself:
                continue
            for topology in attraction.topologies:
                if targets <= self._get_excluded_classes(pod_class, topologies[topology]):
                    return True
        return False

    def requires_missing_pods(self, pod_class: int) -> bool:
        """Return whether its affinity matches no pod."""
        return any(len(attraction.targets) == 0 for attraction in self._get_attractions(pod_class))

    def _get_excluded_classes(self, pod_class: int, domains: Int64Array) -> set[int]:
        """Return the classes of which no pod may be in one of these domains together with the class."""
        excluded: set[int] = set()
        if self._problem.max_on_node[pod_class] == 1 and _is_within(domains, np.arange(self._problem.node_count)):
            excluded.add(pod_class)
        for _, exclusion, others in self._rules.excluded.get(pod_class, ()):
            if _is_within(domains, self._problem.rules.topologies[exclusion.topology]):
                excluded |= set(others.tolist())
        return excluded

    def _get_attractions(self, pod_class: int) -> list[AttractionRule]:
        return [rule for _, rule in self._rules.attracted.get(pod_class, ())]

    def _find_full_nodes(self, pod_class: int, pod: Pod, counts: RuleCounts) -> ObstacleMasks:
        """Return the nodes that hold as many pods of the class as a node may."""
        nodes = counts.pod_node[self._rules.get_pods(np.array([pod_class], dtype=np.int64))]
        pods_on_node = np.bincount(nodes[nodes >= 0], minlength=self._problem.node_count)
        obstacle = PlacementObstacle.ANTI_AFFINITY if pod.constraints.anti_affinity else PlacementObstacle.HOST_PORTS
        return {obstacle: pods_on_node >= self._problem.max_on_node[pod_class]}

    def _get_obstacle(self, rule: ExclusionCheck | AttractionCheck | SpreadCheck) -> PlacementObstacle:
        match rule:
            case ExclusionCheck():
                return self._built.exclusion_obstacles[rule.index]
            case AttractionCheck():
                return PlacementObstacle.AFFINITY
            case SpreadCheck():
                return PlacementObstacle.TOPOLOGY_SPREAD

    def _find_nodes_without_targets(self, attraction: AttractionRule) -> BoolArray:
        """Return the nodes in whose domains no target of an affinity is or may be placed."""
        problem = self._problem
        targets = attraction.targets.tolist()
        without_targets = np.zeros(problem.node_count, dtype=np.bool_)
        running = problem.pod_node[self._rules.get_pods(attraction.targets)]
        reachable = np.zeros(problem.node_count, dtype=np.bool_)
        reachable[running[running >= 0]] = True
        for target in targets:
            reachable = reachable | problem.allowed_nodes[problem.node_mask_of_class[target]]
        for topology in attraction.topologies:
            domains = problem.rules.topologies[topology]
            possible = np.unique(domains[reachable & (domains >= 0)])
            without_targets |= ~np.isin(domains, possible)
        if self.is_contradictory(attraction.holder):
            without_targets[:] = True
        return without_targets


def _add_obstacle(found: ObstacleMasks, obstacle: PlacementObstacle, mask: BoolArray) -> None:
    found[obstacle] = found[obstacle] | mask if obstacle in found else mask


def _is_within(finer: Int64Array, coarser: Int64Array) -> bool:
    """Return whether nodes of one domain of the finer topology always share a domain of the coarser one."""
    pairs = {
        (finer_domain, coarser_domain)
        for finer_domain, coarser_domain in zip(finer.tolist(), coarser.tolist(), strict=True)
        if finer_domain >= 0
    }
    finer_domains = [finer_domain for finer_domain, _ in pairs]
    return len(set(finer_domains)) == len(finer_domains) and all(coarser_domain >= 0 for _, coarser_domain in pairs)


class NodesWithRelaxedObstacles(NamedTuple):
    """The nodes with enough free capacity once some obstacles are dropped."""

    nodes: BoolArray
    dropped: frozenset[str]


class ObstacleSet(NamedTuple):
    """Obstacles that together close all nodes to a pod, and the nodes that would take it without them."""

    obstacles: tuple[str, ...]
    nodes: BoolArray


def find_smallest_obstacle_set(
    node_count: int, masks: Mapping[str, BoolArray], alternatives: Iterable[NodesWithRelaxedObstacles]
) -> ObstacleSet:
    """Return the smallest set; of equally small ones that of the lowest ranks.

    `masks` has for each obstacle the nodes that it closes; `alternatives` indicates what must be dropped for capacity.
    """
    bits: dict[str, int] = {}
    closed = np.zeros(node_count, dtype=np.int64)
    for obstacle, mask in masks.items():
        closed[mask] |= 1 << bits.setdefault(obstacle, len(bits))
    best: tuple[tuple[int, list[int]], int] | None = None
    dropped_bits: list[tuple[BoolArray, int]] = []
    for alternative in alternatives:
        dropped = sum(1 << bits.setdefault(obstacle, len(bits)) for obstacle in alternative.dropped)
        dropped_bits.append((alternative.nodes, dropped))
        for code in np.unique(closed[alternative.nodes] | dropped).tolist():
            ranks = sorted(get_obstacle_rank(obstacle) for obstacle, bit in bits.items() if code >> bit & 1)
            if best is None or (len(ranks), ranks) < best[0]:
                best = (len(ranks), ranks), code
    if best is None:
        return ObstacleSet((), np.zeros(node_count, dtype=np.bool_))
    nodes = np.zeros(node_count, dtype=np.bool_)
    for open_nodes, dropped in dropped_bits:
        nodes |= open_nodes & ((closed | dropped) == best[1])
    obstacles = sorted(
        (obstacle for obstacle, bit in bits.items() if best[1] >> bit & 1),
        key=lambda one: (get_obstacle_rank(one), one),
    )
    return ObstacleSet(tuple(obstacles), nodes)


NO_PODS = IgnoredPods()


class MissingCapacity:
    """The capacity that nodes lack for one more pod of a class."""

    def __init__(self, placed_pods: PlacedPodsByClass, pod_class: int) -> None:
        self._placed_pods, self._problem = placed_pods, placed_pods.problem
        self._demand = self._problem.demands[pod_class]
        self._headroom = self._problem.headroom[pod_class]
        self._preempts = bool(self._problem.preempt[pod_class])
        self._priority = int(self._problem.priorities[pod_class])

    def get_missing(self, ignored: IgnoredPods = NO_PODS) -> Int64Array:
        """Return how much of each resource each node lacks, next to the pods that are not ignored."""
        missing = self._placed_pods.get_used(ignored, self._headroom) + self._demand - self._problem.capacities
        is_needed = (self._demand > 0) | (self._headroom > 0)
        return np.where(is_needed, np.maximum(missing, 0), 0)

    def get_missing_on_empty_node(self) -> Int64Array:
        """Return how much of each resource each node lacks with no other pod on it."""
        missing = self._demand + self._headroom - self._problem.capacities
        return np.asarray(np.maximum(missing, 0), dtype=np.int64)

    def get_blocking_pods(self, nodes: BoolArray) -> BlockingPodKind:
        """Return the priorities of the pods that fill these nodes, if their capacity keeps the pod out."""
        if not self._fits(IgnoredPods(self._priority + 1, ignores_protected=True))[nodes].any():
            return BlockingPodKind.HIGHER
        fits_without_lower = self._fits(IgnoredPods(self._priority, ignores_protected=True))
        return BlockingPodKind.ANY if fits_without_lower[nodes].any() else BlockingPodKind.EQUAL_OR_HIGHER

    def get_alternatives(self) -> Iterator[NodesWithRelaxedObstacles]:
        """Yield what to drop next to the placed pods: a missing resource, or the protection of lower priorities."""
        yield from self._group_by_missing_resources(self.get_missing())
        policy: tuple[str, ...] = () if self._preempts else (PlacementObstacle.PREEMPTION_POLICY,)
        for dropped in _list_subsets(self._placed_pods.get_protections(self._priority)):
            names = (*policy, *(EVICTION_OBSTACLES[index] for index in dropped))
            if names:
                yield NodesWithRelaxedObstacles(self._fits(IgnoredPods(self._priority, dropped)), frozenset(names))

    def get_alternatives_in_any_plan(self) -> Iterator[NodesWithRelaxedObstacles]:
        """Yield what to drop next to the pods that are immovable."""
        yield from self._group_by_missing_resources(self.get_missing(IgnoredPods(ignores_movable=True)))
        for dropped in _list_subsets(self._placed_pods.get_protections(None)):
            if dropped:
                names = frozenset[str](EVICTION_OBSTACLES[index] for index in dropped)
                yield NodesWithRelaxedObstacles(
                    self._fits(IgnoredPods(protections=dropped, ignores_movable=True)), names
                )

    def get_after_preemption(self) -> BoolArray:
        """Return which nodes have capacity once kube-scheduler has preempted pods that no plan evicts."""
        if not self._preempts:
            return np.zeros(self._problem.node_count, dtype=np.bool_)
        helps = self._placed_pods.find_nodes_helped_by_preemption(self._priority)
        return (
            helps & self._fits(IgnoredPods(self._priority, ignores_protected=True, ignores_movable=True))
            if helps.any()
            else helps
        )

    def _fits(self, ignored: IgnoredPods) -> BoolArray:
        return np.asarray(~self.get_missing(ignored).any(axis=1), dtype=np.bool_)

    def _group_by_missing_resources(self, missing: Int64Array) -> Iterator[NodesWithRelaxedObstacles]:
        """Yield the nodes that lack the same resources, with these resources."""
        codes = (missing > 0) @ (1 << np.arange(missing.shape[1]))
        for code in np.unique(codes).tolist():
            names = [get_resource_obstacle(name) for r, name in enumerate(self._problem.resources) if code >> r & 1]
            yield NodesWithRelaxedObstacles(np.asarray(codes == code, dtype=np.bool_), frozenset(names))


def _list_subsets(protections: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for size in range(len(protections) + 1):
        yield from combinations(protections, size)
