"""Counts of resizes and reversals."""

import numpy as np
import pytest

from cruise.backtest.replay.scoring import REVERSAL_SECONDS, ChangeCounts
from tests.backtest.replay.policies import get_placements

NO_CHANGE = get_placements(0)


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
def test_a_reversal_is_a_resize_in_the_other_direction_within_a_day(
    first: tuple[int, int], second: tuple[int, int], after: int, reversals: int
):
    changes = ChangeCounts(2)
    changes.count_resizes(get_placements(1), get_placements(first[0]), get_placements(first[1]), 1000)
    changes.count_resizes(get_placements(1), get_placements(second[0]), get_placements(second[1]), 1000 + after)
    assert (changes.resizes.tolist(), changes.reversals) == ([0, 2], reversals)


def test_what_lies_between_does_not_hide_the_last_change_of_a_resource():
    changes = ChangeCounts(1)
    for at, (cpu, memory) in enumerate([(5, 0), (0, 3), (-5, 0)]):
        changes.count_resizes(get_placements(0), get_placements(cpu), get_placements(memory), at)
    assert changes.reversals == 1


def test_a_new_pod_has_no_reversals():
    changes = ChangeCounts(1)
    changes.count_resizes(get_placements(0), get_placements(5), NO_CHANGE, 0)
    changes.count_creation(get_placements(0))
    changes.count_resizes(get_placements(0), get_placements(-5), NO_CHANGE, 300)
    assert (changes.resizes.tolist(), changes.reversals) == ([2], 0)


def test_containers_are_distinguished():
    changes = ChangeCounts(3)
    changes.count_resizes(get_placements(0, 2), np.array([5, -5]), np.array([0, 0]), 0)
    changes.count_resizes(get_placements(2, 0), np.array([-5, -5]), np.array([0, 0]), 300)
    assert changes.reversals == 1
