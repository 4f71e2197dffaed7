"""Statistics of pods with pod-level resources: the sums over their containers.

The sum of peaks is at least the peak of the sum, so a request that holds all peaks at the same time holds the pod's.
Bases may add up to less than the pod's own base: what is missing is part of the headroom up to the summed peaks.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import POD_LEVEL, Pod
from cruise.domain.usage import STATISTIC_COLUMNS, Statistic, StatisticColumns, StatisticKey, StatisticsTable


def add_pod_level_rows(statistics: StatisticsTable, pods: Iterable[Pod]) -> StatisticsTable:
    """Add a row for each pod with pod-level resources whose containers all have one."""
    found: list[tuple[StatisticKey, list[int]]] = []
    for pod in pods:
        if pod.pod_level is not None:
            rows = [
                statistics.find_row(pod.namespace, pod.name, pod.workload, one.name, pod.identity)
                for one in pod.sized_containers
            ]
            known = [row for row in rows if row is not None]
            workload = "" if pod.workload is None else str(pod.workload)
            key = StatisticKey(pod.namespace, pod.name, workload, POD_LEVEL, pod.identity)
            if known and len(known) == len(rows):
                found.append((key, known))
    if not found:
        return statistics
    columns = statistics.take(np.array(list(chain.from_iterable(rows for _, rows in found)), dtype=np.int64))
    counts = [len(rows) for _, rows in found]
    first = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
    return statistics.join(StatisticsTable.from_columns(_sum_columns(columns, first), [key for key, _ in found]))


def sum_statistics(statistics: Sequence[Statistic]) -> Statistic:
    """Return the statistic of a pod from those of all its containers."""
    columns = StatisticColumns.from_getter(lambda name: [getattr(one, name) for one in statistics])
    key = statistics[0].key._replace(container=POD_LEVEL)
    return StatisticsTable.from_columns(_sum_columns(columns, np.zeros(1, dtype=np.int64)), [key]).get_row(0)


def _sum_columns(columns: StatisticColumns, first: Int64Array) -> StatisticColumns:
    """Sum entries by pod; each pod's begin at `first`.

    The oldest update and the shortest history count for the pod; a history of unknown length (0) is unknown. After an
    OOM kill the other containers count with their peaks.
    """
    kill, peak = columns.oom_memory_bytes, columns.memory_peak_bytes
    was_killed = np.maximum.reduceat(kill, first) > 0
    since = columns.history_since
    joined = {
        "updated_at": np.minimum.reduceat(columns.updated_at, first),
        "history_since": np.where(np.minimum.reduceat(since, first) == 0, 0, np.maximum.reduceat(since, first)),
        "oom_memory_bytes": np.where(was_killed, np.add.reduceat(np.maximum(kill, peak), first), 0),
        "rejected_percent": np.maximum.reduceat(columns.rejected_percent, first),
        "rejected_reasons": np.bitwise_or.reduceat(columns.rejected_reasons, first),
        "psi_known": np.logical_and.reduceat(columns.psi_known, first),
    }
    return StatisticColumns(
        *(
            joined[name] if name in joined else np.add.reduceat(getattr(columns, name), first)
            for name in STATISTIC_COLUMNS
        )
    )
