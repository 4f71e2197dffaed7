"""Policies for tests of the replay: plain ones, random ones, and a journal of what any of them was asked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.policy import NO_CONTAINERS, ClusterView, Decision, Kill, KillReaction, ReplayPolicy, Sizes
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.resources import MEBIBYTE

NOTHING = Decision(NO_CONTAINERS, Sizes(NO_CONTAINERS, NO_CONTAINERS, NO_CONTAINERS), NO_CONTAINERS)


def places(*values: int) -> Int64Array:
    return np.array(values, dtype=np.int64)


def sizes(*rows: tuple[int, int, int]) -> Sizes:
    """One row a container: CPU, memory and memory limit."""
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Sizes(columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy())


class Fixed:
    """Creates pods with given sizes and does what it is told, pass by pass."""

    name = "fixed"

    def __init__(
        self, admitted: Sizes, decisions: dict[int, Decision] | None = None, reaction: KillReaction | None = None
    ) -> None:
        self.admitted = admitted
        self.decisions = decisions or {}
        self.reaction = reaction or KillReaction()
        self.kills: list[Kill] = []
        self.seen: list[tuple[int, Float32Array, Float32Array]] = []
        self.views: list[ClusterView] = []

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        self.seen.append((at, cpu.copy(), memory.copy()))

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        return self.admitted.take(containers)

    def decide(self, view: ClusterView) -> Decision:
        self.views.append(kept(view))
        return self.decisions.get(view.at, NOTHING)

    def killed(self, kill: Kill, view: ClusterView) -> KillReaction:
        self.kills.append(kill)
        return self.reaction


class Following:
    """Asks for the largest sample of the last interval and a share more; doubles memory after a kill, if it reacts."""

    name = "following"

    def __init__(self, recording: Recording, share: float = 1.2, reacts: bool = True) -> None:
        self._reacts = reacts
        self._requests = [one.requests for one in recording.containers]
        self._share = share
        self._wanted: Sizes | None = None

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        found = [np.nan_to_num(np.fmax.reduce(rows, axis=0)) * self._share for rows in (cpu, memory)]
        asked = found[1].astype(np.int64) + 16 * MEBIBYTE
        self._wanted = Sizes(found[0].astype(np.int64) + 10, asked, 2 * asked)

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        if self._wanted is not None:
            return self._wanted.take(containers)
        provisioned = [self._requests[container] for container in containers.tolist()]
        return sizes(*((one.cpu_millicores, one.memory_bytes, 0) for one in provisioned))

    def decide(self, view: ClusterView) -> Decision:
        assert self._wanted is not None
        running = np.flatnonzero(view.node >= 0)
        return Decision(running, self._wanted.take(running), NO_CONTAINERS)

    def killed(self, kill: Kill, view: ClusterView) -> KillReaction:
        if not self._reacts:
            return KillReaction()
        now = view.sizes.take(places(kill.container))
        return KillReaction(Sizes(now.cpu_millicores, 2 * now.memory_bytes, 4 * now.memory_bytes))


class Whims:
    """Wants anything at all, also of containers that do not run; `check` sees every view."""

    name = "whims"

    def __init__(self, seed: int, largest: tuple[int, int], check: Callable[[ClusterView], None]) -> None:
        self._random = np.random.default_rng(seed)
        self._largest = largest
        self._check = check

    def _any_sizes(self, count: int) -> Sizes:
        cpu, memory = (self._random.integers(0, most, count, endpoint=True) for most in self._largest)
        limit = np.where(self._random.random(count) < 0.5, 0, memory * self._random.integers(1, 3, count))
        return Sizes(cpu, memory, limit)

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        assert not cpu.flags.writeable and not memory.flags.writeable

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        return self._any_sizes(len(containers))

    def decide(self, view: ClusterView) -> Decision:
        self._check(view)
        count = len(view.node)
        resize = np.flatnonzero(self._random.random(count) < 0.7)
        evict = self._random.permutation(count)[: self._random.integers(0, count, endpoint=True)]
        return Decision(resize, self._any_sizes(len(resize)), evict, bool(self._random.integers(2)))

    def killed(self, kill: Kill, view: ClusterView) -> KillReaction:
        assert view.node[kill.container] >= 0
        return (KillReaction(), KillReaction(evict=True), KillReaction(self._any_sizes(1)))[self._random.integers(3)]


class Asked(NamedTuple):
    """One question put to a policy, and its answer as bytes."""

    what: str
    at: int
    answer: bytes


@dataclass
class Journal:
    """Passes every question on, and keeps the answers and the views as they were at each pass."""

    policy: ReplayPolicy
    asked: list[Asked] = field(default_factory=list)
    views: list[ClusterView] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.policy.name

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        self.policy.observe(at, cpu, memory)

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        found = self.policy.admit(containers, view)
        self.asked.append(Asked("admit", view.at, containers.tobytes() + as_bytes(found)))
        return found

    def decide(self, view: ClusterView) -> Decision:
        self.views.append(kept(view))
        found = self.policy.decide(view)
        answer = found.resize.tobytes() + as_bytes(found.sizes) + found.evict.tobytes()
        self.asked.append(Asked("decide", view.at, answer))
        return found

    def killed(self, kill: Kill, view: ClusterView) -> KillReaction:
        self.kills.append(kill)
        found = self.policy.killed(kill, view)
        answer = b"" if found.sizes is None else as_bytes(found.sizes)
        self.asked.append(Asked("killed", kill.at, repr(kill).encode() + answer + bytes([found.evict])))
        return found


def as_bytes(found: Sizes) -> bytes:
    return found.cpu_millicores.tobytes() + found.memory_bytes.tobytes() + found.memory_limit_bytes.tobytes()


def kept(view: ClusterView) -> ClusterView:
    """Return a copy that does not change any more."""
    return ClusterView(
        view.at,
        view.sizes.take(np.arange(len(view.node))),
        view.node.copy(),
        view.born.copy(),
        view.born_at.copy(),
        view.alive.copy(),
        view.allocatable,
    )
