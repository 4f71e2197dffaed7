"""The counts of all hours and groups together are those of the score, and each is of its hour."""

import numpy as np
import pytest

from cruise.backtest.difference.ratios import ratios_of
from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.replay.options import ReplayOptions
from cruise.backtest.replay.replay import replay
from cruise.domain.backtest_cells import Count
from cruise.domain.backtest_difference import Figure
from cruise.domain.resources import Resources
from tests.backtest.replay.test_replay import made_up
from tests.backtest.replayed import recorded


def score_of(recording, policy="vpa"):
    options = ReplayOptions(node=Resources(2000, 8 << 30))
    return replay(recording, POLICIES[policy](recording, options), options)


@pytest.mark.parametrize("policy", ["vpa", "cruise"])
def test_all_hours_together_are_the_score(policy):
    score = score_of(made_up(hours=12, step=300), policy)
    hours = len(score.cells.counts[Count.MINUTES])
    found = {figure: ratio.between(0, hours) for figure, ratio in ratios_of(score.cells).items()}
    assert found == pytest.approx(
        {
            Figure.CPU_SLACK: score.cpu.relative_slack,
            Figure.MEMORY_SLACK: score.memory.relative_slack,
            Figure.STARVED: score.cpu.starved_share,
            Figure.KILLS: score.oom_per_1000_container_days,
            Figure.WRITES: score.resizes_per_container_day,
            Figure.OWN_EVICTIONS: score.own_evictions_per_1000_pod_days,
            Figure.NODES: score.nodes_mean,
        },
        abs=1e-9,
    )


def test_each_hour_has_its_own_counts():
    recording = recorded("web", "api", length=24)
    recording.cpu_millicores[12:] = 200
    counts = score_of(recording, "as-requested").cells.counts
    assert counts[Count.CPU_USED].tolist() == [[1200, 1200], [2400, 2400]]
    assert counts[Count.CPU_REQUESTED].tolist() == [[6000, 6000]] * 2
    assert counts[Count.MINUTES].tolist() == [[60], [60]]


def test_workloads_beyond_the_groups_share_one():
    counts = score_of(recorded(*map(str, range(70)), length=12), "as-requested").cells.counts
    assert counts[Count.CPU_USED].shape == (1, 64)
    assert counts[Count.CPU_USED].sum() == 70 * 12 * 100


def test_memory_that_was_not_recorded_has_no_figures():
    score = score_of(recorded("web", has_memory=False), "as-requested")
    assert {Figure.MEMORY_SLACK, Figure.KILLS}.isdisjoint(ratios_of(score.cells))
    assert np.isfinite([ratio.between(0, 2) for ratio in ratios_of(score.cells).values()]).all()
