"""Simulated nodes, all of one size: what their pods request, which are there, and which one a new pod gets."""

from collections.abc import Collection

import numpy as np

from cruise.backtest.replay.policy import ReplayOptions
from cruise.domain.resources import BoolArray, Float64Array, Int64Array, Resources
from cruise.simulation.cluster.kube_scheduler import get_scored_requests, has_capacity, score_least_allocated


class ReplayedNodes:
    """Columns with one entry a node index; the index of a node that was removed is used again, the lowest first.

    `cpu_millicores` and `memory_bytes` are what kube-scheduler counts, the scored ones what its scores see.
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
        """Return the same nodes, to be filled without consequence."""
        twin = ReplayedNodes.__new__(ReplayedNodes)
        twin.allocatable, twin.peak, twin._pods_each = self.allocatable, self.peak, self._pods_each
        twin.exists = self.exists.copy()
        twin.cpu_millicores, twin.memory_bytes = self.cpu_millicores.copy(), self.memory_bytes.copy()
        twin.scored_cpu_millicores = self.scored_cpu_millicores.copy()
        twin.scored_memory_bytes = self.scored_memory_bytes.copy()
        twin.pods = self.pods.copy()
        return twin

    @property
    def count_nodes(self) -> int:
        """How many nodes there are."""
        return int(np.count_nonzero(self.exists))

    def get_free(self) -> tuple[Int64Array, Int64Array]:
        """Return the CPU and the memory that no pod requests, also of indices that are no node now."""
        return (
            self.allocatable.cpu_millicores - self.cpu_millicores,
            self.allocatable.memory_bytes - self.memory_bytes,
        )

    def get_room(self, need: Resources) -> BoolArray:
        """Tell which nodes pass kube-scheduler's filters for a pod."""
        fits = has_capacity(self._pods_each - self.pods, *self.get_free(), need)
        fits &= self.exists
        return fits

    def may_fit(self, needs: Collection[Resources]) -> bool:
        """Tell whether pods may have room together: cheaper to know than a placement, which alone is sure."""
        wanted = np.array([(need.cpu_millicores, need.memory_bytes) for need in needs], dtype=np.int64).reshape(-1, 2).T
        if not self.exists.any() or any(
            needed.sum() > np.maximum(free[self.exists], 0).sum() or needed.max(initial=0) > free[self.exists].max()
            for free, needed in zip(self.get_free(), wanted, strict=True)
        ):
            return False
        return len(needs) <= int((self._pods_each - self.pods)[self.exists].sum())

    def choose(self, need: Resources) -> int | None:
        """Return the node that kube-scheduler gives a pod, None where none passes its filters."""
        fits = self.get_room(need)
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
        """Tell whether another node would help."""
        return self._pods_each > 0 and need.fits_in(self.allocatable)

    def add_pod(self, index: int, need: Resources) -> None:
        """Bind a pod."""
        self._move(index, need, 1)

    def remove_pod(self, index: int, need: Resources) -> None:
        """Give a pod's room back."""
        self._move(index, need, -1)

    def _move(self, index: int, need: Resources, sign: int) -> None:
        scored = get_scored_requests(need)
        self.cpu_millicores[index] += sign * need.cpu_millicores
        self.memory_bytes[index] += sign * need.memory_bytes
        self.scored_cpu_millicores[index] += sign * scored.cpu_millicores
        self.scored_memory_bytes[index] += sign * scored.memory_bytes
        self.pods[index] += sign

    def resize(self, node: Int64Array, old: tuple[Int64Array, Int64Array], new: tuple[Int64Array, Int64Array]) -> None:
        """Take note of pods' new requests (CPU, memory); `node` is each pod's, and several may be on one."""
        np.add.at(self.cpu_millicores, node, new[0] - old[0])
        np.add.at(self.memory_bytes, node, new[1] - old[1])
        default = get_scored_requests(Resources())
        for column, before, after, unasked in (
            (self.scored_cpu_millicores, old[0], new[0], default.cpu_millicores),
            (self.scored_memory_bytes, old[1], new[1], default.memory_bytes),
        ):
            np.add.at(column, node, np.where(after == 0, unasked, after) - np.where(before == 0, unasked, before))

    def add(self) -> int:
        """Add an empty node, and return its index."""
        free = np.flatnonzero(~self.exists)
        if not free.size:
            self.exists = np.append(self.exists, False)
            for name in ("cpu_millicores", "memory_bytes", "scored_cpu_millicores", "scored_memory_bytes", "pods"):
                setattr(self, name, np.append(getattr(self, name), 0))
            free = np.array([len(self.exists) - 1])
        self.exists[free[0]] = True
        self.peak = max(self.peak, self.count_nodes)
        return int(free[0])

    def remove_empty(self) -> None:
        """Remove the nodes that have no pod."""
        self.exists &= self.pods > 0

    def requested_share(self) -> Float64Array:
        """Return what is requested of each node, as the share of the resource that is requested most."""
        return np.maximum(
            self.cpu_millicores / max(1, self.allocatable.cpu_millicores),
            self.memory_bytes / max(1, self.allocatable.memory_bytes),
        )
