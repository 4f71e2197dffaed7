"""From demand to sizes, node by node in columns: the shared headroom, rounding, clamping, limits."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.recommendation import UNBOUNDED, UNIT, Demand, DemandTable, round_up, round_up_whole
from cruise.domain.cluster import ContainerRole, Node
from cruise.domain.requests import init_floor
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources
from cruise.domain.usage import Float64Array, Int64Array

FIRST_KUBELET_LOWERING_MEMORY_LIMITS = (1, 34)


class NodeColumns:
    """The touchable pods of some nodes in columns, and the sums and shares over pods and nodes.

    The table's pods are grouped by node, in the order of `nodes`; `pods_per_node` counts them. `available` is each
    node's room for them, overheads already taken off.
    """

    def __init__(
        self, nodes: Sequence[Node], available: Sequence[Resources], pods_per_node: Sequence[int], table: DemandTable
    ) -> None:
        self.table = table
        self.node_of_pod = np.repeat(np.arange(len(nodes)), pods_per_node)
        self.node_of = self.node_of_pod[table.pod_of]
        self.available = {
            ResourceName.CPU: np.array([room.cpu_millicores for room in available], dtype=np.int64),
            ResourceName.MEMORY: np.array([room.memory_bytes for room in available], dtype=np.int64),
        }
        self._nodes = nodes
        self._with_init = [
            (index, pod.pod)
            for index, pod in enumerate(table.pods)
            if any(container.role is ContainerRole.INIT for container in pod.pod.containers)
        ]
        self._manages = {
            ResourceName.CPU: np.array([pod.manages_cpu for pod in table.pods], dtype=np.bool_),
            ResourceName.MEMORY: np.array([pod.manages_memory for pod in table.pods], dtype=np.bool_),
        }

    def sizes(
        self, resource: ResourceName, demand: Demand, stays: NDArray[np.bool_], fits: NDArray[np.bool_]
    ) -> Int64Array:
        """Return base plus the proportional share of the node's largest headroom, rounded up and clamped."""
        unit = UNIT[resource]
        headroom = np.where(stays[self.table.pod_of], demand.headroom, 0)
        largest = self.node_maximum_of_containers(headroom)
        total = np.bincount(self.node_of, weights=headroom, minlength=len(self._nodes))
        ratio = np.divide(largest, total, out=np.zeros(len(self._nodes)), where=total > 0)
        final = round_up(demand.raw_base + headroom * ratio[self.node_of], unit)
        final = np.minimum(np.maximum(final, demand.lower), demand.upper)
        grows_nothing = ~fits[self.node_of]
        final = np.where(grows_nothing, np.minimum(final, demand.current), final)
        return np.where(demand.managed, final, demand.current)

    def trim(self, cpu: Int64Array, memory: Int64Array, stays: NDArray[np.bool_], fits: NDArray[np.bool_]) -> None:
        """Take back what rounding and clamping put over a node's room, from the largest shares first."""
        for resource, final, demand in (
            (ResourceName.CPU, cpu, self.table.cpu),
            (ResourceName.MEMORY, memory, self.table.memory),
        ):
            unit = UNIT[resource]
            whole = np.clip(round_up_whole(demand.base, unit), demand.lower, demand.upper)
            least = np.clip(demand.base // unit * unit, demand.lower, demand.upper)
            for floor in (whole, least):
                self._trim_to(resource, final, np.minimum(final, floor), (cpu, memory), stays, fits)

    def _trim_to(
        self,
        resource: ResourceName,
        final: Int64Array,
        floor: Int64Array,
        sizes: tuple[Int64Array, Int64Array],
        stays: NDArray[np.bool_],
        fits: NDArray[np.bool_],
    ) -> None:
        """Cut until every node's sum fits or nothing is left to cut.

        A cut under a pod whose init containers set its sum frees nothing, so the sums are taken again each time.
        """
        over = self._excess(resource, *sizes, stays)
        while np.any((over > 0) & fits):
            cut = [
                self._trim_node(int(node), resource, int(over[node]), final, floor, stays)
                for node in np.flatnonzero((over > 0) & fits)
            ]
            if not any(cut):
                return
            over = self._excess(resource, *sizes, stays)

    def _trim_node(
        self,
        node: int,
        resource: ResourceName,
        excess: int,
        final: Int64Array,
        floor: Int64Array,
        stays: NDArray[np.bool_],
    ) -> bool:
        first, last = np.searchsorted(self.node_of, [node, node + 1])
        unit = UNIT[resource]
        wanted = excess
        order = sorted(range(first, last), key=lambda at: (int(floor[at] - final[at]), at))
        for at in order:
            if excess <= 0:
                break
            if not stays[self.table.pod_of[at]]:
                continue
            cut = min(int(final[at] - floor[at]), -(-excess // unit) * unit)
            final[at] -= cut
            excess -= cut
        return excess < wanted

    def _excess(
        self, resource: ResourceName, cpu: Int64Array, memory: Int64Array, stays: NDArray[np.bool_]
    ) -> Int64Array:
        sums = np.where(stays, self.pod_sums(cpu, memory)[resource], 0)
        return self.node_sum(sums) - self.available[resource]

    def memory_limits(self, memory: Int64Array) -> Int64Array:
        """Return the memory limit of each container, 0 for none."""
        table = self.table
        safe = np.maximum(table.safe_memory_limit, memory)
        wanted = round_up_whole(np.maximum(table.wanted_memory_limit, safe), MEBIBYTE)
        capped = np.minimum(table.memory_limit_cap, _times(memory, table.memory_limit_ratio))
        # Where a LimitRange leaves no safe limit the value stays safe, and the pod is held for breaking the range.
        wanted = np.minimum(wanted, np.maximum(capped, safe))
        lowers = np.array(
            [
                node.kubelet_version is None or node.kubelet_version >= FIRST_KUBELET_LOWERING_MEMORY_LIMITS
                for node in self._nodes
            ],
            dtype=np.bool_,
        )[self.node_of]
        # An old kubelet refuses to add a limit as it refuses to lower one.
        kept = np.where(table.memory_limit > 0, np.maximum(wanted, table.memory_limit), 0)
        return np.where(table.memory.managed, np.where(lowers, wanted, kept), table.memory_limit)

    def cpu_limits(self, cpu: Int64Array) -> Int64Array:
        """Return the CPU limit of each container: what the node has, where there is one already; 0 for none."""
        table = self.table
        whole = np.array([node.allocatable.cpu_millicores for node in self._nodes], dtype=np.int64)[self.node_of]
        cap = np.minimum(table.cpu_limit_cap, _times(cpu, table.cpu_limit_ratio))
        raised = np.maximum(np.minimum(whole, cap), cpu)
        return np.where(table.cpu.managed & (table.cpu_limit > 0), raised, table.cpu_limit)

    def growth(
        self, before: Sequence[Resources], after: Mapping[ResourceName, Int64Array]
    ) -> dict[ResourceName, Int64Array]:
        """Return what each pod's counted requests rise by, 0 where they fall or are not managed."""
        pods = self.table.pods
        of = {
            ResourceName.CPU: [
                (c.cpu_millicores - p.pod.overhead.cpu_millicores) for c, p in zip(before, pods, strict=True)
            ],
            ResourceName.MEMORY: [
                (c.memory_bytes - p.pod.overhead.memory_bytes) for c, p in zip(before, pods, strict=True)
            ],
        }
        return {
            resource: np.where(
                self._manages[resource], np.maximum(after[resource] - np.array(of[resource], dtype=np.int64), 0), 0
            )
            for resource in ResourceName
        }

    def pod_sums(self, cpu: Int64Array, memory: Int64Array) -> dict[ResourceName, Int64Array]:
        """Sum containers to pods, floored by what their regular init containers need, without overhead."""
        sums = {ResourceName.CPU: self._sum_to_pods(cpu), ResourceName.MEMORY: self._sum_to_pods(memory)}
        for index, pod in self._with_init:
            first = int(self.table.first_container[index])
            sidecars = {
                container.name: Resources(int(cpu[first + offset]), int(memory[first + offset]))
                for offset, container in enumerate(self.table.pods[index].sized)
                if container.role is ContainerRole.SIDECAR
            }
            floor = init_floor(pod, sidecars)
            sums[ResourceName.CPU][index] = max(sums[ResourceName.CPU][index], floor.cpu_millicores)
            sums[ResourceName.MEMORY][index] = max(sums[ResourceName.MEMORY][index], floor.memory_bytes)
        for resource in ResourceName:
            sums[resource][~self._manages[resource]] = 0
        return sums

    def _sum_to_pods(self, values: Int64Array) -> Int64Array:
        if not len(self.table.pods):
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(values, self.table.first_container)

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

    def node_maximum(self, of_pods: Int64Array) -> Int64Array:
        """Return the largest value over each node's pods, 0 without pods."""
        largest = np.zeros(len(self._nodes), dtype=np.int64)
        np.maximum.at(largest, self.node_of_pod, of_pods)
        return largest

    def node_maximum_of_containers(self, values: Int64Array) -> Int64Array:
        """Return the largest value over each node's containers, 0 without containers."""
        largest = np.zeros(len(self._nodes), dtype=np.int64)
        np.maximum.at(largest, self.node_of, values)
        return largest


def _times(requests: Int64Array, ratio: Float64Array) -> Int64Array:
    """Return request x ratio, unbounded where the ratio is free."""
    product = np.where(np.isinf(ratio), UNBOUNDED, requests * np.minimum(ratio, UNBOUNDED))
    return np.minimum(product, UNBOUNDED).astype(np.int64)
