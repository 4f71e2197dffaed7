"""Reads trace directories: the recorded usage of many containers as plain files.

A directory has `series.csv` (series, workload, cpu_request_millicores, memory_request_bytes), `cpu_millicores.csv.gz`
and, if memory was recorded, `memory_bytes.csv.gz`: the first column is `t` in seconds, then one column per series; an
empty cell is no sample. Files are read line by line into a matrix.
"""

import csv
import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.policy import LARGEST_MACHINE
from cruise.domain.resources import ResourceName, Resources
from cruise.errors import DECODE_ERRORS, BadInputError

SERIES_FILE = "series.csv"
CPU_FILE = "cpu_millicores.csv.gz"
MEMORY_FILE = "memory_bytes.csv.gz"
FILES_OF_A_TRACE = f"a trace directory holds {SERIES_FILE} and {CPU_FILE}"

F = TypeVar("F", np.float32, np.float64)

_BOM = b"\xef\xbb\xbf"
_MAX_QUOTE = 60
_LINES_BETWEEN = 64
# Regular cells are JSON numbers, which msgspec reads in 35 ns each; numpy's reader takes more than twice that.
_CELLS = msgspec.json.Decoder(list[float | None])
_LARGEST = float(np.finfo(np.float32).max)
SERIES_COLUMNS = ("series", "workload", "cpu_request_millicores", "memory_request_bytes")
_MAX_DIGITS = 15


def read_matrix(
    path: Path, names: Sequence[str], kind: type[F], on_progress: Callable[[float], None] | None = None
) -> tuple[Int64Array, NDArray[F]]:
    """Return the times, and the values as a matrix (times, `names`); NaN is an empty cell.

    `on_progress` receives the share of the file that was read. Raises BadInputError with the file and the line.
    """
    lines = _lines(path, on_progress)
    header = _header(path, next(lines, b""))
    _check_header(path, header, names)
    column_of = {name: column for column, name in enumerate(header)}
    order = np.array([column_of[name] for name in names], dtype=np.int64)
    in_order = bool((order == np.arange(len(names))).all())
    times: list[int] = []
    matrix: NDArray[F] = np.empty((64, len(names)), dtype=kind)
    blank = 0
    for line, text in enumerate(lines, start=2):
        if not text:
            blank = blank or line
            continue
        if blank:
            raise BadInputError(f"{path}: line {blank}: empty")
        head, comma, cells = text.partition(b",")
        values = _fast_values(cells, len(names)) if comma else None
        if values is None:
            values = _values(text, header, f"{path}: line {line}")
        time = _time(head, times, f"{path}: line {line}")
        if len(times) == len(matrix):
            # There is no other reference to the array; the kernel moves large memory without a copy.
            matrix.resize((len(matrix) * 9 // 8, len(names)), refcheck=False)
        matrix[len(times)] = values if in_order else values[order]
        times.append(time)
    if len(times) < 2:
        raise BadInputError(f"{path}: {len(times)} sample{'s' * (not times)}, a trace needs two times or more")
    matrix.resize((len(times), len(names)), refcheck=False)
    return np.array(times, dtype=np.int64), matrix


def _header(path: Path, line: bytes) -> list[str]:
    """Return the names of the columns after the first."""
    try:
        first, *names = line.removeprefix(_BOM).decode().split(",")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: line 1: {error}") from error
    if first != "t":
        raise BadInputError(f"{path}: line 1: missing column 't', which comes first")
    return names


def _check_header(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    columns = set(header)
    if len(columns) != len(header):
        raise BadInputError(f"{path}: line 1: a series is there twice")
    known = set(names)
    for name in header:
        if name not in known:
            raise BadInputError(f"{path}: line 1: series {_quote(name)} has no requests in {SERIES_FILE}")
    for name in names:
        if name not in columns:
            raise BadInputError(f"{path}: line 1: missing column {_quote(name)}, which {SERIES_FILE} names")


def _lines(path: Path, on_progress: Callable[[float], None] | None) -> Iterator[bytes]:
    try:
        with path.open("rb") as packed, gzip.open(packed, "rb") as file:
            size = os.fstat(packed.fileno()).st_size
            for number, line in enumerate(file):
                yield line.rstrip(b"\r\n")
                if on_progress is not None and number % _LINES_BETWEEN == 0:
                    on_progress(packed.tell() / max(1, size))
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: missing; {FILES_OF_A_TRACE}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInputError(f"{path}: corrupt or truncated gzip: {error}") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _time(cell: bytes, earlier: Sequence[int], where: str) -> int:
    try:
        time = int(cell)
    except ValueError as error:
        text = cell.decode(errors="replace")
        raise BadInputError(f"{where}: time {_quote(text)} is no whole number of seconds") from error
    if abs(time) >= 1 << 53:
        raise BadInputError(f"{where}: time {time:.3g} is out of all reason")
    if earlier and time == earlier[-1]:
        raise BadInputError(f"{where}: time {time} is there twice")
    if earlier and time < earlier[-1]:
        raise BadInputError(f"{where}: time {time} comes after {earlier[-1]}, times must ascend")
    return time


def _fast_values(cells: bytes, count: int) -> NDArray[np.float64] | None:
    """Return the values of a line, None if it needs the thorough parser."""
    if b"n" in cells:  # JSON would take a literal null for an empty cell.
        return None
    if b",," in cells or cells[:1] == b"," or cells[-1:] in (b",", b""):
        # Twice, because adjacent cells share a comma.
        cells = b"," + cells + b","
        cells = cells.replace(b",,", b",null,").replace(b",,", b",null,")[1:-1]
    try:
        values = np.array(_CELLS.decode(b"[" + cells + b"]"), dtype=np.float64)
    except DECODE_ERRORS:
        return None
    # NaN, an empty cell, is neither negative nor too large.
    if len(values) != count or (values < 0).any() or (values > _LARGEST).any():
        return None
    return values


def _values(text: bytes, header: Sequence[str], where: str) -> NDArray[np.float64]:
    try:
        cells = text.decode().split(",")[1:]
    except UnicodeDecodeError as error:
        raise BadInputError(f"{where}: {error}") from error
    if len(cells) != len(header):
        raise BadInputError(f"{where}: {len(cells) + 1} cells, expected {len(header) + 1}")
    return np.array([_value(cell, name, where) for cell, name in zip(cells, header, strict=True)])


def _value(cell: str, name: str, where: str) -> float:
    if not cell:
        return float("nan")
    try:
        value = float(cell)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= _LARGEST:
        what = f"series {_quote(name)} has the value {_quote(cell)}"
        raise BadInputError(f"{where}: {what}, expected a number, zero or more, or nothing")
    return value


def _quote(text: str) -> str:
    return repr(text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…")


SHIPPED_TRACE = Path(__file__).parent / "traces" / "nezha"


@dataclass(frozen=True, slots=True)
class TraceSeries:
    """One recorded container, with its workload and provisioned requests."""

    name: str
    workload: str
    requests: Resources


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded usage as matrices (series, times); NaN is no sample.

    `times` are seconds, strictly ascending; `memory_bytes` is None if memory was not recorded.
    """

    series: tuple[TraceSeries, ...]
    times: Int64Array
    cpu_millicores: Float64Array
    memory_bytes: Float64Array | None


def read_trace(directory: Path) -> Trace:
    """Read a trace directory. Raises BadInputError with the file and the line."""
    series = read_all_series(directory)
    names = [one.name for one in series]
    times, cpu = read_matrix(directory / CPU_FILE, names, np.float64)
    memory = None
    if has_memory(directory):
        memory_times, memory = read_matrix(directory / MEMORY_FILE, names, np.float64)
        check_same_times(directory, times, memory_times)
    return Trace(series, times, np.ascontiguousarray(cpu.T), None if memory is None else np.ascontiguousarray(memory.T))


def has_memory(directory: Path) -> bool:
    """Return whether memory was recorded."""
    return (directory / MEMORY_FILE).exists()


def check_same_times(directory: Path, times: Int64Array, memory_times: Int64Array) -> None:
    """Raise BadInputError if memory was recorded at other times than CPU."""
    if not np.array_equal(times, memory_times):
        raise BadInputError(f"{directory / MEMORY_FILE}: its times differ from those of {CPU_FILE}")


def read_all_series(directory: Path) -> tuple[TraceSeries, ...]:
    """Read the series that a trace directory names. Raises BadInputError."""
    _check_directory(directory)
    path = directory / SERIES_FILE
    rows = _series_rows(path)
    for column in SERIES_COLUMNS:
        if column not in rows[0]:
            raise BadInputError(f"{path}: line 1: missing column {column!r}")
    at = [rows[0].index(column) for column in SERIES_COLUMNS]
    found: dict[str, TraceSeries] = {}
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(rows[0]):
            raise BadInputError(f"{path}: line {line}: {len(row)} cells, expected {len(rows[0])}")
        one = _series([row[index].strip() for index in at], f"{path}: line {line}")
        if one.name in found:
            raise BadInputError(f"{path}: line {line}: series {one.name!r} is there twice")
        found[one.name] = one
    if not found:
        raise BadInputError(f"{path}: no series")
    return tuple(found.values())


def _check_directory(directory: Path) -> None:
    try:
        if directory.is_dir():
            # An unreadable directory is reported as such, not as one with missing files.
            next(directory.iterdir(), None)
            return
        there = directory.exists()
    except OSError as error:
        raise BadInputError(f"{directory}: cannot be read: {error.strerror or error}") from error
    if there:
        raise BadInputError(f"{directory}: no directory; {FILES_OF_A_TRACE}")
    raise BadInputError(f"{directory}: no such trace directory")


def _series_rows(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
    except FileNotFoundError as error:
        raise BadInputError(f"{path}: missing; {FILES_OF_A_TRACE}") from error
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path}: cannot be read: {error}") from error
    while rows and not rows[-1]:
        rows.pop()
    if not rows:
        raise BadInputError(f"{path}: empty, expected the columns {', '.join(SERIES_COLUMNS)}")
    return rows


def _series(cells: Sequence[str], where: str) -> TraceSeries:
    name, workload, cpu, memory = cells
    if not name or not workload:
        raise BadInputError(f"{where}: series and workload need a name")
    where = f"{where}: series {name!r}"
    requests = Resources(_request(cpu, where, SERIES_COLUMNS[2]), _request(memory, where, SERIES_COLUMNS[3]))
    for column, resource in zip(SERIES_COLUMNS[2:], ResourceName, strict=True):
        if requests.get(resource) > LARGEST_MACHINE.get(resource):
            raise BadInputError(f"{where}: {column} is {requests.get(resource)}, more than any machine has")
    return TraceSeries(name, workload, requests)


def _request(text: str, where: str, column: str) -> int:
    if not text:
        raise BadInputError(f"{where}: no {column}")
    if not (text.isascii() and text.isdigit()):
        raise BadInputError(f"{where}: {column} is {_quote(text)}, expected a whole number, zero or more")
    if len(text) > _MAX_DIGITS:
        raise BadInputError(f"{where}: {column} has {len(text)} digits, which is out of all reason")
    return int(text)
