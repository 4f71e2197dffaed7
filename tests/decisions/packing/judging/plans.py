"""Plans whose lists and figures are those of their stages, and a small cluster with one that is right."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from cruise.decisions.scheduling.board import key_of, waits_for_a_node
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.packing import Arrival, Preemption, Proposal, Sizes, Stage, TierLine
from cruise.domain.unplaced import Finding, Pattern, Unplaced
from cruise.packer.answer import Status
from tests.builders import make_container, make_node, make_pod, make_snapshot


def plan_of(
    snapshot: Snapshot, *stages: Stage, status: Status = Status.OPTIMAL, sizes: Sizes = Sizes.FIXED
) -> Proposal:
    """The plan of the stages; whoever is still pending is said to lack CPU."""
    arrivals = [arrival for stage in stages for arrival in stage.arrivals]
    preempted = [leave for stage in stages for leave in stage.leaves if isinstance(leave, Preemption)]
    placed = {(arrival.namespace, arrival.pod) for arrival in arrivals if arrival.source is None}
    lost = [key_of(pod) for pod in snapshot.pods if waits_for_a_node(pod) and key_of(pod) not in placed]
    return Proposal(
        status=status,
        sizes=sizes,
        unplaced=tuple(Unplaced(*key, ("cpu",), Finding(Pattern.FULL), False) for key in lost),
        by_priority=tier_lines(snapshot, placed, preempted),
        stages=stages,
    )


def tier_lines(
    snapshot: Snapshot, placed: Iterable[tuple[str, str]], preempted: Iterable[Preemption]
) -> tuple[TierLine, ...]:
    """One line a priority, with nothing left open."""
    priorities = {key_of(pod): pod.priority for pod in snapshot.pods}
    bound = Counter(pod.priority for pod in snapshot.pods if pod.node is not None and not pod.terminal)
    after = bound.copy()
    after.update(priorities[key] for key in placed)
    after.subtract(priorities[(one.namespace, one.pod)] for one in preempted)
    known = sorted({pod.priority for pod in snapshot.pods}, reverse=True)
    return tuple(TierLine(priority, after[priority], bound[priority], after[priority]) for priority in known)


def place(pod: Pod, target: str) -> Arrival:
    """The arrival of a pod, from where it is."""
    return Arrival(pod.namespace, pod.name, pod.uid, pod.node, target)


def preempt(pod: Pod) -> Preemption:
    """The end of a running pod."""
    return Preemption(pod.namespace, pod.name, pod.uid, pod.node or "")


def small(name: str, cpu: int, node: str | None = None, priority: int = 0, app: str = "", **more: Any) -> Pod:
    """A pod of its own Deployment that asks for CPU alone."""
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


def scene() -> tuple[Snapshot, dict[str, Pod]]:
    """Three nodes of which only one has room, so that two pending pods need a move and a preemption."""
    pods = [
        small("stays", 400, "n1"),
        small("low", 300, "n1"),
        small("moves", 500, "n2"),
        small("asks", 700, priority=10),
        small("wants", 600, priority=10),
        small("waits", 900),
    ]
    nodes = [make_node("n1", cpu=1000), make_node("n2", cpu=1000), make_node("n3", cpu=600)]
    return make_snapshot(pods, nodes), {pod.name: pod for pod in pods}


def right_plan(snapshot: Snapshot, pods: dict[str, Pod]) -> Proposal:
    """What gives both pending pods of the scene their place."""
    moves, low = pods["moves"], pods["low"]
    return plan_of(
        snapshot,
        Stage((), (place(moves, "n3"),), (place(moves, "n3"),)),
        Stage((), (preempt(low),), (place(pods["asks"], "n2"), place(pods["wants"], "n1"))),
    )
