"""The last minutes of what kubelets told, and what of it was known at each time of a grid, as Prometheus would say."""

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NoReturn

import numpy as np

from cruise.adapters.prometheus.counters import UsageAnswers
from cruise.adapters.prometheus.queries import SeriesMatrix, SeriesName
from cruise.adapters.prometheus.scrape_times import MIN_GAP_SECONDS, TOLERANCE_SECONDS
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.errors import BadInputError, UnavailableError

# The few families that cruise reads of a kubelet's metrics, straight from the bytes of its answer. Of what cAdvisor tells of a node, more than nine tenths are other families, and the library reads every line of them, which takes 80 times as long at 110 pods. Here a family is found by its TYPE line, and ends where the next one is described.

ROOT_GROUP = "/"
_CPU, _WAITING, _MEMORY, _STARTED = range(4)
# The second names are those of whole nodes, without labels, in /metrics/resource.
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
# A pod's sandbox, as some runtimes call it.
_SANDBOX = b"POD"


@dataclass(frozen=True, slots=True)
class KubeletMetrics:
    """What a kubelet told of its containers and of its root control group; NaN where it did not.

    `taken_at` is when the figures of a series were taken by the node's clock, in Unix seconds, NaN where that was not
    told.
    """

    series: tuple[SeriesName, ...]
    taken_at: Float64Array
    cpu_seconds: Float64Array
    cpu_waiting_seconds: Float64Array
    memory_bytes: Float64Array


def parse_kubelet_metrics(body: bytes, node: str) -> KubeletMetrics:
    """Read an answer of /metrics/cadvisor or /metrics/resource. Raises BadInputError for anything else."""
    rows: dict[tuple[bytes, bytes, bytes, bytes], int] = {}
    columns: list[dict[int, float]] = [{}, {}, {}, {}]
    times: dict[int, float] = {}
    # The families of a container mostly have the same labels.
    row_of_labels: dict[bytes, int] = {}
    # What a label or a help text quotes has no line of its own.
    places_of = {
        found[1]: found.end()
        for found in _TYPE.finditer(body)
        if body[found.start() - 1 : found.start()] in (b"", b"\n")
    }
    for column, family in _FAMILIES:
        if family not in places_of:
            continue
        values = columns[column]
        for labels, value, taken_ms in _lines(body, family, places_of[family]):
            row = row_of_labels.get(labels)
            if row is None:
                key = _key(labels)
                row = -1 if key is None else rows.setdefault(key, len(rows))
                row_of_labels[labels] = row
            if row < 0:
                continue
            if row in values:
                _refuse(f"tells {family.decode()} of a container twice")
            values[row] = value
            if taken_ms is not None and column != _STARTED:
                times[row] = taken_ms / 1000
    if not any(columns[:_STARTED]):
        _refuse("has no usage of containers")
    started = columns[_STARTED]
    read, count = [row for row in range(len(rows)) if any(row in one for one in columns[:_STARTED])], len(rows)
    places = np.array(read, dtype=np.int64)
    keys = list(rows)
    return KubeletMetrics(
        tuple(_name(keys[row], node, started.get(row)) for row in read),
        *(_column(one, count)[places] for one in (times, *columns[:_STARTED])),
    )


def _lines(body: bytes, family: bytes, first: int) -> Iterator[tuple[bytes, float, int | None]]:
    """Yield labels, value and time in milliseconds of the series of a family whose lines begin at `first`.

    What is no number, or below zero, is left out.
    """
    last = body.find(b"\n#", first - 1) + 1
    for line in body[first : last or len(body)].splitlines():
        if not line:
            continue
        end = line.rfind(b"}") + 1
        name_end = line.find(b"{") if end else line.find(b" ")
        if line[:name_end] != family:
            _refuse(f"has a line among those of {family.decode()} that is none of them")
        labels = line[name_end + 1 : end - 1] if end else b""
        try:
            value, *more = line[end or name_end :].split()
            number, taken_ms = float(value), int(more[0]) if more else None
        except ValueError:
            _refuse(f"has a line of {family.decode()} without a number")
        if 0 <= number < np.inf:
            yield labels, number, taken_ms


def _key(labels: bytes) -> tuple[bytes, bytes, bytes, bytes] | None:
    """Return namespace, pod, container and id of a container or a root group, None for any other series."""
    found = dict(_LABEL.findall(labels))
    if found.get(b"cpu", b"total") != b"total":
        return None
    if not found or found.get(b"id") == b"/":
        return (b"", b"", b"", b"/")
    key = (found.get(b"namespace", b""), found.get(b"pod", b""), found.get(b"container", b""), found.get(b"id", b""))
    return key if all(key[:3]) and key[2] != _SANDBOX else None


def _name(key: tuple[bytes, bytes, bytes, bytes], node: str, started: float | None) -> SeriesName:
    try:
        namespace, pod, container, id_ = (_text(part) for part in key)
    except UnicodeDecodeError:
        _refuse("has a label that is not UTF-8")
    # Without the runtime's id, a container is known from its restarted self by when it began.
    return SeriesName(namespace, pod, container, id_ or (f"{started:.3f}" if started is not None else ""), node)


def _text(value: bytes) -> str:
    text = value.decode()
    return _ESCAPED.sub(lambda found: _UNESCAPED.get(found[1], found[1]), text) if "\\" in text else text


def _column(values: dict[int, float], count: int) -> Float64Array:
    found = np.full(count, np.nan)
    found[list(values)] = list(values.values())
    return found


def _refuse(why: str) -> NoReturn:
    raise BadInputError(f"the answer {why}")


# A pass comes every few minutes, and looks back over the longest hole; one that fails is made up for by the next.
RETENTION_SECONDS = 900.0
# What is told as of another time than this was told by a clock that is wrong, or by a kubelet that is stuck.
MAX_GAP_SECONDS = MIN_GAP_SECONDS


@dataclass(frozen=True, slots=True)
class _TimedReading:
    at: float
    figures: KubeletMetrics


class KubeletReadings:
    """What was read of each node, for a while."""

    def __init__(self, kept_seconds: float = RETENTION_SECONDS) -> None:
        self._kept_seconds = kept_seconds
        self._of_node: dict[str, deque[_TimedReading]] = {}

    def add(self, node: str, figures: KubeletMetrics, at: float) -> None:
        """Take over what was read of a node at a time, in Unix seconds.

        Raises Unavailable where the node tells of another time: what it used when is not known then.
        """
        taken = figures.taken_at[~np.isnan(figures.taken_at)]
        newest = float(taken.max()) if len(taken) else at
        if abs(newest - at) > MAX_GAP_SECONDS:
            way = "ahead" if newest > at else "behind"
            raise UnavailableError(
                f"the figures of node {node} are {abs(newest - at):.0f} s {way} of the clock here: "
                "see whether the clocks agree, and whether its kubelet still measures"
            )
        # What is from a moment later than this one is due to clocks that differ a little.
        taken_at = np.minimum(np.where(np.isnan(figures.taken_at), at, figures.taken_at), at)
        kept = self._of_node.setdefault(node, deque())
        # Names are far larger than figures, and mostly those of the minute before.
        same = bool(kept) and kept[-1].figures.series == figures.series
        series = kept[-1].figures.series if same else figures.series
        kept.append(_TimedReading(at, replace(figures, series=series, taken_at=taken_at)))
        while kept[0].at < at - self._kept_seconds:
            kept.popleft()

    def keep_only(self, nodes: Collection[str]) -> None:
        """Forget the nodes that are no more."""
        for node in self._of_node.keys() - set(nodes):
            del self._of_node[node]

    def get_read_times(self, node: str) -> float | None:
        """Return when a node was read last, None where it was not."""
        kept = self._of_node.get(node)
        return kept[-1].at if kept else None

    def get_known_since(self, node: str) -> float | None:
        """Return when the oldest figures that are kept of a node were taken, None where there are none."""
        kept = self._of_node.get(node)
        return float(np.nanmin(kept[0].figures.taken_at)) if kept else None

    def build_answers(self, nodes: Collection[str], times: Int64Array, roots: bool = False) -> UsageAnswers:
        """Return the three families of the nodes' containers, or of their root groups, at the times of a grid.

        As an instant query does, each shows the newest figure that is no older than the longest hole.
        """
        blocks = [_NodeReadings(kept, roots) for node in sorted(nodes) if (kept := self._of_node.get(node))]
        names = [name for block in blocks for name in block.series]
        nothing = np.empty((0, len(times)))

        def matrix(column: int) -> SeriesMatrix:
            return SeriesMatrix(names, np.concatenate([nothing, *(block.at(times, column) for block in blocks)]))

        cpu, waiting, memory = (matrix(column) for column in range(3))
        return UsageAnswers(_told(cpu), _told(waiting), _told(memory))

    def get_ages(self, nodes: Collection[str], times: Int64Array) -> Mapping[str, Float64Array]:
        """Return for nodes by how many seconds their last reading preceded each time, NaN where there was none.

        A node is left out whose containers were measured at different moments: none speaks for the others.
        """
        found = {}
        for node in nodes:
            kept = self._of_node.get(node)
            if not kept:
                continue
            taken = _NodeReadings(kept, roots=False).taken_at(times)
            if not len(taken):
                continue
            first, last = np.fmin.reduce(taken, axis=0), np.fmax.reduce(taken, axis=0)
            if not (last - first > TOLERANCE_SECONDS).any():
                found[node] = times - first
        return found

    def get_last_two(self, node: str) -> tuple[KubeletMetrics, KubeletMetrics] | None:
        """Return what was read of a node the last two times, the older first; None where it was not read twice."""
        kept = self._of_node.get(node)
        if not kept or len(kept) < 2:
            return None
        earlier, later = islice(kept, len(kept) - 2, None)
        return earlier.figures, later.figures


class _NodeReadings:
    """The readings of one node as arrays: a row a series, a column a reading."""

    def __init__(self, kept: Sequence[_TimedReading] | deque[_TimedReading], roots: bool) -> None:
        row_of: dict[SeriesName, int] = {}
        places = []
        for one in kept:
            rows = np.fromiter(
                (
                    row_of.setdefault(name, len(row_of)) if (name.id == ROOT_GROUP) is roots else -1
                    for name in one.figures.series
                ),
                np.int64,
                len(one.figures.series),
            )
            places.append(rows)
        self.series = list(row_of)
        self._taken_at, *self._columns = np.full((4, len(row_of), len(kept)), np.nan)
        for column, (one, rows) in enumerate(zip(kept, places, strict=True)):
            figures, chosen = one.figures, rows >= 0
            for into, values in zip(
                (self._taken_at, *self._columns),
                (figures.taken_at, figures.cpu_seconds, figures.cpu_waiting_seconds, figures.memory_bytes),
                strict=True,
            ):
                into[rows[chosen], column] = values[chosen]

    def at(self, times: Int64Array, column: int) -> Float64Array:
        """Return one family at the times of a grid."""
        return self._shown(self._columns[column], times)

    def taken_at(self, times: Int64Array) -> Float64Array:
        """Return when what is shown at the times of a grid was measured."""
        return self._shown(self._taken_at, times)

    def _shown(self, values: Float64Array, times: Int64Array) -> Float64Array:
        found = np.full((len(values), len(times)), np.nan)
        for place, time in enumerate(times.tolist()):
            with np.errstate(invalid="ignore"):
                seen = (self._taken_at <= time) & (self._taken_at > time - MIN_GAP_SECONDS)
            newest = seen.shape[1] - 1 - seen[:, ::-1].argmax(axis=1)
            chosen = np.take_along_axis(values, newest[:, None], axis=1)[:, 0]
            found[:, place] = np.where(seen.any(axis=1), chosen, np.nan)
        return found


def _told(matrix: SeriesMatrix) -> SeriesMatrix:
    """Leave out the series of which nothing is told at any time."""
    told = ~np.isnan(matrix.values).all(axis=1)
    if told.all():
        return matrix
    return SeriesMatrix([matrix.series[row] for row in np.flatnonzero(told).tolist()], matrix.values[told])
