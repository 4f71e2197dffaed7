"""Why pods are pending, and whether shrinking the pods that are there already would make room for them.

Each pod is looked at by itself, by resources, taints, node selectors and node affinity. Whether several find room
together, and what volumes, spreading and affinity between pods ask, is not looked at.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.sizing.planned_requests import estimate_requests_at_targets
from cruise.domain.cluster import ClusterSnapshot, Node, Pod
from cruise.domain.pod_resources import count_pod_requests, tolerates_cordon
from cruise.domain.resources import BoolArray, Int64Array, Resources
from cruise.domain.scheduling import SchedulingConstraints


class SchedulingObstacle(StrEnum):
    """What keeps a pod from a node, in the order in which it is looked for."""

    CORDONED = "cordoned"
    PLACEMENT = "node-selector"
    TAINTS = "taints"
    PODS = "pods"
    EXTENDED = "extended-resources"
    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class PendingPod:
    """One pending pod. `obstacles` counts nodes; a node short of both CPU and memory counts for both.

    `fits_now` counts the nodes that have room already. Where there are none, `room_after` counts those that would once
    their own pods have their targets, without an eviction; `best` is one of these, with `best_freed` what its pods
    would give back.
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
    """Return all pending pods, by priority from the highest, then by name; `plans` are those of all nodes."""
    waiting = [pod for pod in snapshot.pods if pod.node is None and not pod.is_finished and not pod.terminating]
    if not waiting:
        return ()
    rooms = _NodeCapacityColumns(snapshot, plans)
    waiting.sort(key=lambda pod: (-pod.priority, pod.namespace, pod.name))
    return tuple(rooms.explain(pod) for pod in waiting)


class _NodeCapacityColumns:
    """What every node has free, now and at its pods' targets, in columns."""

    def __init__(self, snapshot: ClusterSnapshot, plans: Sequence[NodePlan]) -> None:
        self._nodes: Sequence[Node] = snapshot.nodes
        by_name = {plan.node: plan for plan in plans}
        pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        held = {(hold.namespace, hold.pod) for plan in plans for hold in plan.skipped}
        ordered = [by_name[node.name] for node in self._nodes]
        now = [plan.allocatable - plan.counted for plan in ordered]
        after = [plan.allocatable - estimate_requests_at_targets(plan, pods, held) for plan in ordered]
        self._free = _columns(now)
        self._free_after = _columns(after)
        self._calm = np.array([plan.fits and not plan.evict for plan in ordered], dtype=np.bool_)
        counts = Counter(pod.node for pod in snapshot.pods if not pod.is_finished)
        self._pods_free = np.array([node.allocatable_pods - counts[node.name] for node in self._nodes], dtype=np.int64)
        self._schedulable = np.array(
            [node.accepts_pods and not node.unschedulable for node in self._nodes], dtype=np.bool_
        )
        self._extended_used = _extended_used(snapshot)
        self._masks: dict[SchedulingConstraints, tuple[BoolArray, BoolArray]] = {}

    def explain(self, pod: Pod) -> PendingPod:
        """Look for a pod's room on every node."""
        need = count_pod_requests(pod)
        admitted, tolerated = self._masks_of(pod.placement)
        places = self._pods_free >= 1
        extended = self._extended(pod)
        steps = (
            (SchedulingObstacle.CORDONED, self._schedulable | tolerates_cordon(pod)),
            (SchedulingObstacle.PLACEMENT, admitted),
            (SchedulingObstacle.TAINTS, tolerated),
            (SchedulingObstacle.PODS, places),
            (SchedulingObstacle.EXTENDED, extended),
        )
        open_to_it = np.ones(len(self._nodes), dtype=np.bool_)
        obstacles: dict[SchedulingObstacle, int] = {}
        for obstacle, allowed in steps:
            obstacles[obstacle] = int(np.count_nonzero(open_to_it & ~allowed))
            open_to_it &= allowed
        cpu, memory = _enough(self._free, need)
        obstacles[SchedulingObstacle.CPU] = int(np.count_nonzero(open_to_it & ~cpu))
        obstacles[SchedulingObstacle.MEMORY] = int(np.count_nonzero(open_to_it & ~memory))
        fits_now = open_to_it & cpu & memory
        cpu_after, memory_after = _enough(self._free_after, need)
        after = open_to_it & cpu_after & memory_after & self._calm & (not fits_now.any())
        best = self._roomiest(after)
        return PendingPod(
            namespace=pod.namespace,
            pod=pod.name,
            workload=str(pod.workload) if pod.workload is not None else "",
            priority=pod.priority,
            need=need,
            since=pod.unschedulable_since or pod.created_at,
            scheduling_gated=pod.scheduling_gated,
            nodes=len(self._nodes),
            obstacles={obstacle: count for obstacle, count in obstacles.items() if count},
            schedulable_now=int(np.count_nonzero(fits_now)),
            schedulable_after_sizing=int(np.count_nonzero(after)),
            best_node=None if best is None else self._nodes[best].name,
            reclaimed_on_best_node=Resources() if best is None else self._freed(best),
        )

    def _masks_of(self, placement: SchedulingConstraints) -> tuple[BoolArray, BoolArray]:
        """Tell for each node whether selectors admit, and whether all taints are tolerated; once for a placement."""
        known = self._masks.get(placement)
        if known is None:
            admitted = [placement.allows_node(node.name, node.labels) for node in self._nodes]
            tolerated = [placement.tolerates_all(node.taints) for node in self._nodes]
            known = self._masks[placement] = (np.array(admitted, np.bool_), np.array(tolerated, np.bool_))
        return known

    def _extended(self, pod: Pod) -> BoolArray:
        has = np.ones(len(self._nodes), dtype=np.bool_)
        for resource, amount in pod.extended_requests:
            used = self._extended_used.get(resource, Counter())
            has &= np.array(
                [node.allocatable_extended.get(resource, 0) - used.get(node.name, 0) >= amount for node in self._nodes],
                dtype=np.bool_,
            )
        return has

    def _roomiest(self, nodes: BoolArray) -> int | None:
        """Return the node with the most memory free at its pods' targets, the first of equals; None without one."""
        if not nodes.any():
            return None
        return int(np.argmax(np.where(nodes, self._free_after[1], np.iinfo(np.int64).min)))

    def _freed(self, node: int) -> Resources:
        cpu, memory = (int(after[node] - now[node]) for now, after in zip(self._free, self._free_after, strict=True))
        return Resources(cpu, memory)


def _columns(amounts: Sequence[Resources]) -> tuple[Int64Array, Int64Array]:
    return (
        np.array([amount.cpu_millicores for amount in amounts], dtype=np.int64),
        np.array([amount.memory_bytes for amount in amounts], dtype=np.int64),
    )


def _enough(free: tuple[Int64Array, Int64Array], need: Resources) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    return free[0] >= need.cpu_millicores, free[1] >= need.memory_bytes


def _extended_used(snapshot: ClusterSnapshot) -> dict[str, Counter[str | None]]:
    used: dict[str, Counter[str | None]] = {}
    for pod in snapshot.pods:
        if pod.node is not None and not pod.is_finished:
            for resource, amount in pod.extended_requests:
                used.setdefault(resource, Counter())[pod.node] += amount
    return used
