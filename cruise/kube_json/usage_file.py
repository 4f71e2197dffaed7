"""UsageStatistics files: statistics of containers, checked against the snapshot that they belong to."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from sys import intern
from typing import Any

import msgspec
import numpy as np

from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.policy import LARGEST_MACHINE
from cruise.domain.resources import Float64Array, Int64Array
from cruise.domain.usage import StatisticKey, StatisticsTable, index_containers, index_workloads
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import explain_validation_error, to_single_line
from cruise.kube_json.reading.json_list import ItemListReader, MalformedJson
from cruise.kube_json.reading.snapshot import decode_items, describe_broken_input
from cruise.kube_json.wire.pod_json import JsonStruct, Timestamp

# Items of a usage file, and the container that each speaks for, which must be in the snapshot.


class CpuUsage(JsonStruct, frozen=True):
    """CPU statistics of a usage item."""

    base_millicores: int | float
    peak_millicores: int | float


class MemoryUsage(JsonStruct, frozen=True):
    """Memory statistics of a usage item; `last_bytes` is the newest working set, the base where it is absent."""

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
class UsageKeyReader:
    """Turns items into keys; without a snapshot (`pods` None) every item will do."""

    pods: Mapping[tuple[str, str], Pod] | None
    # By namespace, then by workload as `Kind/name`: the containers of all its pods.
    containers_of_workloads: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    @staticmethod
    def read_key(snapshot: ClusterSnapshot | None) -> "UsageKeyReader":
        """Prepare to look up a snapshot's pods and workloads."""
        if snapshot is None:
            return UsageKeyReader(None)
        known: dict[tuple[str, str], set[str]] = {}
        sets: dict[tuple[str, object], set[str]] = {}
        for pod in snapshot.pods:
            if pod.workload is None:
                continue
            names = sets.get((pod.namespace, pod.workload))
            if names is None:
                names = sets[(pod.namespace, pod.workload)] = known[(pod.namespace, str(pod.workload))] = set()
            names.update([container.name for container in pod.containers])
        return UsageKeyReader(
            {(pod.namespace, pod.name): pod for pod in snapshot.pods},
            {key: frozenset(names) for key, names in known.items()},
        )

    def read(self, item: UsageItem) -> StatisticKey:
        """Return what an item speaks for. Raises BadInputError that says what is unknown."""
        workload = intern(item.workload or "")
        if workload and not all(workload.partition("/")):
            raise BadInputError(f'workload: "{workload}" is not Kind/name; write e.g. Deployment/web')
        if not item.pod:
            return self._of_workload(item, workload)
        if self.pods is None:
            return StatisticKey(item.namespace, item.pod, workload, intern(item.container))
        pod = self.pods.get((item.namespace, item.pod))
        if pod is None:
            raise BadInputError("pod: the snapshot has no such pod; take both at the same time, or leave the item out")
        for container in pod.containers:
            if container.name == item.container:
                return StatisticKey(pod.namespace, pod.name, workload, container.name)
        names = ", ".join(container.name for container in pod.containers)
        raise BadInputError(f"container: the pod has none called {item.container}, it has {names}")

    def _of_workload(self, item: UsageItem, workload: str) -> StatisticKey:
        if not workload:
            raise BadInputError("has neither pod nor workload; add one of them")
        names = self.containers_of_workloads.get((item.namespace, workload))
        if names is not None and item.container not in names:
            have = ", ".join(sorted(names))
            raise BadInputError(f"container: no pod of the workload has one called {item.container}, they have {have}")
        return StatisticKey(intern(item.namespace), "", workload, intern(item.container))


USAGE_API_VERSION = "cruise.io/v1"
USAGE_KIND = "UsageStatistics"
CLOCK_TOLERANCE = timedelta(minutes=1)
LONGEST_AHEAD_OF_MEDIAN = timedelta(days=366)

_HOW = f'a usage file starts with {{"apiVersion":"{USAGE_API_VERSION}","kind":"{USAGE_KIND}","items":[…'
_AT_ONCE = 8192
# The amounts of an item as it has them, and the columns of the table that they become.
_COLUMN_OF = {
    "cpu.baseMillicores": "cpu_base_millicores",
    "cpu.peakMillicores": "cpu_peak_millicores",
    "memory.baseBytes": "memory_base_bytes",
    "memory.peakBytes": "memory_peak_bytes",
    "memory.max7dBytes": "memory_7d_max_bytes",
    "memory.oomBytes": "oom_memory_bytes",
    "memory.lastBytes": "memory_last_bytes",
}
_MOST = tuple(
    float(LARGEST_MACHINE.cpu_millicores if name.startswith("cpu.") else LARGEST_MACHINE.memory_bytes)
    for name in _COLUMN_OF
)
_DECODER: msgspec.json.Decoder[list[UsageItem]] = msgspec.json.Decoder(list[UsageItem])


def read_usage(
    chunks: Iterable[bytes], name: str, snapshot: ClusterSnapshot | None = None, now: datetime | None = None
) -> tuple[StatisticsTable, datetime]:
    """Read statistics from the chunks of one document called `name`, and the time they are judged at.

    With a snapshot every item must speak for something that is in it. `now` defaults to the newest `updatedAt`;
    fractions are rounded up. Raises BadInputError, one line that names file, place and fix.
    """
    items = ItemListReader(chunks)
    reading = _Reading(UsageKeyReader.read_key(snapshot))
    try:
        try:
            for batch in _batches(reading.counted(decode_items(items, _decoder_of, reading.decode_one))):
                reading.add(batch)
        except MalformedJson as error:
            _refuse_other_documents(items.fields)
            raise describe_broken_input(error, reading.last_label, f"write it again: {_HOW}") from error
        _refuse_other_documents({"kind": None, "apiVersion": None} | items.fields)
        table = reading.table()
        return table, _time_of(table, now)
    except BadInputError as error:
        raise BadInputError(to_single_line(f"{name}: {error}")) from error


def _batches(items: Iterator[UsageItem]) -> Iterator[list[UsageItem]]:
    while batch := list(islice(items, _AT_ONCE)):
        yield batch


def _decoder_of(fields: Mapping[str, object]) -> msgspec.json.Decoder[list[UsageItem]]:
    _refuse_other_documents(fields)
    return _DECODER


def _refuse_other_documents(fields: Mapping[str, object]) -> None:
    """Refuse a document by its kind or version, as soon as that was read."""
    for key, wanted in (("apiVersion", USAGE_API_VERSION), ("kind", USAGE_KIND)):
        if fields.get(key, wanted) != wanted:
            stated = fields[key]
            found = f"has no {key}" if stated is None else f"has {key} {stated}, not {wanted}"
            raise BadInputError(f"{found}; {_HOW}")


class _Reading:
    """The rows read so far."""

    def __init__(self, keys: UsageKeyReader) -> None:
        self._last: UsageItem | None = None
        self._key_reader = keys
        self._seen = 0
        self._keys: list[StatisticKey] = []
        self._amounts: list[Float64Array] = []
        self._times: list[Int64Array] = []

    def counted(self, items: Iterator[UsageItem]) -> Iterator[UsageItem]:
        """Count items as they pass, so that a refusal can name the item's number."""
        for item in items:
            self._seen += 1
            self._last = item
            yield item

    @property
    def last_label(self) -> str:
        """Name the last item that was whole."""
        return "" if self._last is None else _label(self._seen - 1, self._last)

    def decode_one(self, document: object) -> UsageItem:
        """Decode an item that did not decode with the others. Raises BadInputError that names it."""
        try:
            return msgspec.convert(document, UsageItem)
        except msgspec.ValidationError as error:
            raise BadInputError(f"{_label(self._seen, document)}: {explain_validation_error(error)}") from error

    def add(self, items: Sequence[UsageItem]) -> None:
        """Take over a batch of items. Raises BadInputError that names the first that cannot be used."""
        rows = [_amounts(item) for item in items]
        try:
            amounts = np.array(rows, dtype=np.float64)
        except OverflowError:
            amounts = np.full((len(rows), len(_COLUMN_OF)), math.inf)
        first = len(self._keys)
        # NaN is neither, so it is not usable.
        if not ((amounts >= 0) & (amounts <= np.array(_MOST))).all():
            for index, (item, row) in enumerate(zip(items, rows, strict=True)):
                _refuse_unusable(item, row, first + index)
        for index, item in enumerate(items):
            try:
                self._keys.append(self._key_reader.read(item))
            except BadInputError as error:
                raise BadInputError(f"{_label(first + index, item)}: {error}") from error
        self._amounts.append(np.ceil(amounts))
        self._times.append(np.array([_times(item) for item in items], dtype=np.int64))

    def table(self) -> StatisticsTable:
        """Return all rows. Raises BadInputError where two speak for the same."""
        amounts = np.concatenate([np.empty((0, len(_COLUMN_OF))), *self._amounts]).astype(np.int64)
        times = np.concatenate([np.empty((0, 2), dtype=np.int64), *self._times])
        of_containers, of_workloads = index_containers(self._keys), index_workloads(self._keys)
        if len(of_containers) + len(of_workloads) < len(self._keys):
            _refuse_duplicates(self._keys)
        columns: dict[str, Any] = {
            name: np.ascontiguousarray(amounts[:, at]) for at, name in enumerate(_COLUMN_OF.values())
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


def _amounts(item: UsageItem) -> tuple[float, ...]:
    """Return the amounts of an item in the order of `_COLUMN_OF`."""
    cpu, memory = item.cpu, item.memory
    last = memory.base_bytes if memory.last_bytes is None else memory.last_bytes
    return (
        cpu.base_millicores,
        cpu.peak_millicores,
        memory.base_bytes,
        memory.peak_bytes,
        memory.max7d_bytes,
        memory.oom_bytes,
        last,
    )


def _times(item: UsageItem) -> tuple[int, int]:
    since = item.history_since
    return int(item.updated_at.timestamp()), 0 if since is None else int(since.timestamp())


def _refuse_unusable(item: UsageItem, row: Sequence[float], index: int) -> None:
    for name, amount, most in zip(_COLUMN_OF, row, _MOST, strict=True):
        if not 0 <= amount <= most:
            problem = "is negative" if amount < 0 else "is more than any machine has"
            problem = problem if -math.inf < amount < math.inf else "is no amount"
            raise BadInputError(f"{_label(index, item)}: {name}: {amount!s:.40} {problem}; write a number of 0 or more")


def _refuse_duplicates(keys: Sequence[StatisticKey]) -> None:
    seen: dict[tuple[str, str, str], int] = {}
    for index, key in enumerate(keys):
        speaks_for = (key.namespace, key.pod or f"all pods of {key.workload}", key.container)
        if speaks_for in seen:
            namespace, pod, container = speaks_for
            place = f"items[{index}] ({namespace}/{pod} {container})"
            raise BadInputError(f"{place}: speaks for the same as items[{seen[speaks_for]}]; keep one of the two")
        seen[speaks_for] = index


def _label(index: int, item: object) -> str:
    """Name an item, of whatever shape it is, by its number and by what it speaks for."""
    fields: Mapping[str, object] = {}
    if isinstance(item, UsageItem):
        fields = {name: getattr(item, name) for name in ("namespace", "pod", "workload", "container")}
    elif isinstance(item, Mapping):
        fields = item
    parts = (fields.get("namespace"), fields.get("pod") or fields.get("workload"), fields.get("container"))
    return f"items[{index}] ({parts[0]}/{parts[1]} {parts[2]})" if all(parts) else f"items[{index}]"


def _time_of(table: StatisticsTable, now: datetime | None) -> datetime:
    """Return the time that the statistics are judged at. Raises BadInputError where a clock must be wrong."""
    if not len(table.keys):
        if now is None:
            raise BadInputError("has no items, so the time is not known; add --now")
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
