"""The nodes of a cluster in columns: which of them meet a placement, a toleration, a requirement."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import numpy as np

from cruise.decisions.packing.resources import ATTACH_PREFIX
from cruise.domain.cluster import Node, Pod
from cruise.domain.pod_resources import may_be_planned_on_cordoned_node
from cruise.domain.resources import BoolArray, Int64Array
from cruise.domain.scheduling import (
    LabelRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)

_NAME_FIELD = "metadata.name"
# Topologies that are no label, under names that no label can have.
NODE, CLUSTER = "(node)", "(cluster)"
_Affinity = tuple[tuple[tuple[str, str], ...], tuple[NodeSelectorTerm, ...] | None]


class NodeMasks:
    """Masks over the nodes, worked out once for each distinct value of a label instead of once for each node."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.count = len(nodes)
        self._nodes = nodes
        self._by_name = {node.name: node for node in nodes}
        self._labels: dict[str, tuple[Int64Array, list[str]]] = {}
        self._requirements: dict[tuple[LabelRequirement, bool], BoolArray] = {}
        self._affinities: dict[_Affinity, BoolArray] = {}
        self._eligible: dict[tuple[tuple[str, ...], _Affinity | None, tuple[Toleration, ...] | None], BoolArray] = {}
        self._tolerated: dict[tuple[Toleration, ...], BoolArray] = {}
        numbers: dict[tuple[Taint, ...], int] = {}
        self._taints = np.array([numbers.setdefault(node.taints, len(numbers)) for node in nodes], dtype=np.int64)
        self._taint_sets = list(numbers)
        # A cordoned node's own pods stay, and a kubelet that is away starts nothing.
        self.ready = np.array([node.takes_pods for node in nodes], dtype=np.bool_)
        self.cordoned = np.array([node.unschedulable for node in nodes], dtype=np.bool_)

    def get_domains(self, key: str) -> Int64Array:
        """Number the values of a label, or another topology, in the nodes' order; -1 where a node lacks it."""
        return self._column(key)[0]

    def distinguishes_nodes(self, key: str) -> bool:
        """Tell whether no two nodes have the same value of a label."""
        codes, values = self._column(key)
        return len(values) == np.count_nonzero(codes >= 0)

    def get_spread_domains(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """Return the labels of a pod's node that its spread counts by, sorted, but for those that tell nodes apart."""
        node = self._by_name.get(pod.node or "")
        labels = {} if node is None else node.labels
        keys = sorted({constraint.topology_key for constraint in pod.constraints.spread} & labels.keys())
        return tuple((key, labels[key]) for key in keys if not self.distinguishes_nodes(key))

    def get_nodes_without_label(self, keys: Iterable[str]) -> BoolArray:
        """Tell for each node whether it lacks one of some labels."""
        lacking = np.zeros(self.count, dtype=np.bool_)
        for key in keys:
            lacking |= self.get_domains(key) < 0
        return lacking

    def match_affinity(self, placement: SchedulingConstraints) -> BoolArray:
        """Tell for each node whether node selector and required node affinity admit it."""
        key = (placement.node_selector, placement.terms)
        mask = self._affinities.get(key)
        if mask is None:
            mask = np.ones(self.count, dtype=np.bool_)
            for label, value in placement.node_selector:
                codes, values = self._column(label)
                mask = mask & (codes == (values.index(value) if value in values else -2))
            if placement.terms is not None:
                mask = mask & self.match_any_term(placement.terms)
            self._affinities[key] = mask
        return mask

    def match_any_term(self, terms: Sequence[NodeSelectorTerm]) -> BoolArray:
        """Tell for each node whether one of the terms matches it."""
        found = np.zeros(self.count, dtype=np.bool_)
        for term in terms:
            if term.expressions or term.fields:
                one = np.ones(self.count, dtype=np.bool_)
                for requirement in term.expressions:
                    one = one & self._met(requirement, False)
                for requirement in term.fields:
                    one = one & self._met(requirement, True)
                found = found | one
        return found

    def match_tolerations(self, tolerations: tuple[Toleration, ...]) -> BoolArray:
        """Tell for each node whether none of its taints keeps off a pod with these tolerations."""
        mask = self._tolerated.get(tolerations)
        if mask is None:
            placement = SchedulingConstraints(tolerations=tolerations)
            of_set = np.array([placement.tolerates_all(taints) for taints in self._taint_sets], dtype=np.bool_)
            mask = self._tolerated[tolerations] = of_set[self._taints]
        return mask

    def get_eligible_nodes(
        self,
        placement: SchedulingConstraints,
        constraint: TopologySpreadConstraint,
        all_of_pod: Sequence[TopologySpreadConstraint],
    ) -> BoolArray:
        """Tell for each node whether it counts for a pod's spread constraint.

        Source: kube-scheduler's PodTopologySpread: a node needs the labels of all the pod's constraints.
        """
        keys = tuple(sorted({one.topology_key for one in all_of_pod}))
        affinity = (placement.node_selector, placement.terms) if constraint.honours_node_affinity else None
        tolerations = placement.tolerations if constraint.honours_node_taints else None
        mask = self._eligible.get((keys, affinity, tolerations))
        if mask is None:
            mask = ~self.get_nodes_without_label(keys)
            if affinity is not None:
                mask = mask & self.match_affinity(placement)
            if tolerations is not None:
                mask = mask & self.match_tolerations(tolerations)
            self._eligible[keys, affinity, tolerations] = mask
        return mask

    def _met(self, requirement: LabelRequirement, of_field: bool) -> BoolArray:
        key = (requirement, of_field)
        mask = self._requirements.get(key)
        if mask is None:
            if of_field:
                mask = self._field_met(requirement)
            else:
                codes, values = self._column(requirement.key)
                met = [requirement.is_met_by({requirement.key: value}) for value in values]
                # A node without the label has code -1, which is the last entry.
                mask = np.array([*met, requirement.is_met_by({})], dtype=np.bool_)[codes]
            self._requirements[key] = mask
        return mask

    def _field_met(self, requirement: LabelRequirement) -> BoolArray:
        return np.array([requirement.is_met_by({_NAME_FIELD: node.name}) for node in self._nodes], dtype=np.bool_)

    def _column(self, key: str) -> tuple[Int64Array, list[str]]:
        column = self._labels.get(key)
        if column is None:
            numbers: dict[str, int] = {}
            codes = [
                -1 if value is None else numbers.setdefault(value, len(numbers))
                for value in (_value(node, key) for node in self._nodes)
            ]
            column = self._labels[key] = (np.array(codes, dtype=np.int64), list(numbers))
        return column


def _value(node: Node, key: str) -> str | None:
    if key == NODE:
        return node.name
    return "" if key == CLUSTER else node.labels.get(key)


# The obstacles that may keep a pod from a node.


class PlacementObstacle(StrEnum):
    """An obstacle other than a resource, which goes by its own name; of equally small sets the first ones are named."""

    DISRUPTION_BUDGET = "disruption-budget"
    EVICTION_LIMIT = "eviction-limit"
    PREEMPTION_POLICY = "preemption-policy"
    NOT_EVICTABLE = "not-evictable"
    ATTACH_LIMIT = "attach-limit"
    TOPOLOGY_SPREAD = "topology-spread"
    ANTI_AFFINITY = "anti-affinity"
    HOST_PORTS = "host-ports"
    AFFINITY = "affinity"
    VOLUME = "volume"
    CORDONED = "cordoned"
    NOT_READY = "not-ready"
    TAINTS = "taints"
    NODE_SELECTOR = "node-selector"
    NODE_AFFINITY = "node-affinity"
    NO_NODES = "no-nodes"


# Begins what is said of a pod that kube-scheduler judges by rules that are not known here.
NOT_EVALUATED = "not-evaluated"

# What keeps a pod from room that lower priorities hold.
EVICTION_OBSTACLES = (
    PlacementObstacle.DISRUPTION_BUDGET,
    PlacementObstacle.EVICTION_LIMIT,
    PlacementObstacle.NOT_EVICTABLE,
)


def get_resource_obstacle(resource: str) -> str:
    """The name of what a resource's shortage is called."""
    return PlacementObstacle.ATTACH_LIMIT if resource.startswith(ATTACH_PREFIX) else resource


def get_obstacle_rank(obstacle: str) -> int:
    """The place of an obstacle among others; a resource comes before the pods that cannot leave it."""
    order = list(PlacementObstacle)
    return (
        order.index(PlacementObstacle(obstacle)) * 2
        if obstacle in order
        else order.index(PlacementObstacle.NOT_EVICTABLE) * 2 - 1
    )


# What keeps a pod from nodes whatever else runs there: cordons, labels, taints, volumes.

ObstacleMasks = dict[str, BoolArray]


def find_node_obstacles(columns: NodeMasks, pod: Pod, reach: Iterable[tuple[NodeSelectorTerm, ...]]) -> ObstacleMasks:
    """Return for each obstacle the nodes that it keeps a pod from.

    `reach` has for each of its volumes the terms of which a node meets one. kube-scheduler sends no pod outside a
    topology that it refers to.
    """
    placement, constraints = pod.placement, pod.constraints
    reachable = np.ones(columns.count, dtype=np.bool_)
    for terms in reach:
        reachable &= columns.match_any_term(terms)
    return {
        PlacementObstacle.CORDONED: columns.cordoned & (not may_be_planned_on_cordoned_node(pod)),
        PlacementObstacle.NOT_READY: ~columns.ready,
        PlacementObstacle.TAINTS: ~columns.match_tolerations(placement.tolerations),
        PlacementObstacle.NODE_SELECTOR: ~columns.match_affinity(
            SchedulingConstraints(node_selector=placement.node_selector)
        ),
        PlacementObstacle.NODE_AFFINITY: ~columns.match_affinity(SchedulingConstraints(terms=placement.terms)),
        PlacementObstacle.VOLUME: ~reachable,
        PlacementObstacle.AFFINITY: columns.get_nodes_without_label(term.topology_key for term in constraints.affinity),
        PlacementObstacle.TOPOLOGY_SPREAD: columns.get_nodes_without_label(
            spread.topology_key for spread in constraints.spread
        ),
    }
