"""Trace directories: recorded usage of many containers as plain files.

A directory holds `series.csv` (series, workload, cpu_request_millicores, memory_request_bytes), `cpu_millicores.csv.gz`
and, where memory is known, `memory_bytes.csv.gz`: first column `t` in seconds, then one column a series; an empty cell
is no sample.
"""

import csv
import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cruise.domain.resources import Resources
from cruise.domain.usage import Float64Array, Int64Array
from cruise.errors import BadInput

SERIES_FILE = "series.csv"
CPU_FILE = "cpu_millicores.csv.gz"
MEMORY_FILE = "memory_bytes.csv.gz"
SERIES_COLUMNS = ("series", "workload", "cpu_request_millicores", "memory_request_bytes")
SHIPPED_TRACE = Path(__file__).parent / "traces" / "nezha"


@dataclass(frozen=True, slots=True)
class Series:
    """One recorded container: whose it is, and the requests that it was provisioned with."""

    name: str
    workload: str
    requests: Resources


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded usage: the matrices have one row a series and one column a time, NaN where there is no sample.

    `times` are seconds, strictly ascending; `memory_bytes` is None where memory was not recorded.
    """

    series: tuple[Series, ...]
    times: Int64Array
    cpu_millicores: Float64Array
    memory_bytes: Float64Array | None


def read_trace(directory: Path) -> Trace:
    """Read a trace directory. Raises BadInput with one line that names the file and the place."""
    if not directory.is_dir():
        raise BadInput(f"{directory}: no such trace directory")
    series = _read_series(directory / SERIES_FILE)
    names = [one.name for one in series]
    times, cpu = _read_matrix(directory / CPU_FILE, names)
    memory = None
    if (directory / MEMORY_FILE).exists():
        memory_times, memory = _read_matrix(directory / MEMORY_FILE, names)
        if not np.array_equal(times, memory_times):
            raise BadInput(f"{directory / MEMORY_FILE}: its times differ from those of {CPU_FILE}")
    return Trace(series, times, cpu, memory)


def _read_series(path: Path) -> tuple[Series, ...]:
    rows = _series_rows(path)
    for column in SERIES_COLUMNS:
        if column not in rows[0]:
            raise BadInput(f"{path}: line 1: missing column {column!r}")
    at = [rows[0].index(column) for column in SERIES_COLUMNS]
    found: dict[str, Series] = {}
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(rows[0]):
            raise BadInput(f"{path}: line {line}: {len(row)} cells, expected {len(rows[0])}")
        one = _series([row[index].strip() for index in at], f"{path}: line {line}")
        if one.name in found:
            raise BadInput(f"{path}: line {line}: series {one.name!r} is there twice")
        found[one.name] = one
    if not found:
        raise BadInput(f"{path}: no series")
    return tuple(found.values())


def _series_rows(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except FileNotFoundError as error:
        raise BadInput(f"{path}: missing; a trace directory holds {SERIES_FILE} and {CPU_FILE}") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error
    if not rows:
        raise BadInput(f"{path}: empty, expected the columns {', '.join(SERIES_COLUMNS)}")
    return rows


def _series(cells: Sequence[str], where: str) -> Series:
    name, workload, cpu, memory = cells
    if not name or not workload:
        raise BadInput(f"{where}: series and workload need a name")
    where = f"{where}: series {name!r}"
    requests = Resources(_request(cpu, where, SERIES_COLUMNS[2]), _request(memory, where, SERIES_COLUMNS[3]))
    return Series(name, workload, requests)


def _request(text: str, where: str, column: str) -> int:
    if not text:
        raise BadInput(f"{where}: no {column}")
    if not (text.isascii() and text.isdigit()):
        raise BadInput(f"{where}: {column} is {text!r}, expected a whole number, zero or more")
    return int(text)


def _read_matrix(path: Path, names: Sequence[str]) -> tuple[Int64Array, Float64Array]:
    """Return the times and the values, one row a name in the order of `names`."""
    lines = _lines(path)
    header = next(lines, "").split(",")
    _check_header(path, header, names)
    times: list[int] = []
    rows: list[Float64Array] = []
    for line, text in enumerate(lines, start=2):
        if not text:
            raise BadInput(f"{path}: line {line}: empty")
        cells = text.split(",")
        if len(cells) != len(header):
            raise BadInput(f"{path}: line {line}: {len(cells)} cells, expected {len(header)}")
        times.append(_time(cells[0], times, f"{path}: line {line}"))
        rows.append(_values(cells[1:], header[1:], f"{path}: line {line}"))
    if len(rows) < 2:
        raise BadInput(f"{path}: {len(rows)} sample{'s' * (not rows)}, a trace needs two times or more")
    row_of = {name: row for row, name in enumerate(header[1:])}
    order = [row_of[name] for name in names]
    return np.array(times, dtype=np.int64), np.ascontiguousarray(np.array(rows)[:, order].T)


def _check_header(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    if header[0] != "t":
        raise BadInput(f"{path}: line 1: missing column 't', which comes first")
    columns = set(header[1:])
    if len(columns) != len(header) - 1:
        raise BadInput(f"{path}: line 1: a series is there twice")
    known = set(names)
    for name in header[1:]:
        if name not in known:
            raise BadInput(f"{path}: line 1: series {name!r} has no requests in {SERIES_FILE}")
    for name in names:
        if name not in columns:
            raise BadInput(f"{path}: line 1: missing column {name!r}, which {SERIES_FILE} names")


def _lines(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                yield line.rstrip("\r\n")
    except FileNotFoundError as error:
        raise BadInput(f"{path}: missing; a trace directory holds {SERIES_FILE} and {CPU_FILE}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path}: corrupt or truncated gzip: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error


def _time(text: str, earlier: Sequence[int], where: str) -> int:
    try:
        time = int(text)
    except ValueError as error:
        raise BadInput(f"{where}: time {text!r} is no whole number of seconds") from error
    if earlier and time == earlier[-1]:
        raise BadInput(f"{where}: time {time} is there twice")
    if earlier and time < earlier[-1]:
        raise BadInput(f"{where}: time {time} comes after {earlier[-1]}, times must ascend")
    return time


def _values(cells: Sequence[str], columns: Sequence[str], where: str) -> Float64Array:
    try:
        values = np.array([cell or "nan" for cell in cells], dtype=np.float64)
    except ValueError as error:
        raise BadInput(f"{where}: {_first_bad(cells, columns)}") from error
    good = np.isfinite(values) & (values >= 0)
    if not good.all() and any(cell and not fine for cell, fine in zip(cells, good, strict=True)):
        raise BadInput(f"{where}: {_first_bad(cells, columns)}")
    return values


def _first_bad(cells: Sequence[str], columns: Sequence[str]) -> str:
    for cell, column in zip(cells, columns, strict=True):
        try:
            usable = not cell or 0 <= float(cell) < float("inf")
        except ValueError:
            usable = False
        if not usable:
            return f"series {column!r} has the value {cell!r}, expected a number, zero or more, or nothing"
    return "a value cannot be read"
