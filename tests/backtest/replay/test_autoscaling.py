"""HPAs in a replay: replicas follow the utilization of what a policy requests, and the pods share the demand."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.backtest import backtest_policies
from cruise.backtest.policies.cruise_policy import CruisePolicy
from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.recordings.scaling import MAX_OF_MIN_REPLICAS, ReplayHpaOptions, ScaledRecording, add_autoscalers
from cruise.backtest.replay.policy import ReplayOptions, ReplayPolicy
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.backtest import AutoscalingScore, PolicyScore
from cruise.domain.policy import HpaPolicy, Policy
from cruise.domain.resources import MEBIBYTE, Resources
from tests.backtest.baselines.recordings import make_recording
from tests.backtest.replay.policies import FixedSizesPolicy, FollowUsagePolicy, sizes

DAY = 24
TERMS = ReplayOptions(node=Resources(8000, 8000 * MEBIBYTE), added_autoscalers=ReplayHpaOptions(50))


def make_use(use, step=300, request=1000) -> UsageRecording:
    """Workloads of one pod each, with this CPU by row and workload, and 100 MiB of memory."""
    cpu = np.array(use, dtype=np.float64).reshape(len(use), -1)
    memory = np.where(np.isnan(cpu), np.nan, 100.0 * MEBIBYTE)
    requests = [Resources(request, 512 * MEBIBYTE)] * cpu.shape[1]
    return make_recording(cpu, memory, requests=requests, step_seconds=step, start=step)


def run(recording: UsageRecording, get_policy, terms=TERMS) -> tuple[PolicyScore, AutoscalingScore, ScaledRecording]:
    scaled = add_autoscalers(recording, terms.added_autoscalers)
    policy: ReplayPolicy = get_policy(scaled.recording)
    score = replay_policy(scaled.recording, policy, terms, scaled=scaled)
    assert score.autoscaling is not None
    return score, score.autoscaling, scaled


def fix_requests(cpu: int):
    return lambda recording: FixedSizesPolicy(sizes(*[(cpu, MEBIBYTE * 512, 0)] * len(recording.containers)))


def test_replicas_follow_the_use_a_sample_later_and_fall_after_the_window():
    use = [400, 900, 900, 900, 400, 400, 400, 400]
    _, found, scaled = run(make_use(use), fix_requests(1000))
    replicas = np.count_nonzero(~np.isnan(scaled.recording.cpu_millicores), axis=1)
    # ceil(90 / 50) pods from the second sample of 900 m on; 40 of 50 % is outside the tolerance.
    assert replicas.tolist() == [1, 1, 2, 2, 2, 2, 1, 1]
    assert (found.scale_events, found.replica_minutes) == (2, 12 * 5.0)
    assert found.differing_minutes == 0


def test_smaller_requests_add_pods_for_the_same_use():
    score, found, scaled = run(make_use([400] * 10), fix_requests(250))
    # 160 % of the request, at a target of 50 %: four pods.
    assert np.count_nonzero(~np.isnan(scaled.recording.cpu_millicores), axis=1).tolist() == [1] + [4] * 9
    assert scaled.recording.cpu_millicores[5, :4].tolist() == [100] * 4
    assert (found.scale_events, found.unchanged_scale_events) == (1, 0)
    assert found.differing_minutes == 9 * 5.0 and found.workload_minutes == 50.0
    assert score.nodes_mean == 1 and score.container_days == pytest.approx((5 + 9 * 4 * 5) / 1440)
    assert found.unchanged_core_minutes_at_minimum == 50.0
    assert found.core_minutes_at_minimum == pytest.approx(5 * 0.25 + 45 * 1.0)


def test_a_larger_use_than_ever_explains_what_differs():
    # A request of 500 m is enough for all use of the first hour, and at 290 m no longer.
    use = [200] * 12 + [290] * 6
    _, found, _ = run(make_use(use), fix_requests(500))
    assert found.differing_minutes == 5 * 5.0 and found.unexplained_minutes == 0
    # The same use again, more than an hour after the maximum, is not explained by a new one.
    _, found, _ = run(make_use([290, *[200] * 14, 290, 290, 290]), fix_requests(500))
    assert 0 < found.unexplained_minutes == 2 * 5.0 < found.differing_minutes


@given(
    st.lists(st.lists(st.integers(0, 3000), min_size=3, max_size=3), min_size=2, max_size=30),
    st.sampled_from([60, 300, 900]),
    st.integers(20, 4000),
)
def test_pods_share_the_demand_and_replicas_stay_within_bounds(use, step, request):
    recording = make_use(use, step)
    _, found, scaled = run(recording, fix_requests(request))
    assert np.allclose(np.nansum(scaled.recording.cpu_millicores, axis=1), np.array(use).sum(axis=1), rtol=1e-4)
    rows = len(use)
    assert rows * 3 * step / 60 <= found.replica_minutes <= MAX_OF_MIN_REPLICAS * rows * 3 * step / 60
    assert found.workload_minutes == pytest.approx(rows * 3 * step / 60)
    if request == 1000:
        assert found.differing_minutes == 0


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_replayed_with_hpas(name):
    hours = np.arange(24 * 12)[:, np.newaxis] / 12
    use = 300 + 250 * np.sin(2 * np.pi * hours / 24 + np.arange(3))
    result = backtest_policies(make_use(use), [name], TERMS)
    found = result.policies[name].autoscaling
    assert found is not None and found.workload_minutes == 3 * 24 * 60
    assert found.replica_minutes >= found.workload_minutes


def test_requests_that_never_change_never_differ():
    use = np.random.default_rng(1).integers(10, 2000, (300, 4))
    found = backtest_policies(make_use(use), ["as-requested"], TERMS).policies["as-requested"].autoscaling
    assert found is not None and found.scale_events == found.unchanged_scale_events > 0
    assert found.differing_minutes == found.reclaimed_share_at_minimum == 0


def test_cruise_reclaims_at_the_minimum_after_a_week_without_a_pod_more():
    # One workload stays far below its target; the other is scaled each day.
    hours = np.arange(9 * 24 * 2)[:, np.newaxis] / 2
    use = np.hstack((60 + 40 * np.sin(hours), 500 + 450 * np.sin(2 * np.pi * hours / 24)))
    recording = make_use(use, 1800)
    held, within = (
        run(recording, partial(CruisePolicy, policy=Policy(hpa=hpa)))[1]
        for hpa in (HpaPolicy.HOLD, HpaPolicy.WITHIN_TARGET)
    )
    assert held.reclaimed_share_at_minimum == 0 and held.scale_events > 9
    assert within.core_minutes_at_minimum < held.core_minutes_at_minimum
    for one in (held, within):
        assert one.differing_minutes == 0 and one.scale_events == one.unchanged_scale_events


def test_replicas_are_those_without_cruise_soon_after_use_has_grown_for_good():
    """A pod of the template's request next to a much smaller one halves the utilization that added it."""
    hours = np.arange(9 * 24 * 12)[:, np.newaxis] / 12
    use = 60 + 40 * np.sin(hours)
    # More than the target of the smaller request for half a day, and less than half of the template's.
    half_a_day = 12 * 12
    use[-half_a_day:] = 240
    _, found, scaled = run(make_use(use), partial(CruisePolicy, policy=Policy(hpa=HpaPolicy.WITHIN_TARGET)))
    replicas = np.count_nonzero(~np.isnan(scaled.recording.cpu_millicores), axis=1)
    assert replicas[:-half_a_day].max() == 1 < replicas[-half_a_day:].max()
    # Once added and once removed, after the requests have grown back.
    assert (found.unchanged_scale_events, found.scale_events, found.unexplained_minutes) == (0, 2, 0)
    assert (replicas[-half_a_day + 12 :] == 1).all()


def test_a_policy_that_follows_use_is_followed_by_its_hpa():
    use = [300] * 40
    _, found, _ = run(make_use(use), lambda recording: FollowUsagePolicy(recording))
    # 83 % of what it requests is above any target, so the HPA adds pods until it may not.
    assert found.replica_minutes > 3 * found.unchanged_replica_minutes
