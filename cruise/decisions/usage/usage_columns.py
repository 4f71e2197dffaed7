"""Recent usage and known peaks in columns, their percentiles and maxima, and how rows of statistics are merged.

A row of `RecentUsage` is a container. A number of `KnownPeaks` is a container of a workload, or of one identity of it;
its parent is the same container without identity, which represents the whole workload.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.usage import ContainerKey, PeakKey, Statistic, StatisticKey, StatisticsTable

# The time of the first sample of what was never seen.
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class EstimationTime:
    """The time of an estimate (`at`, Unix seconds), and the intervals that it depends on, in seconds."""

    at: int
    step: int
    max_age_seconds: int
    new_workload_seconds: int


@dataclass(frozen=True, slots=True)
class RecentUsage:
    """The last hour of R containers, NaN where there is no sample.

    The matrices have one column per grid time; `columns` lists them from the oldest to the newest, which is the time of
    the statistics. `number` is what the row's peaks belong to, -1 for a row without container. `newest` is the time of
    its last sample in Unix seconds, `newest_complete` of the last one with both resources, 0 for none.
    """

    cpu_demand_millicores: Float32Array
    memory_bytes: Float64Array
    columns: Int64Array
    number: Int64Array
    psi_known: BoolArray
    newest: Int64Array
    newest_complete: Int64Array


@dataclass(frozen=True, slots=True)
class KnownPeaks:
    """The peaks of the peak window, one entry per number; a key without identity is its own parent.

    `first_hour` is the first hour with a sample, NEVER if there is none.
    """

    keys: Sequence[PeakKey]
    parent: Int64Array
    cpu_peak_millicores: Float64Array
    memory_peak_bytes: Float64Array
    cpu_7d_max_millicores: Float64Array
    memory_7d_max_bytes: Float64Array
    first_hour: Int64Array


@dataclass(frozen=True, slots=True)
class RevisionGroups:
    """Running containers of workloads whose pods state different resources, one entry each.

    Containers of a workload that state the same share a number in `groups`, -1 for any other container;
    `new_containers` belong to pods that are too young for their own statistics.
    """

    groups: Int64Array
    new_containers: BoolArray


@dataclass(frozen=True, slots=True)
class RunningContainers:
    """The containers of existing pods, and the row of each in `RecentUsage`, -1 if it was never seen.

    `mixed` is None if all pods of each workload state the same resources. `run_starts` has the creation of each
    container's pod in Unix seconds if the pod runs to completion, else `NEVER`; None if that makes no difference.
    """

    keys: Sequence[StatisticKey]
    rows: Int64Array
    mixed: RevisionGroups | None = None
    run_starts: Int64Array | None = None


@dataclass(frozen=True, slots=True)
class RunToCompletionColumns:
    """Which numbers of `KnownPeaks` belong to workloads whose pods run to completion.

    `oldest_start` is the creation of their oldest running pod in Unix seconds, `NEVER` without one.
    """

    runs_to_completion: BoolArray
    oldest_start: Int64Array


def carry_over_earlier_statistics(
    table: StatisticsTable, earlier: StatisticsTable, running: Collection[StatisticKey], oldest: int
) -> StatisticsTable:
    """Add the earlier rows of running containers and of workloads that `table` has no row for.

    They keep their `updated_at`, which shows their age; workloads' rows from before `oldest` (Unix seconds) are
    dropped, since names of runs may never occur again.
    """
    rows = []
    for key in running:
        row = earlier.row_of_container.get(get_container_key(key))
        if row is not None and get_container_key(key) not in table.row_of_container:
            rows.append(row)
    updated_at = earlier.updated_at.tolist()
    rows += [
        row
        for key, row in earlier.row_of_workload.items()
        if key not in table.row_of_workload and updated_at[row] >= oldest
    ]
    return table.join(earlier.select(np.array(rows, dtype=np.int64))) if rows else table


def add_rejections(
    table: StatisticsTable,
    earlier: StatisticsTable,
    rejected: Mapping[ContainerKey, tuple[int, int]],
    running: Collection[StatisticKey],
) -> StatisticsTable:
    """Write into the rows how many samples of a window were rejected, as (percent, bits of the reasons).

    A running container with too few samples left for a row keeps its earlier one, or gets an empty one, so that its
    usage is reported as implausible. A workload's row has the mean over its running containers.
    """
    if not rejected:
        return table
    without_row = [
        key
        for key in running
        if get_container_key(key) in rejected and get_container_key(key) not in table.row_of_container
    ]
    if without_row:
        rows = [earlier.row_of_container.get(get_container_key(key)) for key in without_row]
        known = [
            Statistic(key, 0, 0, 0, 0, 0, 0, 0) if row is None else earlier.get_row(row)
            for key, row in zip(without_row, rows, strict=True)
        ]
        table = table.join(StatisticsTable.from_rows(known))
    percent, reasons = table.rejected_percent.copy(), table.rejected_reasons.copy()
    by_workload: dict[PeakKey, list[tuple[int, int]]] = defaultdict(list)
    for key in running:
        share = rejected.get(get_container_key(key), (0, 0))
        row = table.row_of_container.get(get_container_key(key))
        if row is not None:
            percent[row], reasons[row] = share
        if key.workload:
            for identity in {key.identity, ""}:
                by_workload[PeakKey(key.namespace, key.workload, key.container, identity)].append(share)
    for peak_key, shares in by_workload.items():
        row = table.row_of_workload.get(peak_key)
        if row is not None and any(bits for _, bits in shares):
            percent[row] = -(-sum(share for share, _ in shares) // len(shares))
            reasons[row] = np.bitwise_or.reduce([bits for _, bits in shares])
    return replace(table, rejected_percent=percent, rejected_reasons=reasons)


def get_container_key(key: StatisticKey) -> ContainerKey:
    """Return the container that a pod's statistic belongs to."""
    return ContainerKey(key.namespace, key.pod, key.container)


def group_containers_by_workload(statistics: StatisticsTable) -> dict[tuple[str, str], set[str]]:
    """Return the names of the containers that statistics know, by namespace and workload (Kind/name)."""
    by_workload: dict[tuple[str, str], set[str]] = {}
    for key in statistics.keys:
        by_workload.setdefault((key.namespace, key.workload), set()).add(key.container)
    return by_workload


def compute_row_percentiles(rows: NDArray[np.floating], quantile: float) -> tuple[Float64Array, Int64Array]:
    """Return each row's percentile and number of samples; a row without samples has NaN.

    This equals numpy.nanpercentile with linear interpolation, and PromQL's quantile_over_time: sorting moves NaN to the
    end, so a single sort serves rows with any number of samples.
    """
    counts: Int64Array = np.count_nonzero(~np.isnan(rows), axis=1)
    if rows.shape[1] == 0:
        return np.full(len(rows), np.nan), counts
    ordered = np.sort(rows, axis=1)
    position = np.maximum(counts - 1, 0) * quantile
    below = position.astype(np.int64)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0))
    at = np.arange(len(rows))
    low = ordered[at, below].astype(np.float64)
    high = ordered[at, above].astype(np.float64)
    return low + (high - low) * (position - below), counts


def compute_group_maxima(values: Float64Array, groups: Int64Array, count: int) -> Float64Array:
    """Return the largest value of each of `count` groups, NaN for an empty group; values of group -1 are ignored."""
    largest = np.full(count, np.nan)
    known = (groups >= 0) & ~np.isnan(values)
    np.fmax.at(largest, groups[known], values[known])
    return largest
