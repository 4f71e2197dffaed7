"""Policies for tests of the replay: simple ones, random ones, and one that records its calls."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import (
    NO_CONTAINERS,
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayedOomKill,
    ReplayedOomReaction,
    ReplayPolicy,
)
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.resources import MEBIBYTE

NOTHING = ReplayDecision(NO_CONTAINERS, ContainerSizes(NO_CONTAINERS, NO_CONTAINERS, NO_CONTAINERS), NO_CONTAINERS)


def get_placements(*values: int) -> Int64Array:
    return np.array(values, dtype=np.int64)


def sizes(*rows: tuple[int, int, int]) -> ContainerSizes:
    """One row a container: CPU, memory and memory limit."""
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return ContainerSizes(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy())


class FixedSizesPolicy:
    """Creates pods with given sizes, and returns given decisions, pass by pass."""

    name = "fixed"

    def __init__(
        self,
        admitted: ContainerSizes,
        decisions: dict[int, ReplayDecision] | None = None,
        reaction: ReplayedOomReaction | None = None,
    ) -> None:
        self.admitted = admitted
        self.decisions = decisions or {}
        self.reaction = reaction or ReplayedOomReaction()
        self.kills: list[ReplayedOomKill] = []
        self.seen: list[tuple[int, Float32Array, Float32Array]] = []
        self.views: list[ReplayClusterView] = []

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        self.seen.append((at, cpu.copy(), memory.copy()))

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        return self.admitted.select(containers)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        self.views.append(get_recorded(view))
        return self.decisions.get(view.time, NOTHING)

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        self.kills.append(kill)
        return self.reaction


class FollowUsagePolicy:
    """Requests the largest sample of the last interval plus a share; doubles memory after a kill, if it reacts."""

    name = "following"

    def __init__(self, recording: UsageRecording, share: float = 1.2, reacts: bool = True) -> None:
        self._reacts = reacts
        self._requests = [one.requests for one in recording.containers]
        self._share = share
        self._wanted: ContainerSizes | None = None

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        found = [np.nan_to_num(np.fmax.reduce(rows, axis=0)) * self._share for rows in (cpu, memory)]
        asked = found[1].astype(np.int64) + 16 * MEBIBYTE
        self._wanted = ContainerSizes(found[0].astype(np.int64) + 10, asked, 2 * asked)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        if self._wanted is not None:
            return self._wanted.select(containers)
        provisioned = [self._requests[container] for container in containers.tolist()]
        return sizes(*((one.cpu_millicores, one.memory_bytes, 0) for one in provisioned))

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        assert self._wanted is not None
        running = np.flatnonzero(view.node >= 0)
        return ReplayDecision(running, self._wanted.select(running), NO_CONTAINERS)

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        if not self._reacts:
            return ReplayedOomReaction()
        now = view.sizes.select(get_placements(kill.container))
        return ReplayedOomReaction(ContainerSizes(now.cpu_millicores, 2 * now.memory_bytes, 4 * now.memory_bytes))


class RandomPolicy:
    """Wants anything at all, also of containers that do not run; `check` sees every view."""

    name = "whims"

    def __init__(self, seed: int, largest: tuple[int, int], check: Callable[[ReplayClusterView], None]) -> None:
        self._random = np.random.default_rng(seed)
        self._largest = largest
        self._check = check

    def _any_sizes(self, count: int) -> ContainerSizes:
        cpu, memory = (self._random.integers(0, most, count, endpoint=True) for most in self._largest)
        limit = np.where(self._random.random(count) < 0.5, 0, memory * self._random.integers(1, 3, count))
        return ContainerSizes(cpu, memory, limit)

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        assert not cpu.flags.writeable and not memory.flags.writeable

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        return self._any_sizes(len(containers))

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        self._check(view)
        count = len(view.node)
        resize = np.flatnonzero(self._random.random(count) < 0.7)
        evict = self._random.permutation(count)[: self._random.integers(0, count, endpoint=True)]
        return ReplayDecision(resize, self._any_sizes(len(resize)), evict, bool(self._random.integers(2)))

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        assert view.node[kill.container] >= 0
        return (ReplayedOomReaction(), ReplayedOomReaction(evict=True), ReplayedOomReaction(self._any_sizes(1)))[
            self._random.integers(3)
        ]


class RecordingPolicy(NamedTuple):
    """One question put to a policy, and its answer as bytes."""

    what: str
    at: int
    answer: bytes


@dataclass
class DecisionJournal:
    """Passes every question on, and keeps the answers and the views as they were at each pass."""

    policy: ReplayPolicy
    asked: list[RecordingPolicy] = field(default_factory=list)
    views: list[ReplayClusterView] = field(default_factory=list)
    kills: list[ReplayedOomKill] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.policy.name

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        self.policy.observe(at, cpu, memory)

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        found = self.policy.admit(containers, view)
        self.asked.append(RecordingPolicy("admit", view.time, containers.tobytes() + as_bytes(found)))
        return found

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        self.views.append(get_recorded(view))
        found = self.policy.decide(view)
        answer = found.resize.tobytes() + as_bytes(found.sizes) + found.evict.tobytes()
        self.asked.append(RecordingPolicy("decide", view.time, answer))
        return found

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        self.kills.append(kill)
        found = self.policy.react_to_oom_kill(kill, view)
        answer = b"" if found.sizes is None else as_bytes(found.sizes)
        self.asked.append(RecordingPolicy("killed", kill.time, repr(kill).encode() + answer + bytes([found.evict])))
        return found


def as_bytes(found: ContainerSizes) -> bytes:
    return found.cpu_millicores.tobytes() + found.memory_bytes.tobytes() + found.memory_limit_bytes.tobytes()


def get_recorded(view: ReplayClusterView) -> ReplayClusterView:
    """Return a copy that does not change any more."""
    return ReplayClusterView(
        view.time,
        view.sizes.select(np.arange(len(view.node))),
        view.node.copy(),
        view.creation_count.copy(),
        view.created_at.copy(),
        view.node_exists.copy(),
        view.allocatable,
    )
