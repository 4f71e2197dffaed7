"""Policies as Kubernetes objects: RightsizingPolicy for one namespace, ClusterRightsizingPolicy for all."""

from dataclasses import dataclass, field

from cruise.domain.annotations import Overrides, OverrideSource, UnreadableAnnotations
from cruise.domain.scheduling import LabelSelector

POLICY_GROUP = "cruise.io"
POLICY_VERSION = "v1alpha1"
POLICY_KIND, CLUSTER_POLICY_KIND = "RightsizingPolicy", "ClusterRightsizingPolicy"
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
class RightsizingPolicy:
    """A policy object; `namespace` is empty for a ClusterRightsizingPolicy.

    If the selector is unreadable, it selects all that it could. `generation` counts changes of its spec.
    """

    namespace: str
    name: str
    selector: PolicySelector = field(default_factory=PolicySelector)
    overrides: Overrides | UnreadableAnnotations = field(default_factory=Overrides)
    generation: int = 0

    @property
    def source(self) -> OverrideSource:
        """The source of its settings."""
        return OverrideSource.RIGHTSIZING_POLICY if self.namespace else OverrideSource.CLUSTER_RIGHTSIZING_POLICY

    @property
    def title(self) -> str:
        """Kind, namespace and name, as in messages."""
        return f"{POLICY_KIND} {self.namespace}/{self.name}" if self.namespace else f"{CLUSTER_POLICY_KIND} {self.name}"


def is_pattern(name: str) -> bool:
    """Return whether a name has characters of a pattern."""
    return not _PATTERN_CHARACTERS.isdisjoint(name)
