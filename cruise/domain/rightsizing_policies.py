"""Policies as Kubernetes objects: RightsizingPolicy for one namespace, ClusterRightsizingPolicy for all."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from cruise.domain.annotations import Overrides, OverrideSource, UnreadableAnnotations
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.scheduling import LabelSelector

POLICY_GROUP = "cruise.io"
POLICY_VERSION = "v1alpha1"
POLICY_KIND, CLUSTER_POLICY_KIND = "RightsizingPolicy", "ClusterRightsizingPolicy"
ALL_CONTAINERS = "*"
"""Stands for all containers that a policy does not name, as in a VerticalPodAutoscaler."""
_PATTERN_CHARACTERS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class PolicySelector:
    """The pods that a policy applies to: those that meet every stated part.

    `kinds` and `names` are those of their workloads; `names` and `namespaces` may be patterns. `namespaces` and
    `namespace_labels` are for policies of the cluster.
    """

    kinds: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    pod_labels: LabelSelector | None = None
    namespaces: frozenset[str] = frozenset()
    namespace_labels: LabelSelector | None = None


@dataclass(frozen=True, slots=True)
class PolicyCondition:
    """A condition in the status of a policy object: what it says, and since when."""

    is_true: bool
    since: datetime


@dataclass(frozen=True, slots=True)
class RightsizingPolicy:
    """A policy object; `namespace` is empty for a ClusterRightsizingPolicy.

    If the selector is unreadable, it selects all that it could. `generation` counts changes of its spec. `conditions`
    are those of its status by type: what cruise said of it last.
    """

    namespace: str
    name: str
    selector: PolicySelector = field(default_factory=PolicySelector)
    overrides: Overrides | UnreadableAnnotations = field(default_factory=Overrides)
    generation: int = 0
    uid: str = ""
    conditions: Mapping[str, PolicyCondition] = field(default_factory=dict, compare=False)

    @property
    def source(self) -> OverrideSource:
        """The source of its settings."""
        return OverrideSource.RIGHTSIZING_POLICY if self.namespace else OverrideSource.CLUSTER_RIGHTSIZING_POLICY

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def title(self) -> str:
        """Kind, namespace and name, as in messages."""
        return f"{POLICY_KIND} {self.namespace}/{self.name}" if self.namespace else f"{CLUSTER_POLICY_KIND} {self.name}"


@dataclass(frozen=True, slots=True)
class PolicyConflict:
    """Another policy whose `settings` differ for `workload` (`Kind/name`); `winner` applies.

    It is equally specific, or a ClusterRightsizingPolicy whose maximum the settings exceed (`is_maximum`).
    """

    policy: str
    winner: str
    settings: tuple[str, ...]
    workload: str
    is_maximum: bool = False


@dataclass(frozen=True, slots=True)
class PolicyStatus:
    """What a policy did: its workloads, its sized pods, its skipped pods by reason, and what its pods save.

    `saved` is relative to their requests before cruise, negative if they request more. `conflicts` has one for each
    other policy. `problem` is the reason why it cannot be used, empty if it can.
    """

    generation: int
    workloads: int = 0
    sized_pods: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    saved: Resources = NO_RESOURCES
    conflicts: tuple[PolicyConflict, ...] = ()
    problem: str = ""

    def differs(self, other: "PolicyStatus | None") -> bool:
        """Return whether it differs enough from another one to be written: savings change all the time."""
        if other is None or replace(self, saved=other.saved) != other:
            return True
        changes = (
            (self.saved.cpu_millicores, other.saved.cpu_millicores, _NOTICED_SAVINGS.cpu_millicores),
            (self.saved.memory_bytes, other.saved.memory_bytes, _NOTICED_SAVINGS.memory_bytes),
        )
        return any(abs(now - before) > max(least, abs(before) * _NOTICED_SHARE) for now, before, least in changes)


_NOTICED_SHARE = 0.05
_NOTICED_SAVINGS = Resources(100, 128 << 20)


def get_policy_plural(namespace: str) -> str:
    """Return the resource of a namespace's policies, or that of the cluster's if it is empty."""
    return "rightsizingpolicies" if namespace else "clusterrightsizingpolicies"


def is_pattern(name: str) -> bool:
    """Return whether a name has characters of a pattern."""
    return not _PATTERN_CHARACTERS.isdisjoint(name)


def format_policy_field(setting: str) -> str:
    """Return the name of a setting's field in policy objects: `memoryLimits` for `memory-limits`."""
    first, *others = setting.split("-")
    return first + "".join(map(str.capitalize, others))
