"""What keeps a pod from nodes for the sake of other pods: those there, those missing, and how evenly they spread."""

import numpy as np

from cruise.decisions.packing.blocking.holding import Holding
from cruise.decisions.packing.building import Built
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Pod
from cruise.packer.problem import Attraction, Exclusion, Spread

Masks = dict[Obstacle, BoolArray]


class NeighbourObstacles:
    """For a class, the nodes that each obstacle keeps its next pod from: as packed, or in any plan at all."""

    def __init__(self, built: Built, holding: Holding) -> None:
        self._built, self._holding, self._problem = built, holding, built.problem
        rules = built.problem.rules
        self._exclusions: dict[int, list[int]] = {}
        for index, exclusion in enumerate(rules.exclusions):
            for pod_class in {exclusion.holder, *exclusion.targets.tolist()}:
                self._exclusions.setdefault(pod_class, []).append(index)
        self._attractions: dict[int, list[Attraction]] = {}
        for attraction in rules.attractions:
            self._attractions.setdefault(attraction.holder, []).append(attraction)
        self._spreads: dict[int, list[Spread]] = {}
        for spread in rules.spreads:
            self._spreads.setdefault(spread.holder, []).append(spread)

    def as_packed(self, pod_class: int, pod: Pod) -> Masks:
        """What keeps one more pod of the class off once the packing is in place."""
        found = self._apart(pod_class, pod, stuck_only=False)
        if not self._problem.preempt[pod_class]:
            _add(found, Obstacle.PREEMPTION_POLICY, self._holding.preempted_from)
        for attraction in self._attractions.get(pod_class, ()):
            _add(found, Obstacle.AFFINITY, self._without_company(attraction))
        for spread in self._spreads.get(pod_class, ()):
            _add(found, Obstacle.TOPOLOGY_SPREAD, self._uneven(spread))
        for spread in self._problem.rules.spreads:
            if spread.holder != pod_class and pod_class in spread.targets.tolist():
                _add(found, Obstacle.TOPOLOGY_SPREAD, self._upset(spread))
        return found

    def in_any_plan(self, pod_class: int, pod: Pod) -> Masks:
        """What keeps every pod of the class off whatever is moved or preempted for it."""
        found = self._apart(pod_class, pod, stuck_only=True)
        for attraction in self._attractions.get(pod_class, ()):
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
        for attraction in self._attractions.get(pod_class, ()):
            targets = set(attraction.targets.tolist())
            if not targets or (pod_class in targets) != of_its_own:
                continue
            for topology in attraction.topologies:
                if targets <= self._shunned(pod_class, topologies[topology]):
                    return True
        return False

    def wants_nobody_there(self, pod_class: int) -> bool:
        """Whether its affinity means pods of which there are none."""
        return any(len(attraction.targets) == 0 for attraction in self._attractions.get(pod_class, ()))

    def _shunned(self, pod_class: int, domains: Int64Array) -> set[int]:
        """The classes of which none may be in one of these domains together with the class."""
        shunned: set[int] = set()
        if self._problem.most_on_node[pod_class] == 1 and _is_within(domains, np.arange(self._problem.node_count)):
            shunned.add(pod_class)
        for exclusion in self._exclusions_of(pod_class):
            apart = self._problem.rules.topologies[exclusion.topology]
            if _is_within(domains, apart):
                shunned |= set(exclusion.targets.tolist()) if exclusion.holder == pod_class else {exclusion.holder}
        return shunned

    def _exclusions_of(self, pod_class: int) -> list[Exclusion]:
        return [self._problem.rules.exclusions[index] for index in self._exclusions.get(pod_class, ())]

    def _apart(self, pod_class: int, pod: Pod, *, stuck_only: bool) -> Masks:
        problem, found = self._problem, dict[Obstacle, BoolArray]()
        nodes = self._holding.nodes_of([pod_class], stuck_only=stuck_only)
        full = np.bincount(nodes, minlength=problem.node_count) >= problem.most_on_node[pod_class]
        alone = Obstacle.ANTI_AFFINITY if pod.constraints.anti_affinity else Obstacle.HOST_PORTS
        _add(found, alone, full)
        for index in self._exclusions.get(pod_class, ()):
            exclusion = problem.rules.exclusions[index]
            domains = problem.rules.topologies[exclusion.topology]
            others = set[int]()
            if exclusion.holder == pod_class:
                others |= set(exclusion.targets.tolist())
            if pod_class in exclusion.targets.tolist():
                others.add(exclusion.holder)
            met = _domains_with(domains, self._holding.nodes_of(sorted(others), stuck_only=stuck_only))
            _add(found, self._obstacle_of(index), np.isin(domains, met))
        return found

    def _obstacle_of(self, exclusion: int) -> Obstacle:
        known = self._built.exclusion_obstacles
        return known[exclusion] if known else Obstacle.ANTI_AFFINITY

    def _without_company(self, attraction: Attraction) -> BoolArray:
        nodes = self._holding.nodes_of(attraction.targets.tolist())
        lonely = np.zeros(self._problem.node_count, dtype=np.bool_)
        # Who is in no domain of any topology does not keep another from being the first.
        counted = (self._problem.rules.topologies[list(attraction.topologies)] >= 0).sum(axis=0) > 0
        first = attraction.holder in attraction.targets.tolist() and not counted[nodes].any()
        for topology in attraction.topologies:
            domains = self._problem.rules.topologies[topology]
            lonely |= domains < 0 if first else ~np.isin(domains, _domains_with(domains, nodes))
        return lonely

    def _never_company(self, attraction: Attraction) -> BoolArray:
        """Where none of the targets can ever be: none stays there, and none may arrive there."""
        problem = self._problem
        targets = attraction.targets.tolist()
        never = np.zeros(problem.node_count, dtype=np.bool_)
        reachable = self._holding.runs_on(targets)
        for target in targets:
            if target == attraction.holder or len(self._holding.members(target)):
                reachable = reachable | problem.admits[problem.sites[target]]
        for topology in attraction.topologies:
            domains = problem.rules.topologies[topology]
            possible = np.unique(domains[reachable & (domains >= 0)])
            never |= ~np.isin(domains, possible)
        if self.contradicts_itself(attraction.holder):
            never[:] = True
        return never

    def _uneven(self, spread: Spread) -> BoolArray:
        """Where the holder itself would be one too many."""
        domains, above = self._above_the_least(spread)
        itself = int(spread.holder in spread.targets.tolist())
        return np.asarray((domains < 0) | (above[domains] + itself > spread.max_skew), dtype=np.bool_)

    def _upset(self, spread: Spread) -> BoolArray:
        """Where one more target would be too many for holders that arrive."""
        domains, above = self._above_the_least(spread)
        arriving = np.isin(domains, _domains_with(domains, self._holding.arrivals_of(spread.holder)))
        return np.asarray(arriving & spread.eligible & (above[domains] + 1 > spread.max_skew), dtype=np.bool_)

    def _above_the_least(self, spread: Spread) -> tuple[Int64Array, Int64Array]:
        """The domains, and how many more targets than the least each of them has."""
        domains = self._problem.rules.topologies[spread.topology]
        nodes = self._holding.nodes_of(spread.targets.tolist())
        nodes = nodes[spread.eligible[nodes] & (domains[nodes] >= 0)]
        counts = np.bincount(domains[nodes], minlength=int(domains.max(initial=0)) + 1)
        counted = np.unique(domains[spread.eligible & (domains >= 0)])
        least = 0 if len(counted) == 0 or len(counted) < spread.min_domains else int(counts[counted].min())
        return domains, counts - least


def _add(found: Masks, obstacle: Obstacle, mask: BoolArray) -> None:
    found[obstacle] = found[obstacle] | mask if obstacle in found else mask


def _domains_with(domains: Int64Array, nodes: Int64Array) -> Int64Array:
    there = domains[nodes]
    return np.unique(there[there >= 0])


def _is_within(finer: Int64Array, coarser: Int64Array) -> bool:
    """Whether nodes of one domain of the first topology always share one of the second."""
    pairs = {(fine, coarse) for fine, coarse in zip(finer.tolist(), coarser.tolist(), strict=True) if fine >= 0}
    fines = [fine for fine, _ in pairs]
    return len(set(fines)) == len(fines) and all(coarse >= 0 for _, coarse in pairs)
