"""The replayed policy decides what the real passes decide through their ports, pass by pass."""

import asyncio
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from cruise.backtest.policies.cruise_policy import CruisePolicy
from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.cluster import WorkloadRef
from cruise.domain.policy import DEFAULT_RULES, OomReaction, Policy
from cruise.domain.resources import MEBIBYTE, Resources
from tests.backtest.policies.live_passes import LivePasses, list_written_sizes
from tests.builders import TRACKING

START = 1_767_571_200  # a Monday
GIBIBYTE = 1024 * MEBIBYTE


def recording(seed, hours, step, containers=9, workloads=6):
    """Make usage with daily swings, bursts, growing memory, late arrivals, early ends and gaps."""
    random = np.random.default_rng(seed)
    times = int(hours * 3600 / step)
    at = (START + step * np.arange(times))[:, None]
    swing = 1 + 0.6 * np.sin(2 * np.pi * at / 86400 + random.uniform(0, 6, containers))
    cpu = random.uniform(50, 400, containers) * swing * random.lognormal(0, 0.3, (times, containers))
    cpu *= np.where(random.random((times, containers)) < 0.02, 6, 1)
    # Samples above what any node here has would be refused.
    cpu = np.minimum(cpu, 1400)
    memory = random.uniform(50, 300, containers) * MEBIBYTE * random.lognormal(0, 0.05, (times, containers))
    memory *= 1 + np.cumsum(random.random((times, containers)) < 3 / times, axis=0) * random.uniform(0, 1.5, containers)
    for late in range(0, containers, 4):
        cpu[: random.integers(1, times // 3), late] = np.nan
    cpu[-random.integers(1, times // 4) :, 1] = np.nan
    for gap in range(2, containers, 3):
        begin = random.integers(times // 3, times - 20)
        cpu[begin : begin + random.integers(2, 20), gap] = np.nan
    memory[np.isnan(cpu)] = np.nan
    return UsageRecording(
        "made-up",
        [
            RecordedContainer(
                "shop",
                f"pod-{index}",
                "app",
                WorkloadRef("Deployment", f"web-{index % workloads}"),
                Resources(500, 512 * MEBIBYTE),
            )
            for index in range(containers)
        ],
        START + step,
        step,
        cpu.astype(np.float32),
        memory.astype(np.float32),
    )


class Beside:
    """Asks two policies the same, and compares their answers."""

    name = "both"

    def __init__(self, one, other):
        self.one, self.other = one, other
        self.passes = self.resizes = self.evictions = self.kills = 0

    def observe(self, at, cpu, memory):
        self.one.observe(at, cpu, memory)
        self.other.observe(at, cpu, memory)

    def admit(self, containers, view):
        ours, theirs = self.one.admit(containers, view), self.other.admit(containers, view)
        for column in ("cpu_millicores", "memory_bytes", "memory_limit_bytes"):
            np.testing.assert_array_equal(getattr(ours, column), getattr(theirs, column))
        return ours

    def decide(self, view):
        ours, theirs = self.one.decide(view), self.other.decide(view)
        assert sorted(ours.evict.tolist()) == sorted(theirs.evict.tolist())
        gone = set(ours.evict.tolist())
        mine = {c: sizes for c, sizes in list_written_sizes(ours).items() if c not in gone}
        assert mine == {c: sizes for c, sizes in list_written_sizes(theirs).items() if c not in gone}
        self.passes += 1
        self.resizes += len(mine)
        self.evictions += len(gone)
        return ours

    def react_to_oom_kill(self, kill, view):
        ours, theirs = self.one.react_to_oom_kill(kill, view), self.other.react_to_oom_kill(kill, view)
        assert ours.evict == theirs.evict
        assert (ours.sizes is None) == (theirs.sizes is None)
        if ours.sizes is not None:
            assert ours.sizes.memory_bytes.tolist() == theirs.sizes.memory_bytes.tolist()
            assert ours.sizes.memory_limit_bytes.tolist() == theirs.sizes.memory_limit_bytes.tolist()
        self.kills += 1
        return ours


NODES = {0: Resources(4000, 4 * GIBIBYTE), 1: Resources(1500, 2 * GIBIBYTE), 2: Resources(2000, 3 * GIBIBYTE)}
CALM, EVERY_CHANGE = (DEFAULT_RULES, 1 / 8), (TRACKING, 1 / 2)


@pytest.mark.parametrize(
    ("seed", "hours", "step", "rules", "least"),
    [
        pytest.param(0, 12, 60, *CALM, id="minutes-calm", marks=pytest.mark.beyond_core),
        pytest.param(0, 12, 60, *EVERY_CHANGE, id="minutes-tracking"),
        pytest.param(1, 30, 300, *CALM, id="short-of-memory-calm"),
        pytest.param(2, 30, 300, *EVERY_CHANGE, id="days-tracking", marks=pytest.mark.beyond_core),
        pytest.param(1, 30, 300, *EVERY_CHANGE, id="short-of-memory-tracking", marks=pytest.mark.long),
        pytest.param(2, 30, 300, *CALM, id="days-calm", marks=pytest.mark.long),
    ],
)
def test_replay_decides_what_the_passes_decide_through_their_ports(seed, hours, step, rules, least):
    made = recording(seed, hours, step)
    policy = Policy(rules=rules)
    with closing(LivePasses(made, policy)) as live:
        both = Beside(CruisePolicy(made, policy), live)
        replay_policy(made, both, ReplayOptions(node=NODES[seed]))
    assert both.passes == hours * 12
    assert both.resizes > both.passes * least


@pytest.mark.parametrize("model", ["joint-peak", "risk"])
def test_headroom_models_are_prepared_and_evaluated_the_same_way(model):
    made = recording(4, 15, 300)
    policy = Policy(
        rules=TRACKING,
        headroom=model,
        memory_risk=0.05,
        cpu_risk=0.1,
    )
    with closing(LivePasses(made, policy)) as live:
        both = Beside(CruisePolicy(made, policy), live)
        replay_policy(made, both, ReplayOptions(node=Resources(2000, 3 * GIBIBYTE)))
    assert both.resizes > both.passes / 2
    days = asyncio.run(live.store.read_risk_days())
    assert (sum(day.intervals for day in days) > 2 * both.passes) == (model == "risk")


def test_reactions_to_kills_are_those_of_the_reactor():
    made = recording(3, 8, 300)
    growing = made.memory_bytes * np.linspace(1, 8, len(made.memory_bytes))[:, None].astype(np.float32)
    made = UsageRecording(made.name, made.containers, made.start, made.step_seconds, made.cpu_millicores, growing)
    # What a recording shows above a limit is what would have been used, and no sample of a container under it.
    rules = replace(DEFAULT_RULES, plausibility_checks=False)
    for reaction in OomReaction:
        policy = Policy(oom_reaction=reaction, rules=rules)
        with closing(LivePasses(made, policy)) as live:
            both = Beside(CruisePolicy(made, policy), live)
            replay_policy(made, both, ReplayOptions(node=Resources(3000, 4 * GIBIBYTE)))
        assert both.kills > 3
