"""What the containers of each workload used lately: percentiles of CPU, the maximum of memory.

Samples are kept in spans of twelve hours of the clock. The one that has begun counts beside the whole ones before it.
"""

import numpy as np

from cruise.backtest.baselines.vpa.histograms import ExponentialBuckets
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array

_SPAN_SECONDS = 12 * 3600
_MILLICORES = ExponentialBuckets.up_to(1e6, 1.0, 1.05)


class RecentUse:
    """The samples of R rows, by span; samples of several containers may belong to one row."""

    def __init__(self, row_of: Int64Array, days: int) -> None:
        """Expect the row of each container."""
        self._row_of = row_of
        self._rows = int(row_of.max(initial=-1)) + 1
        self._kept = days * 86400 // _SPAN_SECONDS + 1
        self._span: int | None = None
        self._ends: Float64Array = np.append(_MILLICORES.starts[1:], _MILLICORES.starts[-1])
        self._counts: Int64Array = np.zeros((self._kept, self._rows, len(self._ends)), dtype=np.int32)
        self._largest: Float64Array = np.zeros((self._kept, self._rows))
        self._first: Int64Array = np.full(self._rows, -1, dtype=np.int64)

    def add(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in the samples of an interval that ends at `at`; matrices (times, containers), NaN is none."""
        place = self._turn_to(at)
        used = ~np.isnan(cpu)
        rows = np.broadcast_to(self._row_of, cpu.shape)[used]
        self._first[rows[self._first[rows] < 0]] = at
        np.add.at(self._counts[place], (rows, _MILLICORES.find(cpu[used].astype(np.float64))), 1)
        if len(memory):
            np.maximum.at(self._largest[place], self._row_of, np.nan_to_num(memory.max(axis=0, initial=0.0)))

    def raise_memory(self, container: int, needed_bytes: int) -> None:
        """Count an amount as used in this span."""
        place = 0 if self._span is None else self._span % self._kept
        row = self._row_of[container]
        self._largest[place, row] = max(self._largest[place, row], needed_bytes)

    def known_for(self, at: int, seconds: int) -> BoolArray:
        """Tell which rows were first seen so long ago."""
        return np.asarray((self._first >= 0) & (at - self._first >= seconds), dtype=np.bool_)

    def cpu_percentile(self, share: float) -> Float64Array:
        """Return the end of the bucket below which that share of each row's samples lies; 0 for a row without any."""
        sums = self._counts.sum(axis=0).cumsum(axis=1)
        below = np.count_nonzero(sums < share * sums[:, -1:], axis=1)
        return np.where(sums[:, -1] > 0, self._ends[np.minimum(below, len(self._ends) - 1)], 0.0)

    def memory_maximum(self) -> Float64Array:
        """Return the most that a container of each row used; 0 for a row without samples."""
        return np.asarray(self._largest.max(axis=0), dtype=np.float64)

    def _turn_to(self, at: int) -> int:
        """Return the place of the span that an interval belongs to, and empty those that have become too old."""
        span = (at - 1) // _SPAN_SECONDS
        for new in range(max(span - self._kept, span if self._span is None else self._span) + 1, span + 1):
            self._counts[new % self._kept] = 0
            self._largest[new % self._kept] = 0
        self._span = span
        return span % self._kept
