"""The next step of a plan, on hand-made clusters."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.decisions.packing.execution import PlanStep, apply_outcomes, decide_next_step, start_plan
from cruise.decisions.packing.expected_pods import StageArrivalPods
from cruise.decisions.packing.remaining_plan import get_plan_dependencies
from cruise.domain.actions import ActionResult, EvictPod, Outcome, ReasonCode, ResizePod
from cruise.domain.annotations import PLACEMENT_HINT
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.packing_plan import (
    EvictedPod,
    PackingPlan,
    PackingProposal,
    PackingSizes,
    PlannedPlacement,
    PlanPhase,
    PlanStage,
)
from cruise.domain.pod_resources import get_spec_targets, replace_spec_resources
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES, ResizePending, ResizeState
from cruise.domain.scheduling import SchedulingConstraints, Toleration
from cruise.interfaces.packing.descriptions import describe_plan_condition
from cruise.packer.answer import PackingStatus
from tests.builders import NOW, make_budget, make_container, make_node, make_pod, make_snapshot

FULL = Policy(mode=Mode.FULL)
SOON = NOW + timedelta(seconds=5)


def pod(name: str, cpu: int, node: str | None = "n1", **more) -> Pod:
    owner = name.rpartition("-")[0]
    more = {"workload": f"Deployment/{owner}", "owner_kind": "ReplicaSet", "owner_name": f"{owner}-rs", **more}
    containers = [make_container(cpu=cpu, memory_mib=100, settled=node is not None)]
    return make_pod(name, node=node, containers=containers, labels={"app": owner}, **more)


WEB = pod("web-1", 1500)
DB = pod("db-1", 1500, "n2")
BIG = pod("big-1", 3000, None, unschedulable_since=NOW)
NODES = [make_node("n1", 4000, 8192), make_node("n2", 4000, 8192)]
MOVE = PlannedPlacement("shop", "web-1", WEB.uid, "n1", "n2")
PLACE = PlannedPlacement("shop", "big-1", BIG.uid, None, "n1")
STAGE = PlanStage((), (MOVE,), (MOVE, PLACE))


def cluster(*pods: Pod, **more) -> ClusterSnapshot:
    return make_snapshot(pods or (WEB, DB, BIG), nodes=NODES, **more)


def plan_of(*stages: PlanStage, mode: Mode = Mode.FULL) -> PackingPlan:
    proposal = PackingProposal(PackingStatus.OPTIMAL, PackingSizes.RIGHTSIZED, (), (), stages)
    return start_plan(proposal, NOW, NOW, 0.1, mode)


def told(plan: PackingPlan, snapshot: ClusterSnapshot) -> PackingPlan:
    """The plan once the webhook has its placement hints."""
    return decide_next_step(plan, snapshot, FULL, NOW).plan


def evicted(plan: PackingPlan, *uids: str) -> PackingPlan:
    return replace(plan, evicted=tuple(EvictedPod(uid, SOON) for uid in uids))


def test_the_first_step_announces_placement_hints_and_the_next_evicts():
    plan = plan_of(STAGE)
    step = decide_next_step(plan, cluster(), FULL, NOW)
    assert step.actions == ()
    [one] = step.plan.placement_hints
    assert (one.replaces, one.owner_name, one.pod, one.node) == (WEB.uid, "web-rs", None, "n2")
    assert step.plan.earlier_pods == (WEB.uid,)
    assert decide_next_step(step.plan, cluster(), FULL, NOW + timedelta(seconds=1)).actions == ()
    [eviction] = decide_next_step(step.plan, cluster(), FULL, SOON).actions
    assert isinstance(eviction, EvictPod)
    assert (eviction.uid, eviction.node, eviction.reason) == (WEB.uid, "n1", ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS)


def test_a_replacement_is_known_by_its_note_before_any_other():
    plan = evicted(told(plan_of(STAGE), cluster()), WEB.uid)
    scaled_up = pod("web-2", 1500, None, uid="uid-a")
    ours = pod("web-3", 1500, "n2", uid="uid-b", annotations={PLACEMENT_HINT: f"{WEB.uid} n2"})
    step = decide_next_step(plan, cluster(DB, BIG, scaled_up, ours), FULL, SOON)
    assert [(one.uid, one.placed_uid, one.node) for one in step.plan.placed] == [(WEB.uid, "uid-b", "n2")]
    assert step.plan.placement_hints == ()


def test_without_a_record_the_new_pod_is_the_replacement_and_others_are_not():
    other = pod("web-2", 100, "n2")
    before = cluster(WEB, DB, BIG, other)
    plan = evicted(told(plan_of(STAGE), before), WEB.uid)
    assert decide_next_step(plan, cluster(DB, BIG, other), FULL, SOON).plan.placed == ()
    new = pod("web-9", 1500, "n2", uid="uid-new")
    assert decide_next_step(plan, cluster(DB, BIG, other, new), FULL, SOON).plan.placed[0].placed_uid == "uid-new"


def test_a_plan_is_finished_when_all_its_pods_are_bound_and_evicted_pods_are_gone():
    plan = evicted(told(plan_of(STAGE), cluster()), WEB.uid)
    new = pod("web-9", 1500, "n2", uid="uid-new")
    bound = replace(BIG, node="n1", phase="Running")
    leaving = replace(WEB, terminating=True)
    waits = decide_next_step(plan, cluster(DB, new, bound, leaving), FULL, SOON).plan
    assert waits.phase is PlanPhase.IN_PROGRESS
    assert decide_next_step(plan, cluster(DB, new, bound), FULL, SOON).plan.phase is PlanPhase.FINISHED


def test_after_an_eviction_of_unknown_time_the_pending_pod_still_gets_its_time_to_be_bound():
    """A leader was killed before it stored its eviction; the next one finds the pod gone, and the other one pending."""
    pending = replace(BIG, unschedulable_since=NOW - timedelta(minutes=2))
    new = pod("web-9", 1500, "n2", uid="uid-new")
    plan = told(plan_of(STAGE), cluster(WEB, DB, pending))
    found = decide_next_step(plan, cluster(DB, new, pending), FULL, SOON).plan
    assert (found.phase, found.evicted) == (PlanPhase.IN_PROGRESS, (EvictedPod(WEB.uid, SOON),))
    later = decide_next_step(found, cluster(DB, new, pending), FULL, SOON + timedelta(seconds=31)).plan
    assert (later.phase, later.evicted) == (PlanPhase.DROPPED, found.evicted)
    assert "big-1" in describe_plan_condition(later)


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (cluster(DB, BIG), "pod shop/web-1 no longer exists"),
        (cluster(WEB, DB), "pod shop/big-1 no longer exists"),
        (make_snapshot([WEB, BIG], nodes=NODES[:1]), "node n2 no longer exists"),
        (make_snapshot([WEB, DB, BIG], nodes=[NODES[0], replace(NODES[1], ready=False)]), "node n2 is unschedulable"),
        (cluster(WEB, pod("db-1", 3900, "n2"), BIG), "lacks cpu"),
        (cluster(replace(WEB, annotations={"cruise.io/mode": "resize"}), DB, BIG), "its mode is resize"),
        (cluster(WEB, DB, replace(BIG, node="n2", phase="Running")), "was scheduled without the plan"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cluster_that_contradicts_the_plan_drops_it(snapshot, why):
    plan = plan_of(STAGE)
    first = decide_next_step(plan, snapshot, FULL, NOW)
    last = first if first.plan.phase is PlanPhase.DROPPED else decide_next_step(first.plan, snapshot, FULL, SOON)
    assert (last.plan.phase, last.actions) == (PlanPhase.DROPPED, ())
    assert why in describe_plan_condition(last.plan)
    assert last.plan.placement_hints == ()


def test_a_cordon_is_no_obstacle_to_a_pod_of_a_daemon_set():
    place = replace(PLACE, target="n2")
    cordoned = [NODES[0], replace(NODES[1], unschedulable=True)]
    tolerant = SchedulingConstraints(tolerations=(Toleration(exists=True),))
    for kind, phase in (("DaemonSet", PlanPhase.IN_PROGRESS), ("ReplicaSet", PlanPhase.DROPPED)):
        daemon = replace(BIG, owner_kind=kind, placement=tolerant)
        snapshot = make_snapshot([daemon], nodes=cordoned)
        assert decide_next_step(plan_of(PlanStage((), (), (place,))), snapshot, FULL, NOW).plan.phase is phase


def test_a_plan_is_dropped_if_another_pod_took_the_capacity_after_the_eviction():
    plan = evicted(told(plan_of(STAGE), cluster()), WEB.uid)
    intruder = pod("other-1", 2000, "n2")
    new = pod("web-9", 1500, None, uid="uid-new")
    step = decide_next_step(plan, cluster(DB, BIG, intruder, new), FULL, SOON)
    assert step.plan.phase is PlanPhase.DROPPED
    assert "too little free capacity" in describe_plan_condition(step.plan)


def shrink(one: Pod, cpu: int) -> ResizePod:
    [target] = get_spec_targets(one)
    target = replace(target, requests=replace(target.requests, cpu_millicores=cpu))
    return ResizePod("shop", one.name, one.uid, one.node, one.workload, (target,), NO_RESOURCES, ReasonCode.RIGHTSIZED)


def test_resizes_are_first_and_the_plan_waits_until_they_are_actual():
    late = pod("late-1", 1500, None, unschedulable_since=NOW)
    large = pod("web-1", 3000)
    stage = PlanStage((shrink(large, 1000),), (), (PlannedPlacement("shop", "late-1", late.uid, None, "n1"),))
    plan = plan_of(stage)
    [resize] = decide_next_step(plan, make_snapshot([large, late], nodes=NODES[:1]), FULL, NOW).actions
    assert (resize.uid, resize.reason) == (large.uid, ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS)
    asked = replace_spec_resources(large, stage.resizes[0].containers)
    waits = decide_next_step(plan, make_snapshot([asked, late], nodes=NODES[:1]), FULL, NOW)
    assert (waits.actions, waits.plan.phase) == ((), PlanPhase.IN_PROGRESS)
    assert "actual" in describe_plan_condition(waits.plan)
    stuck = replace(asked, resize=ResizeState(ResizePending.INFEASIBLE))
    dropped = decide_next_step(plan, make_snapshot([stuck, late], nodes=NODES[:1]), FULL, NOW)
    assert dropped.plan.phase is PlanPhase.DROPPED


def test_a_budget_that_is_used_up_for_now_is_waited_for():
    snapshot = cluster(budgets=[make_budget(disruptions_allowed=0)])
    step = decide_next_step(told(plan_of(STAGE), cluster()), snapshot, FULL, SOON)
    assert (step.actions, step.plan.phase) == ((), PlanPhase.IN_PROGRESS)
    assert "PodDisruptionBudget web" in describe_plan_condition(step.plan)


@pytest.mark.parametrize(
    ("verdict", "reason", "phase"),
    [
        (ActionResult.DONE, ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS, PlanPhase.IN_PROGRESS),
        (ActionResult.REFUSED, ReasonCode.POD_DISRUPTION_BUDGET, PlanPhase.DROPPED),
        (ActionResult.SKIPPED, ReasonCode.NODE_EVICTION_BUDGET_SPENT, PlanPhase.IN_PROGRESS),
        (ActionResult.SKIPPED, ReasonCode.REPLACEMENT_NOT_RESIZED, PlanPhase.DROPPED),
        (ActionResult.SKIPPED, ReasonCode.FORBIDDEN, PlanPhase.DROPPED),
        (ActionResult.OBSERVED, ReasonCode.PAUSED, PlanPhase.IN_PROGRESS),
    ],
)
def test_what_is_refused_drops_a_plan_and_what_passes_by_holds_it_up(verdict, reason, phase):
    plan = told(plan_of(STAGE), cluster())
    [eviction] = decide_next_step(plan, cluster(), FULL, SOON).actions
    after = apply_outcomes(plan, [Outcome(SOON, eviction, verdict, reason)], SOON)
    assert after.phase is phase
    assert after.evicted == ((EvictedPod(WEB.uid, SOON),) if verdict is ActionResult.DONE else ())


@pytest.mark.parametrize(
    ("mode", "stages", "detail"),
    [
        (Mode.FULL, (), "nothing to do"),
        (Mode.OBSERVE, (STAGE,), "mode observe: shown only"),
        (Mode.RESIZE, (STAGE,), "mode resize evicts no pods: shown only"),
        (Mode.RESIZE, (PlanStage((), (), (PLACE,)),), ""),
        (Mode.FULL, (STAGE,), ""),
    ],
)
def test_a_plan_uses_only_the_actions_that_the_mode_permits(mode, stages, detail):
    plan = plan_of(*stages, mode=mode)
    assert (describe_plan_condition(plan), plan.phase) == (
        detail,
        PlanPhase.ADVISORY if detail else PlanPhase.IN_PROGRESS,
    )


def test_what_a_plan_counts_on_is_that_of_the_stages_that_are_left():
    plan = plan_of(STAGE, PlanStage((), (), (PlannedPlacement("shop", "late-1", "uid-late", None, "n3"),)))
    found = get_plan_dependencies(plan, cluster())
    assert (set(found.nodes), set(found.uids)) == ({"n1", "n2", "n3"}, {WEB.uid, BIG.uid, "uid-late"})
    assert (list(found.workloads), found.evictions) == ([(WEB.namespace, WEB.workload)], 1)
    found = get_plan_dependencies(replace(plan, stage=1), cluster())
    assert (set(found.nodes), set(found.uids)) == ({"n3"}, {"uid-late"})
    assert (list(found.workloads), found.evictions) == ([], 0)


def test_pods_that_ended_by_themselves_count_as_evicted_only_after_the_stage_began():
    plan = plan_of(STAGE)
    assert StageArrivalPods(plan, STAGE, cluster(DB, BIG)).left == frozenset()
    assert StageArrivalPods(told(plan, cluster()), STAGE, cluster(DB, BIG)).left == {WEB.uid}


def test_a_step_without_actions_says_what_it_waits_for():
    plan = evicted(told(plan_of(STAGE), cluster()), WEB.uid)
    step = decide_next_step(plan, cluster(DB, BIG), FULL, SOON)
    assert isinstance(step, PlanStep)
    assert describe_plan_condition(step.plan) == "waits until shop/web-1 is bound"
