"""Which steps of which containers are in doubt, since several series of one disagree."""

from collections.abc import Sequence

import numpy as np

from cruise.adapters.prometheus.agreement import (
    folded_counters,
    gauges_disagree,
    live_twice,
    started_beside_another,
)
from cruise.adapters.prometheus.counter_rows import CounterRows, CountersBefore, Counting
from cruise.adapters.prometheus.folding import SeriesKey, by_owner, larger_of_twins
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey, CounterTail

Folded = tuple[Float64Array, BoolArray]


class Doubts:
    """What one read doubts; nothing where samples need not be plausible: then the larger of two series counts."""

    def __init__(self, before: CountersBefore, counting: Counting) -> None:
        self.before = before
        self._counting = counting

    def of_cpu(self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array) -> Folded:
        """Fold CPU counters."""
        return self._of_counters(ids, one, other, waiting=False)

    def of_waiting(self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array) -> Folded:
        """Fold counters of the time that tasks waited."""
        return self._of_counters(ids, one, other, waiting=True)

    def of_memory(self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array) -> Folded:
        """Fold working sets: the larger counts."""
        larger, nothing = larger_of_twins(ids, one, other)
        return larger, gauges_disagree(one, other) if self._counting.fills_holes else nothing

    def _of_counters(self, ids: Sequence[SeriesKey], one: Float64Array, other: Float64Array, waiting: bool) -> Folded:
        counting = self._counting
        if not counting.fills_holes:
            return larger_of_twins(ids, one, other)
        most = counting.step_seconds * (1.0 if waiting else counting.cores)
        return folded_counters(one, other, self.before.latest(ids, waiting), most)

    def unknown_starts(self, rows: CounterRows, owners: Int64Array, *use: Float64Array) -> None:
        """Take out of the use of each series what it had counted before it was seen beside another that counts."""
        if not self._counting.fills_holes:
            return
        found = started_beside_another(self._counters(rows), owners)
        for row, column in zip(*np.nonzero(found), strict=True) if found is not None else ():
            for one in use:
                one[row, : rows.lead + column + 1] = np.nan

    def of_containers(
        self,
        rows: CounterRows,
        owners: Int64Array,
        count: int,
        of_series: Sequence[tuple[BoolArray | None, Int64Array]],
    ) -> BoolArray | None:
        """Return where containers are in doubt (containers, steps), None where none is.

        `of_series` has what is known of the series of each family, with the containers that they are of.
        """
        if not self._counting.fills_holes:
            return None
        found = [
            by_owner(np.logical_or, one, series_owners, count) for one, series_owners in of_series if one is not None
        ]
        twice = live_twice(self._counters(rows), owners, max(count, int(owners.max(initial=-1)) + 1))
        if twice is not None:
            found.append(twice[:count])
        return np.logical_or.reduce(found) if found else None

    def _counters(self, rows: CounterRows) -> Float64Array:
        return np.column_stack((rows.newest(rows.cpu), rows.cpu[:, rows.lead :]))


def without_doubtful(tail: CounterTail, keys: Sequence[ContainerKey], doubtful: BoolArray) -> CounterTail:
    """Return a tail without the containers that are in doubt at the end: nothing continues from them."""
    dropped = {key for key, last in zip(keys, doubtful[:, -1].tolist(), strict=True) if last}
    kept = [row for row, key in enumerate(tail.keys) if key not in dropped]
    return CounterTail(
        at=tail.at,
        keys=[tail.keys[row] for row in kept],
        series=[tail.series[row] for row in kept],
        cpu_seconds=tail.cpu_seconds[kept],
        cpu_waiting_seconds=tail.cpu_waiting_seconds[kept],
        changed_at=tail.changed_at[kept],
    )
