"""Statistics in memory: one table, replaced row by row or whole."""

import numpy as np

from cruise.domain.usage import StatisticKey, StatisticsTable


def merged(old: StatisticsTable, new: StatisticsTable) -> StatisticsTable:
    """Return `new` with those rows of `old` that it replaces none of; of two rows for one key, the later counts."""
    if old.keys == new.keys:
        return new
    last = {_subject(key): row for row, key in enumerate(new.keys)}
    kept = [row for row, key in enumerate(old.keys) if _subject(key) not in last]
    if not kept and len(last) == len(new.keys):
        return new
    return old.chosen(np.array(kept, dtype=np.int64)).joined(new.chosen(np.array(list(last.values()), dtype=np.int64)))


def rows_of_pod(table: StatisticsTable, namespace: str, pod: str, workload: str, identity: str) -> StatisticsTable:
    """Return the rows that may speak for one pod: its own, and its workload's for its identity or for none."""
    rows = [
        row
        for row, key in enumerate(table.keys)
        if key.namespace == namespace
        and (key.pod == pod if key.pod else key.workload == workload and key.identity in (identity, ""))
    ]
    return table.chosen(np.array(rows, dtype=np.int64))


def _subject(key: StatisticKey) -> tuple[str, ...]:
    """Return what may have one row only: a container of a pod, or of a workload and identity."""
    if key.pod:
        return (key.namespace, key.pod, key.container)
    return (key.namespace, key.workload, key.container, key.identity)
