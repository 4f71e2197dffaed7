"""Hourly counts add up to the score's totals, and each is in its own hour."""

import numpy as np
import pytest

from cruise.backtest.comparison import build_hourly_metrics
from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.backtest import ComparedMetric, ReplayQuantity
from cruise.domain.resources import Resources
from tests.backtest.replay.test_replay import made_up
from tests.backtest.replayed import make_recording


def score_of(recording, policy="vpa"):
    options = ReplayOptions(node=Resources(2000, 8 << 30))
    return replay_policy(recording, POLICIES[policy](recording, options), options)


@pytest.mark.parametrize("policy", ["vpa", "cruise"])
def test_all_hours_together_are_the_score(policy):
    score = score_of(made_up(hours=12, step=300), policy)
    hours = len(score.hourly_counts[ReplayQuantity.MINUTES])
    found = {
        figure: metric.select_hours(0, hours) for figure, metric in build_hourly_metrics(score.hourly_counts).items()
    }
    assert found == pytest.approx(
        {
            ComparedMetric.CPU_SLACK: score.cpu.relative_slack,
            ComparedMetric.MEMORY_SLACK: score.memory.relative_slack,
            ComparedMetric.CPU_STARVED: score.cpu.starved_share,
            ComparedMetric.OOM_KILLS: score.oom_per_1000_container_days,
            ComparedMetric.RESIZES: score.resizes_per_container_day,
            ComparedMetric.OWN_EVICTIONS: score.own_evictions_per_1000_pod_days,
            ComparedMetric.NODES: score.nodes_mean,
        },
        abs=1e-9,
    )


def test_each_hour_has_its_own_counts():
    recording = make_recording("web", "api", length=24)
    recording.cpu_millicores[12:] = 200
    counts = score_of(recording, "as-requested").hourly_counts
    assert counts[ReplayQuantity.CPU_USED].tolist() == [[1200, 1200], [2400, 2400]]
    assert counts[ReplayQuantity.CPU_REQUESTED].tolist() == [[6000, 6000]] * 2
    assert counts[ReplayQuantity.MINUTES].tolist() == [[60], [60]]


def test_workloads_beyond_the_groups_share_one():
    counts = score_of(make_recording(*map(str, range(70)), length=12), "as-requested").hourly_counts
    assert counts[ReplayQuantity.CPU_USED].shape == (1, 64)
    assert counts[ReplayQuantity.CPU_USED].sum() == 70 * 12 * 100


def test_memory_that_was_not_recorded_has_no_figures():
    score = score_of(make_recording("web", has_memory=False), "as-requested")
    assert {ComparedMetric.MEMORY_SLACK, ComparedMetric.OOM_KILLS}.isdisjoint(build_hourly_metrics(score.hourly_counts))
    assert np.isfinite(
        [metric.select_hours(0, 2) for metric in build_hourly_metrics(score.hourly_counts).values()]
    ).all()
