"""What keeps a pod from nodes whatever else runs there: cordons, labels, taints, volumes."""

import numpy as np

from cruise.decisions.packing.building import Built
from cruise.decisions.packing.building.nodes import NodeColumns
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.decisions.packing.building.volumes import Volumes
from cruise.domain.arrays import BoolArray
from cruise.domain.cluster import Pod
from cruise.domain.cordons import passes_cordons
from cruise.domain.scheduling import Placement

Masks = dict[str, BoolArray]


class FixedObstacles:
    """For a pod, the nodes that each obstacle keeps it from."""

    def __init__(self, built: Built) -> None:
        nodes = built.nodes
        self._columns = NodeColumns(nodes)
        self._volumes = Volumes(built.snapshot.surroundings)
        for pod in built.snapshot.pods:
            if not pod.terminal:
                self._volumes.use(pod)
        self._cordoned = np.array([node.unschedulable for node in nodes], dtype=np.bool_)
        self._not_ready = np.array([not node.ready for node in nodes], dtype=np.bool_)

    def of(self, pod: Pod) -> Masks:
        """Masks over the nodes."""
        columns, placement = self._columns, pod.placement
        reachable = np.ones(columns.count, dtype=np.bool_)
        for terms in self._volumes.of_arrival(pod).terms:
            reachable = reachable & columns.any_term(terms)
        return {
            Obstacle.CORDONED: self._cordoned & (not passes_cordons(pod)),
            Obstacle.NOT_READY: self._not_ready,
            Obstacle.TAINTS: ~columns.tolerated(placement.tolerations),
            Obstacle.NODE_SELECTOR: ~columns.affinity(Placement(node_selector=placement.node_selector)),
            Obstacle.NODE_AFFINITY: ~columns.affinity(Placement(terms=placement.terms)),
            Obstacle.VOLUME: ~reachable,
            Obstacle.AFFINITY: self._lacks([term.topology_key for term in pod.constraints.affinity]),
            Obstacle.TOPOLOGY_SPREAD: self._lacks([spread.topology_key for spread in pod.constraints.spread]),
        }

    def _lacks(self, keys: list[str]) -> BoolArray:
        lacking = np.zeros(self._columns.count, dtype=np.bool_)
        for key in keys:
            lacking = lacking | (self._columns.domains(key) < 0)
        return lacking
