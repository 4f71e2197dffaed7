"""Nodes."""

import re

from cruise.domain.cluster import Node
from cruise.domain.resources import Resources
from cruise.errors import BadInput
from cruise.kube_json.objects.annotations import StringMaps
from cruise.kube_json.objects.placement import read_taints
from cruise.kube_json.objects.quantity import read_amounts, read_cpu, read_extended, read_memory
from cruise.kube_json.refusals import label_of
from cruise.kube_json.wire.object_json import NodeClaimObject, NodeObject, NodeSpec, NodeStatus

_VERSION = re.compile(r"v?([0-9]+)\.([0-9]+)")
KUBELET_PORT = 10250
_NO_SPEC = NodeSpec()
_NO_STATUS = NodeStatus()


def decode_node(document: NodeObject | NodeClaimObject, maps: StringMaps | None = None) -> Node:
    """Return the node; one that reports no allocatable resources has its capacity, else none.

    What Karpenter has ordered is read alike.

    Raises BadInput that names node, place and fix.
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
            labels=(maps or StringMaps()).labels(document.metadata.labels),
            taints=read_taints(spec.taints),
            unschedulable=bool(spec.unschedulable),
            ready=all(c.status == "True" for c in status.conditions or () if c.type == "Ready"),
            kubelet_version=_version(status.node_info.kubelet_version if status.node_info else ""),
            cpu_capacity_millicores=read_cpu(capacity.get("cpu"), "status.capacity.cpu"),
            memory_capacity_bytes=read_memory(capacity.get("memory"), "status.capacity.memory"),
            address=next((one.address for one in status.addresses or () if one.type == "InternalIP"), ""),
            kubelet_port=_kubelet_port(status),
            deleting=document.metadata.deletion_timestamp is not None,
        )
    except BadInput as error:
        raise BadInput(f"{label_of(str(document.__struct_config__.tag), None, name)}: {error}") from error


def _kubelet_port(status: NodeStatus) -> int:
    endpoint = status.daemon_endpoints.kubelet_endpoint if status.daemon_endpoints else None
    return (endpoint.port if endpoint else None) or KUBELET_PORT


def _version(text: str) -> tuple[int, int] | None:
    match = _VERSION.match(text)
    return (int(match.group(1)), int(match.group(2))) if match else None
