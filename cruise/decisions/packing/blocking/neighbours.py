"""What keeps a pod from nodes for the sake of other pods: those there, those missing, and how evenly they spread."""

import numpy as np

from cruise.decisions.packing.blocking.holding import Holding
from cruise.decisions.packing.building import Built
from cruise.decisions.packing.building.fixed import Masks
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Pod
from cruise.packer.problem import Attraction
from cruise.packer.rules.by_class import rules_by_class
from cruise.packer.rules.counts import Apart, Company, Counts, Even, StaysEven


class NeighbourObstacles:
    """For a class, the nodes that each obstacle keeps its next pod from: as packed, or in any plan at all."""

    def __init__(self, built: Built, holding: Holding) -> None:
        self._built, self._holding, self._problem = built, holding, built.problem
        self._rules = rules_by_class(built.problem)
        self._packed = Counts(built.problem, self._rules, holding.pod_node)
        self._stuck = Counts(built.problem, self._rules, np.where(holding.stuck, holding.pod_node, -1))
        self._above: dict[int, Counts] = {}

    def as_packed(self, pod_class: int, pod: Pod, fixed: Masks) -> Masks:
        """What keeps one more pod of the class off once the packing is in place, beside what does whatever runs."""
        found = fixed | self._too_many(pod_class, pod, self._packed)
        if not self._problem.preempt[pod_class]:
            _add(found, Obstacle.PREEMPTION_POLICY, self._holding.preempted_from)
        for rule in self._packed.filters(pod_class):
            _add(found, self._obstacle_of(rule), ~rule.open_nodes())
        for guard in self._packed.guards(pod_class):
            if isinstance(guard, StaysEven):
                _add(found, Obstacle.TOPOLOGY_SPREAD, ~guard.open_nodes())
        return found

    def in_any_plan(self, pod_class: int, pod: Pod, fixed: Masks) -> Masks:
        """What keeps every pod of the class off whatever is moved or preempted for it, beside what always does."""
        return self._beside(self._stuck, pod_class, pod, fixed)

    def once_preempted(self, pod_class: int, pod: Pod, fixed: Masks) -> Masks:
        """What keeps it off even where kube-scheduler preempts what stays in every plan."""
        priority = int(self._problem.priorities[pod_class])
        if priority not in self._above:
            stays = self._holding.stuck & (self._holding.priority >= priority)
            self._above[priority] = Counts(self._problem, self._rules, np.where(stays, self._holding.pod_node, -1))
        return self._beside(self._above[priority], pod_class, pod, fixed)

    def _beside(self, counts: Counts, pod_class: int, pod: Pod, fixed: Masks) -> Masks:
        found = fixed | self._too_many(pod_class, pod, counts)
        for rule in counts.filters(pod_class):
            if isinstance(rule, Apart):
                _add(found, self._obstacle_of(rule), ~rule.open_nodes())
        for attraction in self._attractions_of(pod_class):
            _add(found, Obstacle.AFFINITY, self._never_company(attraction))
        return found

    def contradicts_itself(self, pod_class: int) -> bool:
        """Whether anti-affinity keeps the class away from all that its affinity wants it beside."""
        return self._shuns_company(pod_class, of_its_own=False)

    def shuns_its_own(self, pod_class: int) -> bool:
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

    def wants_pods_that_are_nowhere(self, pod_class: int) -> bool:
        """Whether its affinity means pods of which there are none."""
        return any(len(attraction.targets) == 0 for attraction in self._attractions_of(pod_class))

    def _shunned(self, pod_class: int, domains: Int64Array) -> set[int]:
        """The classes of which none may be in one of these domains together with the class."""
        shunned: set[int] = set()
        if self._problem.most_on_node[pod_class] == 1 and _is_within(domains, np.arange(self._problem.node_count)):
            shunned.add(pod_class)
        for _, exclusion, others in self._rules.excluded.get(pod_class, ()):
            if _is_within(domains, self._problem.rules.topologies[exclusion.topology]):
                shunned |= set(others.tolist())
        return shunned

    def _attractions_of(self, pod_class: int) -> list[Attraction]:
        return [rule for _, rule in self._rules.attracted.get(pod_class, ())]

    def _too_many(self, pod_class: int, pod: Pod, counts: Counts) -> Masks:
        """The nodes with as many pods of the class as one node may hold."""
        nodes = counts.pod_node[self._rules.pods_of(np.array([pod_class], dtype=np.int64))]
        held = np.bincount(nodes[nodes >= 0], minlength=self._problem.node_count)
        alone = Obstacle.ANTI_AFFINITY if pod.constraints.anti_affinity else Obstacle.HOST_PORTS
        return {alone: held >= self._problem.most_on_node[pod_class]}

    def _obstacle_of(self, rule: Apart | Company | Even) -> Obstacle:
        match rule:
            case Apart():
                return self._built.exclusion_obstacles[rule.index]
            case Company():
                return Obstacle.AFFINITY
            case Even():
                return Obstacle.TOPOLOGY_SPREAD

    def _never_company(self, attraction: Attraction) -> BoolArray:
        """Where none of the targets can ever be: none stays there, and none may arrive there."""
        problem = self._problem
        targets = attraction.targets.tolist()
        never = np.zeros(problem.node_count, dtype=np.bool_)
        runs = problem.pod_node[self._rules.pods_of(attraction.targets)]
        reachable = np.zeros(problem.node_count, dtype=np.bool_)
        reachable[runs[runs >= 0]] = True
        for target in targets:
            reachable = reachable | problem.admits[problem.sites[target]]
        for topology in attraction.topologies:
            domains = problem.rules.topologies[topology]
            possible = np.unique(domains[reachable & (domains >= 0)])
            never |= ~np.isin(domains, possible)
        if self.contradicts_itself(attraction.holder):
            never[:] = True
        return never


def _add(found: Masks, obstacle: Obstacle, mask: BoolArray) -> None:
    found[obstacle] = found[obstacle] | mask if obstacle in found else mask


def _is_within(finer: Int64Array, coarser: Int64Array) -> bool:
    """Whether nodes of one domain of the first topology always share one of the second."""
    pairs = {(fine, coarse) for fine, coarse in zip(finer.tolist(), coarser.tolist(), strict=True) if fine >= 0}
    fines = [fine for fine, _ in pairs]
    return len(set(fines)) == len(fines) and all(coarse >= 0 for _, coarse in pairs)
