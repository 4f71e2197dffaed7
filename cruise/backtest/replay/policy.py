"""A policy under replay: it gives sizes to new pods, and at every pass to the pods that run."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np

from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE, BoolArray, Float32Array, Int64Array, Resources


@dataclass(frozen=True, slots=True)
class ContainerSizes:
    """Requests and memory limits of containers, one entry each; a limit of 0 is none. CPU is never limited."""

    cpu_millicores: Int64Array
    memory_bytes: Int64Array
    memory_limit_bytes: Int64Array

    @staticmethod
    def create_zeros(count: int) -> "ContainerSizes":
        """Return sizes of nothing."""
        return ContainerSizes(*(np.zeros(count, dtype=np.int64) for _ in range(3)))

    def find_differences(self, other: "ContainerSizes") -> BoolArray:
        """Tell which entries are not those of other sizes."""
        requests = (self.cpu_millicores != other.cpu_millicores) | (self.memory_bytes != other.memory_bytes)
        different: BoolArray = requests | (self.memory_limit_bytes != other.memory_limit_bytes)
        return different

    def select(self, places: Int64Array | BoolArray) -> "ContainerSizes":
        """Return the entries at some places."""
        return ContainerSizes(self.cpu_millicores[places], self.memory_bytes[places], self.memory_limit_bytes[places])

    def assign(self, places: Int64Array, sizes: "ContainerSizes") -> None:
        """Replace the entries at some places."""
        self.cpu_millicores[places] = sizes.cpu_millicores
        self.memory_bytes[places] = sizes.memory_bytes
        self.memory_limit_bytes[places] = sizes.memory_limit_bytes


@dataclass(frozen=True, slots=True)
class ReplayClusterView:
    """The simulated cluster as a policy sees it; one container a pod, columns with one entry a container.

    `node` is the index of the container's node: -1 for one that is pending, -2 for one that does not exist (yet, or any
    more). `born` counts the container's pods: it changes where a pod was replaced; `born_at` is when the pod that runs
    now was created, in Unix seconds. `alive` tells which node indices are nodes now; the index of a node that the
    autoscaler removed is used again. To be read only, and not to be kept.
    """

    at: int
    sizes: ContainerSizes
    node: Int64Array
    creation_row: Int64Array
    created_at: Int64Array
    node_exists: BoolArray
    allocatable: Resources


@dataclass(frozen=True, slots=True)
class ReplayDecision:
    """What a policy wants at a pass.

    `resize` has the containers whose `sizes` (one entry each) are to be written in place, `evict` those whose pods are
    to be evicted, in this order. A growth for which the node has no room is not done; where `evict_without_room` is
    set its pod is evicted instead. `base` and `headroom` are those of each node index, for pictures, where a policy
    thinks in them.
    """

    resize: Int64Array
    sizes: ContainerSizes
    evict: Int64Array
    evict_without_capacity: bool = False
    base: tuple[Int64Array, Int64Array] | None = None  # CPU, memory
    headroom: tuple[Int64Array, Int64Array] | None = None


NO_CONTAINERS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ReplayedOomKill:
    """A container killed for lack of memory: what it used, and whether its own limit or the node's end was reached."""

    container: int
    at: int
    used_bytes: int
    by_limit: bool


@dataclass(frozen=True, slots=True)
class ReplayedOomReaction:
    """What a policy does at once about a kill: sizes to be written in place (one entry), or an eviction, or nothing."""

    sizes: ContainerSizes | None = None
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

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return what new pods of some containers are created with, one entry each.

        Called as well for containers that run (`view.node` not negative), to see what their pods would get if they
        were created again now; nothing is created then.
        """
        ...

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Return what to do at the pass at `view.at`."""
        ...

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Learn from a kill, and return what to do about it at once: nothing, for a policy without such a rule.

        The container is running again already.
        """
        return ReplayedOomReaction()


# The options of a replay: the same for every policy.


class PodCreationTime(StrEnum):
    """When pods are created."""

    FIRST_SAMPLE = "first-sample"
    START = "start"


class ConsolidationSizes(StrEnum):
    """By which sizes consolidation judges whether pods have room elsewhere."""

    ADMITTED = "admitted"
    REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The size of every node, the interval of passes, what a violation may cost, and prices (None: no costs).

    Where samples are further apart than `pass_seconds`, there is one pass a sample. `risk` is the share of intervals in
    which a node may run short, for the policies that promise one; `policy` has the settings that cruise decides by.
    `stored` are the overrides of workloads that cruise knows. `both_judgements` is whether a second replay is made of
    each policy, whose consolidation judges by requests.
    """

    node: Resources = Resources(16000, 64 * 1024 * MEBIBYTE)
    node_pods: int = 110
    pass_seconds: int = 300
    creation_time: PodCreationTime = PodCreationTime.FIRST_SAMPLE
    seed: int = 0
    risk: float = 1e-3
    policy: Policy = Policy()
    with_both_consolidations: bool = True
    price_core_hour: float | None = None
    price_gibibyte_hour: float | None = None
    stored: StoredOverrides = field(default_factory=dict)
