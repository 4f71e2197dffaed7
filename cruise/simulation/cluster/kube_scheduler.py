"""A small kube-scheduler: filters, the LeastAllocated score, and the webhook's placement hints."""

import numpy as np

from cruise.domain.annotations import PLACEMENT_HINT, parse_placement_hint
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Node, Pod
from cruise.domain.resources import Resources
from cruise.domain.scheduling import UNSCHEDULABLE_TAINT, SchedulingConstraints
from cruise.simulation.cluster.state import DEFAULT_SCORED, PodKey, SimulatedClusterState, SimulatedPod


def find_nodes_with_capacity(
    pods_left: Int64Array, free_cpu_millicores: Int64Array, free_memory_bytes: Int64Array, need: Resources
) -> BoolArray:
    """Return a mask of the nodes that pass NodeResourcesFit for CPU, memory and the number of pods.

    As in kube-scheduler, a pod that does not request a resource fits even if the node has a shortage of it.
    """
    fits: BoolArray = pods_left > 0
    if need.cpu_millicores:
        fits &= free_cpu_millicores >= need.cpu_millicores
    if need.memory_bytes:
        fits &= free_memory_bytes >= need.memory_bytes
    return fits


def get_scored_requests(need: Resources) -> Resources:
    """Return the requests that kube-scheduler's scores count: defaults for what a container does not request."""
    return Resources(
        need.cpu_millicores or DEFAULT_SCORED.cpu_millicores, need.memory_bytes or DEFAULT_SCORED.memory_bytes
    )


def score_least_allocated(
    allocatable_cpu: Int64Array | int,
    scored_cpu: Int64Array,
    allocatable_memory: Int64Array | int,
    scored_memory: Int64Array,
) -> Int64Array:
    """Return the LeastAllocated score: the mean free share of CPU and memory with the pod, from 0 to 100."""
    return (_free_share(allocatable_cpu, scored_cpu) + _free_share(allocatable_memory, scored_memory)) // 2


def _free_share(allocatable: Int64Array | int, used: Int64Array) -> Int64Array:
    free = np.maximum(allocatable - used, 0) * 100
    share: Int64Array = free // np.maximum(allocatable, 1)
    return share


class KubeScheduler:
    """Chooses nodes for pending pods, one after the other."""

    def __init__(self, state: SimulatedClusterState) -> None:
        self._state = state
        self._admitting: dict[SchedulingConstraints, BoolArray] = {}
        self._nodes_version = state.nodes_version

    def queue(self) -> list[SimulatedPod]:
        """Return the pending pods in scheduling order: priority, then age, then namespace and name."""
        ready = (record for record in self._state.unbound_pods.values() if not record.pod.scheduling_gated)
        return sorted(ready, key=_get_queue_key)

    def choose(self, record: SimulatedPod) -> str | None:
        """Return the node for a pod, of equal scores the first by name; None if no node passes the filters."""
        need = record.counted_requests
        fits = self._admits(record.pod.placement) & self._find_capacity(record.pod, need)
        if not fits.any():
            return None
        scores = np.where(fits, self._scores(record.scored_requests), -1)
        preferred = self._state.node_index.get(parse_placement_hint(record.pod.annotations.get(PLACEMENT_HINT, ""))[1])
        if preferred is not None and fits[preferred]:
            # A preferred node affinity scores 100 with weight 2.
            scores[preferred] += 200
        return self._state.node_names[int(scores.argmax())]

    def _find_capacity(self, pod: Pod, need: Resources) -> BoolArray:
        state = self._state
        fits = find_nodes_with_capacity(
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
        return score_least_allocated(
            state.allocatable_cpu,
            state.scored_cpu + need.cpu_millicores,
            state.allocatable_memory,
            state.scored_memory + need.memory_bytes,
        )

    def _admits(self, placement: SchedulingConstraints) -> BoolArray:
        if self._nodes_version != self._state.nodes_version:
            self._admitting.clear()
            self._nodes_version = self._state.nodes_version
        admits = self._admitting.get(placement)
        if admits is None:
            admits = self._admitting[placement] = np.array(
                [_admits_pod(self._state.nodes.get(name), placement) for name in self._state.node_names], dtype=np.bool_
            )
        return admits


def _admits_pod(node: Node | None, placement: SchedulingConstraints) -> bool:
    if node is None or not node.ready:
        return False
    taints = (*node.taints, UNSCHEDULABLE_TAINT) if node.unschedulable else node.taints
    return placement.allows_node(node.name, node.labels) and placement.tolerates_all(taints)


def _get_queue_key(record: SimulatedPod) -> tuple[int, float, PodKey]:
    created = record.pod.created_at
    return (-record.pod.priority, 0.0 if created is None else created.timestamp(), record.key)
