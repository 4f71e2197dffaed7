"""What keeps a pod from nodes for the sake of other pods: those there, those missing, and how evenly they spread."""

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
from cruise.domain.cluster import Pod
from cruise.domain.reasons import BlockingPods, ReasonDetail, parse_detail_code
from cruise.domain.resources import BoolArray, Int64Array
from cruise.packer.problem import AttractionRule, compute_loads
from cruise.packer.rules.by_class import build_rules_by_class
from cruise.packer.rules.domain_counts import AttractionCheck, ExclusionCheck, RuleCounts, SpreadCheck, SpreadGuard

# Which pods hold the nodes once a packing is in place, and what would be held if some of them went.

_FREE = -1
_LOWEST = -(2**62)


@dataclass(frozen=True, slots=True)
class IgnoredPods:
    """Which of the placed pods are thought away: those `below` a priority that nothing but `protections` keeps.

    With `protected`, all below it go; with `movable`, of whatever priority, those that do not stay in every plan. With
    both, what kube-scheduler may preempt goes besides.
    """

    below: int = _LOWEST
    protections: tuple[int, ...] = ()
    protected: bool = False
    movable: bool = False


class PlacedPodsByClass:
    """Pods by class on the nodes where a packing puts them.

    `protection[pod]` is the index in PROTECTIONS of what keeps a placed pod from being preempted, -1 for nothing.
    """

    def __init__(self, built: BuiltProblem, pod_node: Int64Array) -> None:
        self.problem = problem = built.problem
        self.pod_node = pod_node
        self.priority = problem.priorities[problem.pod_class]
        ran = problem.pod_node >= 0
        self.immovable = ran & ~problem.movable[problem.pod_class]
        self.preempted_from = np.zeros(problem.node_count, dtype=np.bool_)
        self.preempted_from[problem.pod_node[ran & (pod_node < 0)]] = True
        self.protection = _protections(built, pod_node, self.immovable)
        self._placed = pod_node >= 0
        self._loads: dict[IgnoredPods, tuple[Int64Array, Int64Array]] = {}
        self._protections_of: dict[int | None, tuple[int, ...]] = {}

    def get_used(self, without: IgnoredPods, headroom: Int64Array) -> Int64Array:
        """What the pods that would be left take of each node, with the larger of their headroom and `headroom`."""
        if without not in self._loads:
            self._loads[without] = compute_loads(self.problem, np.where(self._left(without), self.pod_node, -1))
        sums, largest = self._loads[without]
        return np.asarray(sums + np.maximum(largest, headroom), dtype=np.int64)

    def get_protections(self, below: int | None) -> tuple[int, ...]:
        """What protects placed pods below a priority, or (None) those that stay in every plan."""
        if below not in self._protections_of:
            of_these = self.immovable if below is None else self._placed & (self.priority < below)
            self._protections_of[below] = tuple(np.unique(self.protection[of_these & (self.protection >= 0)]).tolist())
        return self._protections_of[below]

    def preempting_helps(self, below: int) -> BoolArray:
        """Tell which nodes hold pods below a priority that no plan evicts but kube-scheduler may preempt."""
        helps = np.zeros(self.problem.node_count, dtype=np.bool_)
        helps[self.problem.pod_node[self.immovable & (self.priority < below)]] = True
        return helps

    def _left(self, without: IgnoredPods) -> BoolArray:
        dropped = np.isin(self.protection, without.protections)
        if without.movable:
            return self.immovable & ~dropped & ~(without.protected & (self.priority < without.below))
        # What is weaker could go for a pod that preempts, even where none that waits does.
        free = self.problem.movable[self.problem.pod_class] & (self.protection < 0)
        goes = (self.priority < without.below) & (free | dropped | without.protected)
        return self._placed & ~goes


def _protections(built: BuiltProblem, pod_node: Int64Array, stuck: BoolArray) -> Int64Array:
    """What keeps each pod: an exhausted limit of evictions, or the reason for which it stays."""
    problem = built.problem
    left = (problem.pod_node >= 0) & (pod_node != problem.pod_node)
    gone = np.bincount(problem.pod_class[left], minlength=problem.class_count)
    protection = np.full(problem.pod_count, _FREE, dtype=np.int64)
    for limit, obstacle in zip(problem.rules.eviction_limits, built.limit_obstacles, strict=True):
        if gone[limit.members].sum() >= limit.allowed:
            covered = np.isin(problem.pod_class, limit.members) & (problem.pod_node >= 0) & ~left
            protection[covered] = EVICTION_OBSTACLES.index(obstacle)
    most = problem.rules.max_evicted_by_node
    if most is not None:
        spent = np.bincount(problem.pod_node[left], minlength=problem.node_count) >= most
        held = (problem.pod_node >= 0) & spent[problem.pod_node] & ~left
        protection[held] = EVICTION_OBSTACLES.index(PlacementObstacle.EVICTION_LIMIT)
    for pod in np.flatnonzero(stuck).tolist():
        protection[pod] = EVICTION_OBSTACLES.index(
            _obstacle_of(built.immovable_reasons[pod] if built.immovable_reasons else None)
        )
    return protection


def _obstacle_of(stays: str | None) -> PlacementObstacle:
    detail = parse_detail_code(stays or "")
    if detail in (ReasonDetail.SEVERAL_BUDGETS, ReasonDetail.BUDGET_EXHAUSTED):
        return PlacementObstacle.DISRUPTION_BUDGET
    return (
        PlacementObstacle.EVICTION_LIMIT if detail is ReasonDetail.EVICTIONS_SPENT else PlacementObstacle.NOT_EVICTABLE
    )


class PodObstacles:
    """For a class, the nodes that each obstacle keeps its next pod from: as packed, or in any plan at all."""

    def __init__(self, built: BuiltProblem, holding: PlacedPodsByClass) -> None:
        self._built, self._holding, self._problem = built, holding, built.problem
        self._rules = build_rules_by_class(built.problem)
        self._packed = RuleCounts(built.problem, self._rules, holding.pod_node)
        self._stuck = RuleCounts(built.problem, self._rules, np.where(holding.immovable, holding.pod_node, -1))
        self._above: dict[int, RuleCounts] = {}

    def get_for_packing(self, pod_class: int, pod: Pod, fixed: ObstacleMasks) -> ObstacleMasks:
        """What keeps one more pod of the class off once the packing is in place, beside what does whatever runs."""
        found = fixed | self._too_many(pod_class, pod, self._packed)
        if not self._problem.preempt[pod_class]:
            _add(found, PlacementObstacle.PREEMPTION_POLICY, self._holding.preempted_from)
        for rule in self._packed.get_checks(pod_class):
            _add(found, self._obstacle_of(rule), ~rule.get_allowed_nodes())
        for guard in self._packed.get_guards(pod_class):
            if isinstance(guard, SpreadGuard):
                _add(found, PlacementObstacle.TOPOLOGY_SPREAD, ~guard.get_allowed_nodes())
        return found

    def get_for_any_plan(self, pod_class: int, pod: Pod, fixed: ObstacleMasks) -> ObstacleMasks:
        """What keeps every pod of the class off whatever is moved or preempted for it, beside what always does."""
        return self._beside(self._stuck, pod_class, pod, fixed)

    def once_preempted(self, pod_class: int, pod: Pod, fixed: ObstacleMasks) -> ObstacleMasks:
        """What keeps it off even where kube-scheduler preempts what stays in every plan."""
        priority = int(self._problem.priorities[pod_class])
        if priority not in self._above:
            stays = self._holding.immovable & (self._holding.priority >= priority)
            self._above[priority] = RuleCounts(self._problem, self._rules, np.where(stays, self._holding.pod_node, -1))
        return self._beside(self._above[priority], pod_class, pod, fixed)

    def _beside(self, counts: RuleCounts, pod_class: int, pod: Pod, fixed: ObstacleMasks) -> ObstacleMasks:
        found = fixed | self._too_many(pod_class, pod, counts)
        for rule in counts.get_checks(pod_class):
            if isinstance(rule, ExclusionCheck):
                _add(found, self._obstacle_of(rule), ~rule.get_allowed_nodes())
        for attraction in self._attractions_of(pod_class):
            _add(found, PlacementObstacle.AFFINITY, self._never_company(attraction))
        return found

    def is_contradictory(self, pod_class: int) -> bool:
        """Whether anti-affinity keeps the class away from all that its affinity wants it beside."""
        return self._shuns_company(pod_class, of_its_own=False)

    def repels_itself(self, pod_class: int) -> bool:
        """Whether that is so of the class's own pods too, so that the first of them is the last."""
        return self._shuns_company(pod_class, of_its_own=True)

    def _shuns_company(self, pod_class: int, *, of_its_own: bool) -> bool:
        topologies = self._problem.rules.topologies
        for attraction in self._attractions_of(pod_class):
            targets = set(attraction.targets.tolist())
            if not targets or (pod_class in targets) != of_its_own:
                continue
            for topology in attraction.topologies:
                if targets <= self._shunned(pod_class, topologies[topology]):
                    return True
        return False

    def requires_missing_pods(self, pod_class: int) -> bool:
        """Whether its affinity means pods of which there are none."""
        return any(len(attraction.targets) == 0 for attraction in self._attractions_of(pod_class))

    def _shunned(self, pod_class: int, domains: Int64Array) -> set[int]:
        """The classes of which none may be in one of these domains together with the class."""
        shunned: set[int] = set()
        if self._problem.max_on_node[pod_class] == 1 and _is_within(domains, np.arange(self._problem.node_count)):
            shunned.add(pod_class)
        for _, exclusion, others in self._rules.excluded.get(pod_class, ()):
            if _is_within(domains, self._problem.rules.topologies[exclusion.topology]):
                shunned |= set(others.tolist())
        return shunned

    def _attractions_of(self, pod_class: int) -> list[AttractionRule]:
        return [rule for _, rule in self._rules.attracted.get(pod_class, ())]

    def _too_many(self, pod_class: int, pod: Pod, counts: RuleCounts) -> ObstacleMasks:
        """The nodes with as many pods of the class as one node may hold."""
        nodes = counts.pod_node[self._rules.get_pods(np.array([pod_class], dtype=np.int64))]
        held = np.bincount(nodes[nodes >= 0], minlength=self._problem.node_count)
        alone = PlacementObstacle.ANTI_AFFINITY if pod.constraints.anti_affinity else PlacementObstacle.HOST_PORTS
        return {alone: held >= self._problem.max_on_node[pod_class]}

    def _obstacle_of(self, rule: ExclusionCheck | AttractionCheck | SpreadCheck) -> PlacementObstacle:
        match rule:
            case ExclusionCheck():
                return self._built.exclusion_obstacles[rule.index]
            case AttractionCheck():
                return PlacementObstacle.AFFINITY
            case SpreadCheck():
                return PlacementObstacle.TOPOLOGY_SPREAD

    def _never_company(self, attraction: AttractionRule) -> BoolArray:
        """Where none of the targets can ever be: none stays there, and none may arrive there."""
        problem = self._problem
        targets = attraction.targets.tolist()
        never = np.zeros(problem.node_count, dtype=np.bool_)
        runs = problem.pod_node[self._rules.get_pods(attraction.targets)]
        reachable = np.zeros(problem.node_count, dtype=np.bool_)
        reachable[runs[runs >= 0]] = True
        for target in targets:
            reachable = reachable | problem.allowed_nodes[problem.node_mask_of_class[target]]
        for topology in attraction.topologies:
            domains = problem.rules.topologies[topology]
            possible = np.unique(domains[reachable & (domains >= 0)])
            never |= ~np.isin(domains, possible)
        if self.is_contradictory(attraction.holder):
            never[:] = True
        return never


def _add(found: ObstacleMasks, obstacle: PlacementObstacle, mask: BoolArray) -> None:
    found[obstacle] = found[obstacle] | mask if obstacle in found else mask


def _is_within(finer: Int64Array, coarser: Int64Array) -> bool:
    """Whether nodes of one domain of the first topology always share one of the second."""
    pairs = {(fine, coarse) for fine, coarse in zip(finer.tolist(), coarser.tolist(), strict=True) if fine >= 0}
    fines = [fine for fine, _ in pairs]
    return len(set(fines)) == len(fines) and all(coarse >= 0 for _, coarse in pairs)


# The smallest set of obstacles without which some node would take a pod.


class RelaxedObstacles(NamedTuple):
    """The nodes that have room once some obstacles are dropped."""

    nodes: BoolArray
    dropped: frozenset[str]


class ObstacleSet(NamedTuple):
    """Obstacles that together keep a pod from every node, and the nodes that would take it without them."""

    obstacles: tuple[str, ...]
    nodes: BoolArray


def find_smallest_obstacle_set(
    node_count: int, masks: Mapping[str, BoolArray], ways: Iterable[RelaxedObstacles]
) -> ObstacleSet:
    """Choose the smallest set, of equally small ones the one of the lowest ranks.

    `masks` has for each obstacle the nodes that it closes by itself; `ways` tells what room on a node costs.
    """
    bits: dict[str, int] = {}
    closed = np.zeros(node_count, dtype=np.int64)
    for obstacle, mask in masks.items():
        closed[mask] |= 1 << bits.setdefault(obstacle, len(bits))
    best: tuple[tuple[int, list[int]], int] | None = None
    found: list[tuple[BoolArray, int]] = []
    for way in ways:
        dropped = sum(1 << bits.setdefault(obstacle, len(bits)) for obstacle in way.dropped)
        found.append((way.nodes, dropped))
        for code in np.unique(closed[way.nodes] | dropped).tolist():
            ranks = sorted(get_obstacle_rank(obstacle) for obstacle, bit in bits.items() if code >> bit & 1)
            if best is None or (len(ranks), ranks) < best[0]:
                best = (len(ranks), ranks), code
    if best is None:
        return ObstacleSet((), np.zeros(node_count, dtype=np.bool_))
    nodes = np.zeros(node_count, dtype=np.bool_)
    for where, dropped in found:
        nodes |= where & ((closed | dropped) == best[1])
    names = sorted(
        (obstacle for obstacle, bit in bits.items() if best[1] >> bit & 1),
        key=lambda one: (get_obstacle_rank(one), one),
    )
    return ObstacleSet(tuple(names), nodes)


# Whether nodes have room for one more pod, and what would have to give where they have not.

NO_PODS = IgnoredPods()


class CapacityObstacles:
    """What nodes lack for one more pod of a class."""

    def __init__(self, holding: PlacedPodsByClass, pod_class: int) -> None:
        self._holding, self._problem = holding, holding.problem
        self._demand = self._problem.demands[pod_class]
        self._headroom = self._problem.headroom[pod_class]
        self._preempts = bool(self._problem.preempt[pod_class])
        self._priority = int(self._problem.priorities[pod_class])

    def get_missing(self, without: IgnoredPods = NO_PODS) -> Int64Array:
        """How much of each resource each node is short of, beside those pods that are left."""
        short = self._holding.get_used(without, self._headroom) + self._demand - self._problem.capacities
        takes = (self._demand > 0) | (self._headroom > 0)
        return np.where(takes, np.maximum(short, 0), 0)

    def get_missing_on_empty_node(self) -> Int64Array:
        """How much each node is short of with nothing else on it."""
        short = self._demand + self._headroom - self._problem.capacities
        return np.asarray(np.maximum(short, 0), dtype=np.int64)

    def get_blocking_pods(self, nodes: BoolArray) -> BlockingPods:
        """Tell of which priorities those nodes are full, if that is what keeps the pod out."""
        if not self._fits(IgnoredPods(self._priority + 1, protected=True))[nodes].any():
            return BlockingPods.HIGHER
        lower_gone = self._fits(IgnoredPods(self._priority, protected=True))
        return BlockingPods.ANY if lower_gone[nodes].any() else BlockingPods.EQUAL_OR_HIGHER

    def get_alternatives(self) -> Iterator[RelaxedObstacles]:
        """What to drop for room beside the placed pods: what is short, or what protects lower priorities."""
        yield from self._by_resource(self.get_missing())
        polite: tuple[str, ...] = () if self._preempts else (PlacementObstacle.PREEMPTION_POLICY,)
        for dropped in _subsets(self._holding.get_protections(self._priority)):
            names = (*polite, *(EVICTION_OBSTACLES[index] for index in dropped))
            if names:
                yield RelaxedObstacles(self._fits(IgnoredPods(self._priority, dropped)), frozenset(names))

    def get_alternatives_in_any_plan(self) -> Iterator[RelaxedObstacles]:
        """What to drop for room beside those that stay in every plan."""
        yield from self._by_resource(self.get_missing(IgnoredPods(movable=True)))
        for dropped in _subsets(self._holding.get_protections(None)):
            if dropped:
                names = frozenset[str](EVICTION_OBSTACLES[index] for index in dropped)
                yield RelaxedObstacles(self._fits(IgnoredPods(protections=dropped, movable=True)), names)

    def once_preempted(self) -> BoolArray:
        """Tell of each node whether it has room once kube-scheduler has preempted what stays there in every plan."""
        if not self._preempts:
            return np.zeros(self._problem.node_count, dtype=np.bool_)
        helps = self._holding.preempting_helps(self._priority)
        return helps & self._fits(IgnoredPods(self._priority, protected=True, movable=True)) if helps.any() else helps

    def _fits(self, without: IgnoredPods) -> BoolArray:
        return np.asarray(~self.get_missing(without).any(axis=1), dtype=np.bool_)

    def _by_resource(self, lacking: Int64Array) -> Iterator[RelaxedObstacles]:
        """For nodes that lack the same resources, these."""
        codes = (lacking > 0) @ (1 << np.arange(lacking.shape[1]))
        for code in np.unique(codes).tolist():
            names = [get_resource_obstacle(name) for r, name in enumerate(self._problem.resources) if code >> r & 1]
            yield RelaxedObstacles(np.asarray(codes == code, dtype=np.bool_), frozenset(names))


def _subsets(protections: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for size in range(len(protections) + 1):
        yield from combinations(protections, size)
