"""Statistics put together: new rows before those without news, and what a kill taught in the rows it concerns."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from cruise.domain.usage import ContainerKey, OomRecord, PeakKey, StatisticKey, StatisticsTable


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
    return table.joined(earlier.chosen(np.array(kept, dtype=np.int64))) if kept else table


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
