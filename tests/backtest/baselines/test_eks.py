from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from cruise.backtest.baselines.eks import EksBaseline
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ReplayClusterView, ReplayedOomKill, ReplayOptions
from cruise.domain.resources import MEBIBYTE, Resources
from tests.backtest.baselines.recordings import GIBIBYTE, get_sizes, make_recording, make_view

# Recommendations are made at full hours: the first one more than twelve hours after the first sample, at five past.
HOURS = 13
PROVISIONED = get_sizes([1000, 1000], [4 * GIBIBYTE] * 2, [8 * GIBIBYTE] * 2)


def recorded(
    cpu: Sequence[float], memory: Sequence[float], hours: int, workloads: Sequence[str] | None
) -> UsageRecording:
    windows = hours * 12 + 1
    recording = make_recording(
        np.tile(np.array(cpu, dtype=np.float64), (windows, 1)),
        np.tile(np.array(memory, dtype=np.float64), (windows, 1)),
        workloads=workloads,
    )
    return recording


def eks(
    cpu: Sequence[float] = (100, 100),
    memory: Sequence[float] = (GIBIBYTE, GIBIBYTE),
    *,
    hours: int = HOURS,
    workloads: Sequence[str] | None = None,
) -> EksBaseline:
    recording = recorded(cpu, memory, hours, workloads)
    policy = EksBaseline(recording, ReplayOptions())
    for row, (used, taken) in enumerate(zip(recording.cpu_millicores, recording.memory_bytes, strict=True)):
        policy.observe(300 * (row + 1), used[np.newaxis], taken[np.newaxis])
    return policy


def view(node: list[int] | None = None) -> ReplayClusterView:
    return make_view(PROVISIONED, time=HOURS * 3600 + 300, node=node)


def test_before_half_a_day_is_known_pods_are_as_they_were_provisioned():
    policy = eks(hours=HOURS - 2)

    assert policy.admit(np.array([0]), view()).cpu_millicores.tolist() == [1000]
    assert not policy.decide(view()).resize.size


def test_the_95th_percentile_of_cpu_is_87_percent_of_the_request():
    decision = eks().decide(view())

    assert decision.resize.tolist() == [0, 1]
    assert decision.sizes.cpu_millicores[0] == pytest.approx(100 / 0.87, rel=0.06)


def test_memory_is_its_maximum_and_as_much_more():
    decision = eks(memory=(GIBIBYTE, 2 * GIBIBYTE)).decide(view())

    assert decision.sizes.memory_bytes.tolist() == pytest.approx([GIBIBYTE / 0.87, 2 * GIBIBYTE / 0.87])


def test_limits_keep_their_proportion_to_requests():
    recording = recorded((100, 100), (GIBIBYTE, GIBIBYTE), HOURS, None)
    twice = EksBaseline(recording, ReplayOptions())
    for row in range(len(recording.cpu_millicores)):
        rows = slice(row, row + 1)
        twice.observe(300 * (row + 1), recording.cpu_millicores[rows], recording.memory_bytes[rows])

    sizes = twice.decide(view()).sizes
    given = recording.containers[0]

    ratio = given.memory_limit_bytes / given.requests.memory_bytes
    assert sizes.memory_limit_bytes[0] == pytest.approx(ratio * sizes.memory_bytes[0], rel=1e-6)


def test_new_pods_have_recommended_sizes():
    assert eks().admit(np.array([1]), view()).cpu_millicores[0] == pytest.approx(115, rel=0.06)


def test_pods_of_a_workload_have_one_recommendation():
    sizes = eks(cpu=(10, 400), workloads=("web", "web")).decide(view()).sizes

    assert sizes.cpu_millicores[0] == sizes.cpu_millicores[1] >= 400


def test_no_pod_is_evicted_and_pending_pods_are_skipped():
    decision = eks(cpu=(5000, 5000)).decide(view(node=[-1, 0]))

    assert decision.resize.tolist() == [1]
    assert not decision.evict.size
    assert not decision.evict_without_capacity


def test_changes_within_a_tenth_are_not_written():
    policy = eks()
    wanted = policy.admit(np.array([0, 1]), view())
    near = get_sizes((wanted.cpu_millicores * 1.05).astype(int).tolist(), wanted.memory_bytes.tolist())

    assert not policy.decide(make_view(near, time=HOURS * 3600 + 300)).resize.size


def test_requests_end_at_the_floor_and_at_the_node():
    sizes = eks(cpu=(0, 50_000), memory=(1, 100 * GIBIBYTE)).decide(view()).sizes
    node = ReplayOptions().node

    assert sizes.cpu_millicores.tolist() == [10, node.cpu_millicores]
    assert sizes.memory_bytes.tolist() == [16 * MEBIBYTE, node.memory_bytes]


def test_a_kill_raises_memory_immediately_and_for_later():
    policy = eks()
    now = make_view(get_sizes([115, 115], [GIBIBYTE] * 2, [2 * GIBIBYTE] * 2), time=HOURS * 3600 + 300)

    reaction = policy.react_to_oom_kill(ReplayedOomKill(0, now.time, 2 * GIBIBYTE, by_limit=True), now)
    assert reaction.sizes is not None
    assert reaction.sizes.memory_bytes.tolist() == [int(2 * GIBIBYTE * 1.2)]

    policy.observe(now.time + 3600, np.array([[100, 100]], np.float32), np.array([[GIBIBYTE] * 2], np.float32))
    assert policy.admit(np.array([0]), now).memory_bytes[0] == pytest.approx(2 * GIBIBYTE * 1.2 / 0.87)


def test_a_kill_before_any_recommendation_is_only_remembered():
    policy = eks(hours=1)

    assert policy.react_to_oom_kill(ReplayedOomKill(0, 7200, 2 * GIBIBYTE, by_limit=True), view()).sizes is None


def test_memory_that_was_not_recorded_keeps_the_provisioned_request():
    windows = HOURS * 12 + 1
    both = make_recording(np.full((windows, 1), 100.0), np.zeros((windows, 1)), requests=[Resources(1000, GIBIBYTE)])
    recording = replace(both, has_memory=False)
    policy = EksBaseline(recording, ReplayOptions())
    for row in range(windows):
        policy.observe(300 * (row + 1), recording.cpu_millicores[row : row + 1], recording.memory_bytes[row : row + 1])

    assert policy.admit(np.array([0]), view()).memory_bytes.tolist() == [GIBIBYTE]
