from dataclasses import replace

import pytest

from cruise.domain.packing_plan import PlanPhase
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.interfaces.packing.descriptions import describe_condition, describe_plan_condition
from tests.interfaces.packing.packing_plans import PLAN


@pytest.mark.parametrize("code", PlanStatusReason)
def test_every_halt_has_words_with_what_is_behind_it(code):
    words = describe_condition(PlanCondition(code, "shop/web", "what is behind it"))
    assert words
    assert "{" not in words
    assert not words.endswith(".")


def test_more_of_a_kind_are_counted():
    assert (
        describe_condition(PlanCondition(PlanStatusReason.NODE_NOT_FOUND, "n1", similar_count=2))
        == "node n1 no longer exists (and 2 more)"
    )
    assert describe_condition(None) == ""


@pytest.mark.parametrize(
    ("phase", "halt", "words"),
    [
        (PlanPhase.ADVISORY, PlanCondition(PlanStatusReason.MODE, "observe"), "mode observe: shown only"),
        (
            PlanPhase.ADVISORY,
            PlanCondition(PlanStatusReason.NO_EVICTIONS, "resize"),
            "mode resize evicts no pods: shown only",
        ),
        (PlanPhase.ADVISORY, PlanCondition(PlanStatusReason.NOTHING_TO_DO), "nothing to do"),
        (PlanPhase.DROPPED, PlanCondition(PlanStatusReason.MODE, "observe"), "mode observe"),
        (
            PlanPhase.DROPPED,
            PlanCondition(PlanStatusReason.CANNOT_RESIZE, "shop/a", "n1"),
            "node n1 cannot resize shop/a as planned",
        ),
        (
            PlanPhase.IN_PROGRESS,
            PlanCondition(PlanStatusReason.SKIPPED, "shop/a", "node-eviction-budget-spent"),
            "node-eviction-budget-spent: shop/a",
        ),
        (PlanPhase.IN_PROGRESS, None, ""),
    ],
)
def test_a_plan_that_is_only_shown_says_so(phase, halt, words):
    assert describe_plan_condition(replace(PLAN, phase=phase, condition=halt)) == words
