"""Slack reduction between VPA and the clairvoyant policy."""

import pytest

from cruise.decisions.policy_costs import SlackReduction, compute_slack_reduction_from_vpa
from tests.backtest_results import make_score


def of(cpu: float, memory: float | None):
    return make_score(cpu=(cpu, 0.0, 0.0), memory=None if memory is None else (memory, 0.0, 0.0))


def test_vpa_has_0_the_clairvoyant_1_and_others_any_value():
    found = compute_slack_reduction_from_vpa(
        {"as-requested": of(0.8, 0.9), "vpa": of(0.6, 0.7), "cruise": of(0.5, 0.4), "clairvoyant": of(0.2, 0.3)}
    )
    assert found["vpa"] == SlackReduction(0.0, 0.0)
    assert found["clairvoyant"] == SlackReduction(1.0, 1.0)
    assert found["cruise"].cpu == pytest.approx(0.25)
    assert found["cruise"].memory == pytest.approx(0.75)
    assert found["as-requested"].cpu == pytest.approx(-0.5)


def test_without_either_there_is_no_reduction():
    assert compute_slack_reduction_from_vpa({"vpa": of(0.6, 0.7), "cruise": of(0.5, 0.4)}) == {}
    assert compute_slack_reduction_from_vpa({"clairvoyant": of(0.6, 0.7), "cruise": of(0.5, 0.4)}) == {}


def test_a_resource_that_was_not_recorded_or_has_no_better_bound_has_none():
    found = compute_slack_reduction_from_vpa(
        {"vpa": of(0.3, None), "cruise": of(0.5, None), "clairvoyant": of(0.3, None)}
    )
    assert found["cruise"] == SlackReduction(None, None)
