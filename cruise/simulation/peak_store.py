"""Stores hourly peaks in memory: for each hour one array over all keys, NaN without samples."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.usage import HourlyPeaks, PeakKey, PeakSummary


@dataclass(slots=True)
class _PeaksOfHour:
    """The peaks of one clock hour, indexed by the number of a key; the arrays may be shorter than the keys."""

    cpu_demand_millicores: Float64Array
    memory_bytes: Float64Array

    def extend(self, size: int) -> None:
        missing = size - len(self.memory_bytes)
        if missing > 0:
            # Half as much more, so that new keys do not copy the arrays each time.
            more = np.full(missing + size // 2, np.nan)
            self.cpu_demand_millicores = np.concatenate([self.cpu_demand_millicores, more])
            self.memory_bytes = np.concatenate([self.memory_bytes, more])


class InMemoryPeaks:
    """Every key's hourly peaks; hours count since the Unix epoch."""

    def __init__(self) -> None:
        self._number_by_key: dict[PeakKey, int] = {}
        self._hours: dict[int, _PeaksOfHour] = {}

    def merge(self, peaks: HourlyPeaks) -> None:
        """Raise peaks to those given."""
        sampled = ~(np.isnan(peaks.cpu_demand_millicores) & np.isnan(peaks.memory_bytes))
        if not sampled.any():
            return
        number_by_key = self._number_by_key
        numbers = np.fromiter(
            (
                number_by_key.setdefault(key, len(number_by_key)) if counts else -1
                for key, counts in zip(peaks.keys, sampled.tolist(), strict=True)
            ),
            dtype=np.int64,
            count=len(peaks.keys),
        )
        for hour in np.unique(peaks.hours[sampled]).tolist():
            rows = np.flatnonzero(sampled & (peaks.hours == hour))
            peaks_of_hour = self._hours.setdefault(hour, _PeaksOfHour(np.empty(0), np.empty(0)))
            peaks_of_hour.extend(len(number_by_key))
            np.fmax.at(peaks_of_hour.cpu_demand_millicores, numbers[rows], peaks.cpu_demand_millicores[rows])
            np.fmax.at(peaks_of_hour.memory_bytes, numbers[rows], peaks.memory_bytes[rows])

    def summarize(self, hours: Collection[int], since_hour: int) -> PeakSummary:
        """Summarize each key's peaks since `since_hour`; the peaks of the summary are those of `hours`."""
        size = len(self._number_by_key)
        cpu_peak, cpu_max, memory_peak, memory_max = np.full((4, size), np.nan)
        first_hour = np.full(size, np.iinfo(np.int64).max)
        for hour in sorted(hour for hour in self._hours if hour >= since_hour):
            cpu, memory = self._get_hour(hour, size)
            np.fmax(cpu_max, cpu, out=cpu_max)
            np.fmax(memory_max, memory, out=memory_max)
            if hour in hours:
                np.fmax(cpu_peak, cpu, out=cpu_peak)
                np.fmax(memory_peak, memory, out=memory_peak)
            sampled = ~(np.isnan(cpu) & np.isnan(memory))
            np.minimum(first_hour, hour, out=first_hour, where=sampled)
        known = first_hour < np.iinfo(np.int64).max
        return PeakSummary(
            keys=[key for key, counts in zip(self._number_by_key, known.tolist(), strict=True) if counts],
            cpu_peak_millicores=cpu_peak[known],
            memory_peak_bytes=memory_peak[known],
            cpu_7d_max_millicores=cpu_max[known],
            memory_7d_max_bytes=memory_max[known],
            first_hour=first_hour[known],
        )

    def get_for_workload(self, namespace: str, workload: str, since_hour: int) -> HourlyPeaks:
        """Return one workload's peaks since an hour, sorted by key and hour."""
        keys = sorted(key for key in self._number_by_key if (key.namespace, key.workload) == (namespace, workload))
        size = len(self._number_by_key)
        rows: list[tuple[PeakKey, int, float, float]] = []
        hours = [(hour, *self._get_hour(hour, size)) for hour in sorted(self._hours) if hour >= since_hour]
        for key in keys:
            number = self._number_by_key[key]
            for hour, cpu, memory in hours:
                if not (np.isnan(cpu[number]) and np.isnan(memory[number])):
                    rows.append((key, hour, float(cpu[number]), float(memory[number])))
        return HourlyPeaks(
            keys=[row[0] for row in rows],
            hours=np.array([row[1] for row in rows], dtype=np.int64),
            cpu_demand_millicores=np.array([row[2] for row in rows], dtype=np.float64),
            memory_bytes=np.array([row[3] for row in rows], dtype=np.float64),
        )

    def get_for_hour(self, hour: int) -> HourlyPeaks:
        """Return the peaks of one hour."""
        size = len(self._number_by_key) if hour in self._hours else 0
        cpu, memory = self._get_hour(hour, size) if size else (np.empty(0), np.empty(0))
        sampled = ~(np.isnan(cpu) & np.isnan(memory))
        keys = [key for key, counts in zip(self._number_by_key, sampled.tolist(), strict=False) if counts]
        return HourlyPeaks(keys, np.full(len(keys), hour, dtype=np.int64), cpu[sampled], memory[sampled])

    def prune(self, before_hour: int) -> None:
        """Delete the peaks before an hour, and then the keys without peaks."""
        dropped = [hour for hour in self._hours if hour < before_hour]
        if not dropped:
            return
        for hour in dropped:
            del self._hours[hour]
        size = len(self._number_by_key)
        has_samples = np.zeros(size, dtype=np.bool_)
        for hour in self._hours:
            cpu, memory = self._get_hour(hour, size)
            has_samples |= ~(np.isnan(cpu) & np.isnan(memory))
        if not has_samples.all():
            self._select_keys(np.flatnonzero(has_samples))

    def _select_keys(self, numbers: Int64Array) -> None:
        size = len(self._number_by_key)
        keys = list(self._number_by_key)
        self._hours = {
            hour: _PeaksOfHour(*(column[numbers] for column in self._get_hour(hour, size))) for hour in self._hours
        }
        self._number_by_key = {keys[number]: new for new, number in enumerate(numbers.tolist())}

    def _get_hour(self, hour: int, size: int) -> tuple[Float64Array, Float64Array]:
        peaks_of_hour = self._hours[hour]
        peaks_of_hour.extend(size)
        return peaks_of_hour.cpu_demand_millicores[:size], peaks_of_hour.memory_bytes[:size]
