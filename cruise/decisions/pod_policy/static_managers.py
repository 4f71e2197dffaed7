"""Static CPU and memory managers: kubelets that use them do not resize Guaranteed pods.

A refusal of one pod shows the manager of its node, and is remembered as others are. Kubelets before 1.34 with either
manager refuse every resize of a Guaranteed pod, with whole cores or not; later ones that of the managed resource.
"""

from collections.abc import Mapping
from dataclasses import replace

from cruise.domain.actions import ReasonCode, RefusedResize
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.resources import ResourceName

REFUSAL_BY_MANAGER = {
    ResourceName.CPU: ReasonCode.STATIC_CPU_MANAGER,
    ResourceName.MEMORY: ReasonCode.STATIC_MEMORY_MANAGER,
}
_FIRST_KUBELET_COMPARING_RESOURCES = (1, 34)
_ALL = frozenset(ResourceName)
_RESOURCES_BY_REASON = {
    ReasonCode.STATIC_CPU_MANAGER: frozenset({ResourceName.CPU}),
    ReasonCode.STATIC_MEMORY_MANAGER: _ALL,
}


def add_static_managers(snapshot: ClusterSnapshot, refused: Mapping[str, RefusedResize]) -> ClusterSnapshot:
    """Return the snapshot with the static managers that refused resizes show; `refused` is by pod uid.

    Of a pod one refusal is remembered, and the CPU manager refuses before the memory manager: the latter shows both.
    A refusal does not count any more once the node's allocatable has changed.
    """
    relevant = {uid: one for uid, one in refused.items() if one.reason in _RESOURCES_BY_REASON}
    if not relevant:
        return snapshot
    nodes = {node.name: node for node in snapshot.nodes}
    for pod in snapshot.pods:
        one, node = relevant.get(pod.uid), nodes.get(pod.node or "")
        if one is not None and node is not None and one.free_capacity in (None, node.allocatable):
            managers = node.static_managers | _RESOURCES_BY_REASON[one.reason]
            nodes[node.name] = replace(node, static_managers=managers)
    return replace(snapshot, nodes=tuple(nodes.values()))


def find_unresizable_resources(node: Node) -> frozenset[ResourceName]:
    """Return the resources of Guaranteed pods that the node's kubelet does not resize."""
    version = node.kubelet_version
    refuses_all = version is not None and version < _FIRST_KUBELET_COMPARING_RESOURCES
    return _ALL if refuses_all and node.static_managers else node.static_managers


def explain_static_managers(node: Node) -> ReasonCode:
    """Return why the node's kubelet resizes no Guaranteed pod."""
    is_memory = ResourceName.MEMORY in node.static_managers
    return REFUSAL_BY_MANAGER[ResourceName.MEMORY if is_memory else ResourceName.CPU]
