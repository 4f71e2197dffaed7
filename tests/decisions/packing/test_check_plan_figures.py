"""The figures of a plan, compared with its stages."""

from dataclasses import replace

from cruise.decisions.packing.verification import check_plan_figures
from cruise.domain.packing_plan import NodeCountChange, PackingSizes, PlanStage, PriorityResult
from cruise.domain.reasons import UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.packer.answer import PackingStatus
from tests.builders import make_node, make_snapshot
from tests.decisions.packing.plans import make_plan, make_scene, make_small_pod, make_valid_plan, place, preempt


def test_a_right_plan_agrees_with_itself():
    snapshot, pods = make_scene()
    assert list(check_plan_figures(snapshot, make_valid_plan(snapshot, pods))) == []


def test_a_pod_of_a_node_that_is_not_there_counts_nowhere():
    here, lost, new = make_small_pod("here", 100, "n1"), make_small_pod("lost", 100, "gone"), make_small_pod("new", 100)
    snapshot = make_snapshot([here, lost, new], [make_node("n1")])
    plan = make_plan(snapshot, PlanStage((), (), (place(new, "n1"),)))
    assert list(check_plan_figures(snapshot, plan)) == [
        "1 pods of priority 0 run, not 2",
        "2 pods of priority 0 are placed in the end, not 3",
    ]
    right = replace(plan, by_priority=(PriorityResult(0, 2, 1, 2),))
    assert list(check_plan_figures(snapshot, right)) == []


def test_a_pod_behind_a_gate_may_be_explained_and_need_not():
    gated = make_small_pod("gated", 100, scheduling_gated=True)
    snapshot = make_snapshot([gated], [make_node("n1")])
    plan = replace(make_plan(snapshot, status=PackingStatus.ALREADY_OPTIMAL), by_priority=())
    assert list(check_plan_figures(snapshot, plan)) == []
    said = UnplacedPod(
        "shop",
        "gated",
        ("not-judged: scheduling gates",),
        UnschedulableReason(UnschedulableCode.NOT_EVALUATED),
        False,
    )
    assert list(check_plan_figures(snapshot, replace(plan, unplaced=(said,)))) == []


def test_placing_one_and_losing_one_of_the_same_priority_is_no_gain():
    old, new = make_small_pod("old", 100, "n1"), make_small_pod("new", 100)
    snapshot = make_snapshot([old, new], [make_node("n1", cpu=100)])
    plan = make_plan(snapshot, PlanStage((), (preempt(old),), (place(new, "n1"),)))
    assert list(check_plan_figures(snapshot, plan)) == ["the status is optimal, but what runs now is as good"]


def test_a_move_of_what_matters_more_outweighs_a_place_for_what_matters_less_where_sizes_are_fixed():
    high, low = make_small_pod("high", 600, "n1", priority=10), make_small_pod("low", 600)
    snapshot = make_snapshot([high, low], [make_node("n1", cpu=600), make_node("n2", cpu=600, labels={"a": "b"})])
    move = place(high, "n2")
    plan = make_plan(snapshot, PlanStage((), (move,), (move, place(low, "n1"))))
    assert list(check_plan_figures(snapshot, plan)) == ["the status is optimal, but what runs now is as good"]
    assert list(check_plan_figures(snapshot, replace(plan, sizes=PackingSizes.RIGHTSIZED))) == []


def test_losing_what_matters_less_for_what_matters_more_is_a_gain():
    low, high = make_small_pod("low", 600, "n1"), make_small_pod("high", 600, priority=10)
    snapshot = make_snapshot([low, high], [make_node("n1", cpu=600)])
    plan = make_plan(snapshot, PlanStage((), (preempt(low),), (place(high, "n1"),)))
    assert list(check_plan_figures(snapshot, plan)) == []


def test_a_new_daemonset_pod_does_not_count_as_use_of_a_node():
    web, agent = make_small_pod("web", 100), make_small_pod("agent", 100)
    agent = replace(agent, owner_kind="DaemonSet")
    snapshot = make_snapshot([web, agent], [make_node("n1"), make_node("n2")])
    plan = make_plan(snapshot, PlanStage((), (), (place(web, "n1"), place(agent, "n2"))))
    assert list(check_plan_figures(snapshot, replace(plan, node_count_change=NodeCountChange(0, 1, 1)))) == []


def test_an_open_proof_may_leave_a_gap():
    snapshot, pods = make_scene()
    plan = replace(
        make_valid_plan(snapshot, pods),
        status=PackingStatus.FEASIBLE,
        by_priority=(PriorityResult(10, 2, 0, 2), PriorityResult(0, 2, 3, 4)),
    )
    assert list(check_plan_figures(snapshot, plan)) == []


def test_a_pod_may_stay_pending_for_lack_of_time_and_never_without_a_word():
    snapshot, pods = make_scene()
    plan = make_valid_plan(snapshot, pods)
    unlucky = UnplacedPod("shop", "waits", (), UnschedulableReason(UnschedulableCode.SCHEDULABLE), False)
    assert list(check_plan_figures(snapshot, replace(plan, unplaced=(unlucky,)))) == []
    for wrong in (
        replace(unlucky, reason=UnschedulableReason(UnschedulableCode.NODES_FULL)),
        replace(unlucky, impossible=True),
    ):
        assert list(check_plan_figures(snapshot, replace(plan, unplaced=(wrong,)))) == [
            "pod shop/waits stays pending without a reason"
        ]
