"""Invariants of the replay under any policy, and figures that a simple count confirms."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.recordings.recording import UsageRecording, load_trace
from cruise.backtest.replay.policy import ReplayClusterView, ReplayOptions, ReplayPolicy
from cruise.backtest.replay.replay import replay_policy
from cruise.decisions.policy_costs import REFERENCE_POLICIES
from cruise.domain.backtest import PodCreationTime
from cruise.domain.resources import MEBIBYTE, Resources
from cruise.simulation.demand.trace import SHIPPED_TRACE
from tests.backtest.baselines.recordings import make_recording
from tests.backtest.replay import plain_accounts
from tests.backtest.replay.policies import (
    DecisionJournal,
    FixedSizesPolicy,
    FollowUsagePolicy,
    RandomPolicy,
    RecordingPolicy,
    sizes,
)
from tests.tiers import examples

NODE = Resources(1000, 1000 * MEBIBYTE)
TERMS = ReplayOptions(node=NODE, node_pods=4)
HOUR = 3600


def drawn(seed: int, containers: int, rows: int, step: int, gaps: float = 0.1) -> UsageRecording:
    """Use up to a good half of a node, pods that come and go, samples that are missing."""
    random = np.random.default_rng(seed)
    level = random.random((2, 1, containers)) * 600
    use = level * random.random((2, rows, containers))
    first, last = np.sort(random.integers(0, rows, (2, containers)), axis=0)
    row = np.arange(rows)[:, np.newaxis]
    gone = (row < first) | (row > last) | (random.random((rows, containers)) < gaps)
    use[:, gone] = np.nan
    requests = [Resources(*map(int, one)) for one in random.integers(1, 700, (containers, 2)) * (1, MEBIBYTE)]
    return make_recording(use[0], use[1] * MEBIBYTE, requests=requests, step_seconds=step, start=step)


RECORDINGS = st.builds(
    drawn, st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 40), st.sampled_from([60, 100, 300, 900])
)


class Checks:
    """Looks at every view that a policy is shown."""

    def __init__(self, recording: UsageRecording) -> None:
        self._recording = recording
        known = ~np.isnan(recording.cpu_millicores)
        self._first, self._last = known.argmax(axis=0), len(known) - 1 - known[::-1].argmax(axis=0)
        self._ever = known.any(axis=0)

    def __call__(self, view: ReplayClusterView) -> None:
        placed = view.node >= 0
        assert view.node_exists[view.node[placed]].all()
        pods = np.bincount(view.node[placed], minlength=len(view.node_exists))
        assert (pods <= TERMS.node_pods).all()
        assert ((pods > 0) == view.node_exists).all()
        for asked, allocatable in (
            (view.sizes.cpu_millicores, NODE.cpu_millicores),
            (view.sizes.memory_bytes, NODE.memory_bytes),
        ):
            sums = np.zeros(len(view.node_exists), dtype=np.int64)
            np.add.at(sums, view.node[placed], asked[placed])
            assert (sums <= allocatable).all()
            assert (asked[view.node == -2][view.creation_count[view.node == -2] == 0] == 0).all()
        row = (view.time - self._recording.start) // self._recording.step_seconds
        pass_rows = max(1, 300 // self._recording.step_seconds + 1)
        there = self._ever & (self._first <= row) & (row <= self._last)
        gone = ~self._ever | (self._first > row) | (self._last <= row - pass_rows)
        assert (view.node[there] >= -1).all()
        assert (view.node[gone] == -2).all()
        assert ((view.creation_count > 0) | (view.node == -2)).all()
        assert (view.created_at <= view.time).all()


@examples(60)
@given(RECORDINGS, st.integers(0, 2**32))
def test_whatever_is_wanted_no_node_is_overcommitted_and_everybody_is_somewhere(recording: UsageRecording, seed: int):
    whims = RandomPolicy(seed, (1100, 1100 * MEBIBYTE), Checks(recording))
    score = replay_policy(recording, whims, TERMS)
    assert 0 <= score.resize_reversal_share <= 1
    assert score.nodes_mean <= score.nodes_peak <= len(recording.containers)


@examples(60)
@given(RECORDINGS, st.sampled_from([0.8, 1.0, 1.2]), st.sampled_from(PodCreationTime))
def test_the_figures_are_those_of_a_plain_count(recording: UsageRecording, share: float, arrivals: PodCreationTime):
    options = replace(TERMS, creation_time=arrivals)
    journal = DecisionJournal(FollowUsagePolicy(recording, share, reacts=False))
    score = replay_policy(recording, journal, options)
    for found, use, resource in (
        (score.cpu, recording.cpu_millicores, "cpu_millicores"),
        (score.memory, recording.memory_bytes, "memory_bytes"),
    ):
        assert found is not None
        plain = plain_accounts.of_resource(recording, journal.views, use, resource)
        assert found.relative_slack == pytest.approx(plain.relative_slack, rel=1e-9, abs=1e-9)
        assert found.starved_share == pytest.approx(plain.starved_share)
        assert found.short_share == pytest.approx(plain.short_share)
    assert score.container_days == pytest.approx(plain_accounts.container_days(recording, options, journal.views))
    killed = [(kill.container, kill.time, kill.by_limit) for kill in journal.kills]
    assert killed == plain_accounts.kills(recording, journal.views)
    assert score.oom_per_1000_container_days * score.container_days / 1000 == pytest.approx(len(killed))


def made_up(hours: int = 14, containers: int = 12, step: int = 60) -> UsageRecording:
    """Days in small: waves and noise, and memory that runs away, so that there is something to decide at every pass."""
    random = np.random.default_rng(7)
    rows = hours * HOUR // step
    phase = random.random(containers) * 6
    wave = 1.3 + np.sin(np.arange(rows)[:, np.newaxis] * step / HOUR + phase)
    cpu = 150 * wave * (0.5 + random.random((rows, containers)))
    memory = (100 + 90 * wave + 20 * random.random((rows, containers))) * MEBIBYTE
    for container, hour in enumerate((3, 4, 7, 8)[:containers]):
        memory[hour * HOUR // step : (hour + 1) * HOUR // step, container] += 1500 * MEBIBYTE
    requests = [Resources(700, 500 * MEBIBYTE)] * containers
    workloads = [f"w{container // 2}" for container in range(containers)]
    return make_recording(cpu, memory, requests=requests, workloads=workloads, step_seconds=step, start=step)


def future_shuffled(recording: UsageRecording, until: int) -> UsageRecording:
    """Shuffle and change every sample after a time; who has one keeps one."""
    random = np.random.default_rng(3)
    row = (until - recording.start) // recording.step_seconds + 1
    changed = []
    for matrix in (recording.cpu_millicores, recording.memory_bytes):
        copy = matrix.copy()
        copy[row:] = random.permuted(copy[row:], axis=0) * random.uniform(0.2, 2, copy[row:].shape)
        changed.append(copy)
    return replace(recording, cpu_millicores=changed[0], memory_bytes=changed[1])


def answers_to(name: str, recording: UsageRecording) -> list[RecordingPolicy]:
    options = ReplayOptions(node=Resources(4000, 3000 * MEBIBYTE))
    journal = DecisionJournal(POLICIES[name](recording, options))
    replay_policy(recording, journal, options)
    return journal.asked


@cache
def answers_to_one_future(name: str) -> list[RecordingPolicy]:
    return answers_to(name, made_up())


def answers_under_two_futures(name: str, until: int) -> tuple[list[RecordingPolicy], list[RecordingPolicy]]:
    answers = answers_to_one_future(name), answers_to(name, future_shuffled(made_up(), until))
    one, other = ([asked for asked in asked_in_all if asked.at <= until] for asked_in_all in answers)
    return one, other


@pytest.mark.parametrize("until_hours", [5, pytest.param(10, marks=pytest.mark.beyond_core)])
@pytest.mark.parametrize("name", [name for name in POLICIES if name not in REFERENCE_POLICIES])
def test_no_policy_sees_the_future(name: str, until_hours: int):
    one, other = answers_under_two_futures(name, until_hours * HOUR)
    assert len(one) > until_hours * 12
    assert one == other


def test_the_oracle_sees_an_interval_of_it_and_is_found_out():
    one, other = answers_under_two_futures("oracle", 5 * HOUR)
    assert [asked for asked in one if asked.at < 5 * HOUR] == [asked for asked in other if asked.at < 5 * HOUR]
    assert one != other


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_recording_gives_the_same_score(name: str):
    options = ReplayOptions(node=Resources(4000, 3000 * MEBIBYTE), seed=5)
    recording = made_up(hours=9)
    first, second = (replay_policy(recording, POLICIES[name](recording, options), options) for _ in range(2))
    assert repr(first) == repr(second)
    assert first.policy == name


def test_a_policy_sees_the_samples_of_running_pods():
    cpu = np.array([[10, np.nan, 5], [20, 7, 5]])
    policy = FixedSizesPolicy(sizes((100, 0, 0), (100, 0, 0), (1001, 0, 0)))
    recording = make_recording(cpu, cpu, step_seconds=300)
    score = replay_policy(recording, policy, TERMS)
    assert [at for at, _, _ in policy.seen] == [300, 600]
    seen = np.concatenate([rows for _, rows, _ in policy.seen])
    assert np.array_equal(seen, [[10, np.nan, np.nan], [20, 7, np.nan]], equal_nan=True)
    assert score.pending_pod_minutes == 10
    assert recording.cpu_millicores.flags.writeable


def test_progress_is_reported_about_every_percent_until_one():
    told: list[float] = []
    recording = made_up(hours=40, containers=1, step=300)
    replay_policy(recording, POLICIES["as-requested"](recording, TERMS), TERMS, on_progress=told.append)
    assert told == sorted(set(told))
    assert 90 <= len(told) <= 101
    assert told[-1] == 1.0


def test_what_never_ran_scores_nothing():
    nothing = np.full((3, 1), np.nan)
    score = replay_policy(make_recording(nothing, nothing), FixedSizesPolicy(sizes((1, 1, 1))), TERMS)
    assert score.cpu.relative_slack == score.cpu.short_share == score.container_days == score.nodes_mean == 0


def test_memory_that_was_not_recorded_has_no_score():
    recording = replace(made_up(hours=1), has_memory=False)
    score = replay_policy(recording, FollowUsagePolicy(recording), TERMS)
    assert score.memory is None
    assert score.cpu.relative_slack > 0


def test_the_shipped_trace_as_it_was_provisioned():
    recording = load_trace(SHIPPED_TRACE)
    score = replay_policy(recording, POLICIES["as-requested"](recording, ReplayOptions()), ReplayOptions())
    asked = sum(one.requests.cpu_millicores for one in recording.containers)
    mean = float(np.nansum(recording.cpu_millicores.astype(np.float64))) / len(recording.cpu_millicores)
    assert not np.isnan(recording.cpu_millicores).any()
    assert score.cpu.relative_slack == pytest.approx(1 - mean / asked)
    assert score.container_days == pytest.approx(len(recording.containers) * recording.days)
    assert (score.resizes_per_container_day, score.evictions_per_1000_pod_days) == (0, 0)
    assert score.nodes_mean == score.nodes_peak


def test_policies_are_created_for_every_replay():
    made: list[Callable[[UsageRecording, ReplayOptions], ReplayPolicy]] = list(POLICIES.values())
    recording = made_up(hours=1)
    assert all(make(recording, TERMS) is not make(recording, TERMS) for make in made)
