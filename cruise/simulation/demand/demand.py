"""Demand of simulated containers: recorded usage, and shapes that depend on seed, member and time only."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey
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


_FIRST_ROWS = 64


@dataclass(frozen=True, slots=True)
class EarlierDemand:
    """The demand of a container before the first measurement, since its process started.

    Memory is at most `memory_limit_bytes` (infinite without a limit).
    """

    source: DemandSource
    member: int
    started_at: int
    memory_limit_bytes: float


@dataclass(frozen=True, slots=True)
class Measurements:
    """Samples of containers: one row per key, one column per time, NaN is no sample."""

    keys: list[ContainerKey]
    nodes: list[str]
    cpu_demand_millicores: Float32Array
    memory_bytes: Float64Array

    def get_time(self, wanted: BoolArray) -> "Measurements":
        """Return the samples at some of the times, without containers that have none."""
        cpu, memory = self.cpu_demand_millicores[:, wanted], self.memory_bytes[:, wanted]
        found = np.flatnonzero((np.isfinite(cpu) | np.isfinite(memory)).any(axis=1))
        return Measurements(
            [self.keys[row] for row in found], [self.nodes[row] for row in found], cpu[found], memory[found]
        )


class MeasurementHistory:
    """Measurements on a regular grid of times; new ones replace the oldest.

    Times are Unix seconds and multiples of `step_seconds`. Before `start` the samples are the demand itself.
    """

    def __init__(self, start: int, step_seconds: int, retention_seconds: int) -> None:
        self._start = start
        self._step = step_seconds
        self._slots = max(2, -(-retention_seconds // step_seconds))
        self._slot_times = np.full(self._slots, -1, dtype=np.int64)
        self._keys: list[ContainerKey | None] = []
        self._nodes: list[str] = []
        self._past: dict[int, EarlierDemand] = {}
        self._rows_by_namespace: dict[str, dict[int, None]] = {}
        self._free: list[int] = []
        self._retired: deque[tuple[int, int]] = deque()
        self._cpu = np.full((self._slots, _FIRST_ROWS), np.nan, dtype=np.float32)
        self._memory = np.full((self._slots, _FIRST_ROWS), np.nan, dtype=np.float64)

    def add(self, key: ContainerKey, node: str, past: EarlierDemand | None) -> int:
        """Add a container and return its row."""
        if self._free:
            row = self._free.pop()
            self._keys[row] = key
            self._nodes[row] = node
            self._cpu[:, row] = np.nan
            self._memory[:, row] = np.nan
        else:
            row = len(self._keys)
            self._keys.append(key)
            self._nodes.append(node)
            if row == self._cpu.shape[1]:
                self._cpu = np.hstack((self._cpu, np.full_like(self._cpu, np.nan)))
                self._memory = np.hstack((self._memory, np.full_like(self._memory, np.nan)))
        if past is not None:
            self._past[row] = past
        self._rows_by_namespace.setdefault(key.namespace, {})[row] = None
        return row

    def retire(self, row: int, at: int) -> None:
        """Mark a container as removed; its row is reused after the retention."""
        self._retired.append((at, row))

    def record(self, at: int, rows: Int64Array, cpu_demand: Float64Array, memory: Float64Array) -> None:
        """Record the measurements of one time, later than all earlier ones."""
        slot = (at // self._step) % self._slots
        self._slot_times[slot] = at
        self._cpu[slot] = np.nan
        self._memory[slot] = np.nan
        self._cpu[slot, rows] = cpu_demand
        self._memory[slot, rows] = memory
        self._reclaim(at)

    def read(self, namespace: str, times: Int64Array) -> Measurements:
        """Return the samples of a namespace's containers at the times, sorted by key.

        A measurement is valid for one step.
        """
        rows = sorted(self._rows_by_namespace.get(namespace, {}), key=self._key)
        keys = [self._key(row) for row in rows]
        chosen = np.array(rows, dtype=np.int64)
        cpu = np.full((len(rows), len(times)), np.nan, dtype=np.float32)
        memory = np.full((len(rows), len(times)), np.nan, dtype=np.float64)
        grid = times // self._step * self._step
        slots = (grid // self._step) % self._slots
        kept = np.flatnonzero((self._slot_times[slots] == grid) & (times > self._start))
        cpu[:, kept] = self._cpu[slots[kept]][:, chosen].T
        memory[:, kept] = self._memory[slots[kept]][:, chosen].T
        before = np.flatnonzero(times <= self._start)
        if before.size:
            self._fill_past(rows, times[before], cpu, memory, before)
        everything = Measurements(keys, [self._nodes[row] for row in rows], cpu, memory)
        return everything.get_time(np.ones(len(times), dtype=np.bool_))

    def _fill_past(
        self, rows: list[int], times: Int64Array, cpu: Float32Array, memory: Float64Array, columns: Int64Array
    ) -> None:
        by_source: dict[int, list[tuple[int, EarlierDemand]]] = {}
        for place, row in enumerate(rows):
            past = self._past.get(row)
            if past is not None:
                by_source.setdefault(id(past.source), []).append((place, past))
        for members in by_source.values():
            places = np.array([place for place, _ in members])
            numbers = np.array([past.member for _, past in members], dtype=np.int64)[:, None]
            age = times[None, :] - np.array([past.started_at for _, past in members], dtype=np.int64)[:, None]
            limit = np.array([past.memory_limit_bytes for _, past in members])[:, None]
            wanted, held = members[0][1].source.compute_demand(numbers, times[None, :], age)
            wanted[age < 0] = np.nan
            held[age < 0] = np.nan
            cpu[np.ix_(places, columns)] = wanted
            memory[np.ix_(places, columns)] = np.minimum(held, limit)

    def _key(self, row: int) -> ContainerKey:
        key = self._keys[row]
        assert key is not None, "a row in use has a key"
        return key

    def _reclaim(self, at: int) -> None:
        while self._retired and self._retired[0][0] < at - self._slots * self._step:
            _, row = self._retired.popleft()
            del self._rows_by_namespace[self._key(row).namespace][row]
            self._past.pop(row, None)
            self._keys[row] = None
            self._free.append(row)
