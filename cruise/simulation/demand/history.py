"""The recorded usage of simulated containers."""

from collections import deque
from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey
from cruise.simulation.demand.demand import DemandSource

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
