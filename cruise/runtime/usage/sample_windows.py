"""The last hour of every container's samples in columnar ring buffers; peaks and starts kept between passes."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.headroom import NO_HOURS, HourlyMaxima
from cruise.decisions.usage.peaks import HourlyPeakRows
from cruise.decisions.usage.starts import estimate_start_cpu
from cruise.decisions.usage.usage_columns import NEVER, KnownPeaks, RecentUsage
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.records import CONTAINER_STARTS_KEPT, RETENTION
from cruise.domain.resources import ResourceName
from cruise.domain.usage import ContainerKey, ContainerStart, HourlyPeaks, PeakKey, PeakSummary, SampleBlock
from cruise.runtime.ports import StorePort

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


MIN_CAPACITY = 1024


class PeakColumns:
    """Numbers for peak keys, and the maxima of each over the hours that count.

    Created from a summary of the database and given every later peak, its maxima equal those of the database.
    """

    def __init__(self, hours: frozenset[int] = frozenset(), since_hour: int = 0) -> None:
        self.hours = hours
        self.keys: list[PeakKey] = []
        self._since_hour = since_hour
        self._number_of: dict[PeakKey, int] = {}
        self._parent = np.empty(0, dtype=np.int64)
        self._cpu = np.empty(0)
        self._memory = np.empty(0)
        self._cpu_7d_max = np.empty(0)
        self._memory_7d_max = np.empty(0)
        self._first_hour = np.empty(0, dtype=np.int64)

    @staticmethod
    def from_summary(summary: PeakSummary, hours: frozenset[int], since_hour: int) -> "PeakColumns":
        """Create from the database's maxima over `hours`, and since an hour."""
        peaks = PeakColumns(hours, since_hour)
        numbers = peaks._get_numbers(summary.keys)
        peaks._cpu[numbers] = summary.cpu_peak_millicores
        peaks._memory[numbers] = summary.memory_peak_bytes
        peaks._cpu_7d_max[numbers] = summary.cpu_7d_max_millicores
        peaks._memory_7d_max[numbers] = summary.memory_7d_max_bytes
        peaks._first_hour[numbers] = summary.first_hour
        return peaks

    def get_or_add_number(self, key: PeakKey) -> int:
        """Return the key's number; a new key gets a new one."""
        number = self._number_of.get(key)
        if number is not None:
            return number
        number = self._number_of[key] = len(self.keys)
        self.keys.append(key)
        self._grow_arrays(number + 1)
        self._parent[number] = number
        if key.identity:
            self._parent[number] = self.get_or_add_number(key._replace(identity=""))
        return number

    def merge(self, peaks: HourlyPeaks) -> None:
        """Raise the maxima to peaks that were just stored."""
        numbers = self._get_numbers(peaks.keys)
        self.merge_numbered(HourlyPeakRows(numbers, peaks.hours, peaks.cpu_demand_millicores, peaks.memory_bytes))

    def merge_numbered(self, peaks: HourlyPeakRows) -> None:
        """Raise the maxima of keys that have numbers."""
        numbers = peaks.numbers
        # The hours are of earlier days: only late samples have peaks in them.
        if len(numbers) and self.hours and peaks.hours.min() <= max(self.hours):
            counts = np.isin(peaks.hours, list(self.hours))
            np.fmax.at(self._cpu, numbers[counts], peaks.cpu_demand_millicores[counts])
            np.fmax.at(self._memory, numbers[counts], peaks.memory_bytes[counts])
        recent = peaks.hours >= self._since_hour
        np.fmax.at(self._cpu_7d_max, numbers[recent], peaks.cpu_demand_millicores[recent])
        np.fmax.at(self._memory_7d_max, numbers[recent], peaks.memory_bytes[recent])
        np.minimum.at(self._first_hour, numbers[recent], peaks.hours[recent])

    def get_known(self) -> KnownPeaks:
        """Return the maxima without a copy, to be read before the next `merge`."""
        count = len(self.keys)
        return KnownPeaks(
            keys=self.keys,
            parent=self._parent[:count],
            cpu_peak_millicores=self._cpu[:count],
            memory_peak_bytes=self._memory[:count],
            cpu_7d_max_millicores=self._cpu_7d_max[:count],
            memory_7d_max_bytes=self._memory_7d_max[:count],
            first_hour=self._first_hour[:count],
        )

    def _get_numbers(self, keys: Iterable[PeakKey]) -> Int64Array:
        return np.array([self.get_or_add_number(key) for key in keys], dtype=np.int64)

    def _grow_arrays(self, count: int) -> None:
        have = len(self._parent)
        if count <= have:
            return
        more = max(have // 4, MIN_CAPACITY)
        no_peaks, no_hours = np.full(more, np.nan), np.full(more, NEVER)
        self._parent = np.concatenate((self._parent, no_hours))
        self._cpu = np.concatenate((self._cpu, no_peaks))
        self._memory = np.concatenate((self._memory, no_peaks))
        self._cpu_7d_max = np.concatenate((self._cpu_7d_max, no_peaks))
        self._memory_7d_max = np.concatenate((self._memory_7d_max, no_peaks))
        self._first_hour = np.concatenate((self._first_hour, no_hours))


class PeaksByHour:
    """The hourly peaks for headroom models that add up simultaneous demand: one row an hour, one column a key.

    8 bytes each: 14 hours of 225,000 keys take 25 MB.
    """

    def __init__(self) -> None:
        self._hours: frozenset[int] = frozenset()
        self._column_of: dict[PeakKey, int] = {}
        self.maxima = NO_HOURS

    async def load(self, store: StorePort, hours: frozenset[int]) -> None:
        """Read the peaks of hours, if they differ from the last ones: past hours do not change."""
        if hours == self._hours:
            return
        self._column_of = {}
        rows = [self._build_row(await store.read_peaks_of_hour(hour)) for hour in sorted(hours)]
        self.maxima, self._hours = self._build_maxima(rows), hours

    def find_columns(self, keys: list[PeakKey]) -> Int64Array:
        """Return the column of each key, -1 if it has no peak."""
        return np.fromiter((self._column_of.get(key, -1) for key in keys), np.int64, len(keys))

    def _build_maxima(self, rows: Sequence[tuple[Float32Array, Float32Array]]) -> HourlyMaxima:
        shape = (len(rows), len(self._column_of))
        found = {resource: np.full(shape, np.nan, dtype=np.float32) for resource in ResourceName}
        for row, (cpu, memory) in enumerate(rows):
            found[ResourceName.CPU][row, : len(cpu)] = cpu
            found[ResourceName.MEMORY][row, : len(memory)] = memory
        return HourlyMaxima(found)

    def _build_row(self, peaks: HourlyPeaks) -> tuple[Float32Array, Float32Array]:
        column_of = self._column_of
        columns = np.fromiter(
            (column_of.setdefault(key, len(column_of)) for key in peaks.keys), np.int64, len(peaks.keys)
        )
        cpu = np.full(len(column_of), np.nan, dtype=np.float32)
        memory = np.full(len(column_of), np.nan, dtype=np.float32)
        cpu[columns], memory[columns] = peaks.cpu_demand_millicores, peaks.memory_bytes
        return cpu, memory


_DAY_SECONDS = 24 * 3600
# Samples may come late, and a read that failed is repeated within the hour.
_LONGEST_INCOMPLETE_SECONDS = 2 * 3600


class KnownStarts:
    """The newest starts of each workload's container; it mirrors the database."""

    def __init__(self, starts: Iterable[ContainerStart] = ()) -> None:
        self._starts: dict[PeakKey, dict[str, ContainerStart]] = {}
        self._estimates: dict[PeakKey, int] = {}
        self._changed: set[PeakKey] = set()
        self._checked_day = 0
        self.merge(starts)

    def merge(self, starts: Iterable[ContainerStart]) -> None:
        """Merge further observations."""
        for one in starts:
            key = PeakKey(one.namespace, one.workload, one.container, "")
            known = self._starts.setdefault(key, {})
            before = known.get(one.pod_uid)
            known[one.pod_uid] = one if before is None else before.merge(one)
            self._changed.add(key)

    def estimate(self, at: int) -> Mapping[PeakKey, int]:
        """Return the CPU that starts need, where enough are known; `at` is in Unix seconds."""
        if at // _DAY_SECONDS != self._checked_day:
            self._checked_day = at // _DAY_SECONDS
            self._changed.update(self._starts)
        oldest = at - int(RETENTION.container_starts.total_seconds())
        for key in self._changed:
            found = sorted(self._starts[key].values(), key=lambda one: one.started_at)
            complete = [one for one in found if one.is_complete and one.started_at >= oldest][-CONTAINER_STARTS_KEPT:]
            unfinished = [
                one for one in found if not one.is_complete and at - one.started_at < _LONGEST_INCOMPLETE_SECONDS
            ]
            self._starts[key] = {one.pod_uid: one for one in (*complete, *unfinished)}
            self._estimates[key] = estimate_start_cpu(complete)
            for known in (self._starts, self._estimates):
                if not known[key]:
                    del known[key]
        self._changed.clear()
        return self._estimates
