"""Demand of simulated containers: replayed traces, and generated shapes that depend on seed, member and time only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import Float64Array, Int64Array
from cruise.simulation.demand.trace import Trace

DAY_SECONDS = 86_400
_NOISE_SECONDS = 60


class DemandSource(Protocol):
    """The demand of a population of containers, its members numbered from 0."""

    def compute_demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        """Return CPU (millicores) and memory (bytes), NaN if unknown.

        The arguments are broadcast against each other; `at` is in Unix seconds, `age` is the seconds since the start of
        the container's process.
        """
        ...


@dataclass(frozen=True, slots=True)
class ContainerProfile:
    """The demand of one container of a workload's pods: the n-th pod behaves as the n-th member, cyclically."""

    source: DemandSource
    members: tuple[int, ...]

    def get_member(self, slot: int) -> int:
        """Return the member that the pod of a slot behaves as."""
        return self.members[slot % len(self.members)]


@dataclass(frozen=True, slots=True)
class TraceMember:
    """One member of a `TraceUsage`: a series of the trace, read `offset_seconds` later than the others."""

    series: int
    offset_seconds: int = 0


class TraceUsage:
    """Replays a trace; a sample is valid until the next one.

    The memory of a process younger than `warm_up_seconds` rises from the smallest sample of its series to the trace's
    value. A trace without memory uses none. Outside the trace the demand is unknown, unless it loops.
    """

    def __init__(
        self,
        trace: Trace,
        origin: datetime,
        replays: Sequence[TraceMember] | None = None,
        *,
        loop: bool = False,
        warm_up_seconds: int = 300,
    ) -> None:
        chosen = [TraceMember(row) for row in range(len(trace.series))] if replays is None else list(replays)
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

    def compute_demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
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


@dataclass(frozen=True, slots=True)
class DiurnalDemand:
    """Demand that oscillates between `low` and `high` once a day, with the maximum at `peak_hour` (UTC).

    Memory has a tenth of the noise.
    """

    seed: int
    low_millicores: float
    high_millicores: float
    low_bytes: float
    high_bytes: float
    peak_hour: float = 14.0
    noise_share: float = 0.1

    def compute_demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        wave = (1 + np.cos(2 * np.pi * (at / DAY_SECONDS - self.peak_hour / 24))) / 2
        noise = self.noise_share * _spread(self.seed, members, at // _NOISE_SECONDS)
        cpu = (self.low_millicores + (self.high_millicores - self.low_millicores) * wave) * (1 + noise)
        memory = (self.low_bytes + (self.high_bytes - self.low_bytes) * wave) * (1 + noise / 10)
        return _shaped(cpu, memory, members, at, age)


@dataclass(frozen=True, slots=True)
class BurstyDemand:
    """Idle demand, with a burst of `burst_seconds` in a `share` of the periods."""

    seed: int
    idle_millicores: float
    burst_millicores: float
    idle_bytes: float
    burst_bytes: float
    period_seconds: int = 3600
    burst_seconds: int = 300
    share: float = 0.5

    def compute_demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        period = at // self.period_seconds
        happens = _uniform(self.seed, members, period) < self.share
        start = _uniform(self.seed + 1, members, period) * (self.period_seconds - self.burst_seconds)
        since = at % self.period_seconds - start
        bursting = happens & (since >= 0) & (since < self.burst_seconds)
        cpu = np.where(bursting, self.burst_millicores, self.idle_millicores)
        memory = np.where(bursting, self.burst_bytes, self.idle_bytes)
        return _shaped(cpu, memory, members, at, age)


@dataclass(frozen=True, slots=True)
class LeakingDemand:
    """Memory that increases with the age of the process until it is killed."""

    seed: int
    millicores: float
    start_bytes: float
    bytes_per_hour: float
    noise_share: float = 0.1

    def compute_demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        noise = self.noise_share * _spread(self.seed, members, at // _NOISE_SECONDS)
        memory = self.start_bytes + self.bytes_per_hour * np.maximum(age, 0) / 3600
        return _shaped(self.millicores * (1 + noise), memory, members, at, age)


@dataclass(frozen=True, slots=True)
class CorrelatedDemand:
    """Correlated demand of members: with `coupling` 1 they share one curve, with 0 each has its own."""

    seed: int
    base_millicores: float
    swing_millicores: float
    base_bytes: float
    swing_bytes: float
    coupling: float = 0.8
    period_seconds: int = 900

    def compute_demand(self, members: Int64Array, at: Int64Array, age: Int64Array) -> tuple[Float64Array, Float64Array]:
        shared = self._curve(self.seed, np.zeros_like(members), at)
        own = self._curve(self.seed + 1, members, at)
        level = self.coupling * shared + (1 - self.coupling) * own
        cpu = self.base_millicores + self.swing_millicores * level
        return _shaped(cpu, self.base_bytes + self.swing_bytes * level, members, at, age)

    def _curve(self, seed: int, members: Int64Array, at: Int64Array) -> Float64Array:
        """Return a curve in [0, 1) through a random level at each period's start."""
        period = at // self.period_seconds
        share = (at % self.period_seconds) / self.period_seconds
        before, after = _uniform(seed, members, period), _uniform(seed, members, period + 1)
        curve: Float64Array = before + (after - before) * share
        return curve


def _shaped(
    cpu: Float64Array, memory: Float64Array, members: Int64Array, at: Int64Array, age: Int64Array
) -> tuple[Float64Array, Float64Array]:
    # For few members NumPy's broadcasting functions would take most of the time.
    shape = np.broadcast(members, at, age).shape
    shaped = np.empty(shape), np.empty(shape)
    shaped[0][...], shaped[1][...] = cpu, memory
    return shaped


def _spread(seed: int, members: Int64Array, moments: Int64Array) -> Float64Array:
    """Return noise in [-1, 1)."""
    noise: Float64Array = 2 * _uniform(seed, members, moments) - 1
    return noise


def _uniform(seed: int, members: Int64Array, moments: Int64Array) -> Float64Array:
    """Return a number in [0, 1) for each (seed, member, moment), the same every time.

    Source: the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    """
    with np.errstate(over="ignore"):
        mixed: NDArray[np.uint64] = np.asarray(members).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed ^ (np.asarray(moments).astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F))
        mixed = mixed + np.uint64(seed & 0xFFFFFFFFFFFFFFFF) * np.uint64(0x165667B19E3779F9)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    uniform: Float64Array = (mixed >> np.uint64(11)) / float(1 << 53)
    return uniform
