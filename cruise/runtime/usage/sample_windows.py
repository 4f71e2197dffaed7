"""The last hour of every container's samples: columnar ring buffers."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.usage.usage_columns import RecentUsage
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey, SampleBlock

WINDOW_SECONDS = 3600
MIN_ROWS = 1024


class UsageWindows:
    """The sample windows: one row a container, one column a grid time; a row is freed an hour after its last sample.

    12 bytes a sample, 720 a container: CPU in single, memory in double precision, so that bytes stay exact.
    """

    def __init__(self, step_seconds: int = 60, least_rows: int = MIN_ROWS) -> None:
        self.step_seconds = step_seconds
        self._least_rows = least_rows
        self.head = 0  # the newest grid time, 0 while there is none
        self.released = 0  # how many rows became free so far
        self._columns = WINDOW_SECONDS // step_seconds
        self._row_of: dict[ContainerKey, int] = {}
        self._key_of: list[ContainerKey | None] = []
        self._free: list[int] = []
        self._cpu = np.empty((0, self._columns), dtype=np.float32)
        self._memory = np.empty((0, self._columns), dtype=np.float64)
        self._number = np.empty(0, dtype=np.int64)
        self._psi_known = np.empty(0, dtype=np.bool_)
        self._newest = np.empty(0, dtype=np.int64)
        self._whole = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def nbytes(self) -> int:
        """Bytes that the buffers take."""
        parts = (self._cpu, self._memory, self._number, self._psi_known, self._newest, self._whole)
        return sum(part.nbytes for part in parts)

    def find_rows(self, keys: Sequence[ContainerKey]) -> Int64Array:
        """Return the row of each container, -1 if it has none."""
        return np.fromiter((self._row_of.get(key, -1) for key in keys), np.int64, len(keys))

    def get_rows(self, keys: Sequence[ContainerKey]) -> Int64Array:
        """Return the row of each container; a new container gets a new row."""
        missing = [key for key in keys if key not in self._row_of]
        self._grow_buffers(len(missing))
        for key in missing:
            row = self._free.pop()
            self._row_of[key] = row
            self._key_of[row] = key
        return self.find_rows(keys)

    def get_numbers(self, key: ContainerKey) -> int:
        """Return a container's peak number, -1 if it has no row."""
        row = self._row_of.get(key, -1)
        return int(self._number[row]) if row >= 0 else -1

    def advance(self, at: int) -> None:
        """Move the head to a grid time; samples older than an hour are dropped."""
        if at <= self.head:
            return
        fresh = min((at - self.head) // self.step_seconds, self._columns)
        columns = self._get_columns(at - self.step_seconds * np.arange(fresh))
        self._cpu[:, columns] = np.nan
        self._memory[:, columns] = np.nan
        self.head = at
        for row in np.flatnonzero((self._newest <= at - WINDOW_SECONDS) & (self._number >= 0)).tolist():
            self._release(row)

    def append(self, block: SampleBlock, numbers: Int64Array) -> None:
        """Add a block; samples before the window and containers with number -1 are left out."""
        if not len(block.times):
            return
        self.advance(int(block.times[-1]))
        sampled = self._has_recent_sample(block.times, block.cpu_demand_millicores, block.memory_bytes)
        chosen = np.flatnonzero((numbers >= 0) & sampled)
        if not len(chosen):
            return
        self.put(
            self.get_rows([block.keys[index] for index in chosen.tolist()]),
            numbers[chosen],
            block.times,
            block.cpu_demand_millicores[chosen],
            block.memory_bytes[chosen],
            block.psi_known[chosen],
        )

    def put(
        self,
        rows: Int64Array,
        numbers: Int64Array,
        times: Int64Array,
        cpu: Float32Array,
        memory: Float64Array,
        psi_known: BoolArray,
    ) -> None:
        """Add samples of containers that have rows: one entry and matrix row each, each row once.

        The last of the `times` is not after the head. A container without a recent sample stays unchanged.
        """
        recent = np.flatnonzero(times > self.head - WINDOW_SECONDS)
        sampled = ~(np.isnan(cpu[:, recent]) & np.isnan(memory[:, recent]))
        chosen = np.flatnonzero(sampled.any(axis=1))
        rows = rows[chosen]
        cells = np.ix_(rows, self._get_columns(times[recent]))
        # Two blocks may have the same time if one of them filled a gap.
        self._cpu[cells] = np.fmax(self._cpu[cells], cpu[np.ix_(chosen, recent)])
        self._memory[cells] = np.fmax(self._memory[cells], memory[np.ix_(chosen, recent)])
        last = len(recent) - 1 - sampled[chosen, ::-1].argmax(axis=1)
        self._newest[rows] = np.maximum(self._newest[rows], times[recent][last])
        partial = np.isnan(cpu[np.ix_(chosen, recent)]) | np.isnan(memory[np.ix_(chosen, recent)])
        self._whole[rows] = np.maximum(self._whole[rows], np.where(partial, 0, times[recent]).max(axis=1, initial=0))
        self._number[rows] = numbers[chosen]
        self._psi_known[rows] = psi_known[chosen]

    def renumber(self, number: Callable[[int], int]) -> None:
        """Replace the peak number of each row."""
        taken = self._number >= 0
        old, cells = np.unique(self._number[taken], return_inverse=True)
        self._number[taken] = np.array([number(one) for one in old.tolist()], dtype=np.int64)[cells]

    def get_recent(self) -> RecentUsage:
        """Return the buffers without a copy, to be read before more samples are added."""
        times = self.head - self.step_seconds * np.arange(self._columns - 1, -1, -1)
        return RecentUsage(
            self._cpu,
            self._memory,
            self._get_columns(times),
            self._number,
            self._psi_known,
            self._newest,
            self._whole,
        )

    def _has_recent_sample(self, times: Int64Array, cpu: Float32Array, memory: Float64Array) -> BoolArray:
        """Tell which rows of two matrices have a recent sample."""
        recent = np.flatnonzero(times > self.head - WINDOW_SECONDS)
        missing = np.isnan(cpu[:, recent]) & np.isnan(memory[:, recent])
        return np.asarray(np.any(~missing, axis=1), dtype=np.bool_)

    def _get_columns(self, times: NDArray[np.int64]) -> Int64Array:
        return (times // self.step_seconds) % self._columns

    def _grow_buffers(self, count: int) -> None:
        if count <= len(self._free):
            return
        old_rows = len(self._key_of)
        rows = old_rows + max(count - len(self._free), old_rows // 8, self._least_rows)
        for part, fill_value in (
            (self._cpu, np.nan),
            (self._memory, np.nan),
            (self._number, -1),
            (self._psi_known, False),
            (self._newest, 0),
            (self._whole, 0),
        ):
            # In place, to avoid a copy; the result of `get_recent` is read before.
            part.resize((rows, *part.shape[1:]), refcheck=False)
            part[old_rows:] = fill_value
        self._key_of += [None] * (rows - old_rows)
        self._free += range(rows - 1, old_rows - 1, -1)

    def _release(self, row: int) -> None:
        key = self._key_of[row]
        if key is None:
            return
        del self._row_of[key]
        self._key_of[row] = None
        self._number[row], self._newest[row], self._whole[row], self._psi_known[row] = -1, 0, 0, False
        self._free.append(row)
        self.released += 1
