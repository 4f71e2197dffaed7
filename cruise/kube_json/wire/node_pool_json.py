"""What cruise reads of the spec and status of Karpenter's NodePools, as structs."""

from cruise.kube_json.wire.object_json import NodeTaint
from cruise.kube_json.wire.pod_json import Condition, Metadata, QuantityMap, SelectorRequirement, Wire


class NodeClassRef(Wire, frozen=True):
    kind: str = ""
    name: str = ""


class PoolNodeSpec(Wire, frozen=True):
    requirements: tuple[SelectorRequirement, ...] | None = None
    taints: tuple[NodeTaint, ...] | None = None
    node_class_ref: NodeClassRef | None = None


class PoolTemplate(Wire, frozen=True):
    metadata: Metadata | None = None
    spec: PoolNodeSpec | None = None


class NodePoolSpec(Wire, frozen=True):
    template: PoolTemplate | None = None
    limits: QuantityMap | None = None
    weight: int | None = None
    replicas: int | None = None


class NodePoolStatus(Wire, frozen=True):
    resources: QuantityMap | None = None
    conditions: tuple[Condition, ...] | None = None
