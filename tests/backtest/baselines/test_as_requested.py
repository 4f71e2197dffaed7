import numpy as np

from cruise.backtest.baselines.as_requested import AsRequestedBaseline, get_provisioned_sizes
from cruise.backtest.replay.policy import ReplayClusterView, ReplayedOomKill, ReplayOptions
from cruise.domain.resources import Resources
from tests.backtest.baselines.recordings import make_recording, make_view

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
