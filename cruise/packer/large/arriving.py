"""Where one more pod of a class may arrive, on a numpy board of the whole cluster."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.instance import BoolArray, FloatArray, IntArray
from cruise.packer.large.census import Census
from cruise.packer.large.obeying import loads_of, spread_counts
from cruise.packer.problem import Attraction, Problem, Spread


@dataclass(slots=True, eq=False)
class Room:
    """An assignment in the making: `sums` and `largest` are the demands and headroom on each node, kept in step."""

    problem: Problem
    census: Census
    pod_node: IntArray
    sums: IntArray
    largest: IntArray
    # A node where something was preempted takes only pods that preempt.
    preempted: BoolArray
    shares: FloatArray

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
        problem, census = self.problem, self.census
        open_nodes: BoolArray = problem.admits[problem.sites[c]].copy()
        if not problem.preempt[c]:
            open_nodes &= ~self.preempted
        siblings = census.pods_of(np.array([c], dtype=np.int64))
        if problem.most_on_node[c] <= len(siblings):
            there = self.pod_node[siblings]
            held = np.bincount(there[there >= 0], minlength=problem.node_count)
            open_nodes &= held < problem.most_on_node[c]
        for topology, others in census.excluded.get(c, ()):
            open_nodes &= ~self._occupied(topology, others)
        for attraction in census.attracted.get(c, ()):
            open_nodes &= self._supported(attraction)
        for attraction in census.attracting.get(c, ()):
            # Its first holder came while there was no target: another one elsewhere would have kept it away.
            if self._arrived(attraction.holder).any():
                open_nodes &= self._supported(attraction)
        for spread in census.spread.get(c, ()):
            open_nodes &= self._within(spread, held=True)
        for spread in census.counted.get(c, ()):
            open_nodes &= self._within(spread, held=False)
        return open_nodes

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
        self.pod_node[pod] = node
        self.sums[node] += self.problem.demands[c]
        np.maximum(self.largest[node], self.problem.headroom[c], out=self.largest[node])

    def take(self, pod: int) -> None:
        """A pod leaves its node."""
        node = int(self.pod_node[pod])
        self.pod_node[pod] = -1
        self.sums[node] -= self.problem.demands[self.problem.pod_class[pod]]
        stay = self.problem.pod_class[self.pod_node == node]
        self.largest[node] = self.problem.headroom[stay].max(axis=0, initial=0)

    def _occupied(self, topology: int, classes: IntArray) -> BoolArray:
        domains = self.problem.rules.topologies[topology]
        pods = self.census.pods_of(classes)
        nodes = self.pod_node[pods]
        return np.isin(domains, np.setdiff1d(domains[nodes[nodes >= 0]], [-1]))

    def _arrived(self, c: int) -> IntArray:
        """The nodes where pods of the class arrived."""
        pods = self.census.pods_of(np.array([c], dtype=np.int64))
        nodes = self.pod_node[pods]
        came: IntArray = nodes[(nodes >= 0) & (nodes != self.problem.pod_node[pods])]
        return came

    def _supported(self, rule: Attraction) -> BoolArray:
        topologies = self.problem.rules.topologies[list(rule.topologies)]
        targets = self.census.pods_of(rule.targets)
        nodes = self.pod_node[targets]
        nodes = nodes[nodes >= 0]
        labelled: BoolArray = np.all(topologies >= 0, axis=0)
        if (topologies[:, nodes] < 0).all():
            first = rule.holder in rule.targets.tolist()
            return labelled if first else np.zeros_like(labelled)
        for domains in topologies:
            labelled = labelled & np.isin(domains, domains[nodes])
        return labelled

    def _within(self, rule: Spread, held: bool) -> BoolArray:
        """The nodes where one more keeps the spread; for a class that only counts, the others' arrivals as well."""
        domains = self.problem.rules.topologies[rule.topology]
        counts, least = spread_counts(domains, rule, self.pod_node, self.census)
        labelled = domains >= 0
        level = np.where(labelled, counts[domains], 0)
        if held:
            after = level + (rule.holder in rule.targets.tolist())
            open_nodes: BoolArray = labelled & (after - least <= rule.max_skew)
            return open_nodes
        bound = labelled & np.isin(domains, domains[self._arrived(rule.holder)]) & rule.eligible
        free: BoolArray = ~bound | (level + 1 - least <= rule.max_skew)
        return free


def room_of(problem: Problem, census: Census, pod_node: IntArray) -> Room:
    """The board of an assignment."""
    sums, largest = loads_of(problem, pod_node)
    preempted = np.zeros(problem.node_count, dtype=np.bool_)
    preempted[problem.pod_node[(problem.pod_node >= 0) & (pod_node < 0)]] = True
    shares = 1.0 / np.maximum(problem.capacities.sum(axis=0), 1).astype(np.float64)
    return Room(problem, census, pod_node.copy(), sums, largest, preempted, shares)
