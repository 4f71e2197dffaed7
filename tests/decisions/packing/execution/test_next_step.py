"""The next step of a plan, decided from hand-made clusters."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.decisions.packing.execution import Step, begun, decide_next_step, learnt, subjects_of
from cruise.decisions.packing.execution.places import Places
from cruise.domain.actions import EvictPod, Outcome, Reason, ResizePod, Verdict
from cruise.domain.annotations import STEERED
from cruise.domain.cluster import Pod, ResizePending, ResizeState, Snapshot
from cruise.domain.packing import Arrival, Departure, PackingPlan, Phase, Proposal, Sizes, Stage
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES
from cruise.domain.scheduling import Placement, Toleration
from cruise.domain.sizes import spec_targets, with_sizes
from cruise.interfaces.packing.halt_words import plan_halt_words
from cruise.packer.answer import Status
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
MOVE = Arrival("shop", "web-1", WEB.uid, "n1", "n2")
PLACE = Arrival("shop", "big-1", BIG.uid, None, "n1")
STAGE = Stage((), (MOVE,), (MOVE, PLACE))


def cluster(*pods: Pod, **more) -> Snapshot:
    return make_snapshot(pods or (WEB, DB, BIG), nodes=NODES, **more)


def plan_of(*stages: Stage, mode: Mode = Mode.FULL) -> PackingPlan:
    proposal = Proposal(Status.OPTIMAL, Sizes.RIGHTSIZED, (), (), stages)
    return begun(proposal, NOW, NOW, 0.1, mode)


def told(plan: PackingPlan, snapshot: Snapshot) -> PackingPlan:
    """The plan once the webhook knows which pods to steer."""
    return decide_next_step(plan, snapshot, FULL, NOW).plan


def evicted(plan: PackingPlan, *uids: str) -> PackingPlan:
    return replace(plan, departed=tuple(Departure(uid, SOON) for uid in uids))


def test_the_first_step_tells_whom_to_steer_and_the_next_evicts():
    plan = plan_of(STAGE)
    step = decide_next_step(plan, cluster(), FULL, NOW)
    assert step.actions == ()
    [one] = step.plan.steered
    assert (one.replaces, one.owner_name, one.pod, one.node) == (WEB.uid, "web-rs", None, "n2")
    assert step.plan.bystanders == (WEB.uid,)
    assert decide_next_step(step.plan, cluster(), FULL, NOW + timedelta(seconds=1)).actions == ()
    [eviction] = decide_next_step(step.plan, cluster(), FULL, SOON).actions
    assert isinstance(eviction, EvictPod)
    assert (eviction.uid, eviction.node, eviction.reason) == (WEB.uid, "n1", Reason.PACKED)


def test_a_replacement_is_known_by_its_note_before_any_other():
    plan = evicted(told(plan_of(STAGE), cluster()), WEB.uid)
    scaled_up = pod("web-2", 1500, None, uid="uid-a")
    ours = pod("web-3", 1500, "n2", uid="uid-b", annotations={STEERED: f"{WEB.uid} n2"})
    step = decide_next_step(plan, cluster(DB, BIG, scaled_up, ours), FULL, SOON)
    assert [(one.uid, one.by, one.node) for one in step.plan.landed] == [(WEB.uid, "uid-b", "n2")]
    assert step.plan.steered == ()


def test_without_a_note_whoever_is_new_is_the_replacement_and_bystanders_are_not():
    other = pod("web-2", 100, "n2")
    before = cluster(WEB, DB, BIG, other)
    plan = evicted(told(plan_of(STAGE), before), WEB.uid)
    assert decide_next_step(plan, cluster(DB, BIG, other), FULL, SOON).plan.landed == ()
    new = pod("web-9", 1500, "n2", uid="uid-new")
    assert decide_next_step(plan, cluster(DB, BIG, other, new), FULL, SOON).plan.landed[0].by == "uid-new"


def test_a_plan_is_finished_when_everybody_is_bound_and_who_left_is_gone():
    plan = evicted(told(plan_of(STAGE), cluster()), WEB.uid)
    new = pod("web-9", 1500, "n2", uid="uid-new")
    bound = replace(BIG, node="n1", phase="Running")
    leaving = replace(WEB, terminating=True)
    waits = decide_next_step(plan, cluster(DB, new, bound, leaving), FULL, SOON).plan
    assert waits.phase is Phase.UNDER_WAY
    assert decide_next_step(plan, cluster(DB, new, bound), FULL, SOON).plan.phase is Phase.FINISHED


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (cluster(DB, BIG), "pod shop/web-1 is gone"),
        (cluster(WEB, DB), "pod shop/big-1 is gone"),
        (make_snapshot([WEB, BIG], nodes=NODES[:1]), "node n2 is gone"),
        (make_snapshot([WEB, DB, BIG], nodes=[NODES[0], replace(NODES[1], ready=False)]), "node n2 takes no pods"),
        (cluster(WEB, pod("db-1", 3900, "n2"), BIG), "lacks cpu"),
        (cluster(replace(WEB, annotations={"cruise.io/mode": "resize"}), DB, BIG), "its mode is resize"),
        (cluster(WEB, DB, replace(BIG, node="n2", phase="Running")), "has found a node by itself"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cluster_that_contradicts_the_plan_drops_it(snapshot, why):
    plan = plan_of(STAGE)
    first = decide_next_step(plan, snapshot, FULL, NOW)
    last = first if first.plan.phase is Phase.DROPPED else decide_next_step(first.plan, snapshot, FULL, SOON)
    assert (last.plan.phase, last.actions) == (Phase.DROPPED, ())
    assert why in plan_halt_words(last.plan)
    assert last.plan.steered == ()


def test_a_cordon_is_no_obstacle_to_a_pod_of_a_daemon_set():
    place = replace(PLACE, target="n2")
    cordoned = [NODES[0], replace(NODES[1], unschedulable=True)]
    tolerant = Placement(tolerations=(Toleration(exists=True),))
    for kind, phase in (("DaemonSet", Phase.UNDER_WAY), ("ReplicaSet", Phase.DROPPED)):
        daemon = replace(BIG, owner_kind=kind, placement=tolerant)
        snapshot = make_snapshot([daemon], nodes=cordoned)
        assert decide_next_step(plan_of(Stage((), (), (place,))), snapshot, FULL, NOW).plan.phase is phase


def test_room_that_somebody_else_took_after_the_eviction_drops_the_plan():
    plan = evicted(told(plan_of(STAGE), cluster()), WEB.uid)
    intruder = pod("other-1", 2000, "n2")
    new = pod("web-9", 1500, None, uid="uid-new")
    step = decide_next_step(plan, cluster(DB, BIG, intruder, new), FULL, SOON)
    assert step.plan.phase is Phase.DROPPED
    assert "no room" in plan_halt_words(step.plan)


def shrink(one: Pod, cpu: int) -> ResizePod:
    [target] = spec_targets(one)
    target = replace(target, requests=replace(target.requests, cpu_millicores=cpu))
    return ResizePod("shop", one.name, one.uid, one.node, one.workload, (target,), NO_RESOURCES, Reason.RIGHTSIZED)


def test_resizes_come_first_and_are_waited_for_until_they_are_actual():
    late = pod("late-1", 1500, None, unschedulable_since=NOW)
    large = pod("web-1", 3000)
    stage = Stage((shrink(large, 1000),), (), (Arrival("shop", "late-1", late.uid, None, "n1"),))
    plan = plan_of(stage)
    [resize] = decide_next_step(plan, make_snapshot([large, late], nodes=NODES[:1]), FULL, NOW).actions
    assert (resize.uid, resize.reason) == (large.uid, Reason.PACKED)
    asked = with_sizes(large, stage.resizes[0].containers)
    waits = decide_next_step(plan, make_snapshot([asked, late], nodes=NODES[:1]), FULL, NOW)
    assert (waits.actions, waits.plan.phase) == ((), Phase.UNDER_WAY)
    assert "actual" in plan_halt_words(waits.plan)
    stuck = replace(asked, resize=ResizeState(ResizePending.INFEASIBLE))
    dropped = decide_next_step(plan, make_snapshot([stuck, late], nodes=NODES[:1]), FULL, NOW)
    assert dropped.plan.phase is Phase.DROPPED


def test_a_budget_that_is_used_up_for_now_is_waited_for():
    snapshot = cluster(budgets=[make_budget(disruptions_allowed=0)])
    step = decide_next_step(told(plan_of(STAGE), cluster()), snapshot, FULL, SOON)
    assert (step.actions, step.plan.phase) == ((), Phase.UNDER_WAY)
    assert "PodDisruptionBudget web" in plan_halt_words(step.plan)


@pytest.mark.parametrize(
    ("verdict", "reason", "phase"),
    [
        (Verdict.DONE, Reason.PACKED, Phase.UNDER_WAY),
        (Verdict.REFUSED, Reason.DISRUPTION_BUDGET, Phase.DROPPED),
        (Verdict.HELD, Reason.BUDGET_NODE, Phase.UNDER_WAY),
        (Verdict.HELD, Reason.CAME_BACK, Phase.DROPPED),
        (Verdict.HELD, Reason.FORBIDDEN, Phase.DROPPED),
        (Verdict.OBSERVED, Reason.PAUSED, Phase.UNDER_WAY),
    ],
)
def test_what_is_refused_drops_a_plan_and_what_passes_by_holds_it_up(verdict, reason, phase):
    plan = told(plan_of(STAGE), cluster())
    [eviction] = decide_next_step(plan, cluster(), FULL, SOON).actions
    after = learnt(plan, [Outcome(SOON, eviction, verdict, reason)], SOON)
    assert after.phase is phase
    assert after.departed == ((Departure(WEB.uid, SOON),) if verdict is Verdict.DONE else ())


@pytest.mark.parametrize(
    ("mode", "stages", "detail"),
    [
        (Mode.FULL, (), "nothing to do"),
        (Mode.OBSERVE, (STAGE,), "mode observe: shown only"),
        (Mode.RESIZE, (STAGE,), "mode resize evicts no pods: shown only"),
        (Mode.RESIZE, (Stage((), (), (PLACE,)),), ""),
        (Mode.FULL, (STAGE,), ""),
    ],
)
def test_a_plan_goes_as_far_as_the_mode_does(mode, stages, detail):
    plan = plan_of(*stages, mode=mode)
    assert (plan_halt_words(plan), plan.phase) == (detail, Phase.SHOWN if detail else Phase.UNDER_WAY)


def test_what_a_plan_counts_on_is_that_of_the_stages_that_are_left():
    plan = plan_of(STAGE, Stage((), (), (Arrival("shop", "late-1", "uid-late", None, "n3"),)))
    found = subjects_of(plan, cluster())
    assert (set(found.nodes), set(found.uids)) == ({"n1", "n2", "n3"}, {WEB.uid, BIG.uid, "uid-late"})
    assert (list(found.workloads), found.evictions) == ([(WEB.namespace, WEB.workload)], 1)
    found = subjects_of(replace(plan, stage=1), cluster())
    assert (set(found.nodes), set(found.uids)) == ({"n3"}, {"uid-late"})
    assert (list(found.workloads), found.evictions) == ([], 0)


def test_who_went_by_themselves_count_as_evicted_only_once_the_stage_was_told():
    plan = plan_of(STAGE)
    assert Places(plan, STAGE, cluster(DB, BIG)).left == frozenset()
    assert Places(told(plan, cluster()), STAGE, cluster(DB, BIG)).left == {WEB.uid}


def test_a_step_without_actions_says_what_it_waits_for():
    plan = evicted(told(plan_of(STAGE), cluster()), WEB.uid)
    step = decide_next_step(plan, cluster(DB, BIG), FULL, SOON)
    assert isinstance(step, Step)
    assert plan_halt_words(step.plan) == "waits until shop/web-1 is bound"
