"""Hourly peaks of a week in columns, kept in memory."""

from collections.abc import Collection, Sequence

import numpy as np

from cruise.decisions.usage.peaks import NumberedPeaks
from cruise.decisions.usage.usage_columns import NEVER
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.usage import PeakKey, PeakSummary

# Seven days and the hour that runs.
HELD_HOURS = 7 * 24 + 1


class PeakWeek:
    """The peaks of a fixed number of keys: a ring with one row an hour and one column a number.

    12 bytes for each hour of a number: bytes of memory stay exact, millicores are in single precision as samples are.
    """

    def __init__(self, numbers: int) -> None:
        self._held = np.full(HELD_HOURS, -1, dtype=np.int64)
        self._cpu = np.full((HELD_HOURS, numbers), np.nan, dtype=np.float32)
        self._memory = np.full((HELD_HOURS, numbers), np.nan)

    def merge(self, peaks: NumberedPeaks) -> None:
        """Raise the peaks of hours to those given; an hour takes the place of the one a week and an hour before it."""
        for hour in np.unique(peaks.hours).tolist():
            slot = hour % HELD_HOURS
            if self._held[slot] > hour:
                continue
            if self._held[slot] < hour:
                self._held[slot], self._cpu[slot], self._memory[slot] = hour, np.nan, np.nan
            of_hour = np.flatnonzero(peaks.hours == hour)
            numbers = peaks.numbers[of_hour]
            self._cpu[slot, numbers] = np.fmax(self._cpu[slot, numbers], peaks.cpu_demand_millicores[of_hour])
            self._memory[slot, numbers] = np.fmax(self._memory[slot, numbers], peaks.memory_bytes[of_hour])

    def of_hours(self, hours: Collection[int]) -> tuple[Float32Array, Float64Array]:
        """Return the CPU and memory peaks of those of some hours that are held: matrices (hours, numbers), by time."""
        slots = self._slots(np.isin(self._held, list(hours)))
        return self._cpu[slots], self._memory[slots]

    def summary(self, keys: Sequence[PeakKey], hours: Collection[int], since_hour: int) -> PeakSummary:
        """Sum up the peaks from `since_hour` on, and over those of `hours` that are not before it.

        `keys` has the key of each number. All are in the summary, also those without a peak.
        """
        since = self._held >= since_hour
        slots = self._slots(since)
        counts = since & np.isin(self._held, list(hours))
        sampled = ~(np.isnan(self._cpu[slots]) & np.isnan(self._memory[slots]))
        # One line more, so that there is one even where nothing is held.
        first = np.vstack((sampled, np.ones_like(self._cpu[:1], dtype=np.bool_))).argmax(axis=0)
        return PeakSummary(
            keys=keys,
            cpu_peak_millicores=np.fmax.reduce(self._cpu[counts], axis=0, initial=np.nan).astype(np.float64),
            memory_peak_bytes=np.fmax.reduce(self._memory[counts], axis=0, initial=np.nan),
            memory_7d_max_bytes=np.fmax.reduce(self._memory[slots], axis=0, initial=np.nan),
            first_hour=np.append(self._held[slots], NEVER)[first],
        )

    def _slots(self, chosen: BoolArray) -> Int64Array:
        """Return chosen slots, the oldest hour first."""
        slots = np.flatnonzero(chosen)
        by_time: Int64Array = slots[np.argsort(self._held[slots])]
        return by_time
