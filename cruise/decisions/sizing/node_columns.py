"""The touchable pods of some nodes in columns, with what the nodes have for them, and the sums over pods and nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from cruise.decisions.pod_policy.eligibility import Eligibility, ResizablePod
from cruise.decisions.sizing.candidate_columns import PerResource
from cruise.decisions.sizing.recommendation import DemandTable
from cruise.domain.actions import SkippedPod
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.resources import Float64Array, Int64Array, ResourceName, Resources, convert_to_int64


class NodePodColumns:
    """What a pass sizes: candidates, their demand, and the rooms that they share.

    The table's pods stand in the order of their names, which is that of memory, and `node_of_pod` has the index of
    each one's node. `available` is each node's room for them, overheads already taken off, and `counted` what
    kube-scheduler counts for each pod now without its overhead. `base` and `spike` have each pod's sum of bases and
    its largest headroom, `base_of_nodes` and `spike_of_nodes` those of all pods of each node.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        available: PerResource,
        node_of_pod: Int64Array,
        counted: PerResource,
        table: DemandTable,
    ) -> None:
        self.nodes = nodes
        self.available = available
        self.node_of_pod = node_of_pod
        self.counted = counted
        self.table = table
        self.candidates = table.candidates
        self.node_of = node_of_pod[table.candidates.pod_of]
        self.base = {one: self.candidates.sum_by_pod(one, table.get_resource(one).base) for one in ResourceName}
        self.largest_headroom = {
            one: self.candidates.max_by_pod(table.get_resource(one).headroom) for one in ResourceName
        }
        self.base_by_node = {one: self.sum_by_node(of_pods) for one, of_pods in self.base.items()}
        self.largest_headroom_by_node = {
            one: self.max_by_node(of_pods) for one, of_pods in self.largest_headroom.items()
        }
        self._by_node: tuple[Int64Array, Int64Array] | None = None

    def get_pods_on_node(self, node: int) -> Sequence[int]:
        """Return the indices of a node's pods, in the order of their names."""
        if self._by_node is None:
            counts = np.bincount(self.node_of_pod, minlength=len(self.nodes))
            ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
            self._by_node = np.argsort(self.node_of_pod, kind="stable"), ends
        order, ends = self._by_node
        pods: list[int] = order[ends[node] : ends[node + 1]].tolist()
        return pods

    def sum_by_node(self, of_pods: Int64Array) -> Int64Array:
        """Sum pods to nodes."""
        sums = np.zeros(len(self.nodes), dtype=np.int64)
        np.add.at(sums, self.node_of_pod, of_pods)
        return sums

    def sum_rows_by_node(self, of_pods: Float64Array) -> Float64Array:
        """Sum the rows of pods to nodes: (P, W) to (N, W)."""
        sums = np.zeros((len(self.nodes), of_pods.shape[1]))
        if of_pods.size:
            np.add.at(sums, self.node_of_pod, of_pods)
        return sums

    def max_by_node(self, of_pods: Int64Array) -> Int64Array:
        """Return the largest value over each node's pods, 0 without pods."""
        largest = np.zeros(len(self.nodes), dtype=np.int64)
        np.maximum.at(largest, self.node_of_pod, of_pods)
        return largest

    def sum_containers_by_node(self, of_containers: Int64Array) -> Float64Array:
        """Sum containers to nodes."""
        sums = np.bincount(self.node_of, weights=of_containers, minlength=len(self.nodes))
        return sums.astype(np.float64)


def split_into_columns(amounts: Sequence[Resources]) -> Mapping[ResourceName, Int64Array]:
    """Put amounts into a column a resource."""
    return {one: convert_to_int64([amount.get(one) for amount in amounts]) for one in ResourceName}


# What every node has left for touchable pods, once fixed pods and overheads are taken off.

_NAME = attrgetter("namespace", "name")


@dataclass(slots=True)
class NodeCapacity:
    """What a node has left for touchable pods, added up pod by pod; `apart` are those that are left alone."""

    node: Node
    number: int
    skipped_pods: list[SkippedPod] = field(default_factory=list)
    fixed_pods: list[Pod] = field(default_factory=list)
    counted_cpu: int = 0
    counted_memory: int = 0
    reserved_cpu: int = 0
    reserved_memory: int = 0

    @property
    def available(self) -> Resources:
        """What is left once fixed pods and overheads are taken off."""
        return self.node.allocatable - Resources(self.reserved_cpu, self.reserved_memory)

    @property
    def counted_requests(self) -> Resources:
        """What kube-scheduler counts on the node now."""
        return Resources(self.counted_cpu, self.counted_memory)

    def get_available_without(self, pod: Pod) -> Resources:
        """Return what the other pods leave of the node for one of its pods."""
        return self.node.allocatable - self.counted_requests + count_pod_requests(pod)


@dataclass(frozen=True, slots=True)
class NodeCapacities:
    """The rooms of all nodes, sorted by name, and the touchable pods, sorted by namespace and name.

    For each of the pods: the index of its room, and what it counts now without its overhead.
    """

    by_node: Sequence[NodeCapacity]
    resizable_pods: Sequence[ResizablePod]
    capacity_by_pod: Sequence[int]
    own_cpu: Sequence[int]
    own_memory: Sequence[int]


def build_node_capacities(
    snapshot: ClusterSnapshot, eligibility: Eligibility, nodes: frozenset[str] | None
) -> NodeCapacities:
    """Sort every bound pod to its node, as touchable or as fixed, and take what is fixed from the node's room."""
    wanted = sorted((node for node in snapshot.nodes if nodes is None or node.name in nodes), key=attrgetter("name"))
    rooms = {node.name: NodeCapacity(node, number) for number, node in enumerate(wanted)}
    touchable: list[ResizablePod] = []
    room_of: list[int] = []
    own_cpu: list[int] = []
    own_memory: list[int] = []
    # Sorted already where a snapshot was read; the order must not depend on how one was put together.
    for pod in sorted(snapshot.pods, key=_NAME):
        room = rooms.get(pod.node) if pod.node is not None else None
        if room is None:
            continue
        counted = count_pod_requests(pod)
        cpu, memory = counted.cpu_millicores, counted.memory_bytes
        room.counted_cpu += cpu
        room.counted_memory += memory
        verdict = eligibility.check(pod)
        if isinstance(verdict, SkippedPod):
            room.skipped_pods.append(verdict)
            room.fixed_pods.append(pod)
            room.reserved_cpu += cpu
            room.reserved_memory += memory
        else:
            over_cpu, over_memory = pod.overhead.cpu_millicores, pod.overhead.memory_bytes
            touchable.append(verdict)
            room_of.append(room.number)
            own_cpu.append(cpu - over_cpu)
            own_memory.append(memory - over_memory)
            room.reserved_cpu += over_cpu if verdict.manages_cpu else cpu
            room.reserved_memory += over_memory if verdict.manages_memory else memory
    return NodeCapacities(list(rooms.values()), touchable, room_of, own_cpu, own_memory)
