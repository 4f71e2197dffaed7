"""The replayed pods: sizes, places and ages, and the sums over their nodes, kept up to date at every change."""

from dataclasses import dataclass

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.nodes import ReplayedNodes
from cruise.backtest.replay.policy import ContainerSizes, ReplayClusterView, ReplayOptions
from cruise.domain.resources import Float32Array, Int64Array, Resources

PENDING_NODE = -1
ABSENT_NODE = -2


@dataclass(frozen=True, slots=True)
class PlacedContainers:
    """The placed containers sorted by node, then index: `starts` has where each node of `nodes` begins in `order`.

    `row` is the place in `nodes` of each entry of `order`.
    """

    order: Int64Array
    nodes: Int64Array
    starts: Int64Array
    row_of_container: Int64Array


class ReplayedPodState:
    """One pod with one container a column; every change of a place or a size is made here.

    `memory_in_use` is that of the last sample: NaN where there was none, 0 where memory was not recorded.
    Where memory was not recorded no pod counts for any: policies may request some, but nothing could be said about it.
    """

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        count = len(recording.containers)
        self.nodes = ReplayedNodes(options)
        self.sizes = ContainerSizes.create_zeros(count)
        self.node: Int64Array = np.full(count, ABSENT_NODE, dtype=np.int64)
        self.creation_row: Int64Array = np.zeros(count, dtype=np.int64)
        self.created_at: Int64Array = np.zeros(count, dtype=np.int64)
        self._memory = self.sizes.memory_bytes if recording.has_memory else np.zeros(count, dtype=np.int64)
        self.memory_in_use: Float32Array = np.zeros(count, dtype=np.float32)
        self._places: PlacedContainers | None = None

    def get_view(self, at: int) -> ReplayClusterView:
        """Return the cluster as policies see it."""
        return ReplayClusterView(
            at, self.sizes, self.node, self.creation_row, self.created_at, self.nodes.exists, self.nodes.allocatable
        )

    @property
    def get_placed(self) -> PlacedContainers:
        """Which container runs where; the same object until a place changes."""
        if self._places is None:
            running = np.flatnonzero(self.node >= 0)
            order = running[np.argsort(self.node[running], kind="stable")]
            of_node = self.node[order]
            first = np.ones(len(order), dtype=np.bool_)
            np.not_equal(of_node[1:], of_node[:-1], out=first[1:])
            starts = np.flatnonzero(first)
            self._places = PlacedContainers(order, of_node[starts], starts, np.cumsum(first) - 1)
        return self._places

    def get_need(self, container: int) -> Resources:
        """Return what kube-scheduler counts for a pod."""
        return Resources(int(self.sizes.cpu_millicores[container]), int(self._memory[container]))

    def get_needs(self, sizes: ContainerSizes) -> list[Resources]:
        """Return what kube-scheduler would count for pods of some sizes."""
        memory = sizes.memory_bytes if self._memory is self.sizes.memory_bytes else np.zeros_like(sizes.memory_bytes)
        return [Resources(*one) for one in zip(sizes.cpu_millicores.tolist(), memory.tolist(), strict=True)]

    def create(self, containers: Int64Array, at: int) -> None:
        """Make pods pending that are new, or replace those that were removed."""
        self.node[containers] = PENDING_NODE
        self.creation_row[containers] += 1
        self.created_at[containers] = at

    def bind(self, container: int, node: int) -> None:
        """Bind a pending pod."""
        self.nodes.add_pod(node, self.get_need(container))
        self.node[container] = node
        self._places = None

    def remove(self, containers: Int64Array) -> None:
        """Delete pods, wherever they are."""
        for container in containers.tolist():
            if self.node[container] >= 0:
                self.nodes.remove_pod(int(self.node[container]), self.get_need(container))
        self.node[containers] = ABSENT_NODE
        self._places = None

    def resize(self, containers: Int64Array, sizes: ContainerSizes) -> None:
        """Write sizes, one entry each, of pods that run or are pending; no container may be there twice."""
        running = self.node[containers] >= 0
        placed = containers[running]
        before = self.sizes.cpu_millicores[placed], self._memory[placed]
        self.sizes.assign(containers, sizes)
        if placed.size:
            self.nodes.resize(self.node[placed], before, (self.sizes.cpu_millicores[placed], self._memory[placed]))
