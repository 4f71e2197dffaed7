"""Resizes and those that are taken back."""

import numpy as np
import pytest

from cruise.backtest.replay.churn import REVERSAL_SECONDS, Churn
from tests.backtest.replay.policies import places

NO_CHANGE = places(0)


@pytest.mark.parametrize(
    ("first", "second", "after", "reversals"),
    [
        ((5, 0), (-5, 0), 300, 1),
        ((5, 0), (-5, 0), REVERSAL_SECONDS, 1),
        ((5, 0), (-5, 0), REVERSAL_SECONDS + 1, 0),
        ((5, 0), (5, 0), 300, 0),
        ((5, 0), (0, -5), 300, 0),
        ((5, 5), (-5, -5), 300, 1),
        ((5, 5), (5, -5), 300, 1),
    ],
)
def test_a_reversal_goes_the_other_way_within_a_day(
    first: tuple[int, int], second: tuple[int, int], after: int, reversals: int
):
    churn = Churn(2)
    churn.resized(places(1), places(first[0]), places(first[1]), 1000)
    churn.resized(places(1), places(second[0]), places(second[1]), 1000 + after)
    assert (churn.resizes.tolist(), churn.reversals) == ([0, 2], reversals)


def test_what_lies_between_does_not_hide_the_last_change_of_a_resource():
    churn = Churn(1)
    for at, (cpu, memory) in enumerate([(5, 0), (0, 3), (-5, 0)]):
        churn.resized(places(0), places(cpu), places(memory), at)
    assert churn.reversals == 1


def test_a_new_pod_begins_anew():
    churn = Churn(1)
    churn.resized(places(0), places(5), NO_CHANGE, 0)
    churn.born(places(0))
    churn.resized(places(0), places(-5), NO_CHANGE, 300)
    assert (churn.resizes.tolist(), churn.reversals) == ([2], 0)


def test_containers_are_told_apart():
    churn = Churn(3)
    churn.resized(places(0, 2), np.array([5, -5]), np.array([0, 0]), 0)
    churn.resized(places(2, 0), np.array([-5, -5]), np.array([0, 0]), 300)
    assert churn.reversals == 1
