"""Quotas, container policies of VPAs, node autoscalers, and NodePools."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cruise.domain.resources import NOTHING_STATED, ResourceName, StatedResources
from cruise.domain.scheduling import LabelRequirement, Taint


@dataclass(frozen=True, slots=True)
class QuotaScope:
    """One scope of a ResourceQuota: a scope by name, or a requirement on a PriorityClass."""

    name: str
    operator: str = "Exists"
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """What a ResourceQuota leaves for new pods, at least zero; None for resources that it does not limit.

    It counts the pods that match all of its scopes.
    """

    requests_left: StatedResources = NOTHING_STATED
    limits_left: StatedResources = NOTHING_STATED
    scopes: tuple[QuotaScope, ...] = ()


@dataclass(frozen=True, slots=True)
class VpaContainerPolicy:
    """The policy of a VerticalPodAutoscaler for one container, or for all others if `container` is empty.

    `controlled_resources` is None if not stated; `is_off` is container mode Off.
    """

    container: str = ""
    is_off: bool = False
    controlled_resources: frozenset[ResourceName] | None = None
    minimum: StatedResources = NOTHING_STATED
    maximum: StatedResources = NOTHING_STATED


class NodeAutoscalerKind(StrEnum):
    """The programs that add nodes for pending pods and remove nodes that are little used."""

    KARPENTER = "karpenter"
    CLUSTER_AUTOSCALER = "cluster-autoscaler"


@dataclass(frozen=True, slots=True)
class NodePool:
    """A NodePool of Karpenter: labels, taints and remaining limits of the nodes that may be ordered from it.

    `node_class` names the provider's settings. `limits` and `used` are by resource: millicores of cpu, bytes of memory,
    counts of others including `nodes`. `taints` has only permanent ones. `unusable_reason` is empty if it can order
    nodes.
    """

    name: str
    node_class: str = ""
    requirements: tuple[LabelRequirement, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    weight: int = 0
    unusable_reason: str = ""


def get_foreign_group(api_version: str) -> str:
    """Return the API group, or an empty string for Kubernetes' own groups and for none."""
    group = api_version.rpartition("/")[0]
    return group if "." in group and not group.endswith(".k8s.io") else ""
