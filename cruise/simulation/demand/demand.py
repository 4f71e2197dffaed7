"""What simulated containers would use if nothing held them back."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np

from cruise.domain.arrays import Float64Array, Int64Array
from cruise.simulation.demand.trace import Trace


class DemandSource(Protocol):
    """The demand of a population of containers, its members numbered from 0."""

    def demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        """Return CPU (millicores) and memory (bytes), NaN where nothing is known.

        Element by element, the arguments broadcast against each other: `at` is Unix seconds, `age` the seconds since
        the container's present process started.
        """
        ...


@dataclass(frozen=True, slots=True)
class Profile:
    """How the pods of a workload use one container: its n-th pod behaves as the n-th member, over and over again."""

    source: DemandSource
    members: tuple[int, ...]

    def member(self, slot: int) -> int:
        """Return the member that the pod of a slot behaves as."""
        return self.members[slot % len(self.members)]


@dataclass(frozen=True, slots=True)
class Replay:
    """One member of a `TraceUsage`: a series of the trace, read `offset_seconds` later than the others."""

    series: int
    offset_seconds: int = 0


class TraceUsage:
    """Replays a trace: a sample holds until the next, a fresh process warms up.

    Memory of a process younger than `warm_up_seconds` rises evenly from the smallest sample of its series to the
    trace's value: the least that the trace shows is taken as what a fresh process holds. A trace without memory uses
    none. Outside the trace nothing is known, unless it loops.
    """

    def __init__(
        self,
        trace: Trace,
        origin: datetime,
        replays: Sequence[Replay] | None = None,
        *,
        loop: bool = False,
        warm_up_seconds: int = 300,
    ) -> None:
        chosen = [Replay(row) for row in range(len(trace.series))] if replays is None else list(replays)
        steps = np.diff(trace.times)
        self._origin = int(origin.timestamp())
        self._series = np.array([one.series for one in chosen], dtype=np.int64)
        self._offset = np.array([one.offset_seconds for one in chosen], dtype=np.int64)
        self._times = trace.times - trace.times[0]
        self._step = int(np.median(steps))
        self._regular = bool((steps == self._step).all())
        self._period = int(self._times[-1]) + self._step
        self._loop = loop
        self._cpu = trace.cpu_millicores
        self._memory = np.zeros_like(trace.cpu_millicores) if trace.memory_bytes is None else trace.memory_bytes
        self._fresh = np.array([_smallest(row) for row in self._memory])
        self._warm_up = max(1, warm_up_seconds)

    def demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        series = self._series[members]
        position = at - self._origin + self._offset[members]
        if self._loop:
            position = position % self._period
        column = position // self._step if self._regular else np.searchsorted(self._times, position, side="right") - 1
        inside = (position >= 0) & (position < self._period)
        column = np.clip(column, 0, len(self._times) - 1)
        cpu = np.where(inside, self._cpu[series, column], np.nan)
        memory = np.where(inside, self._memory[series, column], np.nan)
        fresh = self._fresh[series]
        return cpu, fresh + (memory - fresh) * np.clip(age / self._warm_up, 0.0, 1.0)


def _smallest(samples: Float64Array) -> float:
    known = samples[np.isfinite(samples)]
    return float(known.min()) if known.size else 0.0
