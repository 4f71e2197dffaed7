"""Why pods are pending, and whether decreasing the requests of running pods to their targets would let them run.

Each pod is examined alone, by resources, taints, node selectors and node affinity. Whether several fit together, and
volumes, topology spread and inter-pod affinity, are not examined.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np

from cruise.decisions.sizing.node_columns import split_by_resource
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.sizing.planned_requests import count_node_requests_at_targets
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.pod_resources import count_pod_requests, tolerates_cordon
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.scheduling import SchedulingConstraints


class SchedulingObstacle(StrEnum):
    """What keeps a pod from a node, in the order of the checks."""

    CORDONED = "cordoned"
    PLACEMENT = "node-selector"
    TAINTS = "taints"
    PODS = "pods"
    EXTENDED = "extended-resources"
    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class PendingPod:
    """One pending pod; `obstacles` counts nodes, and a node short of both CPU and memory for both.

    `schedulable_now` counts the nodes with enough free capacity. If there is none, `schedulable_after_sizing` counts
    those that would have it with their pods at their targets, without evictions; `best_node` is one of them, and
    `reclaimed_on_best_node` what its pods would free.
    """

    namespace: str
    pod: str
    workload: str
    priority: int
    need: Resources
    since: datetime | None
    scheduling_gated: bool
    nodes: int
    obstacles: Mapping[SchedulingObstacle, int]
    schedulable_now: int
    schedulable_after_sizing: int
    best_node: str | None
    reclaimed_on_best_node: Resources


def explain_pending_pods(snapshot: ClusterSnapshot, plans: Sequence[NodePlan]) -> tuple[PendingPod, ...]:
    """Return all pending pods, by descending priority and then by name; `plans` are those of all nodes."""
    pending = [pod for pod in snapshot.pods if pod.node is None and not pod.is_finished and not pod.terminating]
    if not pending:
        return ()
    capacities = _NodeCapacityColumns(snapshot, plans)
    pending.sort(key=lambda pod: (-pod.priority, pod.namespace, pod.name))
    return tuple(capacities.explain(pod) for pod in pending)


class _NodeCapacityColumns:
    """The free capacity of every node in columns, at present and with its pods at their targets."""

    def __init__(self, snapshot: ClusterSnapshot, plans: Sequence[NodePlan]) -> None:
        self._nodes: Sequence[Node] = snapshot.nodes
        by_name = {plan.node: plan for plan in plans}
        pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        skipped = {(one.namespace, one.pod) for plan in plans for one in plan.skipped}
        plans_by_node = [by_name[node.name] for node in self._nodes]
        now = [plan.allocatable - plan.counted for plan in plans_by_node]
        after = [plan.allocatable - count_node_requests_at_targets(plan, pods, skipped) for plan in plans_by_node]
        self._free = split_by_resource(now)
        self._free_after = split_by_resource(after)
        self._needs_no_eviction = np.array([plan.fits and not plan.evict for plan in plans_by_node], dtype=np.bool_)
        counts = Counter(pod.node for pod in snapshot.pods if not pod.is_finished)
        self._pods_free = np.array([node.allocatable_pods - counts[node.name] for node in self._nodes], dtype=np.int64)
        self._schedulable = np.array(
            [node.accepts_pods and not node.unschedulable for node in self._nodes], dtype=np.bool_
        )
        self._extended_requests = _sum_extended_requests(snapshot)
        self._masks: dict[SchedulingConstraints, tuple[BoolArray, BoolArray]] = {}

    def explain(self, pod: Pod) -> PendingPod:
        """Look for free capacity for a pod on every node."""
        requests = count_pod_requests(pod)
        matching, tolerated = self._get_masks(pod.placement)
        has_pod_slot = self._pods_free >= 1
        extended = self._check_extended_resources(pod)
        steps = (
            (SchedulingObstacle.CORDONED, self._schedulable | tolerates_cordon(pod)),
            (SchedulingObstacle.PLACEMENT, matching),
            (SchedulingObstacle.TAINTS, tolerated),
            (SchedulingObstacle.PODS, has_pod_slot),
            (SchedulingObstacle.EXTENDED, extended),
        )
        remaining = np.ones(len(self._nodes), dtype=np.bool_)
        obstacles: dict[SchedulingObstacle, int] = {}
        for obstacle, allowed in steps:
            obstacles[obstacle] = int(np.count_nonzero(remaining & ~allowed))
            remaining &= allowed
        cpu, memory = _has_enough(self._free, requests)
        obstacles[SchedulingObstacle.CPU] = int(np.count_nonzero(remaining & ~cpu))
        obstacles[SchedulingObstacle.MEMORY] = int(np.count_nonzero(remaining & ~memory))
        fits_now = remaining & cpu & memory
        cpu_after, memory_after = _has_enough(self._free_after, requests)
        fits_after_sizing = remaining & cpu_after & memory_after & self._needs_no_eviction & (not fits_now.any())
        best_node = self._find_most_free(fits_after_sizing)
        return PendingPod(
            namespace=pod.namespace,
            pod=pod.name,
            workload=str(pod.workload) if pod.workload is not None else "",
            priority=pod.priority,
            need=requests,
            since=pod.unschedulable_since or pod.created_at,
            scheduling_gated=pod.scheduling_gated,
            nodes=len(self._nodes),
            obstacles={obstacle: count for obstacle, count in obstacles.items() if count},
            schedulable_now=int(np.count_nonzero(fits_now)),
            schedulable_after_sizing=int(np.count_nonzero(fits_after_sizing)),
            best_node=None if best_node is None else self._nodes[best_node].name,
            reclaimed_on_best_node=Resources() if best_node is None else self._compute_reclaimed(best_node),
        )

    def _get_masks(self, placement: SchedulingConstraints) -> tuple[BoolArray, BoolArray]:
        """Return for each node whether selectors match, and whether all taints are tolerated."""
        masks = self._masks.get(placement)
        if masks is None:
            matching = [placement.allows_node(node.name, node.labels) for node in self._nodes]
            tolerated = [placement.tolerates_all(node.taints) for node in self._nodes]
            masks = self._masks[placement] = (np.array(matching, np.bool_), np.array(tolerated, np.bool_))
        return masks

    def _check_extended_resources(self, pod: Pod) -> BoolArray:
        has = np.ones(len(self._nodes), dtype=np.bool_)
        for resource, amount in pod.extended_requests:
            used = self._extended_requests.get(resource, Counter())
            has &= np.array(
                [node.allocatable_extended.get(resource, 0) - used.get(node.name, 0) >= amount for node in self._nodes],
                dtype=np.bool_,
            )
        return has

    def _find_most_free(self, nodes: BoolArray) -> int | None:
        """Return the node with the most memory free with its pods at their targets, the first of equal ones."""
        if not nodes.any():
            return None
        return int(np.argmax(np.where(nodes, self._free_after[ResourceName.MEMORY], np.iinfo(np.int64).min)))

    def _compute_reclaimed(self, node: int) -> Resources:
        return Resources(*(int(self._free_after[one][node] - self._free[one][node]) for one in ResourceName))


def _has_enough(free: Mapping[ResourceName, Int64Array], need: Resources) -> tuple[BoolArray, BoolArray]:
    return free[ResourceName.CPU] >= need.cpu_millicores, free[ResourceName.MEMORY] >= need.memory_bytes


def _sum_extended_requests(snapshot: ClusterSnapshot) -> dict[str, Counter[str | None]]:
    used: dict[str, Counter[str | None]] = {}
    for pod in snapshot.pods:
        if pod.node is not None and not pod.is_finished:
            for resource, amount in pod.extended_requests:
                used.setdefault(resource, Counter())[pod.node] += amount
    return used
