"""Usage as it is read (minute samples, columnar) and as it is summed up (statistics, one row a container)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from cruise.domain.cluster import WorkloadRef
from cruise.domain.original_resources import WorkloadRevisions
from cruise.domain.records import HeadroomSharing
from cruise.domain.resources import BoolArray, Float32Array, Float64Array, Int64Array


class ContainerKey(NamedTuple):
    """One container of one pod."""

    namespace: str
    pod: str
    container: str


class PeakKey(NamedTuple):
    """What peaks belong to: a container of a workload, distinguished by identity (see `Pod.identity`)."""

    namespace: str
    workload: str  # Kind/name
    container: str
    identity: str


class SampleRejection(StrEnum):
    """Why a sample cannot be true; the order numbers the bits of `refused_reasons`."""

    ABOVE_NODE_CAPACITY = "above-node-capacity"
    ABOVE_LIMIT = "above-limit"
    SERIES_DISAGREE = "series-disagree"
    ABOVE_NODE_USAGE = "above-node-usage"
    OTHER_CLUSTER = "other-cluster"


@dataclass(frozen=True, slots=True)
class SampleBlock:
    """Samples of many containers on one regular grid of times.

    `times` has the T grid times as Unix seconds, ascending and evenly spaced; the matrices have one row a container
    of `keys` and T columns, NaN where there is no sample. `cpu_demand_millicores` is usage × (1 + psi) over the step
    that ends at the time; `memory_bytes` is the working set at the time. `psi_known` is False for a container
    whose pressure series is absent. `nodes` has the node of each container, empty where the source does not say;
    it may be left out whole. `cpu_use_millicores` is the demand without the pressure; a source may leave it out.
    `refused` (R, T) tells where a sample is missing because it cannot be true; left out, there is no such sample.
    `of_others` counts samples that were left out whole since they are, or may be, another cluster's, with one of these
    containers.
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
    """What nodes used in all, by their root control groups: one row a node, one column a time, NaN where unknown."""

    nodes: Sequence[str]
    times: Int64Array
    cpu_use_millicores: Float64Array
    memory_bytes: Float64Array


NO_NODE_USAGE = NodeUsage((), np.empty(0, dtype=np.int64), np.empty((0, 0)), np.empty((0, 0)))


class NodeLoadSample(NamedTuple):
    """A node's 1-minute load average, and when it was taken in Unix seconds: the same time means the same sample."""

    load1: float
    at: float


class StatisticKey(NamedTuple):
    """What a statistic is about; an empty `pod` means every pod of the workload that has none of its own."""

    namespace: str
    pod: str
    workload: str  # Kind/name, empty for a bare pod
    container: str
    identity: str = ""


@dataclass(frozen=True, slots=True)
class StatisticColumns:
    """Statistics of many containers in columns, without their keys; all have the same length.

    `updated_at` and `history_since` are Unix seconds (`history_since` 0: unknown). `oom_memory_bytes` is 0 where there
    was no kill in the last 7 days. `refused_percent` is how much of a window of samples could not be true, and
    `refused_reasons` why: bit n for the n-th `Refusal`.
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

    @staticmethod
    def from_getter(entries: Callable[[str], Sequence[Any]]) -> "StatisticColumns":
        """Build the columns from the entries of each, given by its name."""
        columns: dict[str, Any] = {
            name: np.array(entries(name), dtype=np.bool_ if name == "psi_known" else np.int64)
            for name in STATISTIC_COLUMNS
        }
        return StatisticColumns(**columns)

    def take(self, places: Int64Array) -> "StatisticColumns":
        """Return the entries at some places, in their order."""
        return StatisticColumns(*(getattr(self, name)[places] for name in STATISTIC_COLUMNS))

    def concatenate(self, others: "StatisticColumns") -> "StatisticColumns":
        """Return these entries and then others."""
        return StatisticColumns(
            *(np.concatenate((getattr(self, name), getattr(others, name))) for name in STATISTIC_COLUMNS)
        )


STATISTIC_COLUMNS = tuple(column.name for column in fields(StatisticColumns))


@dataclass(frozen=True, slots=True)
class StatisticsTable(StatisticColumns):
    """Statistics with their keys, one row a key.

    Rows whose base is not known yet are not in the table. `revisions` is None where they are not followed,
    `sharing` where no node pass has said yet how headroom is shared.
    """

    keys: Sequence[StatisticKey]
    revisions: WorkloadRevisions | None = None
    sharing: HeadroomSharing | None = None
    row_of_container: Mapping[ContainerKey, int] = field(default_factory=dict)
    row_of_workload: Mapping[PeakKey, int] = field(default_factory=dict)

    @staticmethod
    def from_columns(columns: StatisticColumns, keys: Sequence[StatisticKey]) -> "StatisticsTable":
        """Give each entry of some columns its key."""
        figures: dict[str, Any] = {name: getattr(columns, name) for name in STATISTIC_COLUMNS}
        return StatisticsTable(
            **figures,
            keys=keys,
            row_of_container=index_containers(keys),
            row_of_workload=index_workloads(keys),
        )

    @staticmethod
    def from_rows(rows: Sequence["Statistic"]) -> "StatisticsTable":
        """Build a table from single statistics, in their order."""
        columns = StatisticColumns.from_getter(lambda name: [getattr(row, name) for row in rows])
        return StatisticsTable.from_columns(columns, [row.key for row in rows])

    def select(self, rows: Int64Array) -> "StatisticsTable":
        """Return a table of some rows, in their order."""
        table = StatisticsTable.from_columns(self.take(rows), [self.keys[row] for row in rows.tolist()])
        return replace(table, revisions=self.revisions, sharing=self.sharing)

    def join(self, others: "StatisticsTable") -> "StatisticsTable":
        """Return these rows and then others; they have no key in common."""
        table = StatisticsTable.from_columns(self.concatenate(others), [*self.keys, *others.keys])
        return replace(table, revisions=self.revisions, sharing=self.sharing)

    def row(self, index: int) -> "Statistic":
        """Return one row as a plain statistic, for explanations and single decisions."""
        return Statistic(
            key=self.keys[index],
            updated_at=self.updated_at.item(index),
            history_since=self.history_since.item(index),
            cpu_base_millicores=self.cpu_base_millicores.item(index),
            cpu_peak_millicores=self.cpu_peak_millicores.item(index),
            memory_base_bytes=self.memory_base_bytes.item(index),
            memory_peak_bytes=self.memory_peak_bytes.item(index),
            memory_7d_max_bytes=self.memory_7d_max_bytes.item(index),
            oom_memory_bytes=self.oom_memory_bytes.item(index),
            memory_last_bytes=self.memory_last_bytes.item(index),
            rejected_percent=self.rejected_percent.item(index),
            rejected_reasons=self.rejected_reasons.item(index),
            psi_known=self.psi_known.item(index),
        )

    def find(self, namespace: str, pod: str, workload: WorkloadRef | None, container: str, identity: str) -> int | None:
        """Return the row that speaks for a container: its own, else its workload's, else None."""
        # A plain tuple finds what a named one put there, in half the time.
        row = self.row_of_container.get((namespace, pod, container))  # type: ignore[call-overload]
        if row is not None or workload is None:
            return row  # type: ignore[no-any-return]
        of_workload = str(workload)
        row = self.row_of_workload.get((namespace, of_workload, container, identity))  # type: ignore[call-overload]
        if row is None and identity:
            row = self.row_of_workload.get((namespace, of_workload, container, ""))  # type: ignore[call-overload]
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

    @property
    def rejections(self) -> tuple[SampleRejection, ...]:
        """Why samples were refused."""
        return tuple(reason for bit, reason in enumerate(SampleRejection) if self.rejected_reasons >> bit & 1)


def index_containers(keys: Sequence[StatisticKey]) -> dict[ContainerKey, int]:
    """Map each pod-level key to its row."""
    return {ContainerKey(key.namespace, key.pod, key.container): row for row, key in enumerate(keys) if key.pod}


def index_workloads(keys: Sequence[StatisticKey]) -> dict[PeakKey, int]:
    """Map each workload-level key to its row."""
    return {
        PeakKey(key.namespace, key.workload, key.container, key.identity): row
        for row, key in enumerate(keys)
        if not key.pod
    }


@dataclass(frozen=True, slots=True)
class CounterTail:
    """The last raw counters of a partition, so that the next read continues without asking for them again.

    One row a series (`series` identifies it within the container: the runtime's id); NaN where a counter is absent.
    `changed_at` has the grid time of the last scrape that is known to have seen it, in Unix seconds: `at`, or earlier
    where nothing that is scraped with it has moved since. Where no scrape is known yet it is negative: the time since
    which nothing has moved.
    """

    at: int  # Unix seconds of the grid time that the counters were read for
    keys: Sequence[ContainerKey]
    series: Sequence[str]
    cpu_seconds: Float64Array
    cpu_waiting_seconds: Float64Array
    changed_at: Int64Array


@dataclass(frozen=True, slots=True)
class OomRecord:
    """An out-of-memory kill as it is remembered.

    `teaches_workload` tells that it counts for all pods of the workload, since the killed pod does not run again.
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
    oom_memory_bytes: int  # what it teaches: the limit at the kill, else the last observed peak
    applies_to_workload: bool = False


@dataclass(frozen=True, slots=True)
class HourlyPeaks:
    """Largest samples of clock hours, one row a (key, hour); `hours` counts hours since the Unix epoch.

    NaN where a resource had no sample in the hour.
    """

    keys: Sequence[PeakKey]
    hours: Int64Array
    cpu_demand_millicores: Float64Array
    memory_bytes: Float64Array


@dataclass(frozen=True, slots=True)
class PeakSummary:
    """Maxima over chosen hours, one row a key; NaN where there was no sample.

    `cpu_peak_millicores` and `memory_peak_bytes` over the hours of the query, `memory_7d_max_bytes` over all hours
    since its start, `first_hour` the earliest of these hours with a sample.
    """

    keys: Sequence[PeakKey]
    cpu_peak_millicores: Float64Array
    memory_peak_bytes: Float64Array
    memory_7d_max_bytes: Float64Array
    first_hour: Int64Array


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a partition's samples were read: everything in [read_from, read_until], but for `gaps`.

    Unix seconds. A gap is (start, end, tries); after two tries in vain it stays unknown.
    """

    read_from: int
    read_until: int
    gaps: tuple[tuple[int, int, int], ...] = ()
    counter_tail: CounterTail | None = None


@dataclass(frozen=True, slots=True)
class UsageUpdate:
    """What one read of one partition adds: stored whole or not at all.

    `block` holds only samples young enough for the windows (None if none are). It is stored where the partition was
    read until `continues` by what the store has; None for whatever it has.
    """

    partition: str
    progress: PartitionProgress
    peaks: HourlyPeaks
    block: SampleBlock | None
    continues_from: int | None = None
