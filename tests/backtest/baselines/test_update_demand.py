"""Expected values are from upstream tests in pkg/updater, which each test names."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.baselines.vpa import (
    UpdateDemand,
    UpdatePriorities,
    apply_eviction_tolerance,
    compute_eviction_tolerance,
    compute_update_priorities,
)
from cruise.backtest.baselines.vpa_recommender import VpaRecommendation

HOUR = 3600
MEGABYTE = 10**6
UNBOUNDED = 10**14


def demand(requested: int, target: int, lower: int = 0, upper: int = UNBOUNDED, known: bool = True) -> UpdateDemand:
    one = [np.array([value], dtype=np.int64) for value in (lower, target, upper, requested)]
    return UpdateDemand(one[3], VpaRecommendation(*one[:3]), np.array([known]))


def priorities(outside: Sequence[bool], grows: Sequence[bool], difference: Sequence[float]) -> UpdatePriorities:
    return UpdatePriorities(np.array(outside), np.array(grows), np.array(difference, dtype=np.float64))


@pytest.mark.parametrize(
    ("demands", "outside", "difference", "grows"),
    [
        ([demand(2000, 10000)], False, 4.0, True),
        ([demand(4000, 2000)], False, 0.5, False),
        ([demand(2000, 2000)], False, 0.0, False),
        ([demand(10, 900)], False, 89.0, True),
        ([demand(4000, 10000, 6000, 14000)], True, 1.5, True),
        ([demand(8000, 2000, 1000, 3000)], True, 0.75, False),
        ([demand(3000, 6000), demand(10 * MEGABYTE, 20 * MEGABYTE)], False, 2.0, True),
        ([demand(4000, 2000), demand(10 * MEGABYTE, 20 * MEGABYTE)], False, 1.5, True),
        ([demand(4000, 2000), demand(20 * MEGABYTE, 10 * MEGABYTE)], False, 1.0, False),
        (
            [
                demand(4000, 2000, 1000, 3000),
                demand(20 * MEGABYTE, 10 * MEGABYTE, 5 * MEGABYTE, 30 * MEGABYTE),
            ],
            True,
            1.0,
            False,
        ),
    ],
)
def test_priorities(demands: list[UpdateDemand], outside: bool, difference: float, grows: bool) -> None:
    """priority/priority_processor_test.go, TestGetUpdatePriority: the cases with one container."""
    found = compute_update_priorities(demands)
    assert (bool(found.is_out_of_bounds[0]), bool(found.wants_growth[0])) == (outside, grows)
    assert found.difference[0] == pytest.approx(difference)


def test_a_resource_without_a_request_is_out_of_bounds() -> None:
    found = compute_update_priorities([demand(0, 25)])
    assert found.is_out_of_bounds.all() and found.wants_growth.all() and found.difference[0] > 1


def test_a_resource_never_seen_does_not_count() -> None:
    found = compute_update_priorities([demand(1000, 1000), demand(0, 10 * MEGABYTE, known=False)])
    assert not found.is_out_of_bounds.any() and not found.wants_growth.any() and found.difference.tolist() == [0.0]


def test_increases_are_listed_first_then_by_largest_difference() -> None:
    """priority/update_priority_calculator_test.go, TestSortPriority, TestSortPriorityResourcesDecrease."""
    nobody = [False] * 4
    assert priorities(nobody, nobody, [4.0, 1.5, 9.0, 2.33]).order(np.arange(4)).tolist() == [2, 0, 3, 1]
    assert priorities(nobody[:3], [True, False, False], [0.25, 0.25, 0.5]).order(np.arange(3)).tolist() == [0, 2, 1]


def test_an_old_pod_is_updated_when_it_is_far_off_or_out_of_bounds() -> None:
    """TestUpdateLonglivedPods, with the default threshold of 0.1; TestUpdateNotRequired for the last."""
    found = priorities([False, False, True, False], [True, True, False, False], [0.05, 4.0, 0.05, 0.0])
    accepted = found.is_update_needed(np.full(4, 13 * HOUR), np.zeros(4, dtype=np.bool_))
    assert accepted.tolist() == [False, True, True, False]


def test_a_young_pod_is_updated_only_when_out_of_bounds() -> None:
    """TestUpdateShortlivedPods."""
    found = priorities([False, False, True], [True, True, False], [0.25, 0.0, 0.9])
    assert found.is_update_needed(np.full(3, 11 * HOUR), np.zeros(3, dtype=np.bool_)).tolist() == [False, False, True]


def test_a_pod_killed_soon_after_its_start_is_updated_unless_nothing_would_change() -> None:
    """TestUpdatePodWithQuickOOM, TestDontUpdatePodWith…: QuickOOMNoResourceChange, OOMAfterLongRun."""
    found = priorities([False] * 3, [True] * 3, [0.25, 0.0, 0.25])
    assert found.is_update_needed(np.full(3, 11 * HOUR), np.array([True, True, False])).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("configured", "running", "smallest", "touched"),
    [(1, 1, 2, 0), (1, 1, 1, 1), (2, 2, 2, 1), (2, 1, 1, 0), (3, 3, 2, 1), (4, 4, 2, 2), (5, 5, 2, 2), (10, 9, 2, 4)],
)
def test_half_of_a_group_is_updated_in_one_loop(configured: int, running: int, smallest: int, touched: int) -> None:
    """restriction/pods_restriction_factory.go, singleGroupStats.isPodDisruptable; a group below minReplicas is left."""
    assert compute_eviction_tolerance(np.array([configured]), np.array([running]), smallest).tolist() == [touched]


@given(st.lists(st.integers(0, 4), max_size=30), st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_the_first_of_each_group_are_within_its_budget(groups: list[int], budget: list[int]) -> None:
    left = list(budget)
    expected = []
    for group in groups:
        expected.append(left[group] > 0)
        left[group] -= 1
    assert apply_eviction_tolerance(np.array(groups, dtype=np.int64), np.array(budget)).tolist() == expected
