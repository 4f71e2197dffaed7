"""The replayed pods: sizes, places and ages, and the sums over their nodes, kept up to date at every change."""

from dataclasses import dataclass

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.nodes import Nodes
from cruise.backtest.replay.options import ReplayOptions
from cruise.backtest.replay.policy import ClusterView, Sizes
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.resources import Resources

PENDING = -1
ABSENT = -2


@dataclass(frozen=True, slots=True)
class Places:
    """The placed containers sorted by node, then index: `starts` has where each node of `nodes` begins in `order`.

    `row` is the place in `nodes` of each entry of `order`.
    """

    order: Int64Array
    nodes: Int64Array
    starts: Int64Array
    row: Int64Array


class Pods:
    """One pod with one container a column; every change of a place or a size is made here.

    `memory_in_use` is that of the last sample: NaN where there was none, 0 where memory was not recorded.
    Where memory was not recorded no pod counts for any: policies may request some, but nothing could be said about it.
    """

    def __init__(self, recording: Recording, options: ReplayOptions) -> None:
        count = len(recording.containers)
        self.nodes = Nodes(options)
        self.sizes = Sizes.zeros(count)
        self.node: Int64Array = np.full(count, ABSENT, dtype=np.int64)
        self.born: Int64Array = np.zeros(count, dtype=np.int64)
        self.born_at: Int64Array = np.zeros(count, dtype=np.int64)
        self._memory = self.sizes.memory_bytes if recording.has_memory else np.zeros(count, dtype=np.int64)
        self.memory_in_use: Float32Array = np.zeros(count, dtype=np.float32)
        self._places: Places | None = None

    def view(self, at: int) -> ClusterView:
        """Return the cluster as policies see it."""
        return ClusterView(at, self.sizes, self.node, self.born, self.born_at, self.nodes.alive, self.nodes.allocatable)

    @property
    def places(self) -> Places:
        """Which container runs where; the same object until a place changes."""
        if self._places is None:
            running = np.flatnonzero(self.node >= 0)
            order = running[np.argsort(self.node[running], kind="stable")]
            of_node = self.node[order]
            first = np.ones(len(order), dtype=np.bool_)
            np.not_equal(of_node[1:], of_node[:-1], out=first[1:])
            starts = np.flatnonzero(first)
            self._places = Places(order, of_node[starts], starts, np.cumsum(first) - 1)
        return self._places

    def need(self, container: int) -> Resources:
        """Return what kube-scheduler counts for a pod."""
        return Resources(int(self.sizes.cpu_millicores[container]), int(self._memory[container]))

    def needs(self, sizes: Sizes) -> list[Resources]:
        """Return what kube-scheduler would count for pods of some sizes."""
        memory = sizes.memory_bytes if self._memory is self.sizes.memory_bytes else np.zeros_like(sizes.memory_bytes)
        return [Resources(*one) for one in zip(sizes.cpu_millicores.tolist(), memory.tolist(), strict=True)]

    def create(self, containers: Int64Array, at: int) -> None:
        """Make pods pending that are new, or replace those that were removed."""
        self.node[containers] = PENDING
        self.born[containers] += 1
        self.born_at[containers] = at

    def place(self, container: int, node: int) -> None:
        """Bind a pending pod."""
        self.nodes.put(node, self.need(container))
        self.node[container] = node
        self._places = None

    def remove(self, containers: Int64Array) -> None:
        """Delete pods, wherever they are."""
        for container in containers.tolist():
            if self.node[container] >= 0:
                self.nodes.take(int(self.node[container]), self.need(container))
        self.node[containers] = ABSENT
        self._places = None

    def resize(self, containers: Int64Array, sizes: Sizes) -> None:
        """Write sizes, one entry each, of pods that run or are pending; no container may be there twice."""
        running = self.node[containers] >= 0
        placed = containers[running]
        before = self.sizes.cpu_millicores[placed], self._memory[placed]
        self.sizes.put(containers, sizes)
        if placed.size:
            self.nodes.resize(self.node[placed], before, (self.sizes.cpu_millicores[placed], self._memory[placed]))
