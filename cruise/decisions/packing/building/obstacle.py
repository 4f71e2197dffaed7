"""The obstacles that may keep a pod from a node."""

from enum import StrEnum

from cruise.decisions.packing.building.amounts import ATTACH


class Obstacle(StrEnum):
    """An obstacle other than a resource, which goes by its own name; of equally small sets the first ones are named."""

    DISRUPTION_BUDGET = "disruption-budget"
    EVICTION_LIMIT = "eviction-limit"
    PREEMPTION_POLICY = "preemption-policy"
    UNMOVABLE = "unmovable"
    ATTACH_LIMIT = "attach-limit"
    TOPOLOGY_SPREAD = "topology-spread"
    ANTI_AFFINITY = "anti-affinity"
    HOST_PORTS = "host-ports"
    AFFINITY = "affinity"
    VOLUME = "volume"
    CORDONED = "cordoned"
    NOT_READY = "not-ready"
    TAINTS = "taints"
    NODE_SELECTOR = "node-selector"
    NODE_AFFINITY = "node-affinity"
    NO_NODES = "no-nodes"


# Begins what is said of a pod that kube-scheduler judges by rules that are not known here.
NOT_JUDGED = "not-judged"

# What keeps a pod from room that lower priorities hold.
PROTECTIONS = (Obstacle.DISRUPTION_BUDGET, Obstacle.EVICTION_LIMIT, Obstacle.UNMOVABLE)


def resource_obstacle(resource: str) -> str:
    """The name of what a resource's shortage is called."""
    return Obstacle.ATTACH_LIMIT if resource.startswith(ATTACH) else resource


def rank(obstacle: str) -> int:
    """The place of an obstacle among others; a resource comes before the pods that cannot leave it."""
    order = list(Obstacle)
    return order.index(Obstacle(obstacle)) * 2 if obstacle in order else order.index(Obstacle.UNMOVABLE) * 2 - 1
