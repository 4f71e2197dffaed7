"""The installation's policy, and the values that settings and overrides choose from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum, StrEnum

from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.domain.namespace_patterns import matches_any_pattern
from cruise.domain.resources import (
    MEBIBYTE,
    ResourceName,
    Resources,
    StatedResources,
    format_cpu_millicores,
    format_memory_bytes,
    parse_cpu_millicores,
    parse_memory_bytes,
    quote_text,
)
from cruise.domain.scheduling import LabelSelector

# Rules that were added to the first design, and can be switched off to compare with it.


@dataclass(frozen=True, slots=True)
class EnabledRules:
    """The rules in effect.

    `plausibility_checks`: implausible samples are rejected, and increases of counters are spread over missed scrapes.
    `template_revisions`: a template with other resources than its predecessor is sized from its own use.
    `template_is_minimum`: the present nodes do not reduce new pods below their template. `memory_limit_ceiling`: memory
    limits end at the node's size and at a multiple of the template's limit. `fit_by_resource`: CPU and memory are
    fitted separately, each as far as possible; a Deferred resize is sent again when capacity may be free.
    `eviction_safeguards`: pods are evicted only for lasting conditions, and only if another node can run them.
    `limit_to_own_peak`: a container gets no more headroom than its own peak and a margin. `reserved_capacity`: user
    minimums are granted from free capacity only. `quotas`: no write exceeds or exhausts a ResourceQuota.
    `write_damping`: a size is written if it is worth it, not whenever it leaves the update threshold.
    `memory_limit_safeguards`: a limit is added only if settings or the namespace say so, decreased only on a long
    history, and never reduced below known use for a LimitRange. `oom_kills_in_status`: OOM kills in the pod statuses of
    a file count as observed. `heap_bounds`: memory is not cut below what heaps may need. `sizes_more_pods`: pods with
    devices are sized, and Guaranteed pods and pods of HPAs where settings say so. `run_histories`: pods that run to
    completion are sized by their earlier runs at any hour, and not shrunk below their peak.
    """

    name: str
    plausibility_checks: bool = True
    template_revisions: bool = True
    template_is_minimum: bool = True
    memory_limit_ceiling: bool = True
    fit_by_resource: bool = True
    eviction_safeguards: bool = True
    limit_to_own_peak: bool = True
    reserved_capacity: bool = True
    quotas: bool = True
    write_damping: bool = True
    memory_limit_safeguards: bool = True
    oom_kills_in_status: bool = True
    heap_bounds: bool = True
    sizes_more_pods: bool = True
    run_histories: bool = True


DEFAULT_RULES = EnabledRules("default")
SEED_RULES = EnabledRules(
    "seeds",
    plausibility_checks=False,
    template_revisions=False,
    template_is_minimum=False,
    memory_limit_ceiling=False,
    fit_by_resource=False,
    eviction_safeguards=False,
    limit_to_own_peak=False,
    reserved_capacity=False,
    quotas=False,
    write_damping=False,
    memory_limit_safeguards=False,
    oom_kills_in_status=False,
    heap_bounds=False,
    sizes_more_pods=False,
    run_histories=False,
)
RULE_SETS = (DEFAULT_RULES, SEED_RULES)


class Mode(IntEnum):
    """What cruise may do; the lowest of cluster, namespace and workload applies."""

    OFF = 0
    OBSERVE = 1
    INITIAL = 2
    RESIZE = 3
    FULL = 4

    @property
    def label(self) -> str:
        """The name in settings, annotations and files."""
        return self.name.lower()


class EvictionRanking(IntEnum):
    """The order of eviction: LOW before MEDIUM before HIGH; NEVER is not evicted."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    NEVER = 3

    @property
    def label(self) -> str:
        """The name in annotations and files."""
        return self.name.lower()


class NodeAutoscalerSetting(StrEnum):
    """The node autoscaler: detected or stated."""

    DETECT = "detect"
    NONE = "none"
    KARPENTER = NodeAutoscalerKind.KARPENTER.value
    CLUSTER_AUTOSCALER = NodeAutoscalerKind.CLUSTER_AUTOSCALER.value

    def resolve(self, detected: NodeAutoscalerKind | None) -> NodeAutoscalerKind | None:
        """Return the autoscaler that applies: the stated one, or the detected one."""
        match self:
            case NodeAutoscalerSetting.DETECT:
                return detected
            case NodeAutoscalerSetting.NONE:
                return None
            case _:
                return NodeAutoscalerKind(self.value)


class AdmissionSize(StrEnum):
    """The size of new pods: their peak, or what a node pass would give them."""

    PEAK = "peak"
    NODE_PASS = "planned"


class ConsolidationMode(StrEnum):
    """Whether consolidation is computed, and whether pods are moved for it."""

    OFF = "off"
    ADVISE = "advise"
    ACT = "act"


class MemoryLimitPolicy(StrEnum):
    """Whose memory limits are changed: containers that state one, all, or none."""

    EXISTING = "existing"
    ALWAYS = "always"
    NEVER = "never"


class HeapBoundPolicy(StrEnum):
    """What is not cut below the bound of a heap and its overhead: requests and limits, only limits, or nothing."""

    KEEP = "keep"
    LIMITS = "limits"
    IGNORE = "ignore"


class HpaPolicy(StrEnum):
    """Whether requests on whose utilization an HPA acts change, as long as it wants the same number of replicas."""

    WITHIN_TARGET = "within-target"
    HOLD = "hold"


class GuaranteedPolicy(StrEnum):
    """Whether pods of QoS class Guaranteed are sized, with requests that stay equal to their limits."""

    KEEP = "keep"
    RESIZE = "resize"


class BestEffortPolicy(StrEnum):
    """Whether new pods without any requests get them, and QoS class Burstable with them."""

    KEEP = "keep"
    ADOPT = "adopt"


class StartupPolicy(StrEnum):
    """Whether new pods start with the CPU that earlier starts of their workload used, if it is more than their size."""

    OFF = "off"
    LEARN = "learn"


class CpuLimitPolicy(StrEnum):
    """What happens to CPU limits: none changes, too low ones rise, or new pods have none.

    With REMOVE_AT_CREATION, limits of running pods rise to their nodes' capacity: they cannot be removed in place.
    """

    KEEP = "keep"
    RAISE = "raise"
    REMOVE_AT_CREATION = "remove-at-creation"


class ResizeDirection(StrEnum):
    """In which direction requests and limits may change."""

    BOTH = "both"
    GROW = "grow"
    SHRINK = "shrink"


class OomReaction(StrEnum):
    """The reaction to an OOM kill."""

    RESIZE_THEN_EVICT = "resize-then-evict"
    EVICT = "evict"
    RECORD = "record"


MINIMUM_REQUEST = Resources(10, 16 * MEBIBYTE)
"""The smallest request that cruise writes and that users may state."""
PROTECTED_NAMESPACES = frozenset({"kube-system", "cruise"})
"""Namespaces that are excluded unless settings include them by name."""


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """Minimum and maximum of a request; None: no bound."""

    minimum: StatedResources = StatedResources()
    maximum: StatedResources = StatedResources()


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decisions read."""

    mode: Mode = Mode.OBSERVE
    rules: EnabledRules = DEFAULT_RULES
    excluded_namespaces: frozenset[str] = PROTECTED_NAMESPACES  # names and patterns
    included_namespaces: frozenset[str] = frozenset()  # names and patterns, empty for all
    namespace_selector: LabelSelector | None = None  # of the labels of namespaces; None for all
    allow_extended_resources: bool = True
    hpa: HpaPolicy = HpaPolicy.WITHIN_TARGET
    guaranteed: GuaranteedPolicy = GuaranteedPolicy.KEEP
    best_effort: BestEffortPolicy = BestEffortPolicy.KEEP
    startup: StartupPolicy = StartupPolicy.OFF
    # Times the largest known use: what the sizes of a Guaranteed pod are increased to, and what they are decreased to.
    guaranteed_growth_margin: float = 1.2
    guaranteed_shrink_margin: float = 1.5
    node_autoscaler: NodeAutoscalerSetting = NodeAutoscalerSetting.DETECT
    admission_size: AdmissionSize | None = None  # None: NODE_PASS if a node autoscaler runs, else PEAK
    max_age: timedelta = timedelta(minutes=15)
    max_decision_age: timedelta = timedelta(seconds=60)  # since the snapshot; later decisions are not written
    look_ahead: timedelta = timedelta(minutes=15)
    pass_interval: timedelta = timedelta(minutes=5)
    node_load_interval: timedelta = timedelta(minutes=1)
    new_workload_age: timedelta = timedelta(minutes=30)
    memory_limits: MemoryLimitPolicy = MemoryLimitPolicy.EXISTING
    cpu_limits: CpuLimitPolicy = CpuLimitPolicy.REMOVE_AT_CREATION
    memory_limit_history: timedelta = timedelta(days=28)
    heap_bounds: HeapBoundPolicy = HeapBoundPolicy.KEEP
    memory_limit_factor: float = 2.0  # times the largest known use
    memory_limit_ceiling: float = 2.0  # times the limit of the pod template
    working_set_margin: float = 1.2  # times the present working set: the least memory limit
    oom_cooldown: timedelta = timedelta(minutes=5)
    oom_reaction: OomReaction = OomReaction.RESIZE_THEN_EVICT
    deferred_resize_timeout: timedelta = timedelta(minutes=5)
    deferred_memory_timeout: timedelta = timedelta(minutes=10)
    max_evictions_per_node: int = 1
    max_evictions_per_workload: int = 1
    max_evictions_per_hour: int = 20
    headroom: str = "risk"  # the name of a model in decisions/sizing/headroom.py
    cpu_risk: float = 7e-2  # share of a node's intervals in which demand may exceed requests
    memory_risk: float = 1e-2  # the same for memory
    minimum_request: Resources = MINIMUM_REQUEST
    update_threshold_share: float = 0.05
    update_threshold: Resources = Resources(10, 16 * MEBIBYTE)
    cpu_tolerance: float = 0.15  # share by which the requests of a node's pods may exceed what they need together
    memory_tolerance: float = 0.15
    over_requested_stabilization: timedelta = timedelta(minutes=30)  # above the tolerance, before pods are shrunk
    under_requested_stabilization: timedelta = timedelta(minutes=30)  # base above request, before it is increased
    resizes_per_container_day: float = 6.0  # the budget of writes, as an average of all containers
    shrink_cooldown: timedelta | None = None  # no decrease after a write of a request; None: from the budget
    overload_taint_threshold: float = 1.0
    overload_untaint_threshold: float = 0.9

    def excludes_namespace(self, namespace: str) -> bool:
        """Return whether the pods of a namespace are skipped."""
        return matches_any_pattern(self.excluded_namespaces, namespace)

    def includes_namespace(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a namespace that is not excluded is among those to size, given its labels."""
        is_listed = not self.included_namespaces or matches_any_pattern(self.included_namespaces, namespace)
        return is_listed and (self.namespace_selector is None or self.namespace_selector.matches(labels))

    @property
    def planning_policy(self) -> "Policy":
        """The policy for plans: mode observe plans as mode full does, and only shows them."""
        return replace(self, mode=Mode.FULL) if self.mode is Mode.OBSERVE else self

    @property
    def effective_shrink_cooldown(self) -> timedelta:
        """How long a written request is not decreased; by default a day divided by twice the daily resizes.

        All containers share the budget, and a few need most of it.
        """
        if self.shrink_cooldown is not None:
            return self.shrink_cooldown
        return timedelta(days=1) / (2 * max(self.resizes_per_container_day, 1.0))

    def get_risk(self, resource: ResourceName) -> float:
        """Return the stated risk of a resource."""
        return self.cpu_risk if resource is ResourceName.CPU else self.memory_risk


# The capacity of machines; a larger quantity has a wrong unit.

# More than any machine on the market, and the largest cloud instance.
LARGEST_MACHINE = Resources(2_048_000, 64 << 40)
LARGEST_CLOUD_MACHINE = Resources(448_000, 24 << 40)
# A missing `m`, and the next larger binary suffix.
_UNIT_ERROR = {ResourceName.CPU: 1000, ResourceName.MEMORY: 1024}
_FORMATTERS = {ResourceName.CPU: format_cpu_millicores, ResourceName.MEMORY: format_memory_bytes}
_PARSERS = {ResourceName.CPU: parse_cpu_millicores, ResourceName.MEMORY: parse_memory_bytes}
_EXAMPLES = {ResourceName.CPU: "500m", ResourceName.MEMORY: "512Mi"}


def explain_too_large(resource: ResourceName, text: str, largest: Resources = LARGEST_MACHINE) -> str:
    """Return why a quantity exceeds the largest node and what was probably meant; empty if it does not.

    `largest` is the capacity of the largest node.
    """
    amount, most, write = _PARSERS[resource](text), largest.get(resource), _FORMATTERS[resource]
    if amount <= most:
        return ""
    meant = -(-amount // _UNIT_ERROR[resource])
    likely = MINIMUM_REQUEST.get(resource) <= meant <= most
    ending = f"did you mean {write(meant)}?" if likely else f"write e.g. {_EXAMPLES[resource]}"
    return f"{quote_text(text)} is more than any node has (at most {write(most)}); {ending}"


def parse_size(resource: ResourceName, text: str, *, may_be_zero: bool = False) -> int:
    """Parse a quantity between the smallest request and the largest machine; ValueError with the fix."""
    amount, least = _PARSERS[resource](text), MINIMUM_REQUEST.get(resource)
    if amount < 0:
        raise ValueError(f"{quote_text(text)} is negative")
    if amount < least and (amount or not may_be_zero):
        smallest = _FORMATTERS[resource](least)
        raise ValueError(
            f"{quote_text(text)} is below {smallest}, the smallest request; write e.g. {_EXAMPLES[resource]}"
        )
    too_large = explain_too_large(resource, text)
    if too_large:
        raise ValueError(too_large)
    return amount
