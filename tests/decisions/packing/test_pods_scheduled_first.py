"""Pods outside a plan that kube-scheduler may schedule before those of the plan."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.decisions.packing.execution import decide_next_step
from cruise.decisions.packing.expected_pods import StageArrivalPods
from cruise.domain.cluster import Pod
from cruise.domain.packing_plan import PackingPlan, PlannedPlacement, PlanPhase, PlanStage
from cruise.domain.reasons import PlanCondition, PlanStatusReason, UnplacedPod, UnschedulableCode, UnschedulableReason
from tests.builders import NOW
from tests.decisions.packing.test_execution import BIG, FULL, PLACE, SOON, cluster, evicted, plan_of, pod, told

UNTIL_STEERED = PlanCondition(PlanStatusReason.PLACEMENT_HINT)


def leaving_out(plan: PackingPlan, *pods: Pod) -> PackingPlan:
    unplaced = tuple(
        UnplacedPod(one.namespace, one.name, ("cpu",), UnschedulableReason(UnschedulableCode.NODES_FULL), False)
        for one in pods
    )
    return replace(plan, proposal=replace(plan.proposal, unplaced=unplaced))


def came(name: str, cpu: int = 3000, **more) -> Pod:
    """A pod that waited, on the node to which the plan sends another."""
    return pod(name, cpu, "n1", **more)


def node_of_place(other: Pod, *, left_out: bool = True) -> str | None:
    plan = plan_of(PlanStage((), (), (PLACE,)))
    plan = leaving_out(plan, other) if left_out else plan
    return StageArrivalPods(plan, plan.proposal.stages[0], cluster(BIG, other)).get_node(PLACE)


@pytest.mark.parametrize(
    ("other", "stands"),
    [
        (came("also-1"), True),
        (came("also-1", cpu=2000, priority=5), True),
        (came("also-1", cpu=3100), False),
        (came("also-1", priority=-1), False),
        (replace(came("also-1"), node="n2"), False),
        (replace(came("also-1"), terminating=True), False),
    ],
    ids=["alike", "smaller and more important", "larger", "less important", "elsewhere", "on its way out"],
)
def test_an_equally_important_pod_that_is_no_larger_replaces_the_named_one(other, stands):
    assert node_of_place(other) == ("n1" if stands else None)


def test_a_pod_that_was_no_candidate_replaces_no_other():
    assert node_of_place(came("also-1"), left_out=False) is None


def test_each_pod_replaces_one_also_in_later_stages():
    second = pod("second-1", 3000, None)
    later = PlannedPlacement("shop", "second-1", second.uid, None, "n1")
    plan = leaving_out(plan_of(PlanStage((), (), (PLACE,)), PlanStage((), (), (later,))), came("also-1"))
    snapshot = cluster(BIG, second, came("also-1"))
    plan = replace(plan, stage=1)
    assert StageArrivalPods(plan, plan.proposal.stages[1], snapshot).get_node(later) is None


def test_replicas_of_two_stages_change_places():
    first, second = (pod(f"big-{number}", 1500, None, unschedulable_since=NOW) for number in (1, 2))
    alone = [pod("web-1", 1500), pod("db-1", 1500)]
    moves = [PlannedPlacement("shop", one.name, one.uid, "n1", "n2") for one in alone]
    places = [PlannedPlacement("shop", one.name, one.uid, None, "n1") for one in (first, second)]
    stages = tuple(PlanStage((), (move,), (move, place)) for move, place in zip(moves, places, strict=True))
    plan = told(plan_of(*stages), cluster(*alone, pod("api-1", 1000), first, second))
    there = [pod("web-new", 1500, "n2", owner_name="web-rs", uid="uid-new"), alone[1], pod("api-1", 1000)]
    # In the first stage the second one came.
    now = cluster(*there, first, replace(second, node="n1", phase="Running", unschedulable_since=None))
    step = decide_next_step(evicted(plan, alone[0].uid), now, FULL, SOON)
    assert (step.plan.phase, step.plan.stage, step.plan.condition) == (PlanPhase.IN_PROGRESS, 1, UNTIL_STEERED)
    step = decide_next_step(step.plan, now, FULL, SOON + timedelta(seconds=5))
    assert [one.uid for one in step.actions] == [alone[1].uid]
    gone = [there[0], there[2], pod("db-new", 1500, "n2", owner_name="db-rs", uid="uid-db-new")]
    ended = cluster(
        *gone, *(replace(one, node="n1", phase="Running", unschedulable_since=None) for one in (first, second))
    )
    step = decide_next_step(evicted(step.plan, alone[1].uid), ended, FULL, SOON + timedelta(seconds=9))
    assert step.plan.phase is PlanPhase.FINISHED


def test_a_plan_continues_if_one_of_two_pods_was_placed_once_there_was_capacity_for_one():
    first, second = (pod(f"big-{number}", 1600, None, unschedulable_since=NOW) for number in (1, 2))
    alone = [pod("web-1", 1500), pod("db-1", 1500)]
    moves = [PlannedPlacement("shop", one.name, one.uid, "n1", "n2") for one in alone]
    places = tuple(PlannedPlacement("shop", one.name, one.uid, None, "n1") for one in (first, second))
    stages = PlanStage((), (moves[0],), (moves[0],)), PlanStage((), (moves[1],), (moves[1], *places))
    others = [pod("api-1", 800), pod("auth-1", 1000, "n2")]
    plan = told(plan_of(*stages), cluster(*alone, *others, first, second))
    there = [pod("web-new", 1500, "n2", owner_name="web-rs", uid="uid-new"), alone[1], *others]
    came = replace(first, node="n1", phase="Running", unschedulable_since=None)
    now = cluster(*there, came, second)
    plan = decide_next_step(evicted(plan, alone[0].uid), now, FULL, SOON).plan
    step = decide_next_step(plan, now, FULL, SOON + timedelta(seconds=5))
    assert [one.uid for one in step.actions] == [alone[1].uid]
    # With both present no pod has to be evicted.
    both = replace(second, node="n1", phase="Running", unschedulable_since=None)
    step = decide_next_step(plan, cluster(*there, came, both), FULL, SOON + timedelta(seconds=5))
    assert (step.actions, step.plan.phase) == ((), PlanPhase.DROPPED)
