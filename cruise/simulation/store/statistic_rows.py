"""Statistics in memory: one table, replaced row by row or whole."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cruise.domain.usage import StatisticKey, StatisticsTable, index_of_containers, index_of_workloads

_ARRAYS = (
    "updated_at",
    "history_since",
    "cpu_base_millicores",
    "cpu_peak_millicores",
    "memory_base_bytes",
    "memory_peak_bytes",
    "memory_7d_max_bytes",
    "oom_memory_bytes",
    "memory_last_bytes",
    "psi_known",
)

EMPTY = StatisticsTable.of_rows([])


def merged(old: StatisticsTable, new: StatisticsTable) -> StatisticsTable:
    """Return `new` with those rows of `old` that it says nothing about; of two rows for one, the later counts."""
    if old.keys == new.keys:
        return _indexed(new)
    subjects = [_subject(key) for key in new.keys]
    last = {subject: row for row, subject in enumerate(subjects)}
    kept = [row for row, key in enumerate(old.keys) if _subject(key) not in last]
    if not kept and len(last) == len(subjects):
        return _indexed(new)
    return joined(taken(old, kept), taken(new, list(last.values())))


def taken(table: StatisticsTable, rows: Sequence[int]) -> StatisticsTable:
    """Return a table of some of the rows."""
    chosen = np.asarray(rows, dtype=np.int64)
    arrays: dict[str, Any] = {name: getattr(table, name)[chosen] for name in _ARRAYS}
    return StatisticsTable(keys=[table.keys[row] for row in rows], **arrays)


def joined(first: StatisticsTable, second: StatisticsTable) -> StatisticsTable:
    """Return the rows of two tables as one, with its indexes."""
    arrays: dict[str, Any] = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in _ARRAYS}
    return _indexed(StatisticsTable(keys=[*first.keys, *second.keys], **arrays))


def rows_of_pod(table: StatisticsTable, namespace: str, pod: str, workload: str, identity: str) -> StatisticsTable:
    """Return the rows that may speak for one pod: its own, and its workload's for its identity or for none."""
    rows = [
        row
        for row, key in enumerate(table.keys)
        if key.namespace == namespace
        and (key.pod == pod if key.pod else key.workload == workload and key.identity in (identity, ""))
    ]
    return _indexed(taken(table, rows))


def _subject(key: StatisticKey) -> tuple[str, ...]:
    """Return what may have one row only: a container of a pod, or of a workload and identity."""
    if key.pod:
        return (key.namespace, key.pod, key.container)
    return (key.namespace, key.workload, key.container, key.identity)


def _indexed(table: StatisticsTable) -> StatisticsTable:
    if len(table.row_of_container) + len(table.row_of_workload) == len(table.keys):
        return table
    return replace(
        table,
        row_of_container=index_of_containers(table.keys),
        row_of_workload=index_of_workloads(table.keys),
    )
