"""Statistics put together: new rows before those without news."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cruise.domain.resources import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey, PeakKey, Statistic, StatisticKey, StatisticsTable

# Usage in columns, as statistics are estimated from it. A row of `RecentUsage` is a container; a number of `KnownPeaks` is a container of a workload, told apart by identity. A number's parent is the same container without identity: it stands for the whole workload, whose pods inherit from it.

# The first hour, or the first sample, of what was never seen.
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class RecentUsage:
    """The last hour of R containers, NaN where there is no sample.

    The matrices have one column a grid time; `columns` lists them from the oldest time to the newest, which is the
    time of the statistics. `number` is what the row's peaks belong to, -1 for a row without container; `newest` is
    the time of its last sample in Unix seconds, `whole` the last one at which both resources are known, 0 for none.
    """

    cpu_demand_millicores: Float32Array
    memory_bytes: Float64Array
    columns: Int64Array
    number: Int64Array
    psi_known: BoolArray
    newest: Int64Array
    is_complete: Int64Array


@dataclass(frozen=True, slots=True)
class KnownPeaks:
    """What the hours of the peak window held, one entry a number; `parent` is its own for a key without identity.

    `first_hour` is the first hour with a sample, NEVER where there is none.
    """

    keys: Sequence[PeakKey]
    parent: Int64Array
    cpu_peak_millicores: Float64Array
    memory_peak_bytes: Float64Array
    memory_7d_max_bytes: Float64Array
    first_hour: Int64Array


@dataclass(frozen=True, slots=True)
class RevisionGroups:
    """Live containers of workloads whose pods state different resources, one entry each.

    `groups` has the same number for those of a workload's container that state the same, -1 for any other container;
    `young` tells which belong to pods that are too young to be judged by themselves.
    """

    groups: Int64Array
    new_containers: BoolArray


@dataclass(frozen=True, slots=True)
class RunningContainers:
    """The containers of the pods that exist, and the row of each in `RecentUsage`, -1 where it was never seen.

    `mixed` is None where all pods of each workload state the same resources.
    """

    keys: Sequence[StatisticKey]
    rows: Int64Array
    mixed: RevisionGroups | None = None


def add_earlier_rows(
    table: StatisticsTable, earlier: StatisticsTable, live: Collection[StatisticKey]
) -> StatisticsTable:
    """Add the earlier rows of live containers and of workloads that `table` has no row for.

    They keep their `updated_at`, by which their age is judged.
    """
    kept = []
    for key in live:
        row = earlier.row_of_container.get(get_container_key(key))
        if row is not None and get_container_key(key) not in table.row_of_container:
            kept.append(row)
    kept += [row for key, row in earlier.row_of_workload.items() if key not in table.row_of_workload]
    return table.join(earlier.select(np.array(kept, dtype=np.int64))) if kept else table


def add_rejections(
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
    lacking = [
        key
        for key in live
        if get_container_key(key) in refused and get_container_key(key) not in table.row_of_container
    ]
    if lacking:
        rows = [earlier.row_of_container.get(get_container_key(key)) for key in lacking]
        known = [
            Statistic(key, 0, 0, 0, 0, 0, 0, 0) if row is None else earlier.row(row)
            for key, row in zip(lacking, rows, strict=True)
        ]
        table = table.join(StatisticsTable.from_rows(known))
    percent, reasons = table.rejected_percent.copy(), table.rejected_reasons.copy()
    of_workload: dict[PeakKey, list[tuple[int, int]]] = defaultdict(list)
    for key in live:
        share = refused.get(get_container_key(key), (0, 0))
        row = table.row_of_container.get(get_container_key(key))
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
    return replace(table, rejected_percent=percent, rejected_reasons=reasons)


def get_container_key(key: StatisticKey) -> ContainerKey:
    """Return the container that a statistic of a pod is about."""
    return ContainerKey(key.namespace, key.pod, key.container)


def group_containers_by_workload(statistics: StatisticsTable) -> dict[tuple[str, str], set[str]]:
    """Return the names of the containers that statistics know, by namespace and workload (Kind/name)."""
    found: dict[tuple[str, str], set[str]] = {}
    for key in statistics.keys:
        found.setdefault((key.namespace, key.workload), set()).add(key.container)
    return found
