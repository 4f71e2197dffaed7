"""What kubelets refuse to resize whatever the size: resources of static managers, and memory that may be swapped.

A refusal of one pod shows the configuration of its node, and is remembered as others are. Kubelets before 1.34 with a
static CPU or memory manager refuse every resize of a Guaranteed pod, with whole cores or not; later ones that of the
managed resource. Kubelets with swap refuse other memory requests of Burstable pods, and with them the whole resize.
"""

from collections.abc import Mapping
from dataclasses import replace

from cruise.domain.actions import ReasonCode, RefusedResize
from cruise.domain.cluster import ClusterSnapshot, Node, Pod, QosClass
from cruise.domain.resources import ResizeState, ResourceName

_REFUSAL_BY_MANAGER = {
    ResourceName.CPU: ReasonCode.STATIC_CPU_MANAGER,
    ResourceName.MEMORY: ReasonCode.STATIC_MEMORY_MANAGER,
}
REFUSALS_OF_ANY_SIZE = frozenset({*_REFUSAL_BY_MANAGER.values(), ReasonCode.NODE_SWAP})
"""Reasons of refusals that another size does not avoid."""
_FIRST_KUBELET_COMPARING_RESOURCES = (1, 34)
_MANAGED_BY_REASON = {
    ReasonCode.STATIC_CPU_MANAGER: frozenset({ResourceName.CPU}),
    # Of a pod one refusal is remembered, and the CPU manager refuses before the memory manager.
    ReasonCode.STATIC_MEMORY_MANAGER: frozenset(ResourceName),
}
_NONE: Mapping[ResourceName, ReasonCode] = {}


def explain_infeasible(state: ResizeState) -> ReasonCode:
    """Return why a kubelet refused a resize."""
    if state.memory_swaps:
        return ReasonCode.NODE_SWAP
    return ReasonCode.RESIZE_INFEASIBLE if state.static_manager is None else _REFUSAL_BY_MANAGER[state.static_manager]


def add_kubelet_refusals(snapshot: ClusterSnapshot, refused: Mapping[str, RefusedResize]) -> ClusterSnapshot:
    """Return the snapshot with what refused resizes show of their nodes; `refused` is by pod uid.

    A refusal does not count any more once the node's allocatable has changed.
    """
    relevant = {uid: one for uid, one in refused.items() if one.reason in REFUSALS_OF_ANY_SIZE}
    if not relevant:
        return snapshot
    nodes = {node.name: node for node in snapshot.nodes}
    for pod in snapshot.pods:
        one, node = relevant.get(pod.uid), nodes.get(pod.node or "")
        if one is not None and node is not None and one.free_capacity in (None, node.allocatable):
            nodes[node.name] = replace(
                node,
                static_managers=node.static_managers | _MANAGED_BY_REASON.get(one.reason, frozenset()),
                memory_swaps=node.memory_swaps or one.reason is ReasonCode.NODE_SWAP,
            )
    return replace(snapshot, nodes=tuple(nodes.values()))


def refuses_resizes(node: Node) -> bool:
    """Return whether the node's kubelet is known to refuse any resize whatever the size."""
    return bool(node.static_managers) or node.memory_swaps


def find_unresizable_resources(pod: Pod, node: Node) -> Mapping[ResourceName, ReasonCode]:
    """Return the resources of a pod that its node's kubelet does not resize, with the reason.

    Nothing while a resize is pending: it is withdrawn first.
    """
    if pod.resize.pending is not None:
        return _NONE
    if pod.qos is not QosClass.GUARANTEED:
        return {ResourceName.MEMORY: ReasonCode.NODE_SWAP} if node.memory_swaps else _NONE
    version = node.kubelet_version
    refuses_all = version is not None and version < _FIRST_KUBELET_COMPARING_RESOURCES
    if node.static_managers and refuses_all:
        is_memory = ResourceName.MEMORY in node.static_managers
        return dict.fromkeys(ResourceName, _REFUSAL_BY_MANAGER[ResourceName.MEMORY if is_memory else ResourceName.CPU])
    return {resource: _REFUSAL_BY_MANAGER[resource] for resource in node.static_managers}
