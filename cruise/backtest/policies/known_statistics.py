"""What speaks for each container of a replay at a pass: its own statistic, or its workload's."""

import numpy as np

from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.policy import ClusterView
from cruise.domain.arrays import Int64Array
from cruise.domain.usage import StatisticColumns, StatisticKey, StatisticsTable

UNKNOWN = StatisticsTable.of_rows([])


class KnownStatistics:
    """The statistics as the last pass found them.

    `row_of` has each container's row of `columns`, -1 without any; the first `own_rows` are containers' own.
    """

    def __init__(self, recording: Recording, statistics: ReplayedStatistics) -> None:
        count = len(recording.containers)
        self.row_of = np.full(count, -1, dtype=np.int64)
        self.columns: StatisticColumns = UNKNOWN
        self.own_rows = 0
        self._containers = recording.containers
        self._statistics = statistics
        self._of_birth = np.zeros(count, dtype=np.int64)

    def refresh(self, view: ClusterView) -> None:
        """Estimate anew, as of the last samples."""
        placed = view.node >= 0
        usable, columns = self._statistics.of_containers(placed)
        self.own_rows = len(usable)
        row_of = np.full(len(placed), -1, dtype=np.int64)
        row_of[usable] = np.arange(len(usable))
        lacking = np.flatnonzero(placed & (row_of < 0)).tolist()
        if lacking:
            of_workloads = self._statistics.of_workloads()
            rows = [self._row_of_workload(container, of_workloads) for container in lacking]
            found = [(container, row) for container, row in zip(lacking, rows, strict=True) if row is not None]
            row_of[[container for container, _ in found]] = len(usable) + np.arange(len(found))
            theirs = of_workloads.take(np.array([row for _, row in found], dtype=np.int64))
            columns = columns.followed_by(theirs)
        self.row_of, self.columns, self._of_birth = row_of, columns, view.born.copy()

    def of(self, containers: Int64Array) -> StatisticsTable:
        """Return what the last pass knew of some containers."""
        known = containers[self.row_of[containers] >= 0].tolist()
        keys = [
            StatisticKey(one.namespace, one.pod, str(one.workload), one.container)
            for one in map(self._containers.__getitem__, known)
        ]
        return StatisticsTable.of_columns(self.columns.take(self.row_of[known]), keys) if known else UNKNOWN

    def between_passes(self, container: int, view: ClusterView) -> StatisticsTable:
        """Return what speaks for a container's pod until the next pass: the last one may have known another pod."""
        if self._of_birth[container] == view.born[container]:
            return self.of(np.array([container]))
        of_workloads = self._statistics.of_workloads()
        row = self._row_of_workload(container, of_workloads)
        return UNKNOWN if row is None else StatisticsTable.of_rows([of_workloads.row(row)])

    def _row_of_workload(self, container: int, of_workloads: StatisticsTable) -> int | None:
        one = self._containers[container]
        return of_workloads.find(one.namespace, one.pod, one.workload, one.container, "")
