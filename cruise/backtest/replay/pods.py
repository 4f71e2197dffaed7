"""The replayed pods: their sizes, nodes and creation times. Every change also updates the sums of the nodes."""

from dataclasses import dataclass

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.nodes import ReplayedNodes
from cruise.backtest.replay.policy import ContainerSizes, ReplayClusterView, ReplayOptions
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.cluster import HorizontalPodAutoscaler
from cruise.domain.resources import Resources

PENDING_NODE = -1
ABSENT_NODE = -2


@dataclass(frozen=True, slots=True)
class PlacedContainers:
    """The placed containers, sorted by node, then index.

    `starts` has the first place in `order` of each node of `nodes`; `row_of_container` has the place in `nodes` of each
    entry of `order`.
    """

    order: Int64Array
    nodes: Int64Array
    starts: Int64Array
    row_of_container: Int64Array


class ReplayedPodState:
    """The state of all pods, one entry per container; every placement and size is changed here.

    `memory_in_use` is the last sample, NaN if it is missing. If memory was not recorded, it is 0 and memory requests
    count as 0.
    """

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        count = len(recording.containers)
        self.nodes = ReplayedNodes(options)
        self.sizes = ContainerSizes.create_zeros(count)
        self.node: Int64Array = np.full(count, ABSENT_NODE, dtype=np.int64)
        self.creation_count: Int64Array = np.zeros(count, dtype=np.int64)
        self.created_at: Int64Array = np.zeros(count, dtype=np.int64)
        self._memory = self.sizes.memory_bytes if recording.has_memory else np.zeros(count, dtype=np.int64)
        self.memory_in_use: Float32Array = np.zeros(count, dtype=np.float32)
        self._placements: PlacedContainers | None = None
        self.autoscalers: tuple[HorizontalPodAutoscaler, ...] = ()

    def get_view(self, time: int) -> ReplayClusterView:
        """Return the cluster as policies see it."""
        return ReplayClusterView(
            time,
            self.sizes,
            self.node,
            self.creation_count,
            self.created_at,
            self.nodes.exists,
            self.nodes.allocatable,
            self.autoscalers,
        )

    @property
    def placements(self) -> PlacedContainers:
        """The placed containers; the same object until a placement changes."""
        if self._placements is None:
            running = np.flatnonzero(self.node >= 0)
            order = running[np.argsort(self.node[running], kind="stable")]
            node_of_pod = self.node[order]
            first = np.ones(len(order), dtype=np.bool_)
            np.not_equal(node_of_pod[1:], node_of_pod[:-1], out=first[1:])
            starts = np.flatnonzero(first)
            self._placements = PlacedContainers(order, node_of_pod[starts], starts, np.cumsum(first) - 1)
        return self._placements

    def get_need(self, container: int) -> Resources:
        """Return the requests that kube-scheduler counts for a pod."""
        return Resources(int(self.sizes.cpu_millicores[container]), int(self._memory[container]))

    def get_needs(self, sizes: ContainerSizes) -> list[Resources]:
        """Return the requests that kube-scheduler would count for pods of these sizes."""
        memory = sizes.memory_bytes if self._memory is self.sizes.memory_bytes else np.zeros_like(sizes.memory_bytes)
        return [Resources(*one) for one in zip(sizes.cpu_millicores.tolist(), memory.tolist(), strict=True)]

    def create(self, containers: Int64Array, time: int) -> None:
        """Create pods, which are then pending."""
        self.node[containers] = PENDING_NODE
        self.creation_count[containers] += 1
        self.created_at[containers] = time

    def bind(self, container: int, node: int) -> None:
        """Bind a pending pod."""
        self.nodes.add_pod(node, self.get_need(container))
        self.node[container] = node
        self._placements = None

    def remove(self, containers: Int64Array) -> None:
        """Delete pods, running or pending."""
        for container in containers.tolist():
            if self.node[container] >= 0:
                self.nodes.remove_pod(int(self.node[container]), self.get_need(container))
        self.node[containers] = ABSENT_NODE
        self._placements = None

    def resize(self, containers: Int64Array, sizes: ContainerSizes) -> None:
        """Set the sizes of running or pending pods, one entry each; no container may occur twice."""
        running = self.node[containers] >= 0
        placed = containers[running]
        before = self.sizes.cpu_millicores[placed], self._memory[placed]
        self.sizes.assign(containers, sizes)
        if placed.size:
            self.nodes.resize(self.node[placed], before, (self.sizes.cpu_millicores[placed], self._memory[placed]))
