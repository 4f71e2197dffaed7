"""Structs of nodes and the objects around pods with the fields that cruise reads, and the union of all kinds."""

from typing import Any

from msgspec import field

from cruise.kube_json.wire.pod_json import (
    Int32,
    JsonStruct,
    LabelSelectorJson,
    Metadata,
    PodCondition,
    PodObject,
    QuantityMap,
    QuantityText,
    ResourceRequirements,
    SelectorRequirementJson,
)
from cruise.kube_json.wire.policy_json import ClusterRightsizingPolicyObject, RightsizingPolicyObject
from cruise.kube_json.wire.storage_json import AnyDevices, AnyStorage, PriorityClassObject


class NodeTaint(JsonStruct, frozen=True):
    key: str
    effect: str
    value: str | None = None


class NodeSpec(JsonStruct, frozen=True):
    unschedulable: bool | None = None
    taints: tuple[NodeTaint, ...] | None = None


class NodeSystem(JsonStruct, frozen=True):
    """`status.nodeInfo`."""

    kubelet_version: str = ""


class NodeAddress(JsonStruct, frozen=True):
    type: str
    address: str


class DaemonEndpoint(JsonStruct, frozen=True):
    port: Int32 | None = field(name="Port", default=None)


class DaemonEndpoints(JsonStruct, frozen=True):
    kubelet_endpoint: DaemonEndpoint | None = None


class NodeStatus(JsonStruct, frozen=True):
    allocatable: QuantityMap | None = None
    capacity: QuantityMap | None = None
    conditions: tuple[PodCondition, ...] | None = None
    node_info: NodeSystem | None = None
    declared_features: tuple[str, ...] | None = None
    addresses: tuple[NodeAddress, ...] | None = None
    daemon_endpoints: DaemonEndpoints | None = None


class NodeObject(JsonStruct, frozen=True, tag_field="kind", tag="Node"):
    metadata: Metadata
    api_version: str = ""
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class TemplateContainer(JsonStruct, frozen=True):
    name: str
    resources: ResourceRequirements | None = None


class TemplateSpec(JsonStruct, frozen=True):
    """The containers of a pod template."""

    containers: tuple[TemplateContainer, ...] | None = None
    init_containers: tuple[TemplateContainer, ...] | None = None
    resources: ResourceRequirements | None = None


class PodTemplate(JsonStruct, frozen=True):
    spec: TemplateSpec | None = None


class JobTemplateSpec(JsonStruct, frozen=True):
    parallelism: Int32 | None = None
    template: PodTemplate | None = None


class JobTemplate(JsonStruct, frozen=True):
    spec: JobTemplateSpec | None = None


class UpdateStrategy(JsonStruct, frozen=True):
    type: str | None = None


class WorkloadSpec(JsonStruct, frozen=True):
    """Replicas and pod template of all workload kinds."""

    replicas: Int32 | None = None
    parallelism: Int32 | None = None
    template: PodTemplate | None = None
    job_template: JobTemplate | None = None
    update_strategy: UpdateStrategy | None = None


class WorkloadStatus(JsonStruct, frozen=True):
    """The revision that new pods of a StatefulSet get."""

    update_revision: str | None = None


class WorkloadObject(JsonStruct, frozen=True):
    """Base of all workload kinds."""

    metadata: Metadata
    api_version: str = ""
    spec: WorkloadSpec | None = None
    status: WorkloadStatus | None = None


class DeploymentObject(WorkloadObject, frozen=True, tag_field="kind", tag="Deployment"):
    """A Deployment."""


class ReplicaSetObject(WorkloadObject, frozen=True, tag_field="kind", tag="ReplicaSet"):
    """A ReplicaSet."""


class StatefulSetObject(WorkloadObject, frozen=True, tag_field="kind", tag="StatefulSet"):
    """A StatefulSet."""


class DaemonSetObject(WorkloadObject, frozen=True, tag_field="kind", tag="DaemonSet"):
    """A DaemonSet."""


class JobObject(WorkloadObject, frozen=True, tag_field="kind", tag="Job"):
    """A Job."""


class CronJobObject(WorkloadObject, frozen=True, tag_field="kind", tag="CronJob"):
    """A CronJob."""


class RolloutObject(WorkloadObject, frozen=True, tag_field="kind", tag="Rollout"):
    """A Rollout of Argo Rollouts."""


class CloneSetObject(WorkloadObject, frozen=True, tag_field="kind", tag="CloneSet"):
    """A CloneSet of OpenKruise."""


class BudgetSpec(JsonStruct, frozen=True):
    selector: LabelSelectorJson | None = None


class BudgetStatus(JsonStruct, frozen=True):
    disruptions_allowed: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0


class DisruptionBudgetObject(JsonStruct, frozen=True, tag_field="kind", tag="PodDisruptionBudget"):
    metadata: Metadata
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class ScaleTarget(JsonStruct, frozen=True):
    """The target of an autoscaler."""

    kind: str
    name: str
    api_version: str = ""


class MetricTarget(JsonStruct, frozen=True):
    type: str = ""
    average_utilization: Int32 | None = None
    average_value: QuantityText | None = None


class ResourceMetric(JsonStruct, frozen=True):
    """A Resource or ContainerResource metric, as it is specified (`target`) or reported (`current`)."""

    name: str = ""
    container: str = ""
    target: MetricTarget | None = None
    current: MetricTarget | None = None


class Metric(JsonStruct, frozen=True):
    type: str
    resource: ResourceMetric | None = None
    container_resource: ResourceMetric | None = None


class ScalingRules(JsonStruct, frozen=True):
    stabilization_window_seconds: Int32 | None = None
    tolerance: QuantityText | None = None


class ScalingBehavior(JsonStruct, frozen=True):
    scale_down: ScalingRules | None = None


class HorizontalAutoscalerSpec(JsonStruct, frozen=True):
    scale_target_ref: ScaleTarget
    metrics: tuple[Metric, ...] | None = None
    min_replicas: Int32 | None = None
    max_replicas: Int32 | None = None
    behavior: ScalingBehavior | None = None


class HorizontalAutoscalerStatus(JsonStruct, frozen=True):
    current_replicas: Int32 | None = None
    desired_replicas: Int32 | None = None
    current_metrics: tuple[Metric, ...] | None = None
    conditions: tuple[PodCondition, ...] | None = None


class HorizontalAutoscalerObject(JsonStruct, frozen=True, tag_field="kind", tag="HorizontalPodAutoscaler"):
    metadata: Metadata
    spec: HorizontalAutoscalerSpec
    status: HorizontalAutoscalerStatus | None = None


class VpaUpdatePolicy(JsonStruct, frozen=True):
    update_mode: str | None = None


class VpaRecommender(JsonStruct, frozen=True):
    name: str = ""


class ContainerPolicy(JsonStruct, frozen=True):
    container_name: str = ""
    mode: str = ""
    controlled_resources: tuple[str, ...] | None = None
    min_allowed: QuantityMap | None = None
    max_allowed: QuantityMap | None = None


class VpaResourcePolicy(JsonStruct, frozen=True):
    container_policies: tuple[ContainerPolicy, ...] | None = None


class VerticalAutoscalerSpec(JsonStruct, frozen=True):
    target_ref: ScaleTarget | None = None
    resource_policy: VpaResourcePolicy | None = None
    update_policy: VpaUpdatePolicy | None = None
    recommenders: tuple[VpaRecommender, ...] | None = None


class VerticalAutoscalerObject(JsonStruct, frozen=True, tag_field="kind", tag="VerticalPodAutoscaler"):
    metadata: Metadata
    spec: VerticalAutoscalerSpec | None = None


class LimitRangeEntry(JsonStruct, frozen=True):
    type: str
    min: QuantityMap | None = None
    max: QuantityMap | None = None
    default: QuantityMap | None = None
    max_limit_request_ratio: QuantityMap | None = None


class LimitRangeSpec(JsonStruct, frozen=True):
    limits: tuple[LimitRangeEntry, ...] | None = None


class LimitRangeObject(JsonStruct, frozen=True, tag_field="kind", tag="LimitRange"):
    metadata: Metadata
    spec: LimitRangeSpec | None = None


class QuotaRequirement(JsonStruct, frozen=True):
    """One of `spec.scopeSelector.matchExpressions`."""

    scope_name: str
    operator: str = "Exists"
    values: tuple[str, ...] | None = None


class QuotaSelector(JsonStruct, frozen=True):
    match_expressions: tuple[QuotaRequirement, ...] | None = None


class QuotaSpec(JsonStruct, frozen=True):
    hard: QuantityMap | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: QuotaSelector | None = None


class QuotaStatus(JsonStruct, frozen=True):
    hard: QuantityMap | None = None
    used: QuantityMap | None = None


class QuotaObject(JsonStruct, frozen=True, tag_field="kind", tag="ResourceQuota"):
    metadata: Metadata
    spec: QuotaSpec | None = None
    status: QuotaStatus | None = None


class NamespaceObject(JsonStruct, frozen=True, tag_field="kind", tag="Namespace"):
    metadata: Metadata


class NodePoolObject(JsonStruct, frozen=True, tag_field="kind", tag="NodePool"):
    """A NodePool of Karpenter, or of another API group whose fields differ."""

    metadata: Metadata
    api_version: str = ""
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class NodeClaimObject(JsonStruct, frozen=True, tag_field="kind", tag="NodeClaim"):
    """A node that Karpenter ordered, with the fields of a Node."""

    metadata: Metadata
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class ConfigMapObject(JsonStruct, frozen=True, tag_field="kind", tag="ConfigMap"):
    """A ConfigMap; only its name is read."""

    metadata: Metadata


AnyWorkload = (
    ReplicaSetObject
    | DeploymentObject
    | StatefulSetObject
    | DaemonSetObject
    | JobObject
    | CronJobObject
    | RolloutObject
    | CloneSetObject
)
"""Objects that may own pods."""

AnyObject = (
    PodObject
    | NodeObject
    | AnyWorkload
    | DisruptionBudgetObject
    | HorizontalAutoscalerObject
    | VerticalAutoscalerObject
    | RightsizingPolicyObject
    | ClusterRightsizingPolicyObject
    | LimitRangeObject
    | QuotaObject
    | NamespaceObject
    | NodePoolObject
    | NodeClaimObject
    | ConfigMapObject
    | AnyStorage
    | AnyDevices
    | PriorityClassObject
)
"""All objects of a snapshot."""

# Spec and status of Karpenter's NodePools.


class NodeClassRef(JsonStruct, frozen=True):
    kind: str = ""
    name: str = ""


class PoolNodeSpec(JsonStruct, frozen=True):
    requirements: tuple[SelectorRequirementJson, ...] | None = None
    taints: tuple[NodeTaint, ...] | None = None
    node_class_ref: NodeClassRef | None = None


class PoolTemplate(JsonStruct, frozen=True):
    metadata: Metadata | None = None
    spec: PoolNodeSpec | None = None


class NodePoolSpec(JsonStruct, frozen=True):
    template: PoolTemplate | None = None
    limits: QuantityMap | None = None
    weight: Int32 | None = None
    replicas: Int32 | None = None


class NodePoolStatus(JsonStruct, frozen=True):
    resources: QuantityMap | None = None
    conditions: tuple[PodCondition, ...] | None = None
