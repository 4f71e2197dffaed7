"""Trace directories: recorded usage of many containers as plain files.

A directory holds `series.csv` (series, workload, cpu_request_millicores, memory_request_bytes), `cpu_millicores.csv.gz`
and, where memory is known, `memory_bytes.csv.gz`: first column `t` in seconds, then one column a series; an empty cell
is no sample.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.machine_sizes import LARGEST_MACHINE
from cruise.domain.resources import ResourceName, Resources
from cruise.errors import BadInput
from cruise.simulation.demand.trace_matrix import CPU_FILE, FILES_OF_A_TRACE, MEMORY_FILE, SERIES_FILE, read_matrix

SERIES_COLUMNS = ("series", "workload", "cpu_request_millicores", "memory_request_bytes")
_MOST_DIGITS = 15
_LONGEST_QUOTE = 60
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
    series = read_series(directory)
    names = [one.name for one in series]
    times, cpu = read_matrix(directory / CPU_FILE, names, np.float64)
    memory = None
    if has_memory(directory):
        memory_times, memory = read_matrix(directory / MEMORY_FILE, names, np.float64)
        check_same_times(directory, times, memory_times)
    return Trace(series, times, np.ascontiguousarray(cpu.T), None if memory is None else np.ascontiguousarray(memory.T))


def has_memory(directory: Path) -> bool:
    """Tell whether memory was recorded."""
    return (directory / MEMORY_FILE).exists()


def check_same_times(directory: Path, times: Int64Array, memory_times: Int64Array) -> None:
    """Raise BadInput where memory was recorded at other times than CPU."""
    if not np.array_equal(times, memory_times):
        raise BadInput(f"{directory / MEMORY_FILE}: its times differ from those of {CPU_FILE}")


def read_series(directory: Path) -> tuple[Series, ...]:
    """Read the series that a trace directory names. Raises BadInput."""
    _check_directory(directory)
    path = directory / SERIES_FILE
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


def _check_directory(directory: Path) -> None:
    try:
        if directory.is_dir():
            # A directory that may not be read is refused as such, and not for something missing in it.
            next(directory.iterdir(), None)
            return
        there = directory.exists()
    except OSError as error:
        raise BadInput(f"{directory}: cannot be read: {error.strerror or error}") from error
    if there:
        raise BadInput(f"{directory}: no directory; {FILES_OF_A_TRACE}")
    raise BadInput(f"{directory}: no such trace directory")


def _series_rows(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
    except FileNotFoundError as error:
        raise BadInput(f"{path}: missing; {FILES_OF_A_TRACE}") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from error
    while rows and not rows[-1]:
        rows.pop()
    if not rows:
        raise BadInput(f"{path}: empty, expected the columns {', '.join(SERIES_COLUMNS)}")
    return rows


def _series(cells: Sequence[str], where: str) -> Series:
    name, workload, cpu, memory = cells
    if not name or not workload:
        raise BadInput(f"{where}: series and workload need a name")
    where = f"{where}: series {name!r}"
    requests = Resources(_request(cpu, where, SERIES_COLUMNS[2]), _request(memory, where, SERIES_COLUMNS[3]))
    for column, resource in zip(SERIES_COLUMNS[2:], ResourceName, strict=True):
        if requests.of(resource) > LARGEST_MACHINE.of(resource):
            raise BadInput(f"{where}: {column} is {requests.of(resource)}, more than any machine has")
    return Series(name, workload, requests)


def _request(text: str, where: str, column: str) -> int:
    if not text:
        raise BadInput(f"{where}: no {column}")
    if not (text.isascii() and text.isdigit()):
        raise BadInput(f"{where}: {column} is {text[:_LONGEST_QUOTE]!r}, expected a whole number, zero or more")
    if len(text) > _MOST_DIGITS:
        raise BadInput(f"{where}: {column} has {len(text)} digits, which is out of all reason")
    return int(text)
