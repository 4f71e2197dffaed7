"""What keeps a pod from nodes whatever else runs there: cordons, labels, taints, volumes."""

from collections.abc import Iterable

import numpy as np

from cruise.decisions.packing.building.nodes import NodeColumns
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.domain.arrays import BoolArray
from cruise.domain.cluster import Pod
from cruise.domain.cordons import passes_cordons
from cruise.domain.scheduling import NodeSelectorTerm, Placement

Masks = dict[str, BoolArray]


def closed_by(columns: NodeColumns, pod: Pod, reach: Iterable[tuple[NodeSelectorTerm, ...]]) -> Masks:
    """Return for each obstacle the nodes that it keeps a pod from.

    `reach` has for each of its volumes the terms of which a node meets one. kube-scheduler sends no pod outside a
    topology that it refers to.
    """
    placement, constraints = pod.placement, pod.constraints
    reachable = np.ones(columns.count, dtype=np.bool_)
    for terms in reach:
        reachable &= columns.any_term(terms)
    return {
        Obstacle.CORDONED: columns.cordoned & (not passes_cordons(pod)),
        Obstacle.NOT_READY: ~columns.ready,
        Obstacle.TAINTS: ~columns.tolerated(placement.tolerations),
        Obstacle.NODE_SELECTOR: ~columns.affinity(Placement(node_selector=placement.node_selector)),
        Obstacle.NODE_AFFINITY: ~columns.affinity(Placement(terms=placement.terms)),
        Obstacle.VOLUME: ~reachable,
        Obstacle.AFFINITY: columns.lacks(term.topology_key for term in constraints.affinity),
        Obstacle.TOPOLOGY_SPREAD: columns.lacks(spread.topology_key for spread in constraints.spread),
    }
