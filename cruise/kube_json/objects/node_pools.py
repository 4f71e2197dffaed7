"""Karpenter's NodePools."""

from typing import Any, TypeVar

import msgspec

from cruise.domain.annotations import NODE_POOL
from cruise.domain.details import Detail
from cruise.domain.node_pools import NodePool
from cruise.errors import BadInput
from cruise.kube_json.objects.placement import read_taints
from cruise.kube_json.objects.quantity import read_cpu, read_memory
from cruise.kube_json.objects.selectors import read_node_requirements
from cruise.kube_json.refusals import explained, named
from cruise.kube_json.wire.node_pool_json import NodePoolSpec, NodePoolStatus, PoolNodeSpec, PoolTemplate
from cruise.kube_json.wire.object_json import NodePoolObject
from cruise.kube_json.wire.pod_json import QuantityMap, SelectorRequirement

T = TypeVar("T")

_PLACE = "spec.template.spec"
# Karpenter knows two operators that Kubernetes does not; of whole numbers, they say what two others say.
_INCLUSIVE = {"Gte": ("Gt", -1), "Lte": ("Lt", 1)}


def decode_node_pool(document: NodePoolObject) -> NodePool:
    """Return a NodePool of Karpenter's. Raises BadInput that names NodePool, place and fix."""
    metadata = document.metadata
    with named("NodePool", None, metadata.name):
        spec, status = _part(document.spec, NodePoolSpec, "spec"), _part(document.status, NodePoolStatus, "status")
        template = spec.template or PoolTemplate()
        node, labels = template.spec or PoolNodeSpec(), template.metadata.labels if template.metadata else None
        ref = node.node_class_ref
        requirements = tuple(map(_exclusive, node.requirements or ()))
        return NodePool(
            name=metadata.name,
            node_class=f"{ref.kind}/{ref.name}" if ref else "",
            requirements=read_node_requirements(requirements, f"{_PLACE}.requirements"),
            labels={**(labels or {}), NODE_POOL: metadata.name},
            taints=read_taints(node.taints, f"{_PLACE}.taints"),
            limits=_amounts(spec.limits, "spec.limits"),
            used=_amounts(status.resources, "status.resources"),
            weight=spec.weight or 0,
            closed=_closed(metadata.deletion_timestamp is not None, spec, status),
        )


def _part(part: dict[str, Any] | None, shape: type[T], place: str) -> T:
    try:
        return msgspec.convert(part or {}, shape)
    except msgspec.ValidationError as error:
        raise BadInput(f"{place}.{explained(error)}") from error


def _exclusive(requirement: SelectorRequirement) -> SelectorRequirement:
    if requirement.operator not in _INCLUSIVE or not requirement.values:
        return requirement
    operator, step = _INCLUSIVE[requirement.operator]
    try:
        bound = int(requirement.values[0]) + step
    except ValueError as error:
        place = f"{_PLACE}.requirements: {requirement.operator} on {requirement.key}"
        raise BadInput(f'{place}: "{requirement.values[0]}" is no whole number; write one') from error
    return SelectorRequirement(requirement.key, operator, (str(bound),))


def _amounts(amounts: QuantityMap | None, place: str) -> dict[str, int]:
    found = {}
    for name, value in sorted((amounts or {}).items()):
        amount = (read_cpu if name == "cpu" else read_memory)(value, f"{place}.{name}")
        if amount is not None:
            found[name] = amount
    return found


def _closed(deleted: bool, spec: NodePoolSpec, status: NodePoolStatus) -> str:
    if deleted:
        return Detail.BEING_DELETED.value
    if spec.replicas is not None:
        return Detail.POOL_FIXED.of(spec.replicas)
    if any(one.type == "Ready" and one.status == "False" for one in status.conditions or ()):
        return Detail.POOL_NOT_READY.value
    return ""
