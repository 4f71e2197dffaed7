"""Plans whose lists and figures match their stages, and a small cluster with a valid plan."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from cruise.decisions.scheduling.placements import get_pod_key, is_waiting_for_scheduling
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.packing_plan import (
    PackingProposal,
    PackingSizes,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
    PriorityResult,
)
from cruise.domain.reasons import UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.packer.answer import PackingStatus
from tests.builders import make_container, make_node, make_pod, make_snapshot


def make_plan(
    snapshot: ClusterSnapshot,
    *stages: PlanStage,
    status: PackingStatus = PackingStatus.OPTIMAL,
    sizes: PackingSizes = PackingSizes.FIXED,
) -> PackingProposal:
    """The plan of the stages; pods that are still pending lack CPU."""
    arrivals = [arrival for stage in stages for arrival in stage.arrivals]
    preempted = [leave for stage in stages for leave in stage.evictions if isinstance(leave, PlannedPreemption)]
    placed = {(arrival.namespace, arrival.pod) for arrival in arrivals if arrival.source is None}
    lost = [
        get_pod_key(pod) for pod in snapshot.pods if is_waiting_for_scheduling(pod) and get_pod_key(pod) not in placed
    ]
    return PackingProposal(
        status=status,
        sizes=sizes,
        unplaced=tuple(
            UnplacedPod(*key, ("cpu",), UnschedulableReason(UnschedulableCode.NODES_FULL), False) for key in lost
        ),
        by_priority=tier_lines(snapshot, placed, preempted),
        stages=stages,
    )


def tier_lines(
    snapshot: ClusterSnapshot, placed: Iterable[tuple[str, str]], preempted: Iterable[PlannedPreemption]
) -> tuple[PriorityResult, ...]:
    """One line a priority, with nothing left open."""
    priorities = {get_pod_key(pod): pod.priority for pod in snapshot.pods}
    bound = Counter(pod.priority for pod in snapshot.pods if pod.node is not None and not pod.is_finished)
    after = bound.copy()
    after.update(priorities[key] for key in placed)
    after.subtract(priorities[(one.namespace, one.pod)] for one in preempted)
    known = sorted({pod.priority for pod in snapshot.pods}, reverse=True)
    return tuple(PriorityResult(priority, after[priority], bound[priority], after[priority]) for priority in known)


def place(pod: Pod, target: str) -> PlannedPlacement:
    """The arrival of a pod, from where it is."""
    return PlannedPlacement(pod.namespace, pod.name, pod.uid, pod.node, target)


def preempt(pod: Pod) -> PlannedPreemption:
    """The end of a running pod."""
    return PlannedPreemption(pod.namespace, pod.name, pod.uid, pod.node or "")


def make_small_pod(name: str, cpu: int, node: str | None = None, priority: int = 0, app: str = "", **more: Any) -> Pod:
    """A pod of its own Deployment that requests only CPU."""
    app = app or name
    containers = (make_container("app", cpu, None, settled=node is not None),)
    return make_pod(
        name,
        node=node,
        containers=containers,
        workload=f"Deployment/{app}",
        priority=priority,
        labels={"app": app},
        **more,
    )


def make_scene() -> tuple[ClusterSnapshot, dict[str, Pod]]:
    """Three nodes of which only one has room, so that two pending pods need a move and a preemption."""
    pods = [
        make_small_pod("stays", 400, "n1"),
        make_small_pod("low", 300, "n1"),
        make_small_pod("moves", 500, "n2"),
        make_small_pod("asks", 700, priority=10),
        make_small_pod("wants", 600, priority=10),
        make_small_pod("waits", 900),
    ]
    nodes = [make_node("n1", cpu=1000), make_node("n2", cpu=1000), make_node("n3", cpu=600)]
    return make_snapshot(pods, nodes), {pod.name: pod for pod in pods}


def make_valid_plan(snapshot: ClusterSnapshot, pods: dict[str, Pod]) -> PackingProposal:
    """What gives both pending pods of the scene their place."""
    moves, low = pods["moves"], pods["low"]
    return make_plan(
        snapshot,
        PlanStage((), (place(moves, "n3"),), (place(moves, "n3"),)),
        PlanStage((), (preempt(low),), (place(pods["asks"], "n2"), place(pods["wants"], "n1"))),
    )
