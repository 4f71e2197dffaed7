"""The interface between a replay and the policies it compares, and the options of a replay."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from cruise.backtest.recordings.scaling import ReplayHpaOptions
from cruise.domain.arrays import BoolArray, Float32Array, Int64Array
from cruise.domain.backtest import PodCreationTime
from cruise.domain.cluster import HorizontalPodAutoscaler
from cruise.domain.policy import Policy
from cruise.domain.prices import ResourcePrices
from cruise.domain.resources import MEBIBYTE, Resources
from cruise.domain.rightsizing_policies import RightsizingPolicy

NO_CONTAINERS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ContainerSizes:
    """Requests and memory limits of containers, one entry each; 0 means no limit. CPU has no limits."""

    cpu_millicores: Int64Array
    memory_bytes: Int64Array
    memory_limit_bytes: Int64Array

    @staticmethod
    def create_zeros(count: int) -> "ContainerSizes":
        """Return sizes of 0."""
        return ContainerSizes(*(np.zeros(count, dtype=np.int64) for _ in range(3)))

    def find_differences(self, other: "ContainerSizes") -> BoolArray:
        """Return a mask of the entries that differ from those of other sizes."""
        requests = (self.cpu_millicores != other.cpu_millicores) | (self.memory_bytes != other.memory_bytes)
        different: BoolArray = requests | (self.memory_limit_bytes != other.memory_limit_bytes)
        return different

    def select(self, places: Int64Array | BoolArray) -> "ContainerSizes":
        """Return the entries at the given places."""
        return ContainerSizes(self.cpu_millicores[places], self.memory_bytes[places], self.memory_limit_bytes[places])

    def assign(self, places: Int64Array, sizes: "ContainerSizes") -> None:
        """Replace the entries at the given places."""
        self.cpu_millicores[places] = sizes.cpu_millicores
        self.memory_bytes[places] = sizes.memory_bytes
        self.memory_limit_bytes[places] = sizes.memory_limit_bytes


@dataclass(frozen=True, slots=True)
class ReplayClusterView:
    """The simulated cluster as a policy sees it: one container per pod, one entry per container.

    `node` is the index of the container's node: -1 if the pod is pending, -2 if it does not exist. `creation_count` is
    the number of pods created for the container so far; it increases when a pod is replaced. Times are in Unix seconds.
    `node_exists` has one entry per node index; the index of a removed node is reused. `autoscalers` are the HPAs
    as their controller reported them last. Policies must not change a view,
    nor keep it after the call.
    """

    time: int
    sizes: ContainerSizes
    node: Int64Array
    creation_count: Int64Array
    created_at: Int64Array
    node_exists: BoolArray
    allocatable: Resources
    autoscalers: tuple[HorizontalPodAutoscaler, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayDecision:
    """The decision of a policy at a pass.

    `resize` has the containers to resize in place to `sizes` (one entry each), `evict` those whose pods to evict, in
    this order. An increase that exceeds the node's free capacity is not written; with `evict_without_capacity` its pod
    is evicted instead. `base` and `headroom` have one entry per node index, for charts; None if a policy has neither.
    """

    resize: Int64Array
    sizes: ContainerSizes
    evict: Int64Array
    evict_without_capacity: bool = False
    base: tuple[Int64Array, Int64Array] | None = None  # CPU, memory
    headroom: tuple[Int64Array, Int64Array] | None = None


@dataclass(frozen=True, slots=True)
class ReplayedOomKill:
    """An out-of-memory kill of a container: at its own limit, or because the node ran out of memory."""

    container: int
    time: int
    used_bytes: int
    by_limit: bool


@dataclass(frozen=True, slots=True)
class ReplayedOomReaction:
    """The immediate reaction to a kill: sizes to write in place (one entry), an eviction, or nothing."""

    sizes: ContainerSizes | None = None
    evict: bool = False


class ReplayPolicy(Protocol):
    """A policy under replay. Calls are in the order of time; none sees samples later than its `time`."""

    @property
    def name(self) -> str:
        """The policy's name in tables."""

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Receive the samples of one pass interval: matrices (times, containers) up to `time`; NaN is no sample.

        Called for every interval, before `decide`.
        """
        return

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Return the sizes of new pods at admission, one entry per container.

        Also called for running containers (`view.node` not negative), to predict the sizes of replacement pods.
        """

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Return the decision of the pass at `view.time`."""

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Record a kill and return the immediate reaction: by default nothing. The container has restarted already."""
        return ReplayedOomReaction()


class ConsolidationSizeBasis(StrEnum):
    """The sizes by which consolidation decides whether the pods of a node fit on other nodes."""

    ADMITTED = "admitted"
    REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay, the same for every policy.

    If samples are further apart than `pass_seconds`, there is one pass per sample. `risk` is the stated risk of the
    policies that have one; `policy` has cruise's settings, and `policy_objects` those of its
    policies, sorted by key.
    `with_both_consolidations` adds a second replay of each policy, whose consolidation uses the present requests.
    Without prices there are no costs, without `added_autoscalers` no HPAs.
    """

    node: Resources = Resources(16000, 64 * 1024 * MEBIBYTE)
    node_pods: int = 110
    pass_seconds: int = 300
    creation_time: PodCreationTime = PodCreationTime.FIRST_SAMPLE
    seed: int = 0
    risk: float = 1e-3
    policy: Policy = Policy()
    with_both_consolidations: bool = True
    prices: ResourcePrices | None = None
    policy_objects: tuple[RightsizingPolicy, ...] = ()
    added_autoscalers: ReplayHpaOptions | None = None
