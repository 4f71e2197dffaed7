"""Two configurations over one recording: intervals, bounds, and forecasts that hold as often as they say."""

import numpy as np
import pytest

from cruise.backtest.backtest import backtest_policies
from cruise.backtest.comparison import compare_configurations
from cruise.backtest.replay.policy import ReplayOptions
from cruise.domain.backtest import (
    BacktestResult,
    BoundResult,
    ComparedMetric,
    PolicyScore,
    ReplayQuantity,
    ResourceScore,
)
from cruise.domain.resources import Resources
from tests.backtest.replay.test_replay import made_up
from tests.backtest.test_bootstrap_hours import remembering

SCORE = ResourceScore(0, 0, 0)
NODE = Resources(16000, 64 << 30)


def result_of(*writes):
    """One container that runs all the time, with so many writes in each hour under `here` and `against`."""
    policies = {
        name: PolicyScore(
            policy=name,
            cpu=SCORE,
            memory=None,
            oom_per_1000_container_days=0,
            resizes_per_container_day=0,
            resize_reversal_share=0,
            evictions_per_1000_pod_days=0,
            moves_per_1000_pod_days=0,
            nodes_mean=1,
            nodes_peak=1,
            pending_pod_minutes=0,
            container_days=1,
            hourly_counts={
                ReplayQuantity.RESIZES: np.asarray(column, dtype=np.float64)[:, None],
                ReplayQuantity.CONTAINER_MINUTES: np.full((len(column), 1), 60.0),
            },
        )
        for name, column in zip(("here", "against"), writes, strict=True)
    }
    return BacktestResult("made-up", 1, len(writes[0]) / 24, 300, NODE, policies)


def writes_of(*writes, bounds=None, seed=0):
    return compare_configurations(result_of(*writes), "here", "against", bounds or {}, seed)


def test_the_same_configuration_differs_by_nothing():
    noise = np.random.default_rng(0).poisson(2, 240)
    found = writes_of(noise, noise).metrics[ComparedMetric.RESIZES]
    assert (found.delta, found.low, found.high) == (0, 0, 0)
    assert (found.forecasts, found.confirmed_forecasts) == (5, 5)


def test_the_first_day_of_many_counts_for_nothing():
    early = np.r_[np.full(24, 100), np.ones(216)]
    found = writes_of(early, np.ones(240))
    assert found.skipped_hours == 24
    assert found.metrics[ComparedMetric.RESIZES].delta == 0
    assert writes_of(np.full(48, 3), np.ones(48)).metrics[ComparedMetric.RESIZES].delta == 48


def test_common_variation_does_not_widen_the_interval():
    common = np.random.default_rng(1).poisson(50, 240)
    own = np.random.default_rng(2).poisson(2, (2, 240))
    paired = writes_of(common + own[0], common + own[1]).metrics[ComparedMetric.RESIZES]
    apart = writes_of(common + own[0], common[::-1] + own[1]).metrics[ComparedMetric.RESIZES]
    assert paired.high - paired.low < (apart.high - apart.low) / 2


def test_intervals_have_their_nominal_coverage(seeds):
    held, made, tried = 0, 0, seeds(40)
    for seed in tried:
        rng = np.random.default_rng(seed)
        found = writes_of(*rng.poisson(3, (2, 300)), seed=seed).metrics[ComparedMetric.RESIZES]
        held, made = held + found.confirmed_forecasts, made + found.forecasts
    assert made == 5 * len(tried)
    assert 0.9 <= held / made <= 0.99


def test_intervals_of_what_remembers_for_long_cover_nearly_as_often(seeds):
    held = made = 0
    for seed in seeds(40):
        found = writes_of(5 + remembering(300, 0.9, seed), np.full(300, 5.0)).metrics[ComparedMetric.RESIZES]
        held, made = held + found.confirmed_forecasts, made + found.forecasts
    assert held / made >= 0.8


def test_an_interval_is_as_wide_as_earlier_ones_were_off():
    # From week to week both write more, each differently, which a bootstrap of hours cannot show.
    rng = np.random.default_rng(3)
    drifting = rng.poisson(np.repeat([2, 8, 14, 20], 168))
    found = writes_of(drifting, rng.poisson(3, 672)).metrics[ComparedMetric.RESIZES]
    assert found.low < found.current - found.reference - 24 * 6 < found.current - found.reference + 24 * 6 < found.high
    assert found.confirmed_forecasts >= 4


def test_the_same_seed_gives_the_same_interval():
    writes = np.random.default_rng(0).poisson(3, (2, 100))
    assert writes_of(*writes, seed=3).metrics == writes_of(*writes, seed=3).metrics
    assert writes_of(*writes, seed=3).metrics != writes_of(*writes, seed=4).metrics


@pytest.mark.parametrize(
    ("beyond", "verdict", "broken", "surely"),
    [
        (lambda found: found.high, BoundResult.WITHIN_BOUND, False, False),
        (lambda found: found.delta, BoundResult.INCONCLUSIVE, False, True),
        (lambda found: found.low, BoundResult.EXCEEDED, True, True),
    ],
)
def test_a_bound_holds_is_open_or_is_broken(beyond, verdict, broken, surely):
    writes = np.random.default_rng(5).poisson(3, (2, 400))
    bound = beyond(writes_of(*writes).metrics[ComparedMetric.RESIZES]) + 1e-6
    found = writes_of(*writes, bounds={ComparedMetric.RESIZES: bound})
    assert found.bounds[ComparedMetric.RESIZES].result is verdict
    assert bool(found.find_exceeded_bounds(by_interval=False)) is broken
    assert bool(found.find_exceeded_bounds(by_interval=True)) is surely


def test_a_bound_on_a_metric_that_was_not_recorded_is_exceeded():
    found = writes_of(np.ones(30), np.ones(30), bounds={ComparedMetric.OOM_KILLS: 0.0})
    assert found.bounds[ComparedMetric.OOM_KILLS].result is BoundResult.NOT_RECORDED
    assert found.find_exceeded_bounds(by_interval=False) == [ComparedMetric.OOM_KILLS]


def test_a_replay_without_hourly_counts_cannot_be_compared():
    result = backtest_policies(made_up(hours=1), ["vpa", "cruise"], ReplayOptions())
    with pytest.raises(ValueError, match="without hourly counts"):
        compare_configurations(result, "vpa", "cruise", {}, 0)
