"""The peaks that statistics need, kept between passes: the database's sums and newer samples."""

from collections.abc import Iterable

import numpy as np

from cruise.decisions.usage.peaks import PeaksByNumber
from cruise.decisions.usage.usage_columns import NEVER, KnownPeaks
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.resources import ResourceName
from cruise.domain.usage import HourlyPeaks, PeakKey, PeakSummary
from cruise.runtime.ports import StorePort

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
        self.merge_numbered(PeaksByNumber(numbers, peaks.hours, peaks.cpu_demand_millicores, peaks.memory_bytes))

    def merge_numbered(self, peaks: PeaksByNumber) -> None:
        """Raise the maxima of keys that have numbers."""
        numbers = peaks.numbers
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
        self._rows: list[tuple[Float32Array, Float32Array]] = []

    async def load(self, store: StorePort, hours: frozenset[int]) -> None:
        """Read the peaks of hours, if they differ from the last ones: past hours do not change."""
        if hours == self._hours:
            return
        self._column_of, self._rows = {}, []
        for hour in sorted(hours):
            self._rows.append(self._build_row(await store.read_peaks_of_hour(hour)))
        self._hours = hours

    def find_columns(self, keys: list[PeakKey]) -> Int64Array:
        """Return the column of each key, -1 if it has no peak."""
        return np.fromiter((self._column_of.get(key, -1) for key in keys), np.int64, len(keys))

    def build_matrices(self) -> dict[ResourceName, Float32Array]:
        """Return the peaks (hours, keys), NaN if there is none."""
        shape = (len(self._rows), len(self._column_of))
        found = {resource: np.full(shape, np.nan, dtype=np.float32) for resource in ResourceName}
        for row, (cpu, memory) in enumerate(self._rows):
            found[ResourceName.CPU][row, : len(cpu)] = cpu
            found[ResourceName.MEMORY][row, : len(memory)] = memory
        return found

    def _build_row(self, peaks: HourlyPeaks) -> tuple[Float32Array, Float32Array]:
        column_of = self._column_of
        columns = np.fromiter(
            (column_of.setdefault(key, len(column_of)) for key in peaks.keys), np.int64, len(peaks.keys)
        )
        cpu = np.full(len(column_of), np.nan, dtype=np.float32)
        memory = np.full(len(column_of), np.nan, dtype=np.float32)
        cpu[columns], memory[columns] = peaks.cpu_demand_millicores, peaks.memory_bytes
        return cpu, memory
