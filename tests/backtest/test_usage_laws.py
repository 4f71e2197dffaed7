"""What holds for cruise whatever usage is like, on recordings of unlike kinds."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import (
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayedOomKill,
    ReplayedOomReaction,
    ReplayOptions,
    ReplayPolicy,
)
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.backtest import PolicyScore
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources
from tests.backtest.drawn_usage import DAY_STEPS, HOUR_STEPS, KINDS, NODE, STEP, made
from tests.backtest.replayed import make_recording
from tests.tiers import examples

pytestmark = pytest.mark.beyond_core

CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY
ASKED = {CPU: Policy().cpu_risk, MEMORY: Policy().memory_risk}
# In a day of one node a risk of 1 in 100 allows three intervals. So many more may pass before the level has followed.
LEARNING = 10
UPDATE_THRESHOLD = Policy().update_threshold
SEEDS = st.integers(0, 2**32 - 1)


class Watched(ReplayPolicy):
    """Cruise with a record of its shortage after the first hour, and of each pass's view and decision."""

    name = "cruise"

    def __init__(self, recording: UsageRecording, options: ReplayOptions) -> None:
        self._cruise = POLICIES["cruise"](recording, options)
        self._usage: Mapping[ResourceName, Float32Array] = {}
        self._counted_from = recording.start + 3600
        self.intervals = 0
        self.short = {CPU: 0, MEMORY: 0}
        self.passes: list[tuple[ReplayClusterView, ReplayDecision]] = []

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        self._usage = {CPU: cpu, MEMORY: memory}
        self._cruise.observe(at, cpu, memory)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        return self._cruise.admit(containers, view)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        if view.time >= self._counted_from:
            self._count_shortage(view)
        decision = self._cruise.decide(view)
        copied = replace(view, sizes=view.sizes.select(np.arange(len(view.node))), node=view.node.copy())
        self.passes.append((copied, decision))
        return decision

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        return self._cruise.react_to_oom_kill(kill, view)

    def _count_shortage(self, view: ReplayClusterView) -> None:
        """Compare the usage of each node's pods with their requests."""
        there = (view.node >= 0) & ~np.isnan(self._usage[CPU]).all(axis=0)
        nodes = view.node[there]
        self.intervals += len(np.unique(nodes))
        for resource, requests in ((CPU, view.sizes.cpu_millicores), (MEMORY, view.sizes.memory_bytes)):
            used = np.bincount(nodes, np.nan_to_num(self._usage[resource][-1][there]))
            requested = np.bincount(nodes, requests[there])
            # A node is left as it is where it lacks less than the least that is written.
            self.short[resource] += int(np.count_nonzero(used > requested + UPDATE_THRESHOLD.get(resource)))


def replayed(recording: UsageRecording) -> tuple[Watched, PolicyScore]:
    options = ReplayOptions(node=NODE)
    watched = Watched(recording, options)
    return watched, replay_policy(recording, watched, options)


@pytest.mark.parametrize("kind", KINDS)
@given(SEEDS)
@examples(2)
def test_the_observed_risk_is_at_most_twice_the_stated_risk(kind: str, seed: int) -> None:
    watched, _ = replayed(made(kind, seed, days=1))
    for resource, asked in ASKED.items():
        assert watched.short[resource] <= 2 * asked * watched.intervals + LEARNING, resource


@pytest.mark.parametrize("kind", KINDS)
@given(SEEDS)
@examples(2)
def test_no_request_is_cut_below_its_base(kind: str, seed: int) -> None:
    """The base is the upper quartile of 10 minutes of CPU and half an hour of memory, with the first sample or not."""
    recording = made(kind, seed, days=0.5)
    watched, _ = replayed(recording)
    for row, (view, decision) in enumerate(watched.passes):
        before, after = view.sizes.select(decision.resize), decision.sizes
        for samples, usage, old, new in (
            (2, recording.cpu_millicores, before.cpu_millicores, after.cpu_millicores),
            (6, recording.memory_bytes, before.memory_bytes, after.memory_bytes),
        ):
            recent = usage[max(0, row - samples) : row + 1, decision.resize].astype(np.float64)
            cut = (new < old) & ~np.isnan(recent).any(axis=0)
            bases = [np.quantile(recent[-length:, cut], 0.75, axis=0) for length in (samples, samples + 1)]
            assert (new[cut] >= np.floor(np.minimum(*bases))).all()


@given(SEEDS, st.integers(6 * HOUR_STEPS, 12 * HOUR_STEPS), st.integers(HOUR_STEPS, 8 * HOUR_STEPS))
@examples(3)
def test_nothing_is_written_while_data_are_stale(seed: int, begins: int, length: int) -> None:
    """No samples arrive for hours; statistics are used for max_age."""
    recording = made("daily", seed, days=1)
    for usage in (recording.cpu_millicores, recording.memory_bytes):
        usage[begins : begins + length] = np.nan
    watched, _ = replayed(recording)
    trusted = int(Policy().max_age.total_seconds()) // STEP
    decided = [len(one.resize) + len(one.evict) for _, one in watched.passes]
    assert sum(decided[begins + trusted + 1 : begins + length]) == 0
    assert sum(decided[begins + length :]) > 0, "it continues afterwards"


@given(SEEDS)
@examples(3)
def test_a_leak_is_followed_and_never_shrunk(seed: int) -> None:
    """After its first increase a request only increases, and stays high enough that no container is killed."""
    recording = made("leaks", seed)
    watched, score = replayed(recording)
    grown = np.zeros(len(recording.containers), dtype=np.bool_)
    for view, decision in watched.passes:
        for container, memory in zip(decision.resize, decision.sizes.memory_bytes, strict=True):
            before = view.sizes.memory_bytes[container]
            assert memory >= before or not grown[container]
            grown[container] |= memory > before
    assert grown.any()
    assert score.oom_per_1000_container_days == 0


@given(st.integers(9, 14), st.integers(2600, 3400))
@examples(3)
def test_pods_that_wake_together_are_not_killed_for_long(pods: int, woken_mebibytes: int) -> None:
    """A night of little use fits on one node; then its kernel kills, until enough pods have left it."""
    recording = make_recording(*(f"w{number}" for number in range(pods)), length=DAY_STEPS)
    usage = recording.memory_bytes
    usage[DAY_STEPS // 2 :] = woken_mebibytes * MEBIBYTE
    requested = Resources(500, 3500 * MEBIBYTE)
    recording = replace(recording, containers=[replace(one, requests=requested) for one in recording.containers])
    _, score = replayed(recording)
    assert 0 < score.oom_per_1000_container_days * score.container_days / 1000 <= 2 * pods


@given(SEEDS)
@examples(3)
def test_a_rollout_does_not_count_as_shortage(seed: int) -> None:
    """Old and new pods use the same all the time: nothing is ever short, and the new ones request no more together."""
    recording = made("rollouts", seed)
    watched, _ = replayed(recording)
    assert watched.short == {CPU: 0, MEMORY: 0}
    pods = len(recording.containers) // 2
    last = watched.passes[-1][0].sizes
    before = watched.passes[2 * HOUR_STEPS][0].sizes
    # One more of the smallest changes may fall to one of them.
    assert last.cpu_millicores[pods:].sum() <= before.cpu_millicores[:pods].sum() + UPDATE_THRESHOLD.get(CPU)
    assert last.memory_bytes[pods:].sum() <= before.memory_bytes[:pods].sum() + UPDATE_THRESHOLD.get(MEMORY)
    assert watched.passes[-1][0].time - watched.passes[0][0].time > DAY_STEPS * STEP
