"""The few families that cruise reads of a kubelet's metrics, straight from the bytes of its answer.

Of what cAdvisor tells of a node, more than nine tenths are other families, and the library reads every line of them,
which takes 80 times as long at 110 pods. Here a family is found by its TYPE line, and ends where the next one is
described.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from cruise.adapters.prometheus.matrix import SeriesName
from cruise.domain.arrays import Float64Array
from cruise.errors import BadInput

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
class Figures:
    """What a kubelet told of its containers and of its root control group; NaN where it did not.

    `taken_at` is when the figures of a series were taken by the node's clock, in Unix seconds, NaN where that was not
    told.
    """

    series: tuple[SeriesName, ...]
    taken_at: Float64Array
    cpu_seconds: Float64Array
    cpu_waiting_seconds: Float64Array
    memory_bytes: Float64Array


def figures_of(body: bytes, node: str) -> Figures:
    """Read an answer of /metrics/cadvisor or /metrics/resource. Raises BadInput for anything else."""
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
    return Figures(
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
    raise BadInput(f"the answer {why}")
