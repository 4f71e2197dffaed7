"""The metrics of kubelets of the last minutes, and their values at the times of a grid as Prometheus would answer."""

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NoReturn

import numpy as np

from cruise.adapters.prometheus.counters import UsageAnswers
from cruise.adapters.prometheus.queries import SeriesLabelValues, SeriesMatrix
from cruise.adapters.prometheus.scrape_times import MAX_GAP_SECONDS, TOLERANCE_SECONDS
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.errors import BadInputError, UnavailableError

# The library would read every line of an answer, which takes 80 times as long at 110 pods: more than nine tenths of
# cAdvisor's metrics are of other families. Here a family starts at its TYPE line, and ends where the next one starts.
ROOT_GROUP = "/"
_CPU, _WAITING, _MEMORY, _STARTED = range(4)
# Names with node_ are of whole nodes, without labels, in /metrics/resource.
_FAMILIES = (
    (_CPU, b"container_cpu_usage_seconds_total"),
    (_CPU, b"node_cpu_usage_seconds_total"),
    (_WAITING, b"container_pressure_cpu_waiting_seconds_total"),
    (_MEMORY, b"container_memory_working_set_bytes"),
    (_MEMORY, b"node_memory_working_set_bytes"),
    (_STARTED, b"container_start_time_seconds"),
)
_LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\]*+(?:\\.[^"\\]*+)*+)"')
_TYPE = re.compile(rb"# TYPE (\S+) \w+\n")
_ESCAPED = re.compile(r"\\(.)")
_UNESCAPED = {"n": "\n"}
# The container name of a pod's sandbox in some runtimes.
_SANDBOX = b"POD"


@dataclass(frozen=True, slots=True)
class KubeletMetrics:
    """The metrics of a kubelet's containers and root control group; NaN if missing.

    `measured_at` is the time of each series by the node's clock, in Unix seconds, NaN if missing.
    """

    series: tuple[SeriesLabelValues, ...]
    measured_at: Float64Array
    cpu_seconds: Float64Array
    cpu_waiting_seconds: Float64Array
    memory_bytes: Float64Array


def parse_kubelet_metrics(body: bytes, node: str) -> KubeletMetrics:
    """Decode an answer of /metrics/cadvisor or /metrics/resource. Raises BadInputError for anything else."""
    rows: dict[tuple[bytes, bytes, bytes, bytes], int] = {}
    columns: list[dict[int, float]] = [{}, {}, {}, {}]
    times: dict[int, float] = {}
    # The families of a container usually have the same labels.
    row_of_labels: dict[bytes, int] = {}
    # Only at the start of a line: a label or a help text may contain the same text.
    starts = {
        found[1]: found.end()
        for found in _TYPE.finditer(body)
        if body[found.start() - 1 : found.start()] in (b"", b"\n")
    }
    for column, family in _FAMILIES:
        if family not in starts:
            continue
        values = columns[column]
        for labels, value, taken_at in _iterate_lines(body, family, starts[family]):
            row = row_of_labels.get(labels)
            if row is None:
                key = _decode_key(labels)
                row = -1 if key is None else rows.setdefault(key, len(rows))
                row_of_labels[labels] = row
            if row < 0:
                continue
            if row in values:
                _raise_bad_input(f"has {family.decode()} of a container twice")
            values[row] = value
            if taken_at is not None and column != _STARTED:
                times[row] = taken_at
    if not any(columns[:_STARTED]):
        _raise_bad_input("has no usage of containers")
    started = columns[_STARTED]
    read, count = [row for row in range(len(rows)) if any(row in one for one in columns[:_STARTED])], len(rows)
    places = np.array(read, dtype=np.int64)
    keys = list(rows)
    return KubeletMetrics(
        tuple(_decode_name(keys[row], node, started.get(row)) for row in read),
        *(_to_column(one, count)[places] for one in (times, *columns[:_STARTED])),
    )


def _iterate_lines(body: bytes, family: bytes, first: int) -> Iterator[tuple[bytes, float, float | None]]:
    """Yield labels, value and time in Unix seconds of the series of a family whose lines start at `first`.

    Negative and infinite values are left out.
    """
    last = body.find(b"\n#", first - 1) + 1
    for line in body[first : last or len(body)].splitlines():
        if not line:
            continue
        end = line.rfind(b"}") + 1
        name_end = line.find(b"{") if end else line.find(b" ")
        if line[:name_end] != family:
            _raise_bad_input(f"has another line between those of {family.decode()}")
        labels = line[name_end + 1 : end - 1] if end else b""
        try:
            value, *more = line[end or name_end :].split()
            number, taken_at = float(value), int(more[0]) / 1000 if more else None
        except (ValueError, OverflowError):
            _raise_bad_input(f"has a line of {family.decode()} without a number")
        if 0 <= number < np.inf:
            yield labels, number, taken_at


def _decode_key(labels: bytes) -> tuple[bytes, bytes, bytes, bytes] | None:
    """Return namespace, pod, container and id of a container or a root group, None for any other series."""
    found = dict(_LABEL.findall(labels))
    if found.get(b"cpu", b"total") != b"total":
        return None
    if not found or found.get(b"id") == b"/":
        return (b"", b"", b"", b"/")
    key = (found.get(b"namespace", b""), found.get(b"pod", b""), found.get(b"container", b""), found.get(b"id", b""))
    return key if all(key[:3]) and key[2] != _SANDBOX else None


def _decode_name(key: tuple[bytes, bytes, bytes, bytes], node: str, started: float | None) -> SeriesLabelValues:
    try:
        namespace, pod, container, id_ = (_decode_text(part) for part in key)
    except UnicodeDecodeError:
        _raise_bad_input("has a label that is not UTF-8")
    # Without the runtime's id, the start time distinguishes a container from its restart.
    return SeriesLabelValues(namespace, pod, container, id_ or (f"{started:.3f}" if started is not None else ""), node)


def _decode_text(value: bytes) -> str:
    text = value.decode()
    return _ESCAPED.sub(lambda found: _UNESCAPED.get(found[1], found[1]), text) if "\\" in text else text


def _to_column(values: dict[int, float], count: int) -> Float64Array:
    found = np.full(count, np.nan)
    found[list(values)] = list(values.values())
    return found


def _raise_bad_input(problem: str) -> NoReturn:
    raise BadInputError(f"the answer {problem}")


# Longer than a pass and the longest hole, so that the next pass makes up for a failed one.
RETENTION_SECONDS = 900.0
# A larger difference is due to a wrong clock, or to a kubelet that does not measure any more.
MAX_CLOCK_ERROR_SECONDS = MAX_GAP_SECONDS


@dataclass(frozen=True, slots=True)
class _TimedReading:
    at: float
    metrics: KubeletMetrics


class KubeletReadings:
    """The latest readings of each node."""

    def __init__(self, retention_seconds: float = RETENTION_SECONDS) -> None:
        self._retention_seconds = retention_seconds
        self._by_node: dict[str, deque[_TimedReading]] = {}

    def add(self, node: str, metrics: KubeletMetrics, at: float) -> None:
        """Add the metrics of a node, read at a time in Unix seconds.

        Raises UnavailableError if the node's times differ too much: then it is unknown when it used what.
        """
        times = metrics.measured_at[~np.isnan(metrics.measured_at)]
        newest = float(times.max()) if len(times) else at
        if abs(newest - at) > MAX_CLOCK_ERROR_SECONDS:
            direction = "ahead" if newest > at else "behind"
            raise UnavailableError(
                f"the metrics of node {node} are {abs(newest - at):.0f} s {direction} of cruise's clock: "
                "check the clocks, and whether the kubelet still measures"
            )
        # Later times are due to small differences between the clocks.
        measured_at = np.minimum(np.where(np.isnan(metrics.measured_at), at, metrics.measured_at), at)
        readings = self._by_node.setdefault(node, deque())
        # Share the names with the previous reading, because they are far larger than the values.
        is_same = bool(readings) and readings[-1].metrics.series == metrics.series
        series = readings[-1].metrics.series if is_same else metrics.series
        readings.append(_TimedReading(at, replace(metrics, series=series, measured_at=measured_at)))
        while readings[0].at < at - self._retention_seconds:
            readings.popleft()

    def keep_only(self, nodes: Collection[str]) -> None:
        """Forget other nodes."""
        for node in self._by_node.keys() - set(nodes):
            del self._by_node[node]

    def get_last_reading_time(self, node: str) -> float | None:
        """Return the time of a node's last reading, None if there is none."""
        readings = self._by_node.get(node)
        return readings[-1].at if readings else None

    def get_oldest_reading_time(self, node: str) -> float | None:
        """Return the time of a node's oldest metrics, None if there are none."""
        readings = self._by_node.get(node)
        return float(np.nanmin(readings[0].metrics.measured_at)) if readings else None

    def build_answers(self, nodes: Collection[str], times: Int64Array, roots: bool = False) -> UsageAnswers:
        """Return the three families of the nodes' containers, or of their root groups, at the times of a grid.

        As with an instant query, the newest value counts if it is not older than the longest hole.
        """
        blocks = [_NodeReadings(readings, roots) for node in sorted(nodes) if (readings := self._by_node.get(node))]
        names = [name for block in blocks for name in block.series]
        empty = np.empty((0, len(times)))

        def matrix(column: int) -> SeriesMatrix:
            return SeriesMatrix(names, np.concatenate([empty, *(block.at(times, column) for block in blocks)]))

        cpu, waiting, memory = (matrix(column) for column in range(3))
        return UsageAnswers(_drop_empty_series(cpu), _drop_empty_series(waiting), _drop_empty_series(memory))

    def get_ages(self, nodes: Collection[str], times: Int64Array) -> Mapping[str, Float64Array]:
        """Return for nodes by how many seconds their last reading preceded each time, NaN if there was none.

        A node is left out if its containers were measured at different times: none represents the others.
        """
        found = {}
        for node in nodes:
            readings = self._by_node.get(node)
            if not readings:
                continue
            times_measured = _NodeReadings(readings, roots=False).measured_at(times)
            if not len(times_measured):
                continue
            first, last = np.fmin.reduce(times_measured, axis=0), np.fmax.reduce(times_measured, axis=0)
            if not (last - first > TOLERANCE_SECONDS).any():
                found[node] = times - first
        return found

    def get_last_two(self, node: str) -> tuple[KubeletMetrics, KubeletMetrics] | None:
        """Return the last two readings of a node, the older first; None if there are fewer."""
        readings = self._by_node.get(node)
        if not readings or len(readings) < 2:
            return None
        earlier, later = islice(readings, len(readings) - 2, None)
        return earlier.metrics, later.metrics


class _NodeReadings:
    """The readings of one node as arrays: one row per series, one column per reading."""

    def __init__(self, readings: Sequence[_TimedReading] | deque[_TimedReading], roots: bool) -> None:
        row_of: dict[SeriesLabelValues, int] = {}
        places = []
        for one in readings:
            rows = np.fromiter(
                (
                    row_of.setdefault(name, len(row_of)) if (name.id == ROOT_GROUP) is roots else -1
                    for name in one.metrics.series
                ),
                np.int64,
                len(one.metrics.series),
            )
            places.append(rows)
        self.series = list(row_of)
        self._measured_at, *self._columns = np.full((4, len(row_of), len(readings)), np.nan)
        for column, (one, rows) in enumerate(zip(readings, places, strict=True)):
            metrics, chosen = one.metrics, rows >= 0
            for target, values in zip(
                (self._measured_at, *self._columns),
                (metrics.measured_at, metrics.cpu_seconds, metrics.cpu_waiting_seconds, metrics.memory_bytes),
                strict=True,
            ):
                target[rows[chosen], column] = values[chosen]

    def at(self, times: Int64Array, column: int) -> Float64Array:
        """Return one family at the times of a grid."""
        return self._get_newest(self._columns[column], times)

    def measured_at(self, times: Int64Array) -> Float64Array:
        """Return when the values at the times of a grid were measured."""
        return self._get_newest(self._measured_at, times)

    def _get_newest(self, values: Float64Array, times: Int64Array) -> Float64Array:
        found = np.full((len(values), len(times)), np.nan)
        for place, time in enumerate(times.tolist()):
            with np.errstate(invalid="ignore"):
                seen = (self._measured_at <= time) & (self._measured_at > time - MAX_GAP_SECONDS)
            newest = seen.shape[1] - 1 - seen[:, ::-1].argmax(axis=1)
            chosen = np.take_along_axis(values, newest[:, None], axis=1)[:, 0]
            found[:, place] = np.where(seen.any(axis=1), chosen, np.nan)
        return found


def _drop_empty_series(matrix: SeriesMatrix) -> SeriesMatrix:
    """Return the matrix without series that have no value."""
    has_values = ~np.isnan(matrix.values).all(axis=1)
    if has_values.all():
        return matrix
    return SeriesMatrix([matrix.series[row] for row in np.flatnonzero(has_values).tolist()], matrix.values[has_values])
