"""The fit of nodes in columns: which hold their pods, and which pods have to go where they do not.

All nodes are decided together; only a node that does not hold its pods is looked at pod by pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.eviction.ranking import Contender, decide_evictions
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.sizing.node_columns import NodeColumns
from cruise.domain.actions import EvictPod, Reason
from cruise.domain.arrays import BoolArray
from cruise.domain.cluster import Pod
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import ResourceName, Resources

Contenders = Mapping[int, Sequence[Contender]]

_MANAGED = {
    (cpu, memory): frozenset(r for r, managed in zip(ResourceName, (cpu, memory), strict=True) if managed)
    for cpu in (False, True)
    for memory in (False, True)
}


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that has to go, by its index, with its ranking and the resource that does not fit."""

    index: int
    ranking: EvictionRanking
    resource: ResourceName

    def action(self, pod: Pod) -> EvictPod:
        """Return what evicts the pod."""
        return EvictPod(
            pod.namespace,
            pod.name,
            pod.uid,
            pod.node,
            pod.workload,
            self.ranking,
            self.resource,
            Reason.DOES_NOT_FIT,
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """Which nodes hold the pods that stay on them, and which pods stay.

    `fits` has an entry a node, `stays` an entry a pod; `evicted` has the nodes with evictions, in marking order.
    """

    fits: BoolArray
    stays: BoolArray
    evicted: Mapping[int, tuple[Eviction, ...]]


def crowded_nodes(columns: NodeColumns) -> list[int]:
    """Return the nodes that have no room for the bases of their pods and the largest single headroom.

    Whatever a headroom model wants, pods fit where there is room for one of them at a time at its peak: a headroom
    moves with every pass, and pods that were evicted for it are missed when it has shrunk again.
    """
    crowded = np.zeros(len(columns.nodes), dtype=np.bool_)
    for resource in ResourceName:
        need = columns.base_of_nodes[resource] + columns.spike_of_nodes[resource]
        crowded |= need > columns.available[resource]
    nodes: list[int] = np.flatnonzero(crowded).tolist()
    return nodes


def contenders_of(columns: NodeColumns, node: int, eligibility: Eligibility) -> list[Contender]:
    """Return the pods of a node as the fit compares them, in the order of `columns.pods_of`."""
    pods = columns.pods_of(node)
    base, spike = columns.base, columns.spike
    amounts = (of_pods[resource][pods].tolist() for of_pods in (base, spike) for resource in ResourceName)
    found = []
    for at, cpu, memory, cpu_headroom, memory_headroom in zip(pods, *amounts, strict=True):
        touchable = columns.candidates.pods[at]
        managed = _MANAGED[touchable.manages_cpu, touchable.manages_memory]
        found.append(
            Contender(
                touchable.pod.namespace,
                touchable.pod.name,
                eligibility.evictability.ranking_of(touchable.pod, touchable.guidance),
                Resources(cpu, memory),
                Resources(cpu_headroom, memory_headroom),
                frozenset() if eligibility.evictability.why_kept(touchable.pod, touchable.guidance) else managed,
            )
        )
    return found


def fit_nodes(columns: NodeColumns, contenders: Contenders) -> Fit:
    """Decide the fit and the evictions of all nodes; `contenders` are the pods of those that are crowded, by node."""
    fits = np.ones(len(columns.nodes), dtype=np.bool_)
    stays = np.ones(len(columns.candidates.pods), dtype=np.bool_)
    evicted: dict[int, tuple[Eviction, ...]] = {}
    for node, of_node in contenders.items():
        room = Resources(*(int(columns.available[resource][node]) for resource in ResourceName))
        marked = decide_evictions(of_node, room)
        fits[node] = marked is not None
        if marked:
            pods = columns.pods_of(node)
            evicted[node] = tuple(Eviction(pods[at.index], of_node[at.index].ranking, at.resource) for at in marked)
            stays[[eviction.index for eviction in evicted[node]]] = False
    return Fit(fits, stays, evicted)
