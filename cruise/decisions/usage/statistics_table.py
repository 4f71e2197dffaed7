"""Statistics put together: new rows before those without news, and what a kill taught in the rows it concerns."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from cruise.domain.arrays import Int64Array
from cruise.domain.usage import ContainerKey, OomRecord, PeakKey, StatisticColumns, StatisticKey, StatisticsTable


def joined_tables(first: StatisticsTable, second: StatisticsTable) -> StatisticsTable:
    """Put the rows of one table after those of another; they have no key in common."""
    return chosen_rows((first, np.arange(len(first.keys))), (second, np.arange(len(second.keys))))


def with_earlier(table: StatisticsTable, earlier: StatisticsTable, live: Collection[StatisticKey]) -> StatisticsTable:
    """Add the earlier rows of live containers and of workloads that `table` has no row for.

    They keep their `updated_at`, by which their age is judged.
    """
    kept = []
    for key in live:
        row = earlier.row_of_container.get(container_of(key))
        if row is not None and container_of(key) not in table.row_of_container:
            kept.append(row)
    kept += [row for key, row in earlier.row_of_workload.items() if key not in table.row_of_workload]
    if not kept:
        return table
    return chosen_rows((table, np.arange(len(table.keys))), (earlier, np.array(kept, dtype=np.int64)))


def with_lesson(table: StatisticsTable, record: OomRecord) -> StatisticsTable:
    """Raise `oom_memory` to what a kill taught, in the pod's own row and in its workload's for its identity."""
    rows = [table.row_of_container.get(ContainerKey(record.namespace, record.pod, record.container))]
    if record.workload:
        of_workload = PeakKey(record.namespace, record.workload, record.container, record.identity)
        rows.append(table.row_of_workload.get(of_workload))
    oom = table.oom_memory_bytes.copy()
    for row in rows:
        if row is not None:
            oom[row] = max(int(oom[row]), record.oom_memory_bytes)
    return replace(table, oom_memory_bytes=oom)


def container_of(key: StatisticKey) -> ContainerKey:
    """Return the container that a statistic of a pod is about."""
    return ContainerKey(key.namespace, key.pod, key.container)


def chosen_rows(*choices: tuple[StatisticsTable, Int64Array]) -> StatisticsTable:
    """Build a table from chosen rows of others, one after the other."""
    keys = [table.keys[row] for table, rows in choices for row in rows.tolist()]

    def column(name: str) -> Int64Array:
        return np.concatenate([getattr(table, name)[rows] for table, rows in choices])

    columns = StatisticColumns(
        updated_at=column("updated_at"),
        history_since=column("history_since"),
        cpu_base_millicores=column("cpu_base_millicores"),
        cpu_peak_millicores=column("cpu_peak_millicores"),
        memory_base_bytes=column("memory_base_bytes"),
        memory_peak_bytes=column("memory_peak_bytes"),
        memory_7d_max_bytes=column("memory_7d_max_bytes"),
        oom_memory_bytes=column("oom_memory_bytes"),
        memory_last_bytes=column("memory_last_bytes"),
        psi_known=np.concatenate([table.psi_known[rows] for table, rows in choices]),
    )
    return StatisticsTable.of_columns(columns, keys)
