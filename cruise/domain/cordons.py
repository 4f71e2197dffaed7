"""Which pods kube-scheduler lets onto a cordoned node, and which of them a plan sends there."""

from cruise.domain.cluster import Node, Pod
from cruise.domain.scheduling import CORDONED


def tolerates_cordon(pod: Pod) -> bool:
    """Tell whether kube-scheduler lets a pod onto a cordoned node."""
    return pod.placement.tolerates_all((CORDONED,))


def passes_cordons(pod: Pod) -> bool:
    """Tell whether a plan sends a pod to a cordoned node: a DaemonSet's that tolerates it belongs there."""
    return pod.owner_kind == "DaemonSet" and tolerates_cordon(pod)


def is_open_to(node: Node, pod: Pod) -> bool:
    """Tell whether a plan may send a pod to a node, as far as cordons matter."""
    return not node.unschedulable or passes_cordons(pod)
