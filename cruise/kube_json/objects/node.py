"""Decode nodes, detect node autoscalers, and decode Karpenter's NodePools."""

import re
from collections.abc import Iterable
from sys import intern
from typing import Any, TypeVar

import msgspec

from cruise.domain.annotations import APP_NAME, NODE_POOL, OLD_NODE_POOL
from cruise.domain.autoscalers import NodeAutoscalerKind, NodePool
from cruise.domain.cluster import Node, Workload
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import Resources
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import explain_validation_error, format_object_label, name_object_in_errors
from cruise.kube_json.objects.owners import SharedStringMaps
from cruise.kube_json.objects.quantities import read_amounts, read_cpu, read_extended, read_memory
from cruise.kube_json.objects.scheduling import read_node_requirements, read_taints
from cruise.kube_json.wire.object_json import (
    ConfigMapObject,
    NodeClaimObject,
    NodeObject,
    NodePoolObject,
    NodePoolSpec,
    NodePoolStatus,
    NodeSpec,
    NodeStatus,
    PoolNodeSpec,
    PoolTemplate,
    WorkloadObject,
)
from cruise.kube_json.wire.pod_json import QuantityMap, SelectorRequirementJson

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)")
KUBELET_PORT = 10250
_NO_SPEC = NodeSpec()
_NO_STATUS = NodeStatus()


def decode_node(document: NodeObject | NodeClaimObject, maps: SharedStringMaps | None = None) -> Node:
    """Return a Node or a NodeClaim; without allocatable resources its capacity counts.

    BadInputError names node, place and fix.
    """
    name = document.metadata.name
    try:
        spec, status = document.spec or _NO_SPEC, document.status or _NO_STATUS
        place = "status.allocatable" if status.allocatable else "status.capacity"
        offered = status.allocatable or status.capacity or {}
        resources: Resources = read_amounts(offered, place).resources
        capacity = status.capacity or {}
        pods = read_memory(offered.get("pods"), f"{place}.pods")
        return Node(
            name=name,
            allocatable=resources,
            allocatable_pods=110 if pods is None else pods,
            allocatable_extended=dict(sorted(read_extended(offered, place).items())),
            labels=(maps or SharedStringMaps()).share_labels(document.metadata.labels),
            taints=read_taints(spec.taints),
            unschedulable=bool(spec.unschedulable),
            ready=all(c.status == "True" for c in status.conditions or () if c.type == "Ready"),
            kubelet_version=_version(status.node_info.kubelet_version if status.node_info else ""),
            cpu_capacity_millicores=read_cpu(capacity.get("cpu"), "status.capacity.cpu"),
            memory_capacity_bytes=read_memory(capacity.get("memory"), "status.capacity.memory"),
            address=next((one.address for one in status.addresses or () if one.type == "InternalIP"), ""),
            kubelet_port=_kubelet_port(status),
            declared_features=_read_features(status),
            deleting=document.metadata.deletion_timestamp is not None,
        )
    except BadInputError as error:
        raise BadInputError(
            f"{format_object_label(str(document.__struct_config__.tag), None, name)}: {error}"
        ) from error


def _read_features(status: NodeStatus) -> frozenset[str] | None:
    return None if status.declared_features is None else frozenset(map(intern, status.declared_features))


def _kubelet_port(status: NodeStatus) -> int:
    endpoint = status.daemon_endpoints.kubelet_endpoint if status.daemon_endpoints else None
    return (endpoint.port if endpoint else None) or KUBELET_PORT


def _version(text: str) -> tuple[int, int] | None:
    match = _VERSION.match(text)
    return (int(match.group(1)), int(match.group(2))) if match else None


# Detection of node autoscalers, only by objects that tenants cannot create.

KARPENTER_GROUP = "karpenter.sh"
# cluster-autoscaler writes it, also as a hidden part of a managed cluster.
STATUS_NAMESPACE, STATUS_NAME = "kube-system", "cluster-autoscaler-status"
_NAMESPACES = frozenset({"kube-system", "karpenter", "cluster-autoscaler"})


def detect_node_autoscaler_deployment(document: WorkloadObject) -> NodeAutoscalerKind | None:
    """Return the node autoscaler that a Deployment runs, by its name or label, or None."""
    metadata = document.metadata
    if metadata.namespace not in _NAMESPACES:
        return None
    names = (metadata.name, (metadata.labels or {}).get(APP_NAME, ""))
    if "karpenter" in names:
        return NodeAutoscalerKind.KARPENTER
    # The Helm chart adds release and provider as a prefix.
    if any(name.endswith("cluster-autoscaler") for name in names):
        return NodeAutoscalerKind.CLUSTER_AUTOSCALER
    return None


def detect_node_autoscaler(
    nodes: Iterable[Node], workloads: Iterable[Workload], others: Iterable[NodeAutoscalerKind] = ()
) -> NodeAutoscalerKind | None:
    """Return the node autoscaler of the cluster, Karpenter if both run, or None."""
    found = {workload.node_autoscaler for workload in workloads if workload.node_autoscaler} | set(others)
    pools = (NODE_POOL, OLD_NODE_POOL)
    if NodeAutoscalerKind.KARPENTER in found or any(pool in node.labels for node in nodes for pool in pools):
        return NodeAutoscalerKind.KARPENTER
    return NodeAutoscalerKind.CLUSTER_AUTOSCALER if found else None


def detect_node_autoscaler_object(document: NodePoolObject | ConfigMapObject) -> NodeAutoscalerKind | None:
    """Return the node autoscaler that an object belongs to, or None."""
    if isinstance(document, NodePoolObject):
        return NodeAutoscalerKind.KARPENTER if document.api_version.partition("/")[0] == KARPENTER_GROUP else None
    place = (document.metadata.namespace, document.metadata.name)
    return NodeAutoscalerKind.CLUSTER_AUTOSCALER if place == (STATUS_NAMESPACE, STATUS_NAME) else None


SpecT = TypeVar("SpecT")

_PLACE = "spec.template.spec"
# Karpenter's additional operators, as Kubernetes' operators on integers.
_INCLUSIVE = {"Gte": ("Gt", -1), "Lte": ("Lt", 1)}


def decode_node_pool(document: NodePoolObject) -> NodePool:
    """Return a NodePool of Karpenter; BadInputError names NodePool, place and fix."""
    metadata = document.metadata
    with name_object_in_errors("NodePool", None, metadata.name):
        spec, status = (
            _convert_part(document.spec, NodePoolSpec, "spec"),
            _convert_part(document.status, NodePoolStatus, "status"),
        )
        template = spec.template or PoolTemplate()
        node, labels = template.spec or PoolNodeSpec(), template.metadata.labels if template.metadata else None
        ref = node.node_class_ref
        requirements = tuple(map(_convert_operator, node.requirements or ()))
        return NodePool(
            name=metadata.name,
            node_class=f"{ref.kind}/{ref.name}" if ref else "",
            requirements=read_node_requirements(requirements, f"{_PLACE}.requirements"),
            labels={**(labels or {}), NODE_POOL: metadata.name},
            taints=read_taints(node.taints, f"{_PLACE}.taints"),
            limits=_read_amounts_by_resource(spec.limits, "spec.limits"),
            used=_read_amounts_by_resource(status.resources, "status.resources"),
            weight=spec.weight or 0,
            unusable_reason=_find_unusable_reason(metadata.deletion_timestamp is not None, spec, status),
        )


def _convert_part(part: dict[str, Any] | None, struct: type[SpecT], place: str) -> SpecT:
    try:
        return msgspec.convert(part or {}, struct)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{place}.{explain_validation_error(error)}") from error


def _convert_operator(requirement: SelectorRequirementJson) -> SelectorRequirementJson:
    if requirement.operator not in _INCLUSIVE or not requirement.values:
        return requirement
    operator, step = _INCLUSIVE[requirement.operator]
    try:
        bound = int(requirement.values[0]) + step
    except ValueError as error:
        place = f"{_PLACE}.requirements: {requirement.operator} on {requirement.key}"
        raise BadInputError(f'{place}: "{requirement.values[0]}" is not an integer; write one') from error
    return SelectorRequirementJson(requirement.key, operator, (str(bound),))


def _read_amounts_by_resource(amounts: QuantityMap | None, place: str) -> dict[str, int]:
    found = {}
    for name, value in sorted((amounts or {}).items()):
        amount = (read_cpu if name == "cpu" else read_memory)(value, f"{place}.{name}")
        if amount is not None:
            found[name] = amount
    return found


def _find_unusable_reason(deleted: bool, spec: NodePoolSpec, status: NodePoolStatus) -> str:
    if deleted:
        return ReasonDetailCode.BEING_DELETED.value
    if spec.replicas is not None:
        return ReasonDetailCode.POOL_FIXED.create(spec.replicas)
    if any(one.type == "Ready" and one.status == "False" for one in status.conditions or ()):
        return ReasonDetailCode.POOL_NOT_READY.value
    return ""
