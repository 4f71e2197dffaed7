"""OOM kills at the container's limit, and the kernel's choice on an exhausted node."""

import numpy as np

from cruise.backtest.replay.policy import (
    ContainerSizes,
    ReplayClusterView,
    ReplayedOomKill,
    ReplayedOomReaction,
    ReplayOptions,
)
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.backtest import PolicyScore
from cruise.domain.resources import MEBIBYTE, Resources
from tests.backtest.baselines.recordings import make_recording
from tests.backtest.replay.policies import FixedSizesPolicy, sizes

TERMS = ReplayOptions(node=Resources(1000, 1000 * MEBIBYTE))


def mebibytes(*rows: tuple[int, int]) -> ContainerSizes:
    """One row a container: memory and its limit."""
    return sizes(*((10, memory * MEBIBYTE, limit * MEBIBYTE) for memory, limit in rows))


def run(
    used: list[list[float]], admitted: ContainerSizes, reaction: ReplayedOomReaction | None = None
) -> tuple[list[ReplayedOomKill], PolicyScore]:
    """Replay memory in MiB, a row a minute."""
    memory = np.array(used) * MEBIBYTE
    policy = FixedSizesPolicy(admitted, reaction=reaction)
    score = replay_policy(make_recording(np.ones_like(memory), memory, step_seconds=60, start=60), policy, TERMS)
    return policy.kills, score


def test_use_above_the_limit_kills_and_use_at_the_limit_does_not():
    kills, score = run([[100, 100], [100, 101]], mebibytes((50, 100), (50, 100)))
    assert kills == [ReplayedOomKill(1, 120, 101 * MEBIBYTE, True)]
    assert score.oom_per_1000_container_days == 1000 / (4 / 1440)


def test_without_a_limit_no_container_is_killed_while_the_node_has_memory():
    assert run([[900, 100]], mebibytes((50, 0), (50, 0)))[0] == []


def test_a_container_is_killed_once_an_interval():
    kills, _ = run([[200]] * 7, mebibytes((50, 100)))
    assert [kill.time for kill in kills] == [60, 360]


def test_a_reaction_takes_effect_at_the_next_sample():
    grown = sizes((10, 150 * MEBIBYTE, 300 * MEBIBYTE))
    kills, _ = run([[200]] * 12, mebibytes((50, 100)), ReplayedOomReaction(grown))
    assert [kill.time for kill in kills] == [60]


def test_on_a_full_node_the_container_furthest_above_its_request_is_oom_killed():
    kills, _ = run([[400, 350, 300]], mebibytes((400, 0), (100, 0), (200, 0)))
    assert kills == [ReplayedOomKill(1, 60, 350 * MEBIBYTE, False)]


def test_they_die_one_after_the_other_until_the_rest_fits():
    kills, _ = run([[900, 450, 440, 430]], mebibytes((10, 0), (10, 0), (10, 0), (10, 0)))
    assert [kill.container for kill in kills] == [0, 1]


def test_a_container_killed_at_its_limit_frees_its_memory_for_the_others():
    kills, _ = run([[600, 600]], mebibytes((10, 500), (10, 0)))
    assert [(kill.container, kill.by_limit) for kill in kills] == [(0, True)]


def test_a_kill_frees_memory_at_later_samples_of_its_interval():
    kills, _ = run([[600, 500]] * 5, mebibytes((10, 0), (10, 0)))
    assert [(kill.container, kill.time) for kill in kills] == [(0, 60)]


def test_an_evicted_container_is_not_killed_on_a_node_with_memory():
    class Larger(FixedSizesPolicy):
        def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
            self.admitted = mebibytes((600, 0), (900, 0))
            return super().react_to_oom_kill(kill, view)

    memory = np.array([[600.0, 500.0]] * 10) * MEBIBYTE
    policy = Larger(mebibytes((600, 0), (400, 0)), reaction=ReplayedOomReaction(evict=True))
    score = replay_policy(make_recording(np.ones_like(memory), memory, step_seconds=60, start=60), policy, TERMS)
    assert [(kill.container, kill.time) for kill in policy.kills] == [(1, 60)]
    assert policy.views[0].node.tolist() == [0, 1]
    assert score.nodes_peak == 2


def test_no_sample_is_no_use():
    assert run([[np.nan, 900], [900, np.nan]], mebibytes((10, 0), (10, 0)))[0] == []
