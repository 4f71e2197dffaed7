"""A small kube-scheduler: filters, then the LeastAllocated score and the node that the webhook has a pod prefer."""

import numpy as np

from cruise.domain.annotations import STEERED, read_steered
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Node, Pod
from cruise.domain.resources import Resources
from cruise.domain.scheduling import CORDONED, Placement
from cruise.simulation.cluster.fitting import has_room, least_allocated
from cruise.simulation.cluster.state import ClusterState, PodKey, PodRecord


class KubeScheduler:
    """Chooses nodes for pending pods: one after the other, as each binding takes room from the next."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._admitting: dict[Placement, BoolArray] = {}
        self._nodes_version = state.nodes_version

    def queue(self) -> list[PodRecord]:
        """Return the pending pods in scheduling order: priority, then age, then namespace and name."""
        ready = (record for record in self._state.unbound.values() if not record.pod.scheduling_gated)
        return sorted(ready, key=_place_in_queue)

    def choose(self, record: PodRecord) -> str | None:
        """Return the node for a pod, None where no node passes the filters; of equal scores the first name wins."""
        need = record.counted
        fits = self._admits(record.pod.placement) & self._has_room(record.pod, need)
        if not fits.any():
            return None
        scores = np.where(fits, self._scores(record.scored), -1)
        preferred = self._state.node_index.get(read_steered(record.pod.annotations.get(STEERED, ""))[1])
        if preferred is not None and fits[preferred]:
            # A preferred node affinity scores 100 on its node, and counts twice.
            scores[preferred] += 200
        return self._state.node_names[int(scores.argmax())]

    def _has_room(self, pod: Pod, need: Resources) -> BoolArray:
        state = self._state
        fits = has_room(
            state.allocatable_pods - state.pods_on,
            state.allocatable_cpu - state.counted_cpu,
            state.allocatable_memory - state.counted_memory,
            need,
        )
        for name, amount in pod.extended_requests:
            free = state.extended_free.get(name)
            fits &= np.zeros_like(fits) if free is None else free >= amount
        return fits

    def _scores(self, need: Resources) -> Int64Array:
        state = self._state
        return least_allocated(
            state.allocatable_cpu,
            state.scored_cpu + need.cpu_millicores,
            state.allocatable_memory,
            state.scored_memory + need.memory_bytes,
        )

    def _admits(self, placement: Placement) -> BoolArray:
        if self._nodes_version != self._state.nodes_version:
            self._admitting.clear()
            self._nodes_version = self._state.nodes_version
        admits = self._admitting.get(placement)
        if admits is None:
            admits = self._admitting[placement] = np.array(
                [_takes(self._state.nodes.get(name), placement) for name in self._state.node_names], dtype=np.bool_
            )
        return admits


def _takes(node: Node | None, placement: Placement) -> bool:
    if node is None or not node.ready:
        return False
    taints = (*node.taints, CORDONED) if node.unschedulable else node.taints
    return placement.admits(node.name, node.labels) and placement.tolerates_all(taints)


def _place_in_queue(record: PodRecord) -> tuple[int, float, PodKey]:
    created = record.pod.created_at
    return (-record.pod.priority, 0.0 if created is None else created.timestamp(), record.key)
