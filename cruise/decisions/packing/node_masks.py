"""Computes which nodes a pod may be placed on, as masks over the nodes of a cluster."""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import numpy as np

from cruise.decisions.packing.resources import ATTACH_PREFIX
from cruise.decisions.scheduling.filters import PLATFORM_LABELS, get_platform_labels
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Node, Pod
from cruise.domain.pod_resources import may_be_planned_on_cordoned_node
from cruise.domain.scheduling import (
    LabelRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)

_NAME_FIELD = "metadata.name"
# Topologies that are not labels, under names that no label can have.
NODE, CLUSTER = "(node)", "(cluster)"
_Affinity = tuple[tuple[tuple[str, str], ...], tuple[NodeSelectorTerm, ...] | None]


class NodeMasks:
    """Masks over nodes, computed once for each distinct value of a label instead of once for each node."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.count = len(nodes)
        self._nodes = nodes
        self._by_name = {node.name: node for node in nodes}
        self._labels: dict[str, tuple[Int64Array, list[str]]] = {}
        self._requirements: dict[tuple[LabelRequirement, bool], BoolArray] = {}
        self._affinities: dict[_Affinity, BoolArray] = {}
        self._eligible: dict[tuple[tuple[str, ...], _Affinity | None, tuple[Toleration, ...] | None], BoolArray] = {}
        self._tolerated: dict[tuple[Toleration, ...], BoolArray] = {}
        taint_set_numbers: dict[tuple[Taint, ...], int] = {}
        self._taints = np.array(
            [taint_set_numbers.setdefault(node.taints, len(taint_set_numbers)) for node in nodes], dtype=np.int64
        )
        self._taint_sets = list(taint_set_numbers)
        # Pods of a cordoned node may stay; a node that is not ready starts no pod.
        self.ready = np.array([node.accepts_pods for node in nodes], dtype=np.bool_)
        self.cordoned = np.array([node.unschedulable for node in nodes], dtype=np.bool_)
        # A pod that moves to a virtual node gets no more than it requests there, and costs extra.
        self.machines = np.array([not node.is_virtual for node in nodes], dtype=np.bool_)
        self._is_one_platform = all(len(self._get_column(key)[1]) < 2 for key in PLATFORM_LABELS)

    def get_domains(self, key: str) -> Int64Array:
        """Return the number of each node's value of a label, or of another topology; -1 for nodes without it."""
        return self._get_column(key)[0]

    def distinguishes_nodes(self, key: str) -> bool:
        """Return whether no two nodes have the same value of a label."""
        codes, values = self._get_column(key)
        return len(values) == np.count_nonzero(codes >= 0)

    def get_spread_domains(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """Return the labels of a pod's node that its topology spread counts by, without those that identify a node."""
        node = self._by_name.get(pod.node or "")
        labels = {} if node is None else node.labels
        keys = sorted({constraint.topology_key for constraint in pod.constraints.spread} & labels.keys())
        return tuple((key, labels[key]) for key in keys if not self.distinguishes_nodes(key))

    def get_platform_labels(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """Return the labels of a pod's node that its next node must have, if nodes differ in their platforms."""
        return () if self._is_one_platform else get_platform_labels(pod, self._by_name.get(pod.node or ""))

    def get_nodes_without_label(self, keys: Iterable[str]) -> BoolArray:
        """Return for each node whether it lacks any of the labels."""
        lacking = np.zeros(self.count, dtype=np.bool_)
        for key in keys:
            lacking |= self.get_domains(key) < 0
        return lacking

    def match_affinity(self, placement: SchedulingConstraints) -> BoolArray:
        """Return for each node whether a node selector and required node affinity match it."""
        key = (placement.node_selector, placement.terms)
        mask = self._affinities.get(key)
        if mask is None:
            mask = np.ones(self.count, dtype=np.bool_)
            for label, value in placement.node_selector:
                codes, values = self._get_column(label)
                mask = mask & (codes == (values.index(value) if value in values else -2))
            if placement.terms is not None:
                mask = mask & self.match_any_term(placement.terms)
            self._affinities[key] = mask
        return mask

    def match_any_term(self, terms: Sequence[NodeSelectorTerm]) -> BoolArray:
        """Return for each node whether one of the terms matches it."""
        matches = np.zeros(self.count, dtype=np.bool_)
        for term in terms:
            if term.expressions or term.fields:
                term_matches = np.ones(self.count, dtype=np.bool_)
                for requirement in term.expressions:
                    term_matches = term_matches & self._match_requirement(requirement, False)
                for requirement in term.fields:
                    term_matches = term_matches & self._match_requirement(requirement, True)
                matches = matches | term_matches
        return matches

    def match_tolerations(self, tolerations: tuple[Toleration, ...]) -> BoolArray:
        """Return for each node whether the tolerations cover all its taints."""
        mask = self._tolerated.get(tolerations)
        if mask is None:
            placement = SchedulingConstraints(tolerations=tolerations)
            tolerated = np.array([placement.tolerates_all(taints) for taints in self._taint_sets], dtype=np.bool_)
            mask = self._tolerated[tolerations] = tolerated[self._taints]
        return mask

    def get_eligible_nodes(
        self,
        placement: SchedulingConstraints,
        constraint: TopologySpreadConstraint,
        constraints: Sequence[TopologySpreadConstraint],
    ) -> BoolArray:
        """Return for each node whether it counts for a pod's spread constraint.

        Source: kube-scheduler's PodTopologySpread: a node needs the labels of all the pod's constraints.
        """
        keys = tuple(sorted({other.topology_key for other in constraints}))
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

    def _match_requirement(self, requirement: LabelRequirement, is_field: bool) -> BoolArray:
        key = (requirement, is_field)
        mask = self._requirements.get(key)
        if mask is None:
            if is_field:
                mask = self._match_name(requirement)
            else:
                codes, values = self._get_column(requirement.key)
                matches = [requirement.is_met_by({requirement.key: value}) for value in values]
                # A node without the label has code -1, the last entry.
                mask = np.array([*matches, requirement.is_met_by({})], dtype=np.bool_)[codes]
            self._requirements[key] = mask
        return mask

    def _match_name(self, requirement: LabelRequirement) -> BoolArray:
        return np.array([requirement.is_met_by({_NAME_FIELD: node.name}) for node in self._nodes], dtype=np.bool_)

    def _get_column(self, key: str) -> tuple[Int64Array, list[str]]:
        column = self._labels.get(key)
        if column is None:
            value_codes: dict[str, int] = {}
            codes = [
                -1 if value is None else value_codes.setdefault(value, len(value_codes))
                for value in (_get_topology_value(node, key) for node in self._nodes)
            ]
            column = self._labels[key] = (np.array(codes, dtype=np.int64), list(value_codes))
        return column


def _get_topology_value(node: Node, key: str) -> str | None:
    if key == NODE:
        return node.name
    return "" if key == CLUSTER else node.labels.get(key)


class PlacementObstacle(StrEnum):
    """An obstacle other than a resource. Of equally small sets of obstacles, the first in this order is reported."""

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


# Prefix of the obstacle of pods with constraints that cruise does not support.
NOT_EVALUATED = "not-judged"

# Obstacles that protect pods of lower priority from preemption.
EVICTION_OBSTACLES = (
    PlacementObstacle.DISRUPTION_BUDGET,
    PlacementObstacle.EVICTION_LIMIT,
    PlacementObstacle.NOT_EVICTABLE,
)


def get_resource_obstacle(resource: str) -> str:
    """Return the name of a resource as an obstacle."""
    return PlacementObstacle.ATTACH_LIMIT if resource.startswith(ATTACH_PREFIX) else resource


def get_obstacle_rank(obstacle: str) -> int:
    """Return the rank of an obstacle; a resource comes just before NOT_EVICTABLE."""
    order = list(PlacementObstacle)
    return (
        order.index(PlacementObstacle(obstacle)) * 2
        if obstacle in order
        else order.index(PlacementObstacle.NOT_EVICTABLE) * 2 - 1
    )


ObstacleMasks = dict[str, BoolArray]


def find_node_obstacles(
    node_masks: NodeMasks, pod: Pod, volume_terms: Iterable[tuple[NodeSelectorTerm, ...]]
) -> ObstacleMasks:
    """Return for each obstacle the nodes that it closes to a pod, whatever other pods run.

    `volume_terms` has for each volume the terms of which a node must match one. A node also needs the topology labels
    of the pod's affinity and topology spread.
    """
    placement, constraints = pod.placement, pod.constraints
    reachable = np.ones(node_masks.count, dtype=np.bool_)
    for terms in volume_terms:
        reachable &= node_masks.match_any_term(terms)
    return {
        PlacementObstacle.CORDONED: node_masks.cordoned & (not may_be_planned_on_cordoned_node(pod)),
        PlacementObstacle.NOT_READY: ~node_masks.ready,
        PlacementObstacle.TAINTS: ~node_masks.match_tolerations(placement.tolerations),
        PlacementObstacle.NODE_SELECTOR: ~node_masks.match_affinity(
            SchedulingConstraints(node_selector=placement.node_selector)
        ),
        PlacementObstacle.NODE_AFFINITY: ~node_masks.match_affinity(SchedulingConstraints(terms=placement.terms)),
        PlacementObstacle.VOLUME: ~reachable,
        PlacementObstacle.AFFINITY: node_masks.get_nodes_without_label(
            term.topology_key for term in constraints.affinity
        ),
        PlacementObstacle.TOPOLOGY_SPREAD: node_masks.get_nodes_without_label(
            spread.topology_key for spread in constraints.spread
        ),
    }
