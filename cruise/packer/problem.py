"""Defines a packing problem: pods in classes, nodes, and the rules that a plan obeys."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class PackingObjective(StrEnum):
    """What makes a packing better, compared entry by entry.

    PAPER: for each priority, highest first, more pods placed, then more pods that stay on their node. OPERATOR: for
    each priority more pods placed; then the least eviction weight, moves included. CONSOLIDATION: for each priority
    more pods placed; then the least price of the nodes in use; then as OPERATOR.
    """

    PAPER = "paper"
    OPERATOR = "operator"
    CONSOLIDATION = "consolidation"


@dataclass(frozen=True, slots=True, eq=False)
class ExclusionRule:
    """No pod of class `holder` shares a domain with a pod of the `targets`, whichever arrives first.

    A class among its own targets has at most one pod in a domain. Only arriving pods must obey it: running pods may
    stay together. Anti-affinity and host ports are expressed like this.
    """

    topology: int
    holder: int
    targets: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class AttractionRule:
    """A pod of class `holder` arrives only where another of the `targets` is in its domain of each topology.

    A holder among its own targets may be the first of them, on a node with every label, if no target is in any domain.
    The rule holds on arrival and in the end, because kube-scheduler chooses the order in which pods arrive together.
    """

    topologies: tuple[int, ...]
    holder: int
    targets: IntArray

    @property
    def allows_first_pod(self) -> bool:
        """Return whether a holder may arrive without any target, as the first of them."""
        return self.holder in self.targets.tolist()


@dataclass(frozen=True, slots=True, eq=False)
class SpreadRule:
    """A pod of class `holder` arrives only in a domain with at most `max_skew` targets more than the minimum.

    The minimum is over the domains of `eligible[node]`, 0 if there are fewer than `min_domains`; only targets on
    eligible nodes count.
    """

    topology: int
    holder: int
    targets: IntArray
    max_skew: int
    min_domains: int
    eligible: BoolArray

    @property
    def counts_itself(self) -> bool:
        """Return whether a holder is one of the targets."""
        return self.holder in self.targets.tolist()


@dataclass(frozen=True, slots=True, eq=False)
class EvictionLimit:
    """A plan evicts at most `allowed` running pods of the `members`; `name` is for people."""

    name: str
    members: IntArray
    allowed: int


@dataclass(frozen=True, slots=True, eq=False)
class NodePrices:
    """The price of each node, which counts while a pod is on it whose class keeps nodes in use."""

    prices: IntArray
    keeps_node_in_use: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class PlacementRules:
    """The rules between pods; `topologies[topology, node]` is the node's domain, -1 without the label.

    A plan evicts at most `max_evicted_by_node[node]` pods of a node; None for any number.
    """

    topologies: IntArray
    exclusions: tuple[ExclusionRule, ...] = ()
    attractions: tuple[AttractionRule, ...] = ()
    spreads: tuple[SpreadRule, ...] = ()
    eviction_limits: tuple[EvictionLimit, ...] = ()
    max_evicted_by_node: IntArray | None = None

    @property
    def are_binding(self) -> bool:
        """Return whether there is any rule between pods or limit of evictions."""
        between_pods = self.exclusions or self.attractions or self.spreads or self.eviction_limits
        return bool(between_pods) or self.max_evicted_by_node is not None


@dataclass(frozen=True, slots=True, eq=False)
class PackingProblem:
    """All pods and nodes of a cluster, or of a part of it.

    Capacities and demands are in the whole unit of each resource; a pod needs one of resource `pods`, or nothing if it
    is nominated. On a node the `demands` of its pods add up, and the largest `headroom` counts once (all zero for fixed
    sizes); an overcommitted node takes nothing more of the resource that is short.

    `allowed_nodes[node_mask_of_class[class], node]` is whether a class may arrive, `max_on_node[class]` how many of
    its pods a node holds. Running pods that are not `movable` stay; those that are not `preemptible` may move, but are
    placed in every plan. A class that does not `preempt` does not arrive on a node from which a pod is preempted.
    `weights[class]` is the cost of an eviction. `pod_node[pod]` is -1 for a pending pod. `node_prices` is set for
    objective CONSOLIDATION.
    """

    resources: tuple[str, ...]
    capacities: IntArray
    demands: IntArray
    headroom: IntArray
    priorities: IntArray
    movable: BoolArray
    preemptible: BoolArray
    preempt: BoolArray
    weights: IntArray
    max_on_node: IntArray
    node_mask_of_class: IntArray
    allowed_nodes: BoolArray
    pod_class: IntArray
    pod_node: IntArray
    rules: PlacementRules
    objective: PackingObjective = PackingObjective.PAPER
    node_prices: NodePrices | None = None

    @property
    def class_count(self) -> int:
        """Return the number of classes."""
        return int(self.demands.shape[0])

    @property
    def node_count(self) -> int:
        """Return the number of nodes."""
        return int(self.capacities.shape[0])

    @property
    def pod_count(self) -> int:
        """Return the number of pods."""
        return int(self.pod_class.shape[0])


def find_nodes_in_use(problem: PackingProblem, pod_node: IntArray) -> BoolArray:
    """Return the nodes that an assignment keeps in use, in a problem with node prices."""
    assert problem.node_prices is not None
    used = np.zeros(problem.node_count, dtype=np.bool_)
    used[pod_node[(pod_node >= 0) & problem.node_prices.keeps_node_in_use[problem.pod_class]]] = True
    return used


def compute_price(problem: PackingProblem, pod_node: IntArray) -> int:
    """Return the price of the nodes that an assignment keeps in use; 0 without node prices."""
    return (
        0
        if problem.node_prices is None
        else int(problem.node_prices.prices[find_nodes_in_use(problem, pod_node)].sum())
    )


def count_copies(problem: PackingProblem, pod_node: IntArray) -> IntArray:
    """Return an array [class, node] of the pods that an assignment places."""
    assignment = np.zeros((problem.class_count, problem.node_count), dtype=np.int64)
    placed = pod_node >= 0
    np.add.at(assignment, (problem.pod_class[placed], pod_node[placed]), 1)
    return assignment


def compute_loads(problem: PackingProblem, pod_node: IntArray) -> tuple[IntArray, IntArray]:
    """Return for each node and resource the sum of demands and the largest headroom."""
    placed = pod_node >= 0
    nodes, classes = pod_node[placed], problem.pod_class[placed]
    sums, largest = np.zeros_like(problem.capacities), np.zeros_like(problem.capacities)
    for r in range(problem.capacities.shape[1]):
        np.add.at(sums[:, r], nodes, problem.demands[classes, r])
        if problem.headroom[:, r].any():
            np.maximum.at(largest[:, r], nodes, problem.headroom[classes, r])
    return sums, largest
