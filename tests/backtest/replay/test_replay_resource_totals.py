"""The sums that a score is computed from, worked out by hand: two nodes of 100, three containers."""

import numpy as np
import pytest

from cruise.backtest.replay.nodes import PlacedContainers
from cruise.backtest.replay.scoring import ReplayResourceTotals, compute_interval_usage
from tests.backtest.replay.policies import get_placements

PLACES = PlacedContainers(get_placements(0, 2, 1), get_placements(0, 1), get_placements(0, 2), get_placements(0, 0, 1))
REQUESTS = get_placements(40, 70, 50)
NODE_REQUESTS = get_placements(90, 70)


def account(*rows: list[list[float]]) -> ReplayResourceTotals:
    found = ReplayResourceTotals(3, 100)
    for interval in rows:
        found.add(compute_interval_usage(np.array(interval, dtype=np.float32), PLACES), REQUESTS, NODE_REQUESTS)
    return found


def test_slack_is_requested_and_not_used():
    found = account([[10, 20, 30], [20, 30, 40]], [[40, np.nan, 50]])
    assert found.build_score().relative_slack == pytest.approx(1 - 240 / (3 * 40 + 2 * 70 + 3 * 50))
    assert found.compute_mean_slack().tolist() == pytest.approx([40 - 70 / 3, 45, 10])


def test_usage_above_requests_is_negative_slack():
    assert account([[80, 140, 100]]).build_score().relative_slack == -1


def test_starved_are_those_above_their_request_while_the_node_is_over_its_end():
    found = account([[45, 75, 54], [45, 75, 56], [30, 75, 71]])
    assert found.starved_samples.tolist() == [1, 0, 2]
    assert found.build_score().starved_share == pytest.approx(3 / 9)


def test_short_is_an_interval_in_which_a_node_passed_its_requests_once():
    assert account([[40, 70, 50]]).build_score().short_share == 0
    assert account([[40, 71, 50]]).build_score().short_share == 0.5
    assert account([[40, 0, 40], [40, 0, 51], [91, 0, 0]], [[0, 0, 0]]).build_score().short_share == 0.25


def test_an_empty_total_has_no_share():
    score = ReplayResourceTotals(3, 100).build_score()
    assert (score.relative_slack, score.starved_share, score.short_share) == (0, 0, 0)
