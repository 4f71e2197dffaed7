"""Read UsageStatistics files, and check them against a snapshot."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from sys import intern
from typing import Any

import msgspec
import numpy as np

from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.policy import LARGEST_MACHINE
from cruise.domain.usage import StatisticKey, StatisticsTable, index_containers, index_workloads
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import convert_to_single_line, explain_validation_error
from cruise.kube_json.objects.quantities import LATEST_TIME
from cruise.kube_json.reading.json_list import ItemListReader, MalformedJsonError
from cruise.kube_json.reading.snapshot import decode_items, describe_broken_input
from cruise.kube_json.wire.pod_json import JsonStruct, Timestamp


class CpuUsage(JsonStruct, frozen=True):
    """CPU statistics of a usage item; `max7d_millicores` and `start_millicores` 0: unknown."""

    base_millicores: int | float
    peak_millicores: int | float
    max7d_millicores: int | float = 0
    start_millicores: int | float = 0


class MemoryUsage(JsonStruct, frozen=True):
    """Memory statistics of a usage item; `last_bytes` is the newest working set, by default the base."""

    base_bytes: int | float
    peak_bytes: int | float
    max7d_bytes: int | float
    oom_bytes: int | float
    last_bytes: int | float | None = None


class UsageItem(JsonStruct, frozen=True):
    """One item of a UsageStatistics file."""

    namespace: str
    container: str
    updated_at: Timestamp
    cpu: CpuUsage
    memory: MemoryUsage
    pod: str | None = None
    workload: str | None = None
    history_since: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class UsageKeyResolver:
    """Converts items to keys; `pods` is None without a snapshot, then every item is accepted."""

    pods: Mapping[tuple[str, str], Pod] | None
    # Container names of a workload's pods, by namespace and `Kind/name`.
    containers_of_workloads: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    @staticmethod
    def from_snapshot(snapshot: ClusterSnapshot | None) -> "UsageKeyResolver":
        """Index the pods and workloads of a snapshot."""
        if snapshot is None:
            return UsageKeyResolver(None)
        known: dict[tuple[str, str], set[str]] = {}
        sets: dict[tuple[str, object], set[str]] = {}
        for pod in snapshot.pods:
            if pod.workload is None:
                continue
            names = sets.get((pod.namespace, pod.workload))
            if names is None:
                names = sets[(pod.namespace, pod.workload)] = known[(pod.namespace, str(pod.workload))] = set()
            names.update([container.name for container in pod.containers])
        return UsageKeyResolver(
            {(pod.namespace, pod.name): pod for pod in snapshot.pods},
            {key: frozenset(names) for key, names in known.items()},
        )

    def read_key(self, item: UsageItem) -> StatisticKey:
        """Return the key of an item; BadInputError for an unknown pod, workload or container."""
        workload = intern(item.workload or "")
        if workload and not all(workload.partition("/")):
            raise BadInputError(f'workload: "{workload}" is not Kind/name; write e.g. Deployment/web')
        if not item.pod:
            return self._read_workload_key(item, workload)
        if self.pods is None:
            return StatisticKey(item.namespace, item.pod, workload, intern(item.container))
        pod = self.pods.get((item.namespace, item.pod))
        if pod is None:
            raise BadInputError("pod: the snapshot has no such pod; take both at the same time, or remove the item")
        for container in pod.containers:
            if container.name == item.container:
                return StatisticKey(pod.namespace, pod.name, workload, container.name)
        names = ", ".join(container.name for container in pod.containers)
        raise BadInputError(f"container: the pod has no {item.container}; it has {names}")

    def _read_workload_key(self, item: UsageItem, workload: str) -> StatisticKey:
        if not workload:
            raise BadInputError("has neither pod nor workload; add one of them")
        names = self.containers_of_workloads.get((item.namespace, workload))
        if names is not None and item.container not in names:
            have = ", ".join(sorted(names))
            raise BadInputError(f"container: no pod of the workload has {item.container}; they have {have}")
        return StatisticKey(intern(item.namespace), "", workload, intern(item.container))


USAGE_API_VERSION = "cruise.io/v1"
USAGE_KIND = "UsageStatistics"
CLOCK_TOLERANCE = timedelta(minutes=1)
LONGEST_AHEAD_OF_MEDIAN = timedelta(days=366)

_EPOCH = datetime.fromtimestamp(0, UTC)
_HINT = f'a usage file starts with {{"apiVersion":"{USAGE_API_VERSION}","kind":"{USAGE_KIND}","items":[…'
_BATCH_SIZE = 8192
# The fields of an item, and the columns of the table.
_COLUMNS_BY_FIELD = {
    "cpu.baseMillicores": "cpu_base_millicores",
    "cpu.peakMillicores": "cpu_peak_millicores",
    "cpu.max7dMillicores": "cpu_7d_max_millicores",
    "cpu.startMillicores": "cpu_start_millicores",
    "memory.baseBytes": "memory_base_bytes",
    "memory.peakBytes": "memory_peak_bytes",
    "memory.max7dBytes": "memory_7d_max_bytes",
    "memory.oomBytes": "oom_memory_bytes",
    "memory.lastBytes": "memory_last_bytes",
}
_MAXIMA = tuple(
    float(LARGEST_MACHINE.cpu_millicores if name.startswith("cpu.") else LARGEST_MACHINE.memory_bytes)
    for name in _COLUMNS_BY_FIELD
)
_DECODER: msgspec.json.Decoder[list[UsageItem]] = msgspec.json.Decoder(list[UsageItem])


def read_usage(
    chunks: Iterable[bytes], name: str, snapshot: ClusterSnapshot | None = None, now: datetime | None = None
) -> tuple[StatisticsTable, datetime]:
    """Read statistics from the chunks of a document with a name, and the time of evaluation.

    With a snapshot every item must be about a pod or workload in it. `now` defaults to the newest `updatedAt`;
    fractions are rounded up. BadInputError has one line with file, place and fix.
    """
    items = ItemListReader(chunks)
    rows_read = _UsageRows(UsageKeyResolver.from_snapshot(snapshot))
    try:
        try:
            for batch in _batches(rows_read.count(decode_items(items, _decoder_of, rows_read.decode_one))):
                rows_read.add(batch)
        except MalformedJsonError as error:
            _check_document_kind(items.fields)
            raise describe_broken_input(error, rows_read.last_label, f"write it again: {_HINT}") from error
        _check_document_kind({"kind": None, "apiVersion": None} | items.fields)
        table = rows_read.table()
        return table, _get_evaluation_time(table, now)
    except BadInputError as error:
        raise BadInputError(convert_to_single_line(f"{name}: {error}")) from error


def _batches(items: Iterator[UsageItem]) -> Iterator[list[UsageItem]]:
    while batch := list(islice(items, _BATCH_SIZE)):
        yield batch


def _decoder_of(fields: Mapping[str, object]) -> msgspec.json.Decoder[list[UsageItem]]:
    _check_document_kind(fields)
    return _DECODER


def _check_document_kind(fields: Mapping[str, object]) -> None:
    """Reject a document by its kind or version as soon as it is read."""
    for key, wanted in (("apiVersion", USAGE_API_VERSION), ("kind", USAGE_KIND)):
        if fields.get(key, wanted) != wanted:
            stated = fields[key]
            found = f"has no {key}" if stated is None else f"has {key} {stated}, not {wanted}"
            raise BadInputError(f"{found}; {_HINT}")


class _UsageRows:
    """The rows read so far."""

    def __init__(self, keys: UsageKeyResolver) -> None:
        self._last: UsageItem | None = None
        self._key_reader = keys
        self._seen = 0
        self._keys: list[StatisticKey] = []
        self._amounts: list[Float64Array] = []
        self._times: list[Int64Array] = []

    def count(self, items: Iterator[UsageItem]) -> Iterator[UsageItem]:
        """Yield items and count them, so that errors can name the item's number."""
        for item in items:
            self._seen += 1
            self._last = item
            yield item

    @property
    def last_label(self) -> str:
        """The label of the last whole item."""
        return "" if self._last is None else _format_label(self._seen - 1, self._last)

    def decode_one(self, document: object) -> UsageItem:
        """Decode an item of a run that did not decode; BadInputError names it."""
        try:
            return msgspec.convert(document, UsageItem)
        except msgspec.ValidationError as error:
            raise BadInputError(f"{_format_label(self._seen, document)}: {explain_validation_error(error)}") from error

    def add(self, items: Sequence[UsageItem]) -> None:
        """Add a batch of items; BadInputError names the first invalid one."""
        rows = [_get_amounts(item) for item in items]
        try:
            amounts = np.array(rows, dtype=np.float64)
        except OverflowError:
            amounts = np.full((len(rows), len(_COLUMNS_BY_FIELD)), math.inf)
        first = len(self._keys)
        # NaN fails both comparisons.
        if not ((amounts >= 0) & (amounts <= np.array(_MAXIMA))).all():
            for index, (item, row) in enumerate(zip(items, rows, strict=True)):
                _check_amounts(item, row, first + index)
        times = np.array([_get_times(item) for item in items], dtype=np.int64)
        if not ((times >= 0) & (times <= LATEST_TIME.timestamp())).all():
            for index, item in enumerate(items):
                _check_times(item, first + index)
        for index, item in enumerate(items):
            try:
                self._keys.append(self._key_reader.read_key(item))
            except BadInputError as error:
                raise BadInputError(f"{_format_label(first + index, item)}: {error}") from error
        self._amounts.append(np.ceil(amounts))
        self._times.append(times)

    def table(self) -> StatisticsTable:
        """Return all rows; BadInputError for two with the same key."""
        amounts = np.concatenate([np.empty((0, len(_COLUMNS_BY_FIELD))), *self._amounts]).astype(np.int64)
        times = np.concatenate([np.empty((0, 2), dtype=np.int64), *self._times])
        of_containers, of_workloads = index_containers(self._keys), index_workloads(self._keys)
        if len(of_containers) + len(of_workloads) < len(self._keys):
            _check_duplicates(self._keys)
        columns: dict[str, Any] = {
            name: np.ascontiguousarray(amounts[:, at]) for at, name in enumerate(_COLUMNS_BY_FIELD.values())
        }
        return StatisticsTable(
            keys=self._keys,
            updated_at=np.ascontiguousarray(times[:, 0]),
            history_since=np.ascontiguousarray(times[:, 1]),
            **columns,
            rejected_percent=np.zeros(len(self._keys), dtype=np.int64),
            rejected_reasons=np.zeros(len(self._keys), dtype=np.int64),
            psi_known=np.ones(len(self._keys), dtype=np.bool_),
            row_of_container=of_containers,
            row_of_workload=of_workloads,
        )


def _get_amounts(item: UsageItem) -> tuple[float, ...]:
    """Return the amounts of an item in the order of `_COLUMNS_BY_FIELD`."""
    cpu, memory = item.cpu, item.memory
    last = memory.base_bytes if memory.last_bytes is None else memory.last_bytes
    return (
        cpu.base_millicores,
        cpu.peak_millicores,
        cpu.max7d_millicores,
        cpu.start_millicores,
        memory.base_bytes,
        memory.peak_bytes,
        memory.max7d_bytes,
        memory.oom_bytes,
        last,
    )


def _get_times(item: UsageItem) -> tuple[int, int]:
    since = item.history_since
    return int(item.updated_at.timestamp()), 0 if since is None else int(since.timestamp())


def _check_times(item: UsageItem, index: int) -> None:
    for name, time in (("updatedAt", item.updated_at), ("historySince", item.history_since)):
        if time is not None and not _EPOCH <= time <= LATEST_TIME:
            problem = f"{name}: {time.isoformat()} is not a time; write e.g. 2026-01-01T00:00:00Z"
            raise BadInputError(f"{_format_label(index, item)}: {problem}")


def _check_amounts(item: UsageItem, row: Sequence[float], index: int) -> None:
    for name, amount, most in zip(_COLUMNS_BY_FIELD, row, _MAXIMA, strict=True):
        if not 0 <= amount <= most:
            problem = "is negative" if amount < 0 else "is more than any machine has"
            problem = problem if -math.inf < amount < math.inf else "is not an amount"
            raise BadInputError(
                f"{_format_label(index, item)}: {name}: {amount!s:.40} {problem}; write a number of 0 or more"
            )


def _check_duplicates(keys: Sequence[StatisticKey]) -> None:
    seen: dict[tuple[str, str, str], int] = {}
    for index, key in enumerate(keys):
        subject = (key.namespace, key.pod or f"all pods of {key.workload}", key.container)
        if subject in seen:
            namespace, pod, container = subject
            place = f"items[{index}] ({namespace}/{pod} {container})"
            raise BadInputError(f"{place}: has the same subject as items[{seen[subject]}]; remove one")
        seen[subject] = index


def _format_label(index: int, item: object) -> str:
    """Return the label of an item of any shape: its number and subject."""
    fields: Mapping[str, object] = {}
    if isinstance(item, UsageItem):
        fields = {name: getattr(item, name) for name in ("namespace", "pod", "workload", "container")}
    elif isinstance(item, Mapping):
        fields = item
    parts = (fields.get("namespace"), fields.get("pod") or fields.get("workload"), fields.get("container"))
    return f"items[{index}] ({parts[0]}/{parts[1]} {parts[2]})" if all(parts) else f"items[{index}]"


def _get_evaluation_time(table: StatisticsTable, now: datetime | None) -> datetime:
    """Return the time of evaluation; BadInputError if a clock must be wrong."""
    if not len(table.keys):
        if now is None:
            raise BadInputError("has no items, so the time is unknown; add --now")
        return now
    row = int(np.argmax(table.updated_at))
    newest = datetime.fromtimestamp(int(table.updated_at[row]), UTC)
    key = table.keys[row]
    place = f"items[{row}] ({key.namespace}/{key.pod or key.workload} {key.container}): updatedAt {newest:%FT%TZ}"
    median = datetime.fromtimestamp(int(np.median(table.updated_at)), UTC)
    if newest - median > LONGEST_AHEAD_OF_MEDIAN:
        raise BadInputError(f"{place} is more than a year after most others ({median:%FT%TZ}): a clock in the future?")
    if now is not None and newest > now + CLOCK_TOLERANCE:
        raise BadInputError(
            f"{place} is later than now ({now.astimezone(UTC):%FT%TZ}): a clock in the future? check --now"
        )
    return newest if now is None else now
