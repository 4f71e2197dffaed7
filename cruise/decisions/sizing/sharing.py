"""From demand to sizes, node by node in columns: the shared headroom, rounding, clamping, limits."""

from collections.abc import Mapping, Sequence

import numpy as np

from cruise.decisions.sizing.recommendation import UNIT, DemandTable
from cruise.domain.arrays import UNBOUNDED, BoolArray, Float64Array, Int64Array, round_up, round_up_whole, whole_numbers
from cruise.domain.cluster import Node
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources

FIRST_KUBELET_LOWERING_MEMORY_LIMITS = (1, 34)


class NodeColumns:
    """The touchable pods of some nodes in columns, and the sums and shares over pods and nodes.

    The table's pods stand in the order of their names, which is that of memory, and `node_of_pod` has the index of
    each one's node. `available` is each node's room for them, overheads already taken off.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        available: Mapping[ResourceName, Int64Array],
        node_of_pod: Int64Array,
        table: DemandTable,
    ) -> None:
        self.table = table
        self.node_of_pod = node_of_pod
        self.node_of = node_of_pod[table.pod_of]
        self.available = available
        self.demand = {ResourceName.CPU: table.cpu, ResourceName.MEMORY: table.memory}
        self.manages = table.roster.manages
        self._nodes = nodes
        self._floors = table.roster.floors
        self._by_node: tuple[Int64Array, Int64Array] | None = None

    @staticmethod
    def of_one(node: Node, available: Resources, table: DemandTable) -> "NodeColumns":
        """Put all pods of a table on one node."""
        return NodeColumns([node], columns_of([available]), np.zeros(len(table.pods), dtype=np.int64), table)

    def pods_of(self, node: int) -> Sequence[int]:
        """Return the indices of a node's pods, in the order of their names."""
        if self._by_node is None:
            counts = np.bincount(self.node_of_pod, minlength=len(self._nodes))
            ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
            self._by_node = np.argsort(self.node_of_pod, kind="stable"), ends
        order, ends = self._by_node
        pods: list[int] = order[ends[node] : ends[node + 1]].tolist()
        return pods

    def sizes(
        self,
        resource: ResourceName,
        headroom: Int64Array,
        stays: BoolArray,
        fits: BoolArray,
    ) -> Int64Array:
        """Return base plus the proportional share of the node's `headroom`, rounded up and clamped.

        Where nobody has any of his own it is shared by base. On a node that does not fit nothing is above what it is
        now.
        """
        demand, unit = self.demand[resource], UNIT[resource]
        there = stays[self.table.pod_of]
        total = self._totals(np.where(there, demand.headroom, 0))
        ratio = np.divide(headroom, total, out=np.zeros(len(self._nodes)), where=total > 0)
        share = demand.headroom.astype(np.float64) * ratio[self.node_of]
        bare = (total == 0) & (headroom > 0)
        if bare.any():
            total = self._totals(np.where(there, demand.raw_base, 0))
            ratio = np.divide(headroom, total, out=np.zeros(len(self._nodes)), where=bare & (total > 0))
            share += demand.raw_base * ratio[self.node_of]
        wanted: Float64Array = demand.raw_base + share
        final = round_up(wanted, unit)
        final = np.minimum(np.maximum(final, demand.lower), demand.upper)
        grows_nothing = ~fits[self.node_of]
        final = np.where(grows_nothing, np.minimum(final, demand.current), final)
        return np.where(demand.managed, final, demand.current)

    def _totals(self, values: Int64Array) -> Float64Array:
        return np.bincount(self.node_of, weights=values, minlength=len(self._nodes)).astype(np.float64)

    def memory_limits(self, memory: Int64Array) -> Int64Array:
        """Return the memory limit of each container, 0 for none."""
        table = self.table
        safe = np.maximum(table.safe_memory_limit, memory)
        wanted = round_up_whole(np.maximum(table.wanted_memory_limit, safe), MEBIBYTE)
        most = _most_limit(table, ResourceName.MEMORY, memory)
        # Where a LimitRange leaves no safe limit the value stays safe, and the pod is held for breaking the range.
        wanted = np.minimum(wanted, np.maximum(most, safe))
        lowers = np.array([lowers_memory_limits(node) for node in self._nodes], dtype=np.bool_)[self.node_of]
        # The API server would make a limit without a request the request, and that may not grow here.
        wanted = np.where((memory > 0) | (table.memory_limit > 0), wanted, 0)
        stated = table.memory_limit > 0
        least = np.where(stated & ~table.memory_limit_falls, np.minimum(table.memory_limit, most), 0)
        # An old kubelet refuses to add a limit as it refuses to lower one.
        kept = np.where(stated, np.maximum(wanted, table.memory_limit), 0)
        return np.where(table.memory.managed, np.where(lowers, np.maximum(wanted, least), kept), table.memory_limit)

    def cpu_limits(self, cpu: Int64Array) -> Int64Array:
        """Return the CPU limit of each container: what the node has, where there is one already; 0 for none.

        A limit above the node's CPU limits nothing, and stays.
        """
        table = self.table
        whole = whole_numbers([node.allocatable.cpu_millicores for node in self._nodes])[self.node_of]
        most = _most_limit(table, ResourceName.CPU, cpu)
        raised = np.maximum(np.minimum(np.maximum(whole, table.cpu_limit), most), cpu)
        return np.where(table.cpu.managed & (table.cpu_limit > 0), raised, table.cpu_limit)

    def pod_sums(self, cpu: Int64Array, memory: Int64Array) -> dict[ResourceName, Int64Array]:
        """Sum containers to pods, floored by what their regular init containers need, without overhead.

        Zero where the resource of a pod is not managed.
        """
        return {
            resource: self.pod_sum(resource, values)
            for resource, values in ((ResourceName.CPU, cpu), (ResourceName.MEMORY, memory))
        }

    def pod_sum(self, resource: ResourceName, values: Int64Array) -> Int64Array:
        """Sum one resource as `pod_sums` does."""
        if not len(self.table.pods):
            return np.zeros(0, dtype=np.int64)
        sums: Int64Array = np.add.reduceat(values, self.table.first_container)
        self._floors.raise_sums(resource, values, sums)
        sums[~self.manages[resource]] = 0
        return sums

    def sum_of(self, resource: ResourceName, pod: int, values: Int64Array) -> int:
        """Return one managed pod's sum as `pod_sum` has it."""
        first = int(self.table.first_container[pod])
        own = int(values[first : first + len(self.table.pods[pod].sized)].sum())
        return max(own, self._floors.of_pod(resource, pod, values))

    def pod_maximum(self, values: Int64Array) -> Int64Array:
        """Return the largest value over each pod's containers."""
        if not len(self.table.pods):
            return np.zeros(0, dtype=np.int64)
        return np.maximum.reduceat(values, self.table.first_container)

    def node_sum(self, of_pods: Int64Array) -> Int64Array:
        """Sum pods to nodes."""
        sums = np.zeros(len(self._nodes), dtype=np.int64)
        np.add.at(sums, self.node_of_pod, of_pods)
        return sums

    def node_sums(self, of_pods: Float64Array) -> Float64Array:
        """Sum the rows of pods to nodes: (P, W) to (N, W)."""
        sums = np.zeros((len(self._nodes), of_pods.shape[1]))
        if of_pods.size:
            np.add.at(sums, self.node_of_pod, of_pods)
        return sums

    def node_maximum(self, of_pods: Int64Array) -> Int64Array:
        """Return the largest value over each node's pods, 0 without pods."""
        largest = np.zeros(len(self._nodes), dtype=np.int64)
        np.maximum.at(largest, self.node_of_pod, of_pods)
        return largest


def columns_of(amounts: Sequence[Resources]) -> dict[ResourceName, Int64Array]:
    """Put amounts into a column a resource."""
    return {
        ResourceName.CPU: whole_numbers([one.cpu_millicores for one in amounts]),
        ResourceName.MEMORY: whole_numbers([one.memory_bytes for one in amounts]),
    }


def lowers_memory_limits(node: Node) -> bool:
    """Tell whether the node's kubelet lowers, and adds, memory limits in place; an unknown one counts as new."""
    return node.kubelet_version is None or node.kubelet_version >= FIRST_KUBELET_LOWERING_MEMORY_LIMITS


def _most_limit(table: DemandTable, resource: ResourceName, requests: Int64Array) -> Int64Array:
    """Return the largest limit that the LimitRanges leave beside each request, unbounded where they say nothing."""
    ratio = table.roster.limit_ratio[resource]
    product = np.where(np.isinf(ratio), UNBOUNDED, requests * np.minimum(ratio, UNBOUNDED))
    return np.minimum(table.roster.limit_cap[resource], np.minimum(product, UNBOUNDED).astype(np.int64))
