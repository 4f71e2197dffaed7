"""The stored statistics of pods and workloads, in memory."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import numpy as np

from cruise.domain.original_resources import NO_REVISIONS
from cruise.domain.records import RETENTION, AverageHeadroomShare
from cruise.domain.usage import StatisticKey, StatisticsTable


class InMemoryStatistics:
    """The latest statistics of each container, and of each workload, container and identity."""

    def __init__(self) -> None:
        self.table = StatisticsTable.from_rows([])

    def write(self, new: StatisticsTable) -> None:
        """Replace the rows of what `new` describes; the template revisions of both are kept."""
        known = self.table.revisions
        revisions = known if new.revisions is None else (known or NO_REVISIONS).merge(new.revisions)
        share = self.table.average_headroom_share
        self.table = replace(_merge(self.table, new), revisions=revisions, average_headroom_share=share)

    def record_average_headroom_share(self, average_share: AverageHeadroomShare) -> None:
        """Replace the average headroom share."""
        self.table = replace(self.table, average_headroom_share=average_share)

    def select_workloads(self) -> StatisticsTable:
        """Return the rows of workloads."""
        return self._select(lambda key: not key.pod)

    def select_pod(self, namespace: str, pod: str, workload: str, identity: str) -> StatisticsTable:
        """Return the rows that may describe one pod: its own, and its workload's for its identity or for none."""
        return self._select(
            lambda key: (
                key.namespace == namespace
                and (key.pod == pod if key.pod else key.workload == workload and key.identity in (identity, ""))
            )
        )

    def prune(self, now: datetime) -> None:
        """Drop rows and revisions older than their retention."""
        oldest, oldest_of_pods = [
            int((now - kept).timestamp()) for kept in (RETENTION.statistics, RETENTION.pod_statistics)
        ]
        since = [oldest_of_pods if key.pod else oldest for key in self.table.keys]
        rows = np.flatnonzero(self.table.updated_at >= since)
        if len(rows) < len(since):
            self.table = self.table.select(rows)
        if self.table.revisions is not None:
            seen = self.table.revisions.select_seen_since(oldest)
            self.table = replace(self.table, revisions=seen if seen.runs else None)

    def _select(self, is_wanted: Callable[[StatisticKey], bool]) -> StatisticsTable:
        rows = [row for row, key in enumerate(self.table.keys) if is_wanted(key)]
        return self.table.select(np.array(rows, dtype=np.int64))


def _merge(old: StatisticsTable, new: StatisticsTable) -> StatisticsTable:
    """Return `new` with the rows of `old` that it does not replace; of two rows with one key the later is used."""
    if old.keys == new.keys:
        return new
    last = {_get_owner(key): row for row, key in enumerate(new.keys)}
    kept = [row for row, key in enumerate(old.keys) if _get_owner(key) not in last]
    if not kept and len(last) == len(new.keys):
        return new
    return old.select(np.array(kept, dtype=np.int64)).join(new.select(np.array(list(last.values()), dtype=np.int64)))


def _get_owner(key: StatisticKey) -> tuple[str, ...]:
    """Return what may have one row only: a container of a pod, or of a workload and identity."""
    if key.pod:
        return (key.namespace, key.pod, key.container)
    return (key.namespace, key.workload, key.container, key.identity)
