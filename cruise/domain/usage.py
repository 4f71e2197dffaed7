"""Usage as samples (columns of one-minute samples) and as statistics (one row a container)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array
from cruise.domain.cluster import WorkloadRef
from cruise.domain.original_resources import WorkloadRevisions
from cruise.domain.records import AverageHeadroomShare


class ContainerKey(NamedTuple):
    """One container of one pod."""

    namespace: str
    pod: str
    container: str


class PeakKey(NamedTuple):
    """A container of a workload and identity (see `Pod.identity`), to which peaks belong."""

    namespace: str
    workload: str  # Kind/name
    container: str
    identity: str


class SampleRejectionReason(StrEnum):
    """Why a sample is implausible; the order numbers the bits of `rejected_reasons`."""

    ABOVE_NODE_CAPACITY = "above-node-capacity"
    ABOVE_LIMIT = "above-limit"
    SERIES_DISAGREE = "series-disagree"
    ABOVE_NODE_USAGE = "above-node-usage"
    OTHER_CLUSTER = "other-cluster"


@dataclass(frozen=True, slots=True)
class SampleBlock:
    """Samples of many containers on a regular grid of times.

    `times` has T ascending, evenly spaced Unix seconds. Matrices have one row for each of `keys` and T columns, NaN
    without a sample. `cpu_demand_millicores` is usage × (1 + psi) over the step that ends at the time; `memory_bytes`
    is the working set at the time. `psi_known` is False without a pressure series. `nodes` has the node of each
    container, empty if unknown; it may be empty as a whole. `cpu_use_millicores` is the demand without pressure, None
    if not read. `rejected` (R, T) is True for missing samples that were implausible, None if there are none.
    `from_other_clusters` counts samples that were excluded because they belong, or may belong, to another cluster, with
    one such container.
    """

    keys: Sequence[ContainerKey]
    times: Int64Array
    cpu_demand_millicores: Float32Array
    memory_bytes: Float64Array
    psi_known: BoolArray
    nodes: Sequence[str] = ()
    cpu_use_millicores: Float32Array | None = None
    rejected: BoolArray | None = None
    from_other_clusters: tuple[int, ContainerKey] | None = None


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """Usage of nodes by their root control groups: one row a node, one column a time, NaN if unknown."""

    nodes: Sequence[str]
    times: Int64Array
    cpu_use_millicores: Float64Array
    memory_bytes: Float64Array


NO_NODE_USAGE = NodeUsage((), np.empty(0, dtype=np.int64), np.empty((0, 0)), np.empty((0, 0)))


class NodeLoadAverage(NamedTuple):
    """A node's 1-minute load average and its time in Unix seconds, which identifies the sample."""

    load1: float
    at: float


class StatisticKey(NamedTuple):
    """The subject of a statistic; an empty `pod` means all pods of the workload without their own statistic."""

    namespace: str
    pod: str
    workload: str  # Kind/name, empty for a bare pod
    container: str
    identity: str = ""


@dataclass(frozen=True, slots=True)
class StatisticColumns:
    """Statistics of many containers in columns of equal length, without keys.

    `updated_at` and `history_since` are Unix seconds (`history_since` 0: unknown); pods that run to completion have a
    history once an earlier one has ended. Peaks are over the hours that count now, 7-day maxima over all hours
    (`cpu_7d_max_millicores` 0: unknown). `oom_memory_bytes` is 0 without a kill in the last 7 days.
    `cpu_start_millicores` is what a workload's container uses while its pods start, 0 if unknown and for single pods.
    `rejected_percent` is the share of implausible samples in a window; bit n of
    `rejected_reasons` is the n-th `SampleRejectionReason`.
    """

    updated_at: Int64Array
    history_since: Int64Array
    cpu_base_millicores: Int64Array
    cpu_peak_millicores: Int64Array
    memory_base_bytes: Int64Array
    memory_peak_bytes: Int64Array
    memory_7d_max_bytes: Int64Array
    oom_memory_bytes: Int64Array
    memory_last_bytes: Int64Array
    rejected_percent: Int64Array
    rejected_reasons: Int64Array
    psi_known: BoolArray
    cpu_7d_max_millicores: Int64Array
    cpu_start_millicores: Int64Array

    @staticmethod
    def from_getter(entries: Callable[[str], Sequence[Any]]) -> "StatisticColumns":
        """Build the columns from a function of their names."""
        columns: dict[str, Any] = {
            name: np.array(entries(name), dtype=np.bool_ if name == "psi_known" else np.int64)
            for name in STATISTIC_COLUMNS
        }
        return StatisticColumns(**columns)

    def take(self, positions: Int64Array) -> "StatisticColumns":
        """Return the entries at these positions, in order."""
        return StatisticColumns(*(getattr(self, name)[positions] for name in STATISTIC_COLUMNS))

    def concatenate(self, others: "StatisticColumns") -> "StatisticColumns":
        """Return these entries, then others."""
        return StatisticColumns(
            *(np.concatenate((getattr(self, name), getattr(others, name))) for name in STATISTIC_COLUMNS)
        )


STATISTIC_COLUMNS = tuple(column.name for column in fields(StatisticColumns))


@dataclass(frozen=True, slots=True)
class StatisticsTable(StatisticColumns):
    """Statistics with their keys, one row a key.

    Containers without a base are not in the table. `revisions` is None if they are not tracked,
    `average_headroom_share` if no node pass has stored it yet.
    """

    keys: Sequence[StatisticKey]
    revisions: WorkloadRevisions | None = None
    average_headroom_share: AverageHeadroomShare | None = None
    row_of_container: Mapping[ContainerKey, int] = field(default_factory=dict)
    row_of_workload: Mapping[PeakKey, int] = field(default_factory=dict)

    @staticmethod
    def from_columns(columns: StatisticColumns, keys: Sequence[StatisticKey]) -> "StatisticsTable":
        """Add keys to columns."""
        figures: dict[str, Any] = {name: getattr(columns, name) for name in STATISTIC_COLUMNS}
        return StatisticsTable(
            **figures,
            keys=keys,
            row_of_container=index_containers(keys),
            row_of_workload=index_workloads(keys),
        )

    @staticmethod
    def from_rows(rows: Sequence["Statistic"]) -> "StatisticsTable":
        """Build a table from rows, in order."""
        columns = StatisticColumns.from_getter(lambda name: [getattr(row, name) for row in rows])
        return StatisticsTable.from_columns(columns, [row.key for row in rows])

    def select(self, rows: Int64Array) -> "StatisticsTable":
        """Return a table of some rows, in order."""
        table = StatisticsTable.from_columns(self.take(rows), [self.keys[row] for row in rows.tolist()])
        return replace(table, revisions=self.revisions, average_headroom_share=self.average_headroom_share)

    def join(self, others: "StatisticsTable") -> "StatisticsTable":
        """Return these rows, then others; no key is in both."""
        table = StatisticsTable.from_columns(self.concatenate(others), [*self.keys, *others.keys])
        return replace(table, revisions=self.revisions, average_headroom_share=self.average_headroom_share)

    def get_row(self, index: int) -> "Statistic":
        """Return one row as a `Statistic`."""
        values: dict[str, Any] = {name: getattr(self, name).item(index) for name in STATISTIC_COLUMNS}
        return Statistic(key=self.keys[index], **values)

    def find_row(
        self, namespace: str, pod: str, workload: WorkloadRef | None, container: str, identity: str
    ) -> int | None:
        """Return the row of a container: its own, or its workload's, or None."""
        # A plain tuple equals a named one and is made in half the time.
        row = self.row_of_container.get((namespace, pod, container))  # type: ignore[call-overload]
        if row is not None or workload is None:
            return row  # type: ignore[no-any-return]
        workload_name = str(workload)
        row = self.row_of_workload.get((namespace, workload_name, container, identity))  # type: ignore[call-overload]
        if row is None and identity:
            row = self.row_of_workload.get((namespace, workload_name, container, ""))  # type: ignore[call-overload]
        return row  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Statistic:
    """One row of a `StatisticsTable`; times in Unix seconds."""

    key: StatisticKey
    updated_at: int
    history_since: int
    cpu_base_millicores: int
    cpu_peak_millicores: int
    memory_base_bytes: int
    memory_peak_bytes: int
    memory_7d_max_bytes: int
    oom_memory_bytes: int = 0
    memory_last_bytes: int = 0
    rejected_percent: int = 0
    rejected_reasons: int = 0
    psi_known: bool = True
    cpu_7d_max_millicores: int = 0
    cpu_start_millicores: int = 0

    @property
    def rejections(self) -> tuple[SampleRejectionReason, ...]:
        """The reasons why samples were rejected."""
        return tuple(reason for bit, reason in enumerate(SampleRejectionReason) if self.rejected_reasons >> bit & 1)


def index_containers(keys: Sequence[StatisticKey]) -> dict[ContainerKey, int]:
    """Map each key of a pod to its row."""
    return {ContainerKey(key.namespace, key.pod, key.container): row for row, key in enumerate(keys) if key.pod}


def index_workloads(keys: Sequence[StatisticKey]) -> dict[PeakKey, int]:
    """Map each key of a workload to its row."""
    return {
        PeakKey(key.namespace, key.workload, key.container, key.identity): row
        for row, key in enumerate(keys)
        if not key.pod
    }


@dataclass(frozen=True, slots=True)
class PartitionCounterTail:
    """The last raw counters of a partition, with which the next read continues.

    One row a series (`series`: the runtime's container id); NaN if a counter is absent. `changed_at` is the grid time
    of the last scrape that is known to have read it, in Unix seconds: `at`, or earlier if no series of that scrape has
    changed since. Negative if no scrape is known: the time since which nothing has changed.
    """

    at: int  # Unix seconds of the grid time that the counters were read for
    keys: Sequence[ContainerKey]
    series: Sequence[str]
    cpu_seconds: Float64Array
    cpu_waiting_seconds: Float64Array
    changed_at: Int64Array


@dataclass(frozen=True, slots=True)
class OomRecord:
    """A stored OOM kill; `oom_memory_bytes` is the limit at the kill, or else the last peak.

    `applies_to_workload`: it counts for all pods of the workload, because the killed pod does not run again.
    """

    namespace: str
    pod: str
    pod_uid: str
    workload: str
    container: str
    identity: str
    node: str | None
    finished_at: datetime
    memory_limit_bytes: int | None
    memory_request_bytes: int | None
    last_working_set_bytes: int | None
    oom_memory_bytes: int
    applies_to_workload: bool = False


@dataclass(frozen=True, slots=True)
class HourlyPeaks:
    """Largest samples of clock hours, one row a (key, hour); `hours` are hours since the Unix epoch.

    NaN if a resource had no sample in the hour.
    """

    keys: Sequence[PeakKey]
    hours: Int64Array
    cpu_demand_millicores: Float64Array
    memory_bytes: Float64Array


@dataclass(frozen=True, slots=True)
class PeakSummary:
    """Maxima over selected hours, one row a key; NaN without a sample.

    `cpu_peak_millicores` and `memory_peak_bytes` are over the hours of the query, the 7-day maxima over all hours since
    its start. `first_hour` is the earliest of these with a sample.
    """

    keys: Sequence[PeakKey]
    cpu_peak_millicores: Float64Array
    memory_peak_bytes: Float64Array
    cpu_7d_max_millicores: Float64Array
    memory_7d_max_bytes: Float64Array
    first_hour: Int64Array


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The time range of a partition that has been read, [read_from, read_until] except `gaps`, in Unix seconds.

    A gap is (start, end, tries), with at most two tries; after them it is read again once an hour.
    """

    read_from: int
    read_until: int
    gaps: tuple[tuple[int, int, int], ...] = ()
    counter_tail: PartitionCounterTail | None = None


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """The CPU that a container used while its pod started; times in Unix seconds.

    `ends_at` is 0 until the pod has been ready. Two observations of one start merge to their larger figures.
    """

    namespace: str
    workload: str  # Kind/name
    container: str
    pod_uid: str
    started_at: int
    ends_at: int
    sampled_until: int
    cpu_peak_millicores: float

    @property
    def is_complete(self) -> bool:
        """Whether the start has ended and was sampled to its end."""
        return 0 < self.ends_at <= self.sampled_until

    def merge(self, other: "ContainerStart") -> "ContainerStart":
        """Return the start by both observations."""
        return replace(
            self,
            ends_at=max(self.ends_at, other.ends_at),
            sampled_until=max(self.sampled_until, other.sampled_until),
            cpu_peak_millicores=max(self.cpu_peak_millicores, other.cpu_peak_millicores),
        )


@dataclass(frozen=True, slots=True)
class UsageUpdate:
    """The result of reading one partition, stored as a whole.

    `block` has only samples within the windows, or None. The update is stored if the database has read the partition
    until `continues_from`; None: in any case. `starts` are merged with the stored ones.
    """

    partition: str
    progress: PartitionProgress
    peaks: HourlyPeaks
    block: SampleBlock | None
    continues_from: int | None = None
    starts: Sequence[ContainerStart] = ()
