"""Simulated nodes of one size: the sums of their pods' requests, and kube-scheduler's choice for a new pod."""

from collections.abc import Collection

import numpy as np

from cruise.backtest.replay.policy import ReplayOptions
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.resources import Resources
from cruise.simulation.cluster.kube_scheduler import get_scored_requests, has_capacity, score_least_allocated

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
        fits = has_capacity(self._pods_each - self.pods, *self.get_free(), need)
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
