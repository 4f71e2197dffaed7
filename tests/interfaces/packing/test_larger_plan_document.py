"""The text about what eviction budgets leave to later rounds."""

import pytest

from cruise.domain.packing_plan import EvictionBudgetKind, LargerBudgetPlan, PlanRound, RemainingRounds, SpentBudget
from cruise.interfaces.packing.descriptions import describe_remaining_rounds

HOUR = SpentBudget(EvictionBudgetKind.HOUR, (), 20)


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (
            RemainingRounds((HOUR,), (PlanRound(3, 2),)),
            ["20 evictions left in this hour end the plan here; 3 more pods in a second round (2 evictions)."],
        ),
        (
            RemainingRounds(
                (
                    SpentBudget(EvictionBudgetKind.NODE, ("n1", "n2"), 1),
                    SpentBudget(EvictionBudgetKind.WORKLOAD, ("Deployment shop/web",), 1),
                ),
                (PlanRound(1, 1), PlanRound(2, 3)),
            ),
            [
                "1 eviction in one round from n1 and n2 each and 1 eviction in one round of Deployment shop/web "
                "end the plan "
                "here; 1 more pod in a second round (1 eviction) and 2 more in a third round (3 evictions)."
            ],
        ),
        (
            RemainingRounds((SpentBudget(EvictionBudgetKind.DISRUPTION, ("shop/web",), 1),), (PlanRound(2, 1),)),
            [
                "1 eviction under PodDisruptionBudget shop/web ends the plan here; "
                "2 more pods in a second round (1 eviction)."
            ],
        ),
        (
            RemainingRounds((), (PlanRound(2, 1),)),
            ["Once budgets are renewed: 2 more pods in a second round (1 eviction)."],
        ),
        (
            RemainingRounds(
                (), (), LargerBudgetPlan(1, 3, ((EvictionBudgetKind.NODE, 3), (EvictionBudgetKind.WORKLOAD, 2)))
            ),
            [
                "1 pod takes 3 evictions in one round: with max_evictions_per_node of 3 and max_evictions_per_workload "
                "of 2 it would be planned."
            ],
        ),
        (
            RemainingRounds((), (), LargerBudgetPlan(2, 1, ())),
            [
                "2 pods take 1 eviction in one round, which budgets do not allow now: "
                "pods that are not ready count as well."
            ],
        ),
        (None, []),
    ],
)
def test_words(later, words):
    assert describe_remaining_rounds(later) == words
