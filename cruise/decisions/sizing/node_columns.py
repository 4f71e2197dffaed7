"""The touchable pods of some nodes in columns, with what the nodes have for them, and the sums over pods and nodes."""

from collections.abc import Mapping, Sequence

import numpy as np

from cruise.decisions.sizing.candidate_columns import PerResource
from cruise.decisions.sizing.recommendation import DemandTable
from cruise.domain.arrays import Float64Array, Int64Array, whole_numbers
from cruise.domain.cluster import Node
from cruise.domain.resources import ResourceName, Resources


class NodeColumns:
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
        self.base = {one: self.candidates.pod_sum(one, table.of(one).base) for one in ResourceName}
        self.spike = {one: self.candidates.pod_maximum(table.of(one).headroom) for one in ResourceName}
        self.base_of_nodes = {one: self.node_sum(of_pods) for one, of_pods in self.base.items()}
        self.spike_of_nodes = {one: self.node_maximum(of_pods) for one, of_pods in self.spike.items()}
        self._by_node: tuple[Int64Array, Int64Array] | None = None

    def pods_of(self, node: int) -> Sequence[int]:
        """Return the indices of a node's pods, in the order of their names."""
        if self._by_node is None:
            counts = np.bincount(self.node_of_pod, minlength=len(self.nodes))
            ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
            self._by_node = np.argsort(self.node_of_pod, kind="stable"), ends
        order, ends = self._by_node
        pods: list[int] = order[ends[node] : ends[node + 1]].tolist()
        return pods

    def node_sum(self, of_pods: Int64Array) -> Int64Array:
        """Sum pods to nodes."""
        sums = np.zeros(len(self.nodes), dtype=np.int64)
        np.add.at(sums, self.node_of_pod, of_pods)
        return sums

    def node_sums(self, of_pods: Float64Array) -> Float64Array:
        """Sum the rows of pods to nodes: (P, W) to (N, W)."""
        sums = np.zeros((len(self.nodes), of_pods.shape[1]))
        if of_pods.size:
            np.add.at(sums, self.node_of_pod, of_pods)
        return sums

    def node_maximum(self, of_pods: Int64Array) -> Int64Array:
        """Return the largest value over each node's pods, 0 without pods."""
        largest = np.zeros(len(self.nodes), dtype=np.int64)
        np.maximum.at(largest, self.node_of_pod, of_pods)
        return largest

    def node_total(self, of_containers: Int64Array) -> Float64Array:
        """Sum containers to nodes."""
        sums = np.bincount(self.node_of, weights=of_containers, minlength=len(self.nodes))
        return sums.astype(np.float64)


def columns_of(amounts: Sequence[Resources]) -> Mapping[ResourceName, Int64Array]:
    """Put amounts into a column a resource."""
    return {one: whole_numbers([amount.of(one) for amount in amounts]) for one in ResourceName}
