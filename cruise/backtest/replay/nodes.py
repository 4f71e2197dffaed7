"""Simulated nodes of one size (the sums of requests, kube-scheduler's choice for a new pod) and their pods."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ContainerSizes, ReplayClusterView, ReplayOptions
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.cluster import HorizontalPodAutoscaler
from cruise.domain.resources import Resources
from cruise.simulation.cluster.kube_scheduler import (
    find_nodes_with_capacity,
    get_scored_requests,
    score_least_allocated,
)

_NAME_PREFIX = "node-"


def format_node_name(index: int) -> str:
    """Return the name of the node of an index; names sort like indices."""
    return f"{_NAME_PREFIX}{index:03d}"


def parse_node_index(name: str) -> int:
    """Return the index of the node of a name."""
    return int(name.removeprefix(_NAME_PREFIX))


class ReplayedNodes:
    """The nodes, one entry per index; the index of a removed node is reused, the lowest first.

    `cpu_millicores` and `memory_bytes` are the requests that kube-scheduler's filters count; the scored ones are those
    that its scores count. `peak` is the largest number of nodes so far.
    """

    def __init__(self, options: ReplayOptions) -> None:
        self.allocatable = options.node
        self.peak = 0
        self._pods_each = options.node_pods
        self.exists: BoolArray = np.zeros(0, dtype=np.bool_)
        self.cpu_millicores: Int64Array = np.zeros(0, dtype=np.int64)
        self.memory_bytes: Int64Array = self.cpu_millicores
        self.scored_cpu_millicores: Int64Array = self.cpu_millicores
        self.scored_memory_bytes: Int64Array = self.cpu_millicores
        self.pods: Int64Array = self.cpu_millicores

    def copy(self) -> "ReplayedNodes":
        """Return a copy for simulated placements."""
        copy = ReplayedNodes.__new__(ReplayedNodes)
        copy.allocatable, copy.peak, copy._pods_each = self.allocatable, self.peak, self._pods_each
        copy.exists = self.exists.copy()
        copy.cpu_millicores, copy.memory_bytes = self.cpu_millicores.copy(), self.memory_bytes.copy()
        copy.scored_cpu_millicores = self.scored_cpu_millicores.copy()
        copy.scored_memory_bytes = self.scored_memory_bytes.copy()
        copy.pods = self.pods.copy()
        return copy

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return int(np.count_nonzero(self.exists))

    def get_free(self) -> tuple[Int64Array, Int64Array]:
        """Return the free CPU and memory of each index, also of those without a node now."""
        return (
            self.allocatable.cpu_millicores - self.cpu_millicores,
            self.allocatable.memory_bytes - self.memory_bytes,
        )

    def find_feasible(self, need: Resources) -> BoolArray:
        """Return a mask of the nodes that pass kube-scheduler's filters for a pod."""
        fits = find_nodes_with_capacity(self._pods_each - self.pods, *self.get_free(), need)
        fits &= self.exists
        return fits

    def may_fit(self, needs: Collection[Resources]) -> bool:
        """Return whether pods may fit together: a necessary condition that is cheaper than placing them."""
        amounts = [(need.cpu_millicores, need.memory_bytes) for need in needs]
        columns = np.array(amounts, dtype=np.int64).reshape(-1, 2).T
        if not self.exists.any() or any(
            needed.sum() > np.maximum(free[self.exists], 0).sum() or needed.max(initial=0) > free[self.exists].max()
            for free, needed in zip(self.get_free(), columns, strict=True)
        ):
            return False
        return len(needs) <= int((self._pods_each - self.pods)[self.exists].sum())

    def choose(self, need: Resources) -> int | None:
        """Return the node that kube-scheduler chooses for a pod; None if no node passes its filters."""
        fits = self.find_feasible(need)
        if not fits.any():
            return None
        scored = get_scored_requests(need)
        scores = score_least_allocated(
            self.allocatable.cpu_millicores,
            self.scored_cpu_millicores + scored.cpu_millicores,
            self.allocatable.memory_bytes,
            self.scored_memory_bytes + scored.memory_bytes,
        )
        scores[~fits] = -1
        return int(scores.argmax())

    def fits_empty_node(self, need: Resources) -> bool:
        """Return whether a pod fits on a new node."""
        return self._pods_each > 0 and need.fits_in(self.allocatable)

    def add_pod(self, index: int, need: Resources) -> None:
        """Add a pod's requests."""
        self._count(index, need, 1)

    def remove_pod(self, index: int, need: Resources) -> None:
        """Subtract a pod's requests."""
        self._count(index, need, -1)

    def _count(self, index: int, need: Resources, sign: int) -> None:
        scored = get_scored_requests(need)
        self.cpu_millicores[index] += sign * need.cpu_millicores
        self.memory_bytes[index] += sign * need.memory_bytes
        self.scored_cpu_millicores[index] += sign * scored.cpu_millicores
        self.scored_memory_bytes[index] += sign * scored.memory_bytes
        self.pods[index] += sign

    def resize(self, node: Int64Array, old: tuple[Int64Array, Int64Array], new: tuple[Int64Array, Int64Array]) -> None:
        """Replace pods' requests (CPU, memory); `node` has each pod's node, several may share one."""
        np.add.at(self.cpu_millicores, node, new[0] - old[0])
        np.add.at(self.memory_bytes, node, new[1] - old[1])
        default = get_scored_requests(Resources())
        for column, before, after, default_amount in (
            (self.scored_cpu_millicores, old[0], new[0], default.cpu_millicores),
            (self.scored_memory_bytes, old[1], new[1], default.memory_bytes),
        ):
            np.add.at(
                column,
                node,
                np.where(after == 0, default_amount, after) - np.where(before == 0, default_amount, before),
            )

    def add(self) -> int:
        """Add an empty node and return its index."""
        free = np.flatnonzero(~self.exists)
        if not free.size:
            self.exists = np.append(self.exists, False)
            for name in ("cpu_millicores", "memory_bytes", "scored_cpu_millicores", "scored_memory_bytes", "pods"):
                setattr(self, name, np.append(getattr(self, name), 0))
            free = np.array([len(self.exists) - 1])
        self.exists[free[0]] = True
        self.peak = max(self.peak, self.node_count)
        return int(free[0])

    def remove_empty(self) -> None:
        """Remove the nodes without pods."""
        self.exists &= self.pods > 0

    def compute_requested_share(self) -> Float64Array:
        """Return the requested share of each node: the larger of CPU and memory."""
        return np.maximum(
            self.cpu_millicores / max(1, self.allocatable.cpu_millicores),
            self.memory_bytes / max(1, self.allocatable.memory_bytes),
        )


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
