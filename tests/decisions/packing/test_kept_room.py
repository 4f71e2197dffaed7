"""Room that kube-scheduler keeps for a nominated pod: what is said of the others, by their priorities."""

import pytest

from cruise.interfaces.packing.unplaced_words import unplaced_words
from cruise.packer.answer import Status
from cruise.packer.problem import Objective
from tests.decisions.packing.test_truth_at_the_edges import a_node, a_pod, planned

NOMINATED = a_pod("first-1", status={"nominatedNodeName": "n1"})
BOTH = pytest.mark.parametrize("objective", [Objective.PAPER, Objective.OPERATOR])


@BOTH
def test_a_node_with_kept_room_is_full_and_not_too_small(objective):
    plan = planned(a_node("n1"), NOMINATED, a_pod("late-1"), objective=objective)
    (late,) = plan.unplaced
    words = "the only node, n1, is too full of pods that stay in any plan; 1 more like it, or 200 m CPU less, would do"
    assert (unplaced_words(late), late.impossible, plan.status) == (words, True, Status.OPTIMAL)


@BOTH
def test_nothing_is_proved_of_a_higher_priority_from_which_room_is_not_kept(objective):
    plan = planned(a_node("n1"), NOMINATED, a_pod("late-1", priority=5), objective=objective)
    assert [(one.pod, one.impossible) for one in plan.unplaced] == [("late-1", False)]
    assert (plan.status, plan.by_priority[0].most) == (Status.FEASIBLE, 1)


@BOTH
def test_nothing_is_proved_of_it_though_another_node_would_take_it_but_for_a_taint(objective):
    tainted = a_node("n2", cpu="4")
    tainted["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    late = a_pod("late-1", priority=5)
    late["spec"]["containers"][0]["resources"]["requests"]["memory"] = "7500Mi"
    plan = planned(a_node("n1"), tainted, NOMINATED, late, objective=objective)
    assert (plan.status, plan.by_priority[0].most) == (Status.FEASIBLE, 1)


@BOTH
def test_a_higher_priority_that_fits_not_even_there_is_impossible(objective):
    plan = planned(a_node("n1"), NOMINATED, a_pod("late-1", cpu="1200m", priority=5), objective=objective)
    (late,) = plan.unplaced
    assert (late.impossible, plan.status) == (True, Status.OPTIMAL)
    assert "offers less even when empty" in unplaced_words(late)


def test_no_eviction_is_proved_needed_beside_room_kept_for_a_lower_priority():
    low = a_pod("low-1", "n2", priority=-5)
    plan = planned(a_node("n1"), a_node("n2"), NOMINATED, low, a_pod("late-1", priority=5))
    assert [one.pod for one in plan.preempted] == ["low-1"]
    assert plan.status is Status.FEASIBLE


@BOTH
@pytest.mark.parametrize("other", ["a-1", "z-1"])
def test_a_place_among_the_pods_of_a_node_is_kept_as_well(objective, other):
    plan = planned(a_node("n1", cpu="4", pods="1"), NOMINATED, a_pod(other), objective=objective)
    assert [(one.pod, one.target) for one in plan.placed] == [("first-1", "n1")]
    assert ([one.blocked_by for one in plan.unplaced], plan.status) == ([("pods",)], Status.OPTIMAL)
