"""What the operator asks for: the policy of the installation, and the values that overrides choose from."""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum, StrEnum
from fnmatch import translate
from functools import lru_cache

from cruise.domain.cluster import NodeAutoscalerKind
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

# Names of namespaces, and patterns of them in the way of fnmatch: `*`, `?`, `[a-c]`, `[!a-c]`.

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_LONGEST = 63
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_TOKEN = re.compile(r"\*|\?|\[!?\]?[-a-z0-9*?!\[]*\]|[-a-z0-9]", re.ASCII)


def is_namespace_name(text: str) -> bool:
    """Tell whether text can be the name of a namespace."""
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None


def check_namespace_pattern(text: str) -> None:
    """Raise ValueError, with the reason in words, for a pattern that matches no name of a namespace."""
    tokens = _TOKEN.findall(text)
    if not text or "".join(tokens) != text:
        raise ValueError(
            f"{quote_text(text)} matches no namespace: names have lower-case letters, digits and hyphens, "
            "and patterns *, ? and [a-c] besides"
        )
    single = [token for token in tokens if token != "*"]
    allowed = [_allowed(token) for token in tokens]
    if not all(allowed) or not (_may_end(allowed[0]) and _may_end(allowed[-1])):
        raise ValueError(f"{quote_text(text)} matches no namespace: names begin and end with a letter or a digit")
    if len(single) > _LONGEST:
        raise ValueError(f"{quote_text(text)} matches no namespace: names have at most {_LONGEST} characters")


def matches_any_pattern(patterns: Collection[str], name: str) -> bool:
    """Tell whether a namespace is named, or matched, by any of the patterns."""
    return name in patterns or any(
        _regex(pattern).fullmatch(name) for pattern in patterns if not is_namespace_name(pattern)
    )


def _allowed(token: str) -> str:
    """Return the characters of names that a part of a pattern stands for."""
    return "".join(one for one in f"{_LETTERS}-" if _regex(token).fullmatch(one))


def _may_end(characters: str) -> bool:
    return any(one != "-" for one in characters)


@lru_cache(maxsize=1 << 10)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))


# Where cruise goes further than the design that it started from: each departure by its name.


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Which departures hold.

    `plausible`: samples that cannot be true are refused, and growth is spread over scrapes that were missed.
    `revisions`: a template that states other resources than the one before it is sized from its own use.
    `lasting_templates`: no new pod is cut below what its template asks because of the nodes that exist just then.
    `ceiling`: memory limits end at the node, and at a multiple of what the template states.
    `fit_by_resource`: a resource that does not fit holds back nothing of the other one, and is shared as far as it
    goes; a resize that a kubelet put off is asked for again once there may be room.
    `careful_evictions`: only what lasts is mended by evictions, of pods that have somewhere to go.
    `own_peak`: no container is given more of its node's headroom than its own peak and a spare.
    `own_room`: what a workload's annotations ask beyond its requests is granted from free room.
    `calm`: a size is written where that is worth it; otherwise wherever it leaves its dead band.
    `quotas`: no write that a ResourceQuota would refuse, or that uses up what it grants.
    `careful_limits`: a limit is added only where the settings or the namespace ask for one, falls only on a history
    that is known to be long, and is never lowered below known use because of a LimitRange.
    `shown_kills`: out-of-memory kills in the pod statuses of a file count as if they had been watched.
    """

    name: str
    plausibility_checks: bool = True
    template_revisions: bool = True
    template_limits: bool = True
    memory_limit_ceiling: bool = True
    fit_by_resource: bool = True
    eviction_safeguards: bool = True
    limit_to_own_peak: bool = True
    reserved_capacity: bool = True
    quotas: bool = True
    write_damping: bool = True
    memory_limit_safeguards: bool = True
    oom_kills_in_status: bool = True


DEFAULT_RULES = RuleSet("default")
SEED_RULES = RuleSet(
    "seeds",
    plausibility_checks=False,
    template_revisions=False,
    template_limits=False,
    memory_limit_ceiling=False,
    fit_by_resource=False,
    eviction_safeguards=False,
    limit_to_own_peak=False,
    reserved_capacity=False,
    quotas=False,
    write_damping=False,
    memory_limit_safeguards=False,
    oom_kills_in_status=False,
)
RULE_SETS = (DEFAULT_RULES, SEED_RULES)


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


class NodeAutoscalerSetting(StrEnum):
    """What adds and removes nodes: found out by itself, or stated."""

    DETECT = "detect"
    NONE = "none"
    KARPENTER = NodeAutoscalerKind.KARPENTER.value
    CLUSTER_AUTOSCALER = NodeAutoscalerKind.CLUSTER_AUTOSCALER.value

    def resolve(self, seen: NodeAutoscalerKind | None) -> NodeAutoscalerKind | None:
        """Return what holds where something is seen: what is stated, if anything is."""
        match self:
            case NodeAutoscalerSetting.DETECT:
                return seen
            case NodeAutoscalerSetting.NONE:
                return None
            case _:
                return NodeAutoscalerKind(self.value)


class AdmissionSize(StrEnum):
    """What new pods are created with: their peak, or what a node pass would give them."""

    PEAK = "peak"
    NODE_PASS = "planned"


class ConsolidationMode(StrEnum):
    """Whether it is looked at with how few nodes the cluster would do, and whether pods are moved for that."""

    OFF = "off"
    ADVISE = "advise"
    ACT = "act"


class MemoryLimitPolicy(StrEnum):
    """Which containers have their memory limit changed: those that state one, all, or none."""

    EXISTING = "existing"
    ALWAYS = "always"
    NEVER = "never"


class OomReaction(StrEnum):
    """What follows an out-of-memory kill."""

    RESIZE_THEN_EVICT = "resize-then-evict"
    EVICT = "evict"
    RECORD = "record"


MINIMUM_REQUEST = Resources(10, 16 * MEBIBYTE)
"""The smallest request that cruise gives, and that anybody may state."""
PROTECTED_NAMESPACES = frozenset({"kube-system", "cruise"})
"""Namespaces that are excluded whatever others are, unless they are taken out by name."""


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """Smallest and largest request that an override allows; None is no bound."""

    minimum: StatedResources = StatedResources()
    maximum: StatedResources = StatedResources()


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that decisions read, resolved once at the edge."""

    mode: Mode = Mode.OBSERVE
    rules: RuleSet = DEFAULT_RULES
    excluded_namespaces: frozenset[str] = PROTECTED_NAMESPACES  # names and patterns
    allow_extended_resources: bool = False
    node_autoscaler: NodeAutoscalerSetting = NodeAutoscalerSetting.DETECT
    admission_size: AdmissionSize | None = None  # None: planned where nodes come and go by themselves
    max_age: timedelta = timedelta(minutes=15)
    max_decision_age: timedelta = timedelta(seconds=60)  # since the snapshot; older decisions are not written
    look_ahead: timedelta = timedelta(minutes=15)
    pass_interval: timedelta = timedelta(minutes=5)
    node_load_interval: timedelta = timedelta(minutes=1)
    new_workload_age: timedelta = timedelta(minutes=30)
    memory_limits: MemoryLimitPolicy = MemoryLimitPolicy.EXISTING
    memory_limit_history: timedelta = timedelta(days=28)
    memory_limit_factor: float = 2.0  # of the largest use seen
    memory_limit_ceiling: float = 2.0  # of the limit that the pod template states
    working_set_margin: float = 1.2  # of the working set now, which a memory limit must stay above
    oom_cooldown: timedelta = timedelta(minutes=5)
    oom_reaction: OomReaction = OomReaction.RESIZE_THEN_EVICT
    deferred_resize_timeout: timedelta = timedelta(minutes=5)
    deferred_memory_timeout: timedelta = timedelta(minutes=10)
    max_evictions_per_node: int = 1
    max_evictions_per_workload: int = 1
    max_evictions_per_hour: int = 20
    headroom: str = "risk"  # the name of a model in decisions/sizing/headroom.py
    cpu_risk: float = 7e-2  # of a node's intervals, the share in which its demand may pass its pods' requests
    memory_risk: float = 1e-2  # the same for memory, which kills
    minimum_request: Resources = MINIMUM_REQUEST
    update_threshold_share: float = 0.05
    update_threshold: Resources = Resources(10, 16 * MEBIBYTE)
    cpu_tolerance: float = 0.15  # of what a node's pods need together, how far above it their sum may stay
    memory_tolerance: float = 0.15
    over_requested_stabilization: timedelta = timedelta(minutes=30)  # before what is above its band is cut
    under_requested_stabilization: timedelta = timedelta(
        minutes=30
    )  # before what is below its base is grown on its own account
    resizes_per_container_day: float = 6.0  # the budget of writes: how many a container gets a day on average
    shrink_cooldown: timedelta | None = None  # after a write of a request, before it shrinks; None: by the budget
    overload_taint_threshold: float = 1.0
    overload_untaint_threshold: float = 0.9

    def excludes_namespace(self, namespace: str) -> bool:
        """Tell whether the pods of a namespace are left alone."""
        return matches_any_pattern(self.excluded_namespaces, namespace)

    @property
    def planning_policy(self) -> "Policy":
        """The policy that plans follow: in mode observe they are those of mode full, and only shown."""
        return replace(self, mode=Mode.FULL) if self.mode is Mode.OBSERVE else self

    @property
    def effective_shrink_cooldown(self) -> timedelta:
        """How long a request that was written is not shrunk: twice the average of a day's writes, spread over the day.

        A few containers need most of the writes, and the budget is kept by all of them together.
        """
        if self.shrink_cooldown is not None:
            return self.shrink_cooldown
        return timedelta(days=1) / (2 * max(self.resizes_per_container_day, 1.0))

    def get_risk(self, resource: ResourceName) -> float:
        """Return the share of intervals in which a node's demand for a resource may pass its pods' requests."""
        return self.cpu_risk if resource is ResourceName.CPU else self.memory_risk


# How much CPU and memory a machine can have: what states more is a slip of the unit.

# More than any machine has that can be bought, and the largest that is rented by the hour.
LARGEST_MACHINE = Resources(2_048_000, 64 << 40)
LARGEST_CLOUD_MACHINE = Resources(448_000, 24 << 40)
# A quantity without its `m`, and one with the next larger binary suffix.
_SLIP = {ResourceName.CPU: 1000, ResourceName.MEMORY: 1024}
_WRITE = {ResourceName.CPU: format_cpu_millicores, ResourceName.MEMORY: format_memory_bytes}
_PARSE = {ResourceName.CPU: parse_cpu_millicores, ResourceName.MEMORY: parse_memory_bytes}
_EXAMPLE = {ResourceName.CPU: "500m", ResourceName.MEMORY: "512Mi"}


def explain_too_large(resource: ResourceName, text: str, largest: Resources = LARGEST_MACHINE) -> str:
    """Say that a quantity is more than any node has, and what was probably meant; empty where it is not.

    `largest` is what the largest node has.
    """
    amount, most, write = _PARSE[resource](text), largest.get(resource), _WRITE[resource]
    if amount <= most:
        return ""
    meant = -(-amount // _SLIP[resource])
    likely = MINIMUM_REQUEST.get(resource) <= meant <= most
    ending = f"did you mean {write(meant)}?" if likely else f"write e.g. {_EXAMPLE[resource]}"
    return f"{quote_text(text)} is more than any node has (at most {write(most)}); {ending}"


def parse_size(resource: ResourceName, text: str, *, may_be_zero: bool = False) -> int:
    """Read a size from the smallest request to the largest machine. Raises ValueError with the fix."""
    amount, least = _PARSE[resource](text), MINIMUM_REQUEST.get(resource)
    if amount < 0:
        raise ValueError(f"{quote_text(text)} is negative")
    if amount < least and (amount or not may_be_zero):
        smallest = _WRITE[resource](least)
        raise ValueError(
            f"{quote_text(text)} is below {smallest}, the smallest request; write e.g. {_EXAMPLE[resource]}"
        )
    too_large = explain_too_large(resource, text)
    if too_large:
        raise ValueError(too_large)
    return amount
