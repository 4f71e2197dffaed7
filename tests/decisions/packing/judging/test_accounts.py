"""What a plan says of itself, beside what its stages do."""

from dataclasses import replace

from cruise.decisions.packing.judging.accounts import find_wrong_accounts
from cruise.domain.packing import FleetChange, Sizes, Stage, TierLine
from cruise.domain.unplaced import Finding, Pattern, Unplaced
from cruise.packer.answer import Status
from tests.builders import make_node, make_snapshot
from tests.decisions.packing.judging.plans import place, plan_of, preempt, right_plan, scene, small


def test_a_right_plan_agrees_with_itself():
    snapshot, pods = scene()
    assert list(find_wrong_accounts(snapshot, right_plan(snapshot, pods))) == []


def test_a_pod_of_a_node_that_is_not_there_counts_nowhere():
    here, lost, new = small("here", 100, "n1"), small("lost", 100, "gone"), small("new", 100)
    snapshot = make_snapshot([here, lost, new], [make_node("n1")])
    plan = plan_of(snapshot, Stage((), (), (place(new, "n1"),)))
    assert list(find_wrong_accounts(snapshot, plan)) == [
        "1 pods of priority 0 run, not 2",
        "2 pods of priority 0 are placed in the end, not 3",
    ]
    right = replace(plan, by_priority=(TierLine(0, 2, 1, 2),))
    assert list(find_wrong_accounts(snapshot, right)) == []


def test_a_pod_behind_a_gate_may_be_explained_and_need_not():
    gated = small("gated", 100, scheduling_gated=True)
    snapshot = make_snapshot([gated], [make_node("n1")])
    plan = replace(plan_of(snapshot, status=Status.ALREADY_OPTIMAL), by_priority=())
    assert list(find_wrong_accounts(snapshot, plan)) == []
    said = Unplaced("shop", "gated", ("not-judged: scheduling gates",), Finding(Pattern.NOT_JUDGED), False)
    assert list(find_wrong_accounts(snapshot, replace(plan, unplaced=(said,)))) == []


def test_placing_one_and_losing_one_of_the_same_priority_is_no_gain():
    old, new = small("old", 100, "n1"), small("new", 100)
    snapshot = make_snapshot([old, new], [make_node("n1", cpu=100)])
    plan = plan_of(snapshot, Stage((), (preempt(old),), (place(new, "n1"),)))
    assert list(find_wrong_accounts(snapshot, plan)) == ["the status is optimal, but what runs now is as good"]


def test_a_move_of_what_matters_more_outweighs_a_place_for_what_matters_less_where_sizes_are_fixed():
    high, low = small("high", 600, "n1", priority=10), small("low", 600)
    snapshot = make_snapshot([high, low], [make_node("n1", cpu=600), make_node("n2", cpu=600, labels={"a": "b"})])
    move = place(high, "n2")
    plan = plan_of(snapshot, Stage((), (move,), (move, place(low, "n1"))))
    assert list(find_wrong_accounts(snapshot, plan)) == ["the status is optimal, but what runs now is as good"]
    assert list(find_wrong_accounts(snapshot, replace(plan, sizes=Sizes.RIGHTSIZED))) == []


def test_losing_what_matters_less_for_what_matters_more_is_a_gain():
    low, high = small("low", 600, "n1"), small("high", 600, priority=10)
    snapshot = make_snapshot([low, high], [make_node("n1", cpu=600)])
    plan = plan_of(snapshot, Stage((), (preempt(low),), (place(high, "n1"),)))
    assert list(find_wrong_accounts(snapshot, plan)) == []


def test_a_pod_of_a_daemon_set_that_comes_makes_no_use_of_a_node():
    web, agent = small("web", 100), small("agent", 100)
    agent = replace(agent, owner_kind="DaemonSet")
    snapshot = make_snapshot([web, agent], [make_node("n1"), make_node("n2")])
    plan = plan_of(snapshot, Stage((), (), (place(web, "n1"), place(agent, "n2"))))
    assert list(find_wrong_accounts(snapshot, replace(plan, fleet=FleetChange(0, 1, 1)))) == []


def test_an_open_proof_may_leave_a_gap():
    snapshot, pods = scene()
    plan = replace(
        right_plan(snapshot, pods), status=Status.FEASIBLE, by_priority=(TierLine(10, 2, 0, 2), TierLine(0, 2, 3, 4))
    )
    assert list(find_wrong_accounts(snapshot, plan)) == []


def test_a_pod_may_stay_pending_for_lack_of_time_and_never_without_a_word():
    snapshot, pods = scene()
    plan = right_plan(snapshot, pods)
    unlucky = Unplaced("shop", "waits", (), Finding(Pattern.OPEN), False)
    assert list(find_wrong_accounts(snapshot, replace(plan, unplaced=(unlucky,)))) == []
    for wrong in (replace(unlucky, finding=Finding(Pattern.FULL)), replace(unlucky, impossible=True)):
        assert list(find_wrong_accounts(snapshot, replace(plan, unplaced=(wrong,)))) == [
            "nothing is said of why pod shop/waits stays pending"
        ]
