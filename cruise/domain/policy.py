"""What the operator asks for: the policy of the installation, and the values that overrides choose from."""

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum, StrEnum

from cruise.domain.cluster import NodeAutoscaler
from cruise.domain.namespaces import matches_any
from cruise.domain.resources import MEBIBYTE, Amounts, ResourceName, Resources
from cruise.domain.rules import DEFAULT_RULES, Rules


class Mode(IntEnum):
    """How far cruise may go; the lowest of cluster, namespace and workload counts."""

    OFF = 0
    OBSERVE = 1
    INITIAL = 2
    RESIZE = 3
    FULL = 4

    @property
    def label(self) -> str:
        """The name used in settings, annotations and files."""
        return self.name.lower()


class EvictionRanking(IntEnum):
    """Who goes first: LOW is evicted before MEDIUM before HIGH, NEVER not at all."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    NEVER = 3

    @property
    def label(self) -> str:
        """The name used in annotations and files."""
        return self.name.lower()


class NodeAutoscaling(StrEnum):
    """What adds and removes nodes: found out by itself, or stated."""

    DETECT = "detect"
    NONE = "none"
    KARPENTER = NodeAutoscaler.KARPENTER.value
    CLUSTER_AUTOSCALER = NodeAutoscaler.CLUSTER_AUTOSCALER.value

    def settled(self, seen: NodeAutoscaler | None) -> NodeAutoscaler | None:
        """Return what holds where something is seen: what is stated, if anything is."""
        match self:
            case NodeAutoscaling.DETECT:
                return seen
            case NodeAutoscaling.NONE:
                return None
            case _:
                return NodeAutoscaler(self.value)


class AdmissionSize(StrEnum):
    """What new pods are created with: their peak, or what a node pass would give them."""

    PEAK = "peak"
    PLANNED = "planned"


class Consolidation(StrEnum):
    """Whether it is looked at with how few nodes the cluster would do, and whether pods are moved for that."""

    OFF = "off"
    ADVISE = "advise"
    ACT = "act"


class MemoryLimits(StrEnum):
    """Which containers have their memory limit changed: those that state one, all, or none."""

    EXISTING = "existing"
    ALWAYS = "always"
    NEVER = "never"


class OomReaction(StrEnum):
    """What follows an out-of-memory kill."""

    RESIZE_THEN_EVICT = "resize-then-evict"
    EVICT = "evict"
    RECORD = "record"


FLOOR = Resources(10, 16 * MEBIBYTE)
"""The smallest request that cruise gives, and that anybody may state."""
PROTECTED_NAMESPACES = frozenset({"kube-system", "cruise"})
"""Namespaces that are excluded whatever others are, unless they are taken out by name."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Smallest and largest request that an override allows; None is no bound."""

    minimum: Amounts = Amounts()
    maximum: Amounts = Amounts()


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decisions read, resolved once at the edge."""

    mode: Mode = Mode.OBSERVE
    rules: Rules = DEFAULT_RULES
    excluded_namespaces: frozenset[str] = PROTECTED_NAMESPACES  # names and patterns
    allow_extended_resources: bool = False
    node_autoscaler: NodeAutoscaling = NodeAutoscaling.DETECT
    admission_size: AdmissionSize | None = None  # None: planned where nodes come and go by themselves
    max_age: timedelta = timedelta(minutes=15)
    max_decision_age: timedelta = timedelta(seconds=60)  # since the snapshot; older decisions are not written
    look_ahead: timedelta = timedelta(minutes=15)
    pass_interval: timedelta = timedelta(minutes=5)
    node_load_interval: timedelta = timedelta(minutes=1)
    new_workload_age: timedelta = timedelta(minutes=30)
    memory_limits: MemoryLimits = MemoryLimits.EXISTING
    memory_limit_history: timedelta = timedelta(days=28)
    memory_limit_factor: float = 2.0  # of the largest use seen
    memory_limit_ceiling: float = 2.0  # of the limit that the pod template states
    working_set_margin: float = 1.2  # of the working set now, which a memory limit must stay above
    oom_cooldown: timedelta = timedelta(minutes=5)
    oom_reaction: OomReaction = OomReaction.RESIZE_THEN_EVICT
    deferred_patience: timedelta = timedelta(minutes=5)
    deferred_memory: timedelta = timedelta(minutes=10)
    max_evictions_per_node: int = 1
    max_evictions_per_workload: int = 1
    max_evictions_per_hour: int = 20
    headroom: str = "risk"  # the name of a model in decisions/sizing/headroom/choosing.py
    cpu_risk: float = 7e-2  # of a node's intervals, the share in which its demand may pass its pods' requests
    memory_risk: float = 1e-2  # the same for memory, which kills
    floor: Resources = FLOOR
    dead_band_share: float = 0.05
    dead_band: Resources = Resources(10, 16 * MEBIBYTE)
    cpu_band: float = 0.15  # of what a node's pods need together, how far above it their sum may stay
    memory_band: float = 0.15
    band_patience: timedelta = timedelta(minutes=30)  # before what is above its band is cut
    below_patience: timedelta = timedelta(minutes=30)  # before what is below its base is grown on its own account
    resizes_per_container_day: float = 6.0  # the budget of writes: how many a container gets a day on average
    shrink_cooldown: timedelta | None = None  # after a write of a request, before it shrinks; None: by the budget
    overload_above: float = 1.0
    overload_below: float = 0.9

    def excludes(self, namespace: str) -> bool:
        """Tell whether the pods of a namespace are left alone."""
        return matches_any(self.excluded_namespaces, namespace)

    @property
    def of_plans(self) -> "Policy":
        """The policy that plans follow: in mode observe they are those of mode full, and only shown."""
        return replace(self, mode=Mode.FULL) if self.mode is Mode.OBSERVE else self

    @property
    def cooldown(self) -> timedelta:
        """How long a request that was written is not shrunk: twice the average of a day's writes, spread over the day.

        A few containers need most of the writes, and the budget is kept by all of them together.
        """
        if self.shrink_cooldown is not None:
            return self.shrink_cooldown
        return timedelta(days=1) / (2 * max(self.resizes_per_container_day, 1.0))

    def risk_of(self, resource: ResourceName) -> float:
        """Return the share of intervals in which a node's demand for a resource may pass its pods' requests."""
        return self.cpu_risk if resource is ResourceName.CPU else self.memory_risk
