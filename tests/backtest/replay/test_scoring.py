"""Sums of a replay: money, means over time, and the worst containers."""

from dataclasses import replace

import numpy as np
import pytest

from cruise.backtest.replay.policy import NO_CONTAINERS, ReplayDecision, ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.prices import ResourcePrices
from cruise.domain.resources import MEBIBYTE, Resources
from tests.backtest.baselines.recordings import make_recording
from tests.backtest.replay.policies import FixedSizesPolicy, get_placements, sizes

GIBIBYTE = 1024 * MEBIBYTE
TERMS = ReplayOptions(node=Resources(2000, 4 * GIBIBYTE))


def hour(*columns: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """An hour of five-minute samples, each container always at (millicores, MiB)."""
    cpu, memory = (np.tile([column[which] for column in columns], (12, 1)).astype(np.float64) for which in (0, 1))
    return cpu, memory * MEBIBYTE


def test_nodes_are_paid_for_not_requests():
    recording = make_recording(*hour((10, 10), (10, 10)))
    policy = FixedSizesPolicy(sizes((1500, 0, 0), (1500, 0, 0)))
    options = replace(TERMS, prices=ResourcePrices(0.5, 0.25))
    assert replay_policy(recording, policy, options).cost == pytest.approx(2 * (2 * 0.5 + 4 * 0.25))
    assert replay_policy(recording, policy, replace(TERMS, prices=ResourcePrices(0.5, 0.0))).cost == pytest.approx(2.0)
    assert replay_policy(recording, policy, TERMS).cost is None


def test_nodes_are_weighed_by_time():
    cpu, memory = hour((10, 10), (10, 10))
    cpu[3:, 1] = memory[3:, 1] = np.nan
    score = replay_policy(make_recording(cpu, memory), FixedSizesPolicy(sizes((1500, 0, 0), (1500, 0, 0))), TERMS)
    assert (score.nodes_mean, score.nodes_peak) == (1.25, 2)
    assert score.container_days == pytest.approx((12 + 3) * 300 / 86400)


def test_slack_is_weighted_by_requests():
    score = replay_policy(
        make_recording(*hour((100, 100), (900, 100))), FixedSizesPolicy(sizes((200, 0, 0), (1000, 0, 0))), TERMS
    )
    assert score.cpu.relative_slack == pytest.approx(200 / 1200)


def test_starved_are_those_above_their_request_on_a_node_without_idle_cpu():
    cpu, memory = hour((1500, 1), (400, 1), (1700, 1))
    cpu[5, 0] = 1601
    score = replay_policy(
        make_recording(cpu, memory), FixedSizesPolicy(sizes((1000, 0, 0), (500, 0, 0), (1800, 0, 0))), TERMS
    )
    assert score.cpu.starved_share == pytest.approx(1 / 36)
    assert score.cpu.short_share == pytest.approx(12 / 24)


def test_the_worst_were_killed_then_starved_then_wasted_most():
    cpu, memory = hour((10, 500), (1700, 1), (400, 1), (10, 1), (10, 1))
    admitted = sizes(
        (100, MEBIBYTE, 100 * MEBIBYTE),
        (1000, MEBIBYTE, 0),
        (600, MEBIBYTE, 0),
        (600, GIBIBYTE, 0),
        (1200, MEBIBYTE, 0),
    )
    score = replay_policy(make_recording(cpu, memory), FixedSizesPolicy(admitted), TERMS)
    assert [one.pod for one in score.worst_containers] == ["p0", "p1", "p4", "p3", "p2"]
    killed, starved, wasting = score.worst_containers[:3]
    assert (killed.oom_kills, killed.starved_minutes) == (12, 0)
    assert (starved.oom_kills, starved.starved_minutes) == (0, 60)
    assert (wasting.cpu_slack_millicores, wasting.namespace, wasting.workload) == (1190, "default", "Deployment/w4")


def test_the_worst_are_ten():
    score = replay_policy(make_recording(*hour(*[(1, 1)] * 12)), FixedSizesPolicy(sizes(*[(10, 0, 0)] * 12)), TERMS)
    assert [one.pod for one in score.worst_containers] == [f"p{index}" for index in range(10)]


def test_resizes_and_evictions_are_counted_by_container():
    wanted = {
        600: ReplayDecision(get_placements(0), sizes((200, 0, 0)), NO_CONTAINERS),
        900: ReplayDecision(get_placements(0), sizes((100, 0, 0)), get_placements(1)),
    }
    score = replay_policy(
        make_recording(*hour((1, 1), (1, 1))), FixedSizesPolicy(sizes((100, 0, 0), (100, 0, 0)), wanted), TERMS
    )
    assert {one.pod: (one.resizes, one.evictions) for one in score.worst_containers} == {"p0": (2, 0), "p1": (0, 1)}
    assert score.resizes_per_container_day == pytest.approx(2 / (2 / 24))
    assert score.resize_reversal_share == 0.5
    assert score.evictions_per_1000_pod_days == pytest.approx(1000 / (2 / 24))
