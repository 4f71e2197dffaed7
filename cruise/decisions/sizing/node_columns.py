"""The resizable pods of some nodes in columns, with the capacity of the nodes and sums per pod and node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter

import numpy as np

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.pod_policy.startup_boosts import has_boost_in_force
from cruise.decisions.sizing.demand import DemandTable, get_headroom_above_base
from cruise.decisions.sizing.memory_limit import MemoryLimitCeilings, supports_lowering_memory_limits
from cruise.decisions.sizing.pod_columns import PerResource, count_kept_requests
from cruise.domain.actions import SkippedPod
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array, convert_to_int64
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.pod_resources import count_pod_requests, reset_kubelet_status
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.startup_boosts import settle_boosted_pod


class NodePodColumns:
    """The input of a pass: the resizable pods, their demand, and the nodes that they share.

    Pods are sorted by name; `node_of_pod` and `node_of_container` hold indices into `nodes`. `available` is each node's
    capacity for these pods without their overhead, `counted` what kube-scheduler counts for each pod now without
    overhead. `base` and `largest_headroom` have an entry per pod, `base_by_node` and `largest_headroom_by_node` one per
    node.
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
        self.node_of_container = node_of_pod[table.candidates.pod_of_container]
        self.base = {one: self.candidates.sum_by_pod(one, table.get_resource(one).base) for one in ResourceName}
        self.largest_headroom = {
            one: self.candidates.max_by_pod(get_headroom_above_base(self.candidates, table.get_resource(one)))
            for one in ResourceName
        }
        self.base_by_node = {one: self.sum_by_node(of_pods) for one, of_pods in self.base.items()}
        self.largest_headroom_by_node = {
            one: self.max_by_node(of_pods) for one, of_pods in self.largest_headroom.items()
        }
        self._by_node: tuple[Int64Array, Int64Array] | None = None

    @cached_property
    def node_cpu(self) -> Int64Array:
        """The allocatable CPU of each container's node."""
        return convert_to_int64([node.allocatable.cpu_millicores for node in self.nodes])[self.node_of_container]

    @cached_property
    def lowers_memory_limit(self) -> BoolArray:
        """Whether the kubelet of each container's node lowers memory limits in place."""
        lowers = np.array([supports_lowering_memory_limits(node) for node in self.nodes], dtype=np.bool_)
        return lowers[self.node_of_container]

    @cached_property
    def memory_limit_ceilings(self) -> MemoryLimitCeilings | None:
        """The ceilings of memory limits on the containers' nodes, None if there are none."""
        if self.table.ceilings is None:
            return None
        memory = convert_to_int64([node.allocatable.memory_bytes for node in self.nodes])
        return self.table.ceilings.cap_to_nodes(memory[self.node_of_container])

    def get_pods_on_node(self, node: int) -> Sequence[int]:
        """Return the indices of a node's pods, sorted by name."""
        if self._by_node is None:
            counts = np.bincount(self.node_of_pod, minlength=len(self.nodes))
            ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
            self._by_node = np.argsort(self.node_of_pod, kind="stable"), ends
        order, ends = self._by_node
        pods: list[int] = order[ends[node] : ends[node + 1]].tolist()
        return pods

    def share_smallest_first(self, wanted: Int64Array, free_capacity: Int64Array) -> Int64Array:
        """Share each node's free capacity among what its containers want, the smallest first."""
        order = np.flatnonzero(wanted > 0)
        order = order[np.lexsort((order, wanted[order], self.node_of_container[order]))]
        amounts, nodes = wanted[order], self.node_of_container[order]
        before = np.cumsum(amounts) - amounts
        remaining = np.maximum(free_capacity[nodes] - (before - before[np.searchsorted(nodes, nodes)]), 0)
        shared = np.zeros_like(wanted)
        shared[order] = np.minimum(amounts, remaining)
        return shared

    def sum_by_node(self, of_pods: Int64Array) -> Int64Array:
        """Sum a column of pods by node."""
        sums = np.zeros(len(self.nodes), dtype=np.int64)
        np.add.at(sums, self.node_of_pod, of_pods)
        return sums

    def sum_rows_by_node(self, of_pods: Float64Array) -> Float64Array:
        """Sum the rows of pods by node: (P, W) to (N, W)."""
        sums = np.zeros((len(self.nodes), of_pods.shape[1]))
        if of_pods.size:
            np.add.at(sums, self.node_of_pod, of_pods)
        return sums

    def max_by_node(self, of_pods: Int64Array) -> Int64Array:
        """Return the largest value among each node's pods, 0 without pods."""
        largest = np.zeros(len(self.nodes), dtype=np.int64)
        np.maximum.at(largest, self.node_of_pod, of_pods)
        return largest

    def sum_containers_by_node(self, of_containers: Int64Array) -> Float64Array:
        """Sum a column of containers by node."""
        sums = np.bincount(self.node_of_container, weights=of_containers, minlength=len(self.nodes))
        return sums.astype(np.float64)


def split_by_resource(amounts: Sequence[Resources]) -> Mapping[ResourceName, Int64Array]:
    """Split amounts into one column per resource."""
    return {one: convert_to_int64([amount.get(one) for amount in amounts]) for one in ResourceName}


_NAME = attrgetter("namespace", "name")


@dataclass(slots=True)
class NodeCapacity:
    """The capacity of a node for resizable pods; `fixed_pods` are the pods that are not resized.

    Of resizable pods, overhead and the containers that are not sized are reserved.
    """

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
        """What remains after all that is reserved."""
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
    """The capacities of all nodes, sorted by name, and the resizable pods, sorted by namespace and name.

    Per pod: the index of its node in `by_node`, and what it counts now without its overhead.
    """

    by_node: Sequence[NodeCapacity]
    resizable_pods: Sequence[ResizablePod]
    capacity_by_pod: Sequence[int]
    own_cpu: Sequence[int]
    own_memory: Sequence[int]


def build_node_capacities(
    snapshot: ClusterSnapshot, eligibility: Eligibility, nodes: frozenset[str] | None
) -> NodeCapacities:
    """Assign every bound pod to its node, as resizable or fixed, and subtract fixed pods from the node's capacity.

    Of a pod that starts with more CPU, what it has afterwards is subtracted.
    """
    wanted = sorted((node for node in snapshot.nodes if nodes is None or node.name in nodes), key=attrgetter("name"))
    capacities = {node.name: NodeCapacity(node, number) for number, node in enumerate(wanted)}
    resizable: list[ResizablePod] = []
    capacity_by_pod: list[int] = []
    own_cpu: list[int] = []
    own_memory: list[int] = []
    # The order must not depend on how the snapshot was built.
    for pod in sorted(snapshot.pods, key=_NAME):
        capacity = capacities.get(pod.node) if pod.node is not None else None
        if capacity is None:
            continue
        counted = count_pod_requests(pod)
        cpu, memory = counted.cpu_millicores, counted.memory_bytes
        capacity.counted_cpu += cpu
        capacity.counted_memory += memory
        verdict = eligibility.check(pod)
        settled = settle_boosted_pod(pod) if has_boost_in_force(pod, eligibility.now) else pod
        if settled is not pod:
            # Others do not make room for the CPU of a start, which is about to be taken back.
            cpu = count_pod_requests(reset_kubelet_status(settled)).cpu_millicores
        if isinstance(verdict, SkippedPod):
            capacity.skipped_pods.append(verdict)
            capacity.fixed_pods.append(pod)
            capacity.reserved_cpu += cpu
            capacity.reserved_memory += memory
        else:
            reserved = pod.overhead + count_kept_requests(verdict) if verdict.kept_containers else pod.overhead
            reserved_cpu, reserved_memory = reserved.cpu_millicores, reserved.memory_bytes
            resizable.append(verdict)
            capacity_by_pod.append(capacity.number)
            own_cpu.append(cpu - reserved_cpu)
            own_memory.append(memory - reserved_memory)
            capacity.reserved_cpu += reserved_cpu if verdict.manages_cpu else cpu
            capacity.reserved_memory += reserved_memory if verdict.manages_memory else memory
    return NodeCapacities(list(capacities.values()), resizable, capacity_by_pod, own_cpu, own_memory)
