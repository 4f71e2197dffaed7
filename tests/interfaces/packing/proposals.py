"""A hand-made packing plan with its snapshot."""

from dataclasses import replace

from cruise.domain.actions import ContainerTarget, ReasonCode, ResizePod
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Pod
from cruise.domain.packing_plan import (
    PackingProposal,
    PackingSizes,
    PlannedPlacement,
    PlannedPreemption,
    PlanStage,
    PriorityResult,
)
from cruise.domain.reasons import UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, StatedResources
from cruise.packer.answer import PackingStatus
from tests.builders import make_container, make_node, make_pod, make_snapshot

WORDS = (
    "needs `disk=ssd`; the 3 nodes that have it are full of higher priority; "
    "1 more of them, or 700m less, would be enough"
)


def make_scene(namespace: str = "a") -> ClusterSnapshot:
    """Three nodes: `p` and `z` wait, `q` will move, `low` will be preempted, `r` will shrink."""

    def pod(name: str, node: str | None, cpu: int, priority: int = 0) -> Pod:
        return make_pod(name, namespace, node, [make_container(cpu=cpu, memory_mib=1024)], priority=priority)

    return make_snapshot(
        [
            pod("p", None, 1500, 1000),
            pod("z", None, 3900),
            pod("q", "n1", 2000),
            pod("r", "n1", 1000),
            pod("low", "n2", 3000, -10),
            pod("calm", "n3", 3500),
        ],
        nodes=[make_node("n1"), make_node("n2"), make_node("n3")],
    )


def make_proposal(namespace: str = "a", **changes: object) -> PackingProposal:
    """A plan with one step of each kind for the scene."""
    smaller = ContainerTarget("app", ContainerRole.MAIN, StatedResources(200, 512 * MEBIBYTE), StatedResources())
    shrink = ResizePod(
        namespace, "r", f"uid-{namespace}-r", "n1", None, (smaller,), NO_RESOURCES, ReasonCode.RIGHTSIZED
    )
    move = PlannedPlacement(namespace, "q", f"uid-{namespace}-q", "n1", "n2")
    arrival = PlannedPlacement(namespace, "p", f"uid-{namespace}-p", None, "n1")
    preemption = PlannedPreemption(namespace, "low", f"uid-{namespace}-low", "n2")
    proposal = PackingProposal(
        status=PackingStatus.OPTIMAL,
        sizes=PackingSizes.FIXED,
        unplaced=(
            UnplacedPod(
                namespace,
                "z",
                ("cpu", "node-selector"),
                UnschedulableReason(UnschedulableCode.NOT_EVALUATED, unsupported=WORDS),
                True,
            ),
        ),
        by_priority=(PriorityResult(1000, 1, 0, 1), PriorityResult(0, 3, 3, 3), PriorityResult(-10, 0, 1, 0)),
        stages=(PlanStage((shrink,), (preemption,), ()), PlanStage((), (move,), (move, arrival))),
    )
    return replace(proposal, **changes)  # type: ignore[arg-type]


def by_name(snapshot: ClusterSnapshot) -> dict[tuple[str, str], Pod]:
    """A snapshot's pods by namespace and name."""
    return {(pod.namespace, pod.name): pod for pod in snapshot.pods}
