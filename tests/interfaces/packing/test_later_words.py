"""What eviction budgets leave to later plans, as people read it."""

import pytest

from cruise.domain.packing import Budget, Go, Larger, Later, Spent
from cruise.interfaces.packing.later_words import later_words

HOUR = Spent(Budget.HOUR, (), 20)


@pytest.mark.parametrize(
    ("later", "words"),
    [
        (
            Later((HOUR,), (Go(3, 2),)),
            ["20 evictions left in this hour end the plan here; 3 more pods with a second go (2 evictions)."],
        ),
        (
            Later(
                (Spent(Budget.NODE, ("n1", "n2"), 1), Spent(Budget.WORKLOAD, ("Deployment shop/web",), 1)),
                (Go(1, 1), Go(2, 3)),
            ),
            [
                "1 eviction in one go from n1 and n2 each and 1 eviction in one go of Deployment shop/web end the plan "
                "here; 1 more pod with a second go (1 eviction) and 2 more with a third go (3 evictions)."
            ],
        ),
        (
            Later((Spent(Budget.DISRUPTION, ("shop/web",), 1),), (Go(2, 1),)),
            [
                "1 eviction under PodDisruptionBudget shop/web ends the plan here; "
                "2 more pods with a second go (1 eviction)."
            ],
        ),
        (Later((), (Go(2, 1),)), ["Once budgets have filled up again: 2 more pods with a second go (1 eviction)."]),
        (
            Later((), (), Larger(1, 3, ((Budget.NODE, 3), (Budget.WORKLOAD, 2)))),
            [
                "1 pod takes 3 evictions in one go: with max_evictions_per_node of 3 and max_evictions_per_workload "
                "of 2 that would be a plan."
            ],
        ),
        (
            Later((), (), Larger(2, 1, ())),
            [
                "2 pods take 1 eviction in one go, which budgets do not allow now: "
                "pods that are not ready count as well."
            ],
        ),
        (None, []),
    ],
)
def test_words(later, words):
    assert later_words(later) == words
