"""The peaks that statistics need, kept between passes: what the store sums up, and what came since."""

from collections.abc import Iterable

import numpy as np

from cruise.decisions.usage.peaks import NumberedPeaks
from cruise.decisions.usage.usage_columns import NEVER, KnownPeaks
from cruise.domain.arrays import Int64Array
from cruise.domain.usage import HourlyPeaks, PeakKey, PeakSummary

LEAST_NUMBERS = 1024


class PeakNumbers:
    """Numbers for peak keys, and per number the maxima over the hours that count.

    Made from a summary of the store and given every peak that is stored from then on, its maxima equal the store's own.
    """

    def __init__(self, hours: frozenset[int] = frozenset(), since_hour: int = 0) -> None:
        self.hours = hours
        self.keys: list[PeakKey] = []
        self._since_hour = since_hour
        self._number_of: dict[PeakKey, int] = {}
        self._parent = np.empty(0, dtype=np.int64)
        self._cpu = np.empty(0)
        self._memory = np.empty(0)
        self._memory_7d_max = np.empty(0)
        self._first_hour = np.empty(0, dtype=np.int64)

    @staticmethod
    def of(summary: PeakSummary, hours: frozenset[int], since_hour: int) -> "PeakNumbers":
        """Start from what the store summed up over `hours`, and since an hour."""
        peaks = PeakNumbers(hours, since_hour)
        numbers = peaks._numbers(summary.keys)
        peaks._cpu[numbers] = summary.cpu_peak_millicores
        peaks._memory[numbers] = summary.memory_peak_bytes
        peaks._memory_7d_max[numbers] = summary.memory_7d_max_bytes
        peaks._first_hour[numbers] = summary.first_hour
        return peaks

    def number(self, key: PeakKey) -> int:
        """Return the key's number, given now where it has none."""
        number = self._number_of.get(key)
        if number is not None:
            return number
        number = self._number_of[key] = len(self.keys)
        self.keys.append(key)
        self._make_room(number + 1)
        self._parent[number] = number
        if key.identity:
            self._parent[number] = self.number(key._replace(identity=""))
        return number

    def merge(self, peaks: HourlyPeaks) -> None:
        """Raise the maxima to what was just stored."""
        numbers = self._numbers(peaks.keys)
        self.merge_numbered(NumberedPeaks(numbers, peaks.hours, peaks.cpu_demand_millicores, peaks.memory_bytes))

    def merge_numbered(self, peaks: NumberedPeaks) -> None:
        """Raise the maxima of numbers that were given already."""
        numbers = peaks.numbers
        counts = np.isin(peaks.hours, list(self.hours))
        np.fmax.at(self._cpu, numbers[counts], peaks.cpu_demand_millicores[counts])
        np.fmax.at(self._memory, numbers[counts], peaks.memory_bytes[counts])
        recent = peaks.hours >= self._since_hour
        np.fmax.at(self._memory_7d_max, numbers[recent], peaks.memory_bytes[recent])
        np.minimum.at(self._first_hour, numbers[recent], peaks.hours[recent])

    def known(self) -> KnownPeaks:
        """Return the maxima themselves, to be read before the next `merge`."""
        count = len(self.keys)
        return KnownPeaks(
            keys=self.keys,
            parent=self._parent[:count],
            cpu_peak_millicores=self._cpu[:count],
            memory_peak_bytes=self._memory[:count],
            memory_7d_max_bytes=self._memory_7d_max[:count],
            first_hour=self._first_hour[:count],
        )

    def _numbers(self, keys: Iterable[PeakKey]) -> Int64Array:
        return np.array([self.number(key) for key in keys], dtype=np.int64)

    def _make_room(self, count: int) -> None:
        have = len(self._parent)
        if count <= have:
            return
        more = max(have // 4, LEAST_NUMBERS)
        nothing, never = np.full(more, np.nan), np.full(more, NEVER)
        self._parent = np.concatenate((self._parent, never))
        self._cpu = np.concatenate((self._cpu, nothing))
        self._memory = np.concatenate((self._memory, nothing))
        self._memory_7d_max = np.concatenate((self._memory_7d_max, nothing))
        self._first_hour = np.concatenate((self._first_hour, never))
