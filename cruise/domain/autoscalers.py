"""Bounds and other autoscalers: quotas, LimitRanges, HPAs on utilization, VPAs' container policies, NodePools."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

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
class LimitRangeItem:
    """One entry of a LimitRange, of type Container or Pod; absent bounds are None.

    The API server gives `default_limits` to a container without limits.
    """

    is_for_pod: bool
    minimum: StatedResources = NOTHING_STATED
    maximum: StatedResources = NOTHING_STATED
    max_cpu_ratio: float | None = None
    max_memory_ratio: float | None = None
    default_limits: StatedResources = NOTHING_STATED

    def get_max_ratio(self, resource: ResourceName) -> float | None:
        """Return the maximum limit / request ratio of a resource, or None."""
        return self.max_cpu_ratio if resource is ResourceName.CPU else self.max_memory_ratio


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


def get_foreign_api_group(api_version: str) -> str:
    """Return the API group, or an empty string for Kubernetes' own groups and for none."""
    group = api_version.rpartition("/")[0]
    return group if "." in group and not group.endswith(".k8s.io") else ""


DEFAULT_TOLERANCE = 0.1
"""The controller manager's flag --horizontal-pod-autoscaler-tolerance by default."""
DEFAULT_SCALE_DOWN_SECONDS = 300
"""The window whose largest wanted number of replicas counts before pods are removed, by default."""


class UtilizationMetric(NamedTuple):
    """A metric with target type Utilization, of all containers or of one `container`.

    `reported_percent` is what the controller measured last, at least the target, and at most one more unless the
    replicas are at their maximum: decisions do not depend on more, and it changes with every sync. None if it could not
    measure. `average_request` is the mean request of the measured pods, in millicores or bytes, to a few percent; None
    at the minimum of replicas unless the metric is above its target and may add pods, or if unknown.
    """

    resource: ResourceName
    container: str
    target_percent: int
    reported_percent: int | None = None
    average_request: int | None = None


def add_reported_utilization(
    metric: UtilizationMetric, percent: int, average_request: int | None, *, is_at_minimum: bool, is_at_maximum: bool
) -> UtilizationMetric:
    """Return a metric with what the controller measured, as far as decisions depend on it."""
    most = percent if is_at_maximum else metric.target_percent + 1
    adds_or_removes_pods = not is_at_minimum or percent > metric.target_percent
    average = _round_to_steps(average_request) if average_request and adds_or_removes_pods else None
    return metric._replace(reported_percent=max(metric.target_percent, min(percent, most)), average_request=average)


def _round_to_steps(amount: int) -> int:
    """Round to five significant bits, so that the percent's rounding changes the result rarely."""
    unit = 1 << max(0, amount.bit_length() - 5)
    return (amount + unit // 2) // unit * unit


@dataclass(frozen=True, slots=True)
class UtilizationScaling:
    """The metrics on utilization and the replicas of an HPA, as its controller reported them.

    Utilization is the use of the ready pods divided by their requests, in whole percent. A metric wants
    ceil(utilization / target × replicas), and the present replicas while the quotient is within the tolerance around 1.
    The largest number that any metric wants counts (pkg/controller/podautoscaler of Kubernetes).

    `is_active`: the controller can compute and change the number of replicas. `tolerance` applies before pods are
    removed, `scale_down_seconds` is the stabilization window of that.
    """

    metrics: tuple[UtilizationMetric, ...]
    min_replicas: int
    max_replicas: int
    current_replicas: int
    desired_replicas: int
    is_active: bool
    tolerance: float = DEFAULT_TOLERANCE
    scale_down_seconds: int = DEFAULT_SCALE_DOWN_SECONDS
