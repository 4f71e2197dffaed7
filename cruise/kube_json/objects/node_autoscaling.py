"""Whether nodes come and go by themselves: the traces that Karpenter and cluster-autoscaler leave in a cluster.

Only what a tenant cannot make is looked at: objects of the cluster, and namespaces that belong to its operator.
"""

from collections.abc import Iterable

from cruise.domain.annotations import APP_NAME, NODE_POOL, OLD_NODE_POOL
from cruise.domain.cluster import Node, NodeAutoscaler, Workload
from cruise.kube_json.wire.object_json import ConfigMapObject, NodePoolObject, WorkloadObject

KARPENTER_GROUP = "karpenter.sh"
# cluster-autoscaler writes it wherever it runs, also where a provider does so out of sight.
STATUS_NAMESPACE, STATUS_NAME = "kube-system", "cluster-autoscaler-status"
_NAMESPACES = frozenset({"kube-system", "karpenter", "cluster-autoscaler"})


def autoscaler_run_by(document: WorkloadObject) -> NodeAutoscaler | None:
    """Tell which node autoscaler a Deployment runs, by its name or its label; None for any other."""
    metadata = document.metadata
    if metadata.namespace not in _NAMESPACES:
        return None
    names = (metadata.name, (metadata.labels or {}).get(APP_NAME, ""))
    if "karpenter" in names:
        return NodeAutoscaler.KARPENTER
    # Its Helm chart puts the release and the provider in front.
    if any(name.endswith("cluster-autoscaler") for name in names):
        return NodeAutoscaler.CLUSTER_AUTOSCALER
    return None


def autoscaler_of(
    nodes: Iterable[Node], workloads: Iterable[Workload], others: Iterable[NodeAutoscaler] = ()
) -> NodeAutoscaler | None:
    """Return what adds and removes nodes, Karpenter where both are seen, None where neither is."""
    found = {workload.node_autoscaler for workload in workloads if workload.node_autoscaler} | set(others)
    pools = (NODE_POOL, OLD_NODE_POOL)
    if NodeAutoscaler.KARPENTER in found or any(pool in node.labels for node in nodes for pool in pools):
        return NodeAutoscaler.KARPENTER
    return NodeAutoscaler.CLUSTER_AUTOSCALER if found else None


def autoscaler_told_by(document: NodePoolObject | ConfigMapObject) -> NodeAutoscaler | None:
    """Return the node autoscaler that an object of a list belongs to, None for one that has another meaning."""
    if isinstance(document, NodePoolObject):
        return NodeAutoscaler.KARPENTER if document.api_version.partition("/")[0] == KARPENTER_GROUP else None
    place = (document.metadata.namespace, document.metadata.name)
    return NodeAutoscaler.CLUSTER_AUTOSCALER if place == (STATUS_NAMESPACE, STATUS_NAME) else None
