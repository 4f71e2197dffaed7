"""The times of a recording cut into pass intervals, and the containers that come and go in each."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.options import Arrivals, ReplayOptions
from cruise.domain.arrays import Int64Array


@dataclass(frozen=True, slots=True)
class Interval:
    """The samples of rows `first` up to and without `end`; the pass is at the last one's time, `at`.

    `since` is when the interval begins: one step before its first sample. `arriving` are created as it begins,
    `leaving` had their last sample in it.
    """

    first: int
    end: int
    since: int
    at: int
    arriving: Int64Array
    leaving: Int64Array


def intervals_of(recording: Recording, options: ReplayOptions) -> Iterator[Interval]:
    """Cut at multiples of the pass interval, a sample on the cut belonging to what it ends.

    Containers without samples never come.
    """
    step, start = recording.step_seconds, recording.start
    times = start + step * np.arange(len(recording.cpu_millicores), dtype=np.int64)
    interval_of = -(-times // max(options.pass_seconds, step))
    edges = np.append(np.flatnonzero(np.diff(interval_of, prepend=interval_of[:1] - 1)), len(times))
    first, last = sampled_rows(recording)
    come = np.where(first < len(times), 0 if options.arrivals is Arrivals.START else first, len(times))
    coming, going = _grouped(come), _grouped(last)
    for row, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        since, at = int(times[row]) - step, int(times[end - 1])
        yield Interval(row, end, since, at, coming.between(row, end), going.between(row, end))


@dataclass(frozen=True, slots=True)
class _Grouped:
    """Containers by a row, to be looked up by a range of rows."""

    order: Int64Array
    rows: Int64Array

    def between(self, first: int, end: int) -> Int64Array:
        """Return the containers whose row is in a range, ascending."""
        begin, stop = np.searchsorted(self.rows, (first, end))
        return np.sort(self.order[begin:stop])


def _grouped(rows: Int64Array) -> _Grouped:
    order = np.argsort(rows, kind="stable")
    return _Grouped(order, rows[order])


def sampled_rows(recording: Recording) -> tuple[Int64Array, Int64Array]:
    """Return each container's first and last row with a sample: the number of rows, and -1, where it has none."""
    length, count = recording.cpu_millicores.shape
    first = np.full(count, length, dtype=np.int64)
    last = np.full(count, -1, dtype=np.int64)
    # In stretches, as a mask of everything would be as large as the recording.
    for begin in range(0, length, _STRETCH):
        known = ~np.isnan(recording.cpu_millicores[begin : begin + _STRETCH])
        if recording.has_memory:
            known |= ~np.isnan(recording.memory_bytes[begin : begin + _STRETCH])
        found = known.any(axis=0)
        first = np.where(found & (first == length), begin + known.argmax(axis=0), first)
        last = np.where(found, begin + len(known) - 1 - known[::-1].argmax(axis=0), last)
    return first, last


_STRETCH = 512
