from dataclasses import replace

import numpy as np
import pytest

from cruise.packer.answer import TierFigures
from cruise.packer.dense.instance import plain_instance
from tests.packer.dense.checker import find_faults, find_violations
from tests.packer.dense.plans import Plan, plan_of

# Two nodes of 10; class 0 (4 each, two copies, one bound to node 0) may run anywhere, class 1 (6) only on node 1.
INSTANCE = plain_instance(
    demands=np.array([[4], [6]]),
    priorities=np.array([1, 0]),
    counts=np.array([2, 1]),
    movable=np.array([True, True]),
    running=np.array([[1, 0], [0, 0]]),
    most=np.array([[2, 2], [0, 1]]),
    capacities=np.array([[10], [10]]),
)


def judged(assignment, instance=INSTANCE):
    return find_violations(instance, plan_of(instance, np.array(assignment)))


def test_a_sound_plan_has_no_violations():
    assert judged([[1, 1], [0, 1]]) == ()


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ([[2, 1], [0, 0]], "3 copies placed, 2 exist"),
        ([[0, 0], [1, 0]], "0 allowed"),
        ([[-1, 1], [0, 0]], "-1 copies"),
        ([[0, 2], [0, 1]], "14 of resource 0 used and 0 kept for all, 10 there"),
    ],
)
def test_each_rule_is_judged(assignment, words):
    assert any(words in violation for violation in judged(assignment))


def test_what_may_not_move_has_to_stay_even_on_an_overfull_node():
    stuck = replace(INSTANCE, movable=np.array([False, True]), capacities=np.array([[3], [10]]))
    assert any("may not move" in violation for violation in judged([[0, 1], [0, 1]], stuck))
    assert judged([[1, 1], [0, 1]], stuck) == ()
    assert any("node 0" in violation for violation in judged([[2, 0], [0, 1]], stuck))


def test_the_largest_headroom_on_a_node_is_kept_once():
    sharing = replace(INSTANCE, headroom=np.array([[2], [1]]))
    assert judged([[2, 0], [0, 1]], sharing) == ()
    assert any(
        "8 of resource 0 used and 3 kept" in v
        for v in judged([[2, 0], [0, 1]], replace(sharing, headroom=np.array([[3], [1]])))
    )
    # Alone each fits, but the greater headroom of one has to fit in beside the other.
    assert any("node 1" in violation for violation in judged([[1, 1], [0, 1]], sharing))


def test_what_may_not_be_preempted_is_placed_somewhere():
    kept = replace(INSTANCE, preemptible=np.array([False, True]))
    assert judged([[0, 1], [0, 1]], kept) == ()
    assert any("may not be preempted" in violation for violation in judged([[0, 0], [0, 1]], kept))


def test_a_false_claim_is_found():
    plan = Plan(np.array([[1, 1], [0, 1]]), (TierFigures(1, 2, 2), TierFigures(0, 1, 0)))
    assert any("claims" in violation for violation in find_violations(INSTANCE, plan))


def test_unsound_arrays_are_told_apart():
    assert find_faults(INSTANCE) == []
    assert find_faults(replace(INSTANCE, capacities=np.array([[-1], [1]]))) == ["capacities has a negative entry"]
    assert find_faults(replace(INSTANCE, counts=np.array([0, 1]))) == ["more copies run than exist"]
    assert "shape" in find_faults(replace(INSTANCE, priorities=np.array([1])))[0]
