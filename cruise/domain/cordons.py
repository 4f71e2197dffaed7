"""Which pods may come to a node that is cordoned."""

from cruise.domain.cluster import Pod
from cruise.domain.scheduling import CORDONED


def passes_cordons(pod: Pod) -> bool:
    """Tell whether a pod may come to a cordoned node: a DaemonSet's that tolerates it, as it belongs to its node."""
    return pod.owner_kind == "DaemonSet" and pod.placement.tolerates_all((CORDONED,))
