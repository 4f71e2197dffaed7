"""A cluster as the packer sees it: pods in classes of equal ones, nodes, and every rule that a plan obeys."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

# The arrays of the packer: whole numbers, floating point numbers, truth values.

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class PackingObjective(StrEnum):
    """What is better, compared entry by entry.

    PAPER: for each priority from the highest, more pods placed, then more left where they are. OPERATOR: for each
    priority from the highest, more pods placed; then the least weight of evictions, moves included. FLEET: for each
    priority from the highest, more pods placed; then the least price of the nodes in use; then as OPERATOR.
    """

    PAPER = "paper"
    OPERATOR = "operator"
    FLEET = "fleet"


@dataclass(frozen=True, slots=True, eq=False)
class ExclusionRule:
    """No pod of class `holder` and pod of one of the `targets` share a domain of a topology, whichever came first.

    A class among its own targets has at most one pod in a domain. Only a pod that arrives is held to it: what runs
    together already may stay together. Anti-affinity between pods and host ports become this.
    """

    topology: int
    holder: int
    targets: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class AttractionRule:
    """A pod of class `holder` arrives only where each of the `topologies` has another of the `targets` in its domain.

    A holder among its own targets may be the first of them, where it has every label and no other target is in a
    domain of any of the topologies. Both hold when the pod arrives and once everything is in place: kube-scheduler
    chooses the order in which pods arrive together.
    """

    topologies: tuple[int, ...]
    holder: int
    targets: IntArray

    @property
    def allows_first_pod(self) -> bool:
        """Whether a holder may come where none of the targets is, as the first of them."""
        return self.holder in self.targets.tolist()


@dataclass(frozen=True, slots=True, eq=False)
class SpreadRule:
    """A pod of class `holder` arrives in a domain only if this then has at most `max_skew` targets more than the least.

    The least is over the domains of the `eligible[node]` nodes, 0 where there are fewer than `min_domains`; targets
    count on eligible nodes alone.
    """

    topology: int
    holder: int
    targets: IntArray
    max_skew: int
    min_domains: int
    eligible: BoolArray

    @property
    def counts_itself(self) -> bool:
        """Whether a holder is one of the targets."""
        return self.holder in self.targets.tolist()


@dataclass(frozen=True, slots=True, eq=False)
class EvictionLimit:
    """At most `allowed` running pods of the `members` are evicted by a whole plan; `name` is for people."""

    name: str
    members: IntArray
    allowed: int


@dataclass(frozen=True, slots=True, eq=False)
class NodePrices:
    """What nodes cost: `prices[node]` for as long as a pod is there whose class `occupies` it."""

    prices: IntArray
    keeps_node_in_use: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class PlacementRules:
    """The rules between pods. `topologies[topology, node]` is the node's domain, -1 where it lacks the label.

    Of the pods that run on a node at most `most_evicted[node]` are evicted by a whole plan, None for any number.
    """

    topologies: IntArray
    exclusions: tuple[ExclusionRule, ...] = ()
    attractions: tuple[AttractionRule, ...] = ()
    spreads: tuple[SpreadRule, ...] = ()
    eviction_limits: tuple[EvictionLimit, ...] = ()
    max_evicted_by_node: IntArray | None = None

    @property
    def are_binding(self) -> bool:
        """Tell whether some pods are not free of each other."""
        between_pods = self.exclusions or self.attractions or self.spreads or self.eviction_limits
        return bool(between_pods) or self.max_evicted_by_node is not None


@dataclass(frozen=True, slots=True, eq=False)
class PackingProblem:
    """All pods and nodes of a cluster, or of a part of it.

    Nodes and resources are in each resource's own whole unit; a pod takes one of resource `pods`, or
    nothing where a node keeps room for it. On a node
    `demands` of its pods sum up, and the largest `headroom` among them is kept once (all zero where sizes are fixed);
    a node over its capacity already takes nothing more of what is short. `admits[sites[class], node]` tells where a
    class may arrive, `most_on_node[class]` how many of it one node holds. Running pods of a class that is not `movable`
    stay; of one that is not `preemptible` they may move, and are placed in every plan. Where something is preempted
    from a node, no pod of a class arrives there that does not `preempt`. `weights[class]` is what one eviction
    costs. `pod_node[pod]` is -1 while pending. `fleet` is there where the objective is FLEET.
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
        """How many classes there are."""
        return int(self.demands.shape[0])

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return int(self.capacities.shape[0])

    @property
    def pod_count(self) -> int:
        """How many pods there are."""
        return int(self.pod_class.shape[0])


def find_nodes_in_use(problem: PackingProblem, pod_node: IntArray) -> BoolArray:
    """The nodes that an assignment occupies; of a problem with a fleet."""
    assert problem.node_prices is not None
    used = np.zeros(problem.node_count, dtype=np.bool_)
    used[pod_node[(pod_node >= 0) & problem.node_prices.keeps_node_in_use[problem.pod_class]]] = True
    return used


def compute_price(problem: PackingProblem, pod_node: IntArray) -> int:
    """What the nodes that an assignment occupies cost; 0 without a fleet."""
    return (
        0
        if problem.node_prices is None
        else int(problem.node_prices.prices[find_nodes_in_use(problem, pod_node)].sum())
    )


def count_copies(problem: PackingProblem, pod_node: IntArray) -> IntArray:
    """How many copies of each class an assignment of pods puts on each node."""
    assignment = np.zeros((problem.class_count, problem.node_count), dtype=np.int64)
    placed = pod_node >= 0
    np.add.at(assignment, (problem.pod_class[placed], pod_node[placed]), 1)
    return assignment


def compute_loads(problem: PackingProblem, pod_node: IntArray) -> tuple[IntArray, IntArray]:
    """For each node and resource the sum of demands there, and the largest headroom."""
    placed = pod_node >= 0
    nodes, classes = pod_node[placed], problem.pod_class[placed]
    sums, largest = np.zeros_like(problem.capacities), np.zeros_like(problem.capacities)
    for r in range(problem.capacities.shape[1]):
        np.add.at(sums[:, r], nodes, problem.demands[classes, r])
        if problem.headroom[:, r].any():
            np.maximum.at(largest[:, r], nodes, problem.headroom[classes, r])
    return sums, largest
