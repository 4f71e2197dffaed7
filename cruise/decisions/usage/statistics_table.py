"""Statistics put together: new rows before those without news."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from cruise.domain.usage import ContainerKey, PeakKey, Statistic, StatisticKey, StatisticsTable


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


def with_refusals(
    table: StatisticsTable,
    earlier: StatisticsTable,
    refused: Mapping[ContainerKey, tuple[int, int]],
    live: Collection[StatisticKey],
) -> StatisticsTable:
    """Write into the rows how many samples of a window were refused, as (percent, bits of the reasons).

    A live container of which too few samples are left for a row keeps its earlier one, or gets one that knows nothing:
    what is said of it is that its usage is implausible. A workload's row has the mean over its live containers.
    """
    if not refused:
        return table
    lacking = [key for key in live if container_of(key) in refused and container_of(key) not in table.row_of_container]
    if lacking:
        rows = [earlier.row_of_container.get(container_of(key)) for key in lacking]
        known = [
            Statistic(key, 0, 0, 0, 0, 0, 0, 0) if row is None else earlier.row(row)
            for key, row in zip(lacking, rows, strict=True)
        ]
        table = table.joined(StatisticsTable.of_rows(known))
    percent, reasons = table.refused_percent.copy(), table.refused_reasons.copy()
    of_workload: dict[PeakKey, list[tuple[int, int]]] = defaultdict(list)
    for key in live:
        share = refused.get(container_of(key), (0, 0))
        row = table.row_of_container.get(container_of(key))
        if row is not None:
            percent[row], reasons[row] = share
        if key.workload:
            for identity in {key.identity, ""}:
                of_workload[PeakKey(key.namespace, key.workload, key.container, identity)].append(share)
    for peak_key, shares in of_workload.items():
        row = table.row_of_workload.get(peak_key)
        if row is not None and any(bits for _, bits in shares):
            percent[row] = -(-sum(share for share, _ in shares) // len(shares))
            reasons[row] = np.bitwise_or.reduce([bits for _, bits in shares])
    return replace(table, refused_percent=percent, refused_reasons=reasons)


def container_of(key: StatisticKey) -> ContainerKey:
    """Return the container that a statistic of a pod is about."""
    return ContainerKey(key.namespace, key.pod, key.container)


def containers_of_workloads(statistics: StatisticsTable) -> dict[tuple[str, str], set[str]]:
    """Return the names of the containers that statistics know, by namespace and workload (Kind/name)."""
    found: dict[tuple[str, str], set[str]] = {}
    for key in statistics.keys:
        found.setdefault((key.namespace, key.workload), set()).add(key.container)
    return found
