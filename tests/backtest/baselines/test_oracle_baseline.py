import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.baselines.bounds import AsRequestedBaseline, OracleBaseline
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.backtest import PodCreationTime
from cruise.domain.resources import Resources
from tests.backtest.baselines.recordings import GIBIBYTE, get_sizes, make_recording, make_view
from tests.tiers import examples

ALL = np.arange(2, dtype=np.int64)
SMALL_NODES = ReplayOptions(node=Resources(3000, 6 * GIBIBYTE), node_pods=8)


def minutes() -> UsageRecording:
    """Two containers, a sample a minute; the first pass ends at 300."""
    cpu = np.array([[100, 5], [200, 5], [150.2, 5], [90, 5], [80, np.nan], [70, np.nan], [60, np.nan], [910, np.nan]])
    memory = np.array([[1e9, 1e6]] * 4 + [[2e9, np.nan]] * 4)
    return make_recording(cpu, memory, start=60, step_seconds=60)


@st.composite
def random_recordings(draw: st.DrawFn) -> UsageRecording:
    times, count = draw(st.integers(2, 60)), draw(st.integers(1, 12))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cpu = random.gamma(0.5, 400.0, (times, count)).clip(max=2900)
    memory = random.gamma(0.5, 6e8, (times, count)).clip(max=5e9)
    for column in range(count):
        first = int(random.integers(0, times))
        last = int(random.integers(first, times))
        cpu[:first, column] = memory[:first, column] = np.nan
        cpu[last + 1 :, column] = memory[last + 1 :, column] = np.nan
    step = draw(st.sampled_from([60, 300]))
    return make_recording(cpu, memory, start=step * draw(st.integers(0, 7)), step_seconds=step)


def test_a_new_pod_gets_the_largest_use_up_to_the_first_pass_rounded_up() -> None:
    sizes = OracleBaseline(minutes(), ReplayOptions()).admit(ALL, make_view(get_sizes([0, 0], [0, 0]), time=0))
    assert sizes.cpu_millicores.tolist() == [200, 5]
    assert sizes.memory_bytes.tolist() == [2_000_000_000, 1_000_000]
    assert sizes.memory_limit_bytes.tolist() == [0, 0]


def test_a_pod_created_between_two_passes_is_sized_up_to_the_next_pass() -> None:
    sizes = OracleBaseline(minutes(), ReplayOptions()).admit(ALL, make_view(get_sizes([0, 0], [0, 0]), time=120))
    assert sizes.cpu_millicores.tolist() == [151, 5], "the samples at 180, 240 and 300"


def test_a_pass_writes_the_largest_use_until_the_next_one_and_nothing_without_use() -> None:
    decision = OracleBaseline(minutes(), ReplayOptions()).decide(
        make_view(get_sizes([151, 5], [2_000_000_000, 1_000_000]), time=300)
    )
    assert decision.resize.tolist() == [0, 1]
    assert decision.sizes.cpu_millicores.tolist() == [910, 0]
    assert decision.sizes.memory_bytes.tolist() == [2_000_000_000, 0]
    assert decision.evict_without_capacity


def test_unchanged_sizes_and_pods_that_do_not_run_are_not_written() -> None:
    oracle = OracleBaseline(minutes(), ReplayOptions())
    right = get_sizes([910, 5], [2_000_000_000, 1_000_000])
    assert oracle.decide(make_view(right, time=300)).resize.tolist() == [1]
    assert oracle.decide(make_view(right, time=300, node=[0, -1])).resize.tolist() == []


def test_no_pod_requests_more_than_a_node_so_all_pods_run() -> None:
    recording = make_recording(np.full((4, 1), 5000.0), np.full((4, 1), 9e9))
    sizes = OracleBaseline(recording, SMALL_NODES).admit(
        np.zeros(1, dtype=np.int64), make_view(get_sizes([0], [0]), time=0)
    )
    assert sizes.cpu_millicores.tolist() == [3000]
    assert sizes.memory_bytes.tolist() == [6 * GIBIBYTE]
    assert replay_policy(recording, OracleBaseline(recording, SMALL_NODES), SMALL_NODES).pending_pod_minutes == 0


def test_after_the_last_sample_nothing_is_used() -> None:
    decision = OracleBaseline(minutes(), ReplayOptions()).decide(make_view(get_sizes([910, 0], [1, 0]), time=600))
    assert decision.sizes.cpu_millicores.tolist() == [0]


@examples(60)
@given(random_recordings(), st.sampled_from(PodCreationTime))
def test_no_container_is_short_starved_or_killed(recording: UsageRecording, arrivals: PodCreationTime) -> None:
    options = ReplayOptions(node=SMALL_NODES.node, node_pods=SMALL_NODES.node_pods, creation_time=arrivals)
    score = replay_policy(recording, OracleBaseline(recording, options), options)
    assert score.memory is not None
    assert score.oom_per_1000_container_days == 0
    assert score.pending_pod_minutes == 0
    for resource in (score.cpu, score.memory):
        assert resource.starved_share == 0
        assert resource.short_share == 0
        assert resource.relative_slack >= -1e-6, "requests are never below use"


@examples(20)
@given(st.integers(0, 2**32 - 1))
def test_with_one_sample_per_interval_slack_is_rounding(seed: int) -> None:
    random = np.random.default_rng(seed)
    cpu = np.ceil(random.gamma(0.5, 400.0, (20, 5))).clip(1, 2900)
    recording = make_recording(cpu, np.ceil(random.gamma(0.5, 6e8, (20, 5))).clip(1, 5e9))
    score = replay_policy(recording, OracleBaseline(recording, SMALL_NODES), SMALL_NODES)
    assert score.memory is not None
    assert score.cpu.relative_slack == pytest.approx(0.0, abs=1e-6)
    assert score.memory.relative_slack == pytest.approx(0.0, abs=1e-6)


def test_it_needs_fewer_nodes_than_provisioned_requests() -> None:
    random = np.random.default_rng(3)
    recording = make_recording(random.uniform(0, 200, (50, 12)), random.uniform(0, 4e8, (50, 12)))
    provisioned = replay_policy(recording, AsRequestedBaseline(recording, SMALL_NODES), SMALL_NODES)
    oracle = replay_policy(recording, OracleBaseline(recording, SMALL_NODES), SMALL_NODES)
    assert provisioned.nodes_peak == 12, "4 GiB each, 6 GiB a node"
    assert oracle.nodes_peak <= 2
    assert oracle.resizes_per_container_day > 100
