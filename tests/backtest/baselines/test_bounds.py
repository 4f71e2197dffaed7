import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.baselines.bounds import AsRequestedBaseline, ClairvoyantBaseline, get_provisioned_sizes
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ReplayClusterView, ReplayedOomKill, ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.backtest import PolicyScore
from cruise.domain.resources import Resources
from tests.backtest.baselines.recordings import GIBIBYTE, get_sizes, make_recording, make_view
from tests.backtest.baselines.test_oracle_baseline import random_recordings
from tests.tiers import examples

ALL = np.arange(2, dtype=np.int64)
NO_SIZES = get_sizes([0, 0], [0, 0])
LARGE_NODES = ReplayOptions(node=Resources(400_000, 4000 * GIBIBYTE), node_pods=50)


def turns(hours: int = 3, memory: float = 1e9) -> UsageRecording:
    """Two containers that use 900 and 100 m in turns, 12 samples an hour; in the last sample of each hour both 300."""
    cpu = np.tile([[900.0, 100.0], [100.0, 900.0]], (6 * hours, 1))
    cpu[11::12] = 300
    return make_recording(cpu, np.full_like(cpu, memory), start=300, step_seconds=300)


def clairvoyant(recording: UsageRecording, hours: int = 1, options: ReplayOptions | None = None) -> ClairvoyantBaseline:
    return ClairvoyantBaseline(recording, options or ReplayOptions(), "clairvoyant", hours)


def score(recording: UsageRecording, hours: int, options: ReplayOptions = LARGE_NODES) -> PolicyScore:
    return replay_policy(recording, clairvoyant(recording, hours, options), options)


def test_the_pods_of_a_node_share_the_largest_sum_and_not_the_sum_of_their_largest_uses() -> None:
    decision = clairvoyant(turns()).decide(make_view(NO_SIZES, time=0))
    assert decision.sizes.cpu_millicores.tolist() == [500, 500], "together 1000, alone 900 each"
    assert decision.sizes.memory_bytes.tolist() == [1_000_000_000, 1_000_000_000]
    assert decision.sizes.memory_limit_bytes.tolist() == [0, 0]


def test_pods_on_two_nodes_share_nothing() -> None:
    decision = clairvoyant(turns()).decide(make_view(NO_SIZES, time=0, node=[0, 1]))
    assert decision.sizes.cpu_millicores.tolist() == [900, 900]


def test_a_new_pod_gets_its_own_largest_use_until_the_block_ends() -> None:
    policy = clairvoyant(turns())
    assert policy.admit(ALL, make_view(NO_SIZES, time=0)).cpu_millicores.tolist() == [900, 900]
    assert policy.admit(ALL, make_view(NO_SIZES, time=3300)).cpu_millicores.tolist() == [300, 300], "the last sample"


def test_nothing_is_written_within_a_block_until_the_pods_of_a_node_change() -> None:
    policy = clairvoyant(turns())
    first = policy.decide(make_view(NO_SIZES, time=0)).sizes
    assert policy.decide(make_view(first, time=3300)).resize.tolist() == []
    changed = policy.decide(make_view(first, time=3300, creation_count=[1, 2]))
    assert changed.sizes.cpu_millicores.tolist() == [300, 300]
    assert policy.decide(make_view(changed.sizes, time=3600)).sizes.cpu_millicores.tolist() == [500, 500]


def test_the_largest_pod_is_evicted_from_a_node_that_would_be_full() -> None:
    cpu = np.array([[700.0, 100, 500], [700, 100, 500]])
    recording = make_recording(cpu, np.full_like(cpu, 1e9))
    options = ReplayOptions(node=Resources(1000, 64 * GIBIBYTE))
    decision = clairvoyant(recording, options=options).decide(make_view(get_sizes([0] * 3, [0] * 3), time=0))
    assert decision.evict.tolist() == [0]
    assert decision.resize.tolist() == [1, 2]
    assert decision.sizes.cpu_millicores.tolist() == [100, 500]


def test_no_container_requests_more_than_a_node() -> None:
    recording = make_recording(np.full((4, 1), 5000.0), np.full((4, 1), 9e9))
    options = ReplayOptions(node=Resources(3000, 6 * GIBIBYTE))
    assert score(recording, 4, options).pending_pod_minutes == 0


def test_a_pod_that_leaves_shares_no_more() -> None:
    cpu = np.array([[900.0, 100], [900, 100], [np.nan, 400]])
    policy = clairvoyant(make_recording(cpu, np.where(np.isnan(cpu), np.nan, 1e9)))
    assert policy.decide(make_view(NO_SIZES, time=300)).sizes.cpu_millicores.tolist() == [693, 307], (
        "1000, as 900 to 400"
    )
    leaving = policy.decide(make_view(NO_SIZES, time=600))
    assert leaving.resize.tolist() == [1]
    assert leaving.sizes.cpu_millicores.tolist() == [400]
    assert policy.decide(make_view(NO_SIZES, time=900)).resize.tolist() == []


@examples(40)
@given(random_recordings(), st.sampled_from([1, 4, 24]))
def test_a_node_with_free_capacity_is_never_short(recording: UsageRecording, hours: int) -> None:
    found = score(recording, hours)
    assert found.memory is not None
    assert found.oom_per_1000_container_days == 0
    for resource in (found.cpu, found.memory):
        assert resource.short_share == 0
        assert resource.starved_share == 0
        assert resource.relative_slack >= -1e-6


@examples(10)
@given(st.integers(0, 2**32 - 1), st.sampled_from([60, 420]))
def test_longer_blocks_leave_more_unused_and_write_less(seed: int, pass_seconds: int) -> None:
    random = np.random.default_rng(seed)
    cpu = random.gamma(2.0, 200.0, (600, 5))
    recording = make_recording(cpu, cpu * 1e6, start=60, step_seconds=60)
    options = ReplayOptions(node=LARGE_NODES.node, pass_seconds=pass_seconds)
    hourly, four_hourly, daily = (score(recording, hours, options) for hours in (1, 4, 24))
    assert hourly.cpu.relative_slack <= four_hourly.cpu.relative_slack <= daily.cpu.relative_slack
    assert hourly.resizes_per_container_day >= four_hourly.resizes_per_container_day
    assert daily.resizes_per_container_day <= 5
    assert hourly.cpu.short_share == 0, "also where a block ends between two passes"


def test_the_slack_is_what_the_held_sums_leave() -> None:
    random = np.random.default_rng(7)
    cpu = np.ceil(random.gamma(2.0, 200.0, (2 * 288, 25)))
    recording = make_recording(cpu, cpu * 1e6)
    total = cpu.sum(axis=1)
    held = np.repeat(total.reshape(-1, 48).max(axis=1), 48)
    # The first interval has each pod's own largest use, before any pass.
    assert score(recording, 4).cpu.relative_slack == pytest.approx(1 - total.sum() / held.sum(), abs=0.01)


RECORDING = make_recording(
    np.array([[100, 20, 0], [900, 30, 0]]),
    np.array([[5e8, 1e8, 0], [9e8, 1e8, 0]]),
    requests=[Resources(500, 1_000_000_000), Resources(50, 0), Resources(0, 0)],
)


def view() -> ReplayClusterView:
    return make_view(get_provisioned_sizes(RECORDING), time=600)


def test_pods_have_their_provisioned_sizes_and_a_limit_of_twice_the_memory() -> None:
    sizes = AsRequestedBaseline(RECORDING, ReplayOptions()).admit(np.array([1, 0], dtype=np.int64), view())
    assert sizes.cpu_millicores.tolist() == [50, 500]
    assert sizes.memory_bytes.tolist() == [0, 1_000_000_000]
    assert sizes.memory_limit_bytes.tolist() == [0, 2_000_000_000], "no request, hence no limit"


def test_nothing_is_ever_changed_not_even_after_a_kill() -> None:
    policy = AsRequestedBaseline(RECORDING, ReplayOptions())
    policy.observe(600, RECORDING.cpu_millicores, RECORDING.memory_bytes)
    reaction = policy.react_to_oom_kill(
        ReplayedOomKill(container=0, time=600, used_bytes=2_100_000_000, by_limit=True), view()
    )
    decision = policy.decide(view())
    assert reaction.sizes is None
    assert not reaction.evict
    assert len(decision.resize) == len(decision.evict) == len(decision.sizes.cpu_millicores) == 0
    assert policy.admit(np.array([0], dtype=np.int64), view()).memory_bytes.tolist() == [1_000_000_000]


def test_changes_of_admitted_sizes_do_not_change_provisioned_sizes() -> None:
    policy = AsRequestedBaseline(RECORDING, ReplayOptions())
    policy.admit(np.arange(3, dtype=np.int64), view()).cpu_millicores[:] = 7
    assert policy.admit(np.arange(3, dtype=np.int64), view()).cpu_millicores.tolist() == [500, 50, 0]
