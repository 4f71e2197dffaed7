"""A policy under replay: it gives sizes to new pods, and at every pass to the pods that run."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cruise.domain.arrays import BoolArray, Float32Array, Int64Array
from cruise.domain.resources import Resources


@dataclass(frozen=True, slots=True)
class Sizes:
    """Requests and memory limits of containers, one entry each; a limit of 0 is none. CPU is never limited."""

    cpu_millicores: Int64Array
    memory_bytes: Int64Array
    memory_limit_bytes: Int64Array

    @staticmethod
    def zeros(count: int) -> "Sizes":
        """Return sizes of nothing."""
        return Sizes(*(np.zeros(count, dtype=np.int64) for _ in range(3)))

    def differ(self, other: "Sizes") -> BoolArray:
        """Tell which entries are not those of other sizes."""
        requests = (self.cpu_millicores != other.cpu_millicores) | (self.memory_bytes != other.memory_bytes)
        different: BoolArray = requests | (self.memory_limit_bytes != other.memory_limit_bytes)
        return different

    def take(self, places: Int64Array | BoolArray) -> "Sizes":
        """Return the entries at some places."""
        return Sizes(self.cpu_millicores[places], self.memory_bytes[places], self.memory_limit_bytes[places])

    def put(self, places: Int64Array, sizes: "Sizes") -> None:
        """Replace the entries at some places."""
        self.cpu_millicores[places] = sizes.cpu_millicores
        self.memory_bytes[places] = sizes.memory_bytes
        self.memory_limit_bytes[places] = sizes.memory_limit_bytes


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The simulated cluster as a policy sees it; one container a pod, columns with one entry a container.

    `node` is the index of the container's node: -1 for one that is pending, -2 for one that does not exist (yet, or any
    more). `born` counts the container's pods: it changes where a pod was replaced; `born_at` is when the pod that runs
    now was created, in Unix seconds. `alive` tells which node indices are nodes now; the index of a node that the
    autoscaler removed is used again. To be read only, and not to be kept.
    """

    at: int
    sizes: Sizes
    node: Int64Array
    born: Int64Array
    born_at: Int64Array
    alive: BoolArray
    allocatable: Resources


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants at a pass.

    `resize` has the containers whose `sizes` (one entry each) are to be written in place, `evict` those whose pods are
    to be evicted, in this order. A growth for which the node has no room is not done; where `evict_without_room` is
    set its pod is evicted instead. `base` and `headroom` are those of each node index, for pictures, where a policy
    thinks in them.
    """

    resize: Int64Array
    sizes: Sizes
    evict: Int64Array
    evict_without_room: bool = False
    base: tuple[Int64Array, Int64Array] | None = None  # CPU, memory
    headroom: tuple[Int64Array, Int64Array] | None = None


NO_CONTAINERS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Kill:
    """A container killed for lack of memory: what it used, and whether its own limit or the node's end was reached."""

    container: int
    at: int
    used_bytes: int
    by_limit: bool


@dataclass(frozen=True, slots=True)
class KillReaction:
    """What a policy does at once about a kill: sizes to be written in place (one entry), or an eviction, or nothing."""

    sizes: Sizes | None = None
    evict: bool = False


class ReplayPolicy(Protocol):
    """One policy; every method is called with time going forward, and sees no sample later than its `at`."""

    @property
    def name(self) -> str:
        """The name in tables."""
        ...

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in the samples of one pass interval: matrices (times, containers), the last time is `at`; NaN is none.

        Called for every interval, before `decide`, which may come less often.
        """
        return

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        """Return what new pods of some containers are created with, one entry each.

        Called as well for containers that run (`view.node` not negative), to see what their pods would get if they
        were created again now; nothing is created then.
        """
        ...

    def decide(self, view: ClusterView) -> Decision:
        """Return what to do at the pass at `view.at`."""
        ...

    def killed(self, kill: Kill, view: ClusterView) -> KillReaction:
        """Learn from a kill, and return what to do about it at once: nothing, for a policy without such a rule.

        The container is running again already.
        """
        return KillReaction()
