"""Keeps evicted pods on the platform of their node: an image for one operating system or architecture may lack others.

kube-scheduler does not compare platforms, so a replacement may be scheduled where its image cannot start. Such a node
is no destination, unless the pod's own node selector or affinity states the label.
"""

from cruise.domain.annotations import ARCHITECTURE, OPERATING_SYSTEM
from cruise.domain.cluster import Node, Pod

PLATFORM_LABELS = (OPERATING_SYSTEM, ARCHITECTURE)


def get_platform(pod: Pod, node: Node | None) -> tuple[tuple[str, str], ...]:
    """Return the labels of the pod's node that the node of its replacement may not contradict."""
    if node is None:
        return ()
    stated = pod.placement.label_keys
    return tuple([(key, node.labels[key]) for key in PLATFORM_LABELS if key in node.labels and key not in stated])


def has_platform(node: Node, platform: tuple[tuple[str, str], ...]) -> bool:
    """Return whether a node's labels do not contradict a platform."""
    return all(node.labels.get(key, value) == value for key, value in platform)
