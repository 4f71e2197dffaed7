"""Verification accepts a valid plan and objects to every change of it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from cruise.decisions.packing.plan_replay import BaseAndHeadroom
from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.actions import ReasonCode, ResizePod
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.packing_plan import PackingProposal, PackingSizes, PlannedPlacement, PlanStage, PriorityResult
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.packer.answer import PackingStatus
from tests.builders import make_budget
from tests.decisions.packing.plans import make_plan, make_scene, make_valid_plan, place, preempt

Pods = dict[str, Pod]
Broken = tuple[ClusterSnapshot, PackingProposal]
BREAKS: dict[str, tuple[str, Callable[[ClusterSnapshot, Pods, PackingProposal], Broken]]] = {}


def breaks(objection: str) -> Callable[[Callable[[ClusterSnapshot, Pods, PackingProposal], Broken]], None]:
    """Register a way to break the right plan, with a part of what is to be objected."""

    def register(change: Callable[[ClusterSnapshot, Pods, PackingProposal], Broken]) -> None:
        BREAKS[change.__name__] = (objection, change)

    return register


def with_pod(snapshot: ClusterSnapshot, pod: Pod, **changes: object) -> ClusterSnapshot:
    changed = [replace(one, **changes) if one.name == pod.name else one for one in snapshot.pods]  # type: ignore[arg-type]
    return replace(snapshot, pods=tuple(changed))


def with_node(snapshot: ClusterSnapshot, name: str, **changes: object) -> ClusterSnapshot:
    changed = [replace(one, **changes) if one.name == name else one for one in snapshot.nodes]  # type: ignore[arg-type]
    return replace(snapshot, nodes=tuple(changed))


def test_the_right_plan_passes():
    snapshot, pods = make_scene()
    assert find_plan_objections(snapshot, make_valid_plan(snapshot, pods)) == ()


@breaks("lacks cpu")
def a_wrong_node(snapshot, pods, plan):
    stage = replace(plan.stages[1], arrivals=(place(pods["asks"], "n1"), place(pods["wants"], "n2")))
    return snapshot, make_plan(snapshot, plan.stages[0], stage)


@breaks("lacks cpu")
def a_stage_left_out(snapshot, pods, plan):
    return snapshot, make_plan(snapshot, plan.stages[1])


@breaks("lacks cpu")
def stages_in_the_wrong_order(snapshot, pods, plan):
    return snapshot, replace(plan, stages=plan.stages[::-1])


@breaks("PodDisruptionBudget shop/web allows 1, the plan evicts 2")
def more_evictions_than_a_budget_allows(snapshot, pods, plan):
    return replace(snapshot, budgets=(make_budget(disruptions_allowed=1),)), plan


@breaks("more than one disruption budget covers it")
def two_budgets_over_a_pod(snapshot, pods, plan):
    only = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("moves",)),))
    budgets = (make_budget("one", disruptions_allowed=9), make_budget("two", selector=only, disruptions_allowed=9))
    return replace(snapshot, budgets=budgets), plan


@breaks("has uid uid-shop-moves, not another")
def another_pod_of_the_same_name(snapshot, pods, plan):
    move = replace(place(pods["moves"], "n3"), uid="another")
    return snapshot, make_plan(snapshot, PlanStage((), (move,), (move,)), plan.stages[1])


@breaks("pod shop/ghost does not exist")
def a_pod_that_is_not_there(snapshot, pods, plan):
    ghost = UnplacedPod("shop", "ghost", ("cpu",), UnschedulableReason(UnschedulableCode.NODES_FULL), False)
    return snapshot, replace(plan, unplaced=(*plan.unplaced, ghost))


@breaks("pod shop/ghost does not exist")
def a_pod_that_is_not_there_in_a_stage(snapshot, pods, plan):
    ghost = PlannedPlacement("shop", "ghost", "uid", None, "n3")
    return snapshot, replace(plan, stages=(replace(plan.stages[0], arrivals=(ghost,)), plan.stages[1]))


@breaks("leaves n1, but is on n2")
def a_move_from_where_the_pod_is_not(snapshot, pods, plan):
    move = replace(place(pods["moves"], "n3"), source="n1")
    return snapshot, make_plan(snapshot, PlanStage((), (move,), (move,)), plan.stages[1])


@breaks("leaves n2 and does not arrive on n3")
def a_move_that_never_arrives(snapshot, pods, plan):
    return snapshot, replace(plan, stages=(replace(plan.stages[0], arrivals=()), plan.stages[1]))


@breaks("arrives on n3, but is on n2")
def a_move_that_never_leaves(snapshot, pods, plan):
    return snapshot, replace(plan, stages=(replace(plan.stages[0], evictions=()), plan.stages[1]))


@breaks("moves to where it is")
def a_move_to_the_same_node(snapshot, pods, plan):
    move = place(pods["moves"], "n2")
    return snapshot, make_plan(snapshot, PlanStage((), (move,), (move,)))


@breaks("arrives on n2, but is on n2")
def an_arrival_twice(snapshot, pods, plan):
    again = replace(plan.stages[1], arrivals=(*plan.stages[1].arrivals, place(pods["asks"], "n2")))
    return snapshot, replace(plan, stages=(plan.stages[0], again))


@breaks("leaves twice")
def a_departure_twice(snapshot, pods, plan):
    again = replace(plan.stages[1], evictions=(preempt(pods["low"]), preempt(pods["low"])))
    return snapshot, replace(plan, stages=(plan.stages[0], again))


@breaks("of priority 20 is preempted for pods of at most 10")
def a_preemption_of_what_matters_more(snapshot, pods, plan):
    return with_pod(snapshot, pods["low"], priority=20), plan


@breaks("of priority 10 is preempted for pods of at most 10")
def a_preemption_of_an_equal_one_where_sizes_are_free(snapshot, pods, plan):
    return with_pod(snapshot, pods["low"], priority=10), replace(plan, sizes=PackingSizes.RIGHTSIZED)


@breaks("may not be evicted: its annotation karpenter.sh/do-not-disrupt")
def a_move_of_what_is_left_in_peace(snapshot, pods, plan):
    return with_pod(snapshot, pods["moves"], annotations={"karpenter.sh/do-not-disrupt": "true"}), plan


@breaks("never preempts, but gets capacity on n1")
def a_preemption_for_a_pod_that_never_preempts(snapshot, pods, plan):
    return with_pod(snapshot, pods["wants"], may_preempt=False), plan


@breaks("is cordoned")
def an_arrival_on_a_cordoned_node(snapshot, pods, plan):
    return with_node(snapshot, "n3", unschedulable=True), plan


@breaks("is being deleted")
def an_arrival_on_a_node_that_is_being_deleted(snapshot, pods, plan):
    return with_node(snapshot, "n3", deleting=True), plan


@breaks("is not ready")
def an_arrival_on_a_node_that_is_away(snapshot, pods, plan):
    return with_node(snapshot, "n3", ready=False), plan


@breaks("arrives on n4, which does not exist")
def an_arrival_nowhere(snapshot, pods, plan):
    move = place(pods["moves"], "n4")
    return snapshot, make_plan(snapshot, PlanStage((), (move,), (move,)), plan.stages[1])


@breaks("holds 1 pods of 1")
def an_arrival_where_places_are_gone(snapshot, pods, plan):
    return with_node(snapshot, "n1", allocatable_pods=1), plan


@breaks("arrives as if it were pending and free to be scheduled")
def an_arrival_behind_a_scheduling_gate(snapshot, pods, plan):
    return with_pod(snapshot, pods["asks"], scheduling_gated=True), plan


@breaks("nothing happens")
def an_empty_stage(snapshot, pods, plan):
    return snapshot, replace(plan, stages=(*plan.stages, PlanStage((), (), ())))


@breaks("2 pods of priority 10 are placed in the end, not 3")
def a_figure_too_high(snapshot, pods, plan):
    return snapshot, replace(plan, by_priority=(PriorityResult(10, 3, 0, 3), plan.by_priority[1]))


@breaks("3 pods of priority 0 run, not 2")
def a_wrong_figure_of_what_runs(snapshot, pods, plan):
    return snapshot, replace(plan, by_priority=(plan.by_priority[0], PriorityResult(0, 2, 2, 2)))


@breaks("more than the most")
def a_bound_that_is_surpassed(snapshot, pods, plan):
    return snapshot, replace(plan, by_priority=(PriorityResult(10, 2, 0, 1), plan.by_priority[1]))


@breaks("are not ruled out, though the plan is proved")
def a_proof_with_a_gap(snapshot, pods, plan):
    return snapshot, replace(plan, by_priority=(PriorityResult(10, 2, 0, 3), plan.by_priority[1]))


@breaks("by_priority has no line for priority 0")
def a_priority_left_out(snapshot, pods, plan):
    return snapshot, replace(plan, by_priority=plan.by_priority[:1])


@breaks("by_priority is not one line a priority, the highest first")
def priorities_out_of_order(snapshot, pods, plan):
    return snapshot, replace(plan, by_priority=plan.by_priority[::-1])


@breaks("the status is already-optimal, but something is done")
def a_plan_that_says_there_is_nothing_to_gain(snapshot, pods, plan):
    return snapshot, replace(plan, status=PackingStatus.ALREADY_OPTIMAL)


@breaks("but what runs now is as good")
def a_plan_that_gains_nothing(snapshot, pods, plan):
    return snapshot, make_plan(snapshot, plan.stages[0])


@breaks("pending pod shop/waits is neither placed nor unplaced")
def a_pending_pod_forgotten(snapshot, pods, plan):
    return snapshot, replace(plan, unplaced=())


@breaks("pod shop/asks is listed more than once")
def a_pod_placed_and_not_placed(snapshot, pods, plan):
    lost = UnplacedPod("shop", "asks", ("cpu",), UnschedulableReason(UnschedulableCode.NODES_FULL), False)
    return snapshot, replace(plan, unplaced=(lost, *plan.unplaced))


@breaks("pod shop/stays is placed or unplaced, but was not pending")
def a_running_pod_among_the_unplaced(snapshot, pods, plan):
    lost = UnplacedPod("shop", "stays", ("cpu",), UnschedulableReason(UnschedulableCode.NODES_FULL), False)
    return snapshot, replace(plan, unplaced=(*plan.unplaced, lost))


@breaks("pod shop/waits stays pending without a reason")
def no_word_on_why_a_pod_waits(snapshot, pods, plan):
    return snapshot, replace(
        plan, unplaced=(UnplacedPod("shop", "waits", (), UnschedulableReason(UnschedulableCode.NODES_FULL), False),)
    )


@breaks("is resized, though sizes are fixed")
def a_resize_where_sizes_are_fixed(snapshot, pods, plan):
    stays = pods["stays"]
    resize = ResizePod(
        "shop", "stays", stays.uid, "n1", stays.workload, get_spec_targets(stays), NO_RESOURCES, ReasonCode.RIGHTSIZED
    )
    return snapshot, make_plan(snapshot, replace(plan.stages[0], resizes=(resize,)), plan.stages[1])


@breaks("arrives with other sizes, though sizes are fixed")
def an_arrival_with_other_sizes_where_they_are_fixed(snapshot, pods, plan):
    sized = replace(place(pods["asks"], "n2"), containers=get_spec_targets(pods["asks"]))
    return snapshot, make_plan(
        snapshot, plan.stages[0], replace(plan.stages[1], arrivals=(sized, *plan.stages[1].arrivals[1:]))
    )


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_plan_is_objected_to(name):
    objection, change = BREAKS[name]
    snapshot, pods = make_scene()
    broken = change(snapshot, pods, make_valid_plan(snapshot, pods))
    assert any(objection in found for found in find_plan_objections(*broken)), find_plan_objections(*broken)


def test_objections_are_one_line_each():
    snapshot, pods = make_scene()
    plan = make_valid_plan(snapshot, pods)
    for _, change in BREAKS.values():
        assert all(found and "\n" not in found for found in find_plan_objections(*change(snapshot, pods, plan)))


def test_nodes_must_hold_all_bases_and_the_largest_headroom():
    snapshot, pods = make_scene()
    plan = make_valid_plan(snapshot, pods)
    need = {
        ("shop", "asks"): BaseAndHeadroom(Resources(700, 0), Resources(300, 0)),
        ("shop", "wants"): BaseAndHeadroom(Resources(600, 0), Resources(1, 0)),
    }
    found = find_plan_objections(snapshot, plan, demands=need)
    assert found == ("node n1 offers 1000 m, bases of 1000 m and a headroom of 1 m are more",)


def test_a_plan_is_judged_under_the_policy_it_was_made_for():
    snapshot, pods = make_scene()
    found = find_plan_objections(snapshot, make_valid_plan(snapshot, pods), policy=Policy(mode=Mode.RESIZE))
    assert [one for one in found if "its mode is resize" in one]


def test_nothing_to_do_is_a_plan():
    snapshot, pods = make_scene()
    alone = replace(snapshot, pods=(pods["stays"], pods["waits"]), nodes=snapshot.nodes[:1])
    assert find_plan_objections(alone, make_plan(alone, status=PackingStatus.ALREADY_OPTIMAL)) == ()
    assert (
        find_plan_objections(ClusterSnapshot(), make_plan(ClusterSnapshot(), status=PackingStatus.ALREADY_OPTIMAL))
        == ()
    )
