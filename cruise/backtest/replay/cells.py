"""The counts of a replay cut into hours and groups of workloads, from sums that are kept anyway."""

from collections.abc import Callable, Mapping

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.accounting import ResourceAccount
from cruise.backtest.replay.churn import Churn
from cruise.backtest.replay.scoring import Totals
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.backtest_cells import HOUR_SECONDS, Cells, Count

# Enough to tell workloads apart in a bootstrap, and few enough for a small answer.
MOST_GROUPS = 64

_Columns = Mapping[Count, Callable[[], Float64Array | Int64Array]]


class CellRecorder:
    """Takes the difference of all sums whenever an hour is over, so that an interval costs nothing more."""

    def __init__(
        self, recording: Recording, cpu: ResourceAccount, memory: ResourceAccount | None, churn: Churn, totals: Totals
    ) -> None:
        self._group = recording.workload_containers() % MOST_GROUPS
        self._groups = int(self._group.max(initial=-1)) + 1
        self._totals = totals
        self._columns: _Columns = {
            Count.CPU_REQUESTED: lambda: cpu.requested,
            Count.CPU_USED: lambda: cpu.used,
            Count.CPU_SAMPLES: lambda: cpu.samples,
            Count.CPU_STARVED: lambda: cpu.starved,
            Count.CONTAINER_MINUTES: lambda: totals.running_minutes,
            Count.RESIZES: lambda: churn.resizes,
            Count.EVICTIONS: lambda: churn.evictions,
            Count.MOVES: lambda: churn.moves,
        }
        if memory is not None:
            self._columns |= {
                Count.MEMORY_REQUESTED: lambda: memory.requested,
                Count.MEMORY_USED: lambda: memory.used,
                Count.KILLS: lambda: churn.kills,
            }
        self._hour: int | None = None
        self._before = self._sums()
        self._found: dict[Count, list[Float64Array]] = {count: [] for count in self._before}

    def begin(self, since: int) -> None:
        """Begin an interval, in whose hour everything counts that comes until the next."""
        hour = since // HOUR_SECONDS
        if self._hour is not None and hour != self._hour:
            self._close()
        self._hour = hour

    def cells(self) -> Cells:
        """Close the last hour, and return all of them."""
        self._close()
        return Cells({count: np.stack(rows) for count, rows in self._found.items()})

    def _close(self) -> None:
        now = self._sums()
        for count, sums in now.items():
            self._found[count].append(sums - self._before[count])
        self._before = now

    def _sums(self) -> dict[Count, Float64Array]:
        found = {count: self._grouped(column()) for count, column in self._columns.items()}
        found[Count.NODE_MINUTES] = np.array([self._totals.node_minutes])
        found[Count.MINUTES] = np.array([self._totals.minutes])
        return found

    def _grouped(self, column: Float64Array | Int64Array) -> Float64Array:
        return np.bincount(self._group, weights=column, minlength=self._groups).astype(np.float64)
