"""Trace directories: their content, and one clear line for invalid ones."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.resources import Resources
from cruise.errors import BadInputError
from cruise.simulation.demand.trace import SHIPPED_TRACE, read_matrix, read_trace

UNPRIVILEGED = 65534
SERIES = "series,workload,cpu_request_millicores,memory_request_bytes\na,web,500,1024\nb,db,1000,0\n"
CPU = "t,a,b\n0,1,2\n60,,4\n120,5,6.5\n"
MEMORY = "t,b,a\n0,20,10\n60,40,30\n120,60,50\n"


def directory(path: Path, series: str | None = SERIES, cpu: str | None = CPU, memory: str | None = None) -> Path:
    if series is not None:
        (path / "series.csv").write_text(series)
    for name, text in (("cpu_millicores.csv.gz", cpu), ("memory_bytes.csv.gz", memory)):
        if text is not None:
            (path / name).write_bytes(gzip.compress(text.encode()))
    return path


def test_reads_series_and_matrices(tmp_path: Path) -> None:
    trace = read_trace(directory(tmp_path, memory=MEMORY))
    assert [(one.name, one.workload, one.requests) for one in trace.series] == [
        ("a", "web", Resources(500, 1024)),
        ("b", "db", Resources(1000, 0)),
    ]
    assert trace.times.tolist() == [0, 60, 120]
    np.testing.assert_array_equal(trace.cpu_millicores, [[1, np.nan, 5], [2, 4, 6.5]])
    # Columns may stand in any order: rows follow series.csv.
    np.testing.assert_array_equal(trace.memory_bytes, [[10, 30, 50], [20, 40, 60]])


def test_memory_may_be_absent(tmp_path: Path) -> None:
    assert read_trace(directory(tmp_path)).memory_bytes is None


@pytest.mark.parametrize(
    ("series", "cpu", "memory", "message"),
    [
        (None, CPU, None, "series.csv: missing"),
        ("", CPU, None, "series.csv: empty"),
        (SERIES.replace("workload", "job"), CPU, None, "line 1: missing column 'workload'"),
        (SERIES.splitlines()[0], CPU, None, "series.csv: no series"),
        (SERIES.replace("500", ""), CPU, None, "line 2: series 'a': no cpu_request_millicores"),
        (SERIES.replace("1024", "-1"), CPU, None, "line 2: series 'a': memory_request_bytes is '-1'"),
        (SERIES.replace("b,db", "a,db"), CPU, None, "line 3: series 'a' is there twice"),
        (SERIES.replace("a,web", "a"), CPU, None, "line 2: 3 cells, expected 4"),
        (SERIES.replace("a,web", ",web"), CPU, None, "line 2: series and workload need a name"),
        (
            SERIES.replace("500", "500000000"),
            CPU,
            None,
            "cpu_request_millicores is 500000000, more than any machine has",
        ),
        (SERIES.replace("1024", "9" * 16), CPU, None, "line 2: series 'a': memory_request_bytes has 16 digits"),
        (SERIES.replace("b,db", "\nb,db"), CPU, None, "line 3: 0 cells, expected 4"),
        (SERIES, None, None, "cpu_millicores.csv.gz: missing"),
        (SERIES, "", None, "line 1: missing column 't'"),
        (SERIES, CPU.replace("t,a", "time,a"), None, "line 1: missing column 't'"),
        (SERIES, "t,a\n0,1\n60,2\n", None, "line 1: missing column 'b'"),
        (SERIES, "t,a,a\n0,1,2\n60,2,3\n", None, "line 1: a series is there twice"),
        (SERIES, "t,a,b,c\n0,1,2,3\n60,2,3,4\n", None, "line 1: series 'c' has no requests in series.csv"),
        (SERIES, "t,a,b\n60,1,2\n0,3,4\n", None, "line 3: time 0 comes after 60"),
        (SERIES, "t,a,b\n0,1,2\n0,3,4\n", None, "line 3: time 0 is there twice"),
        (SERIES, "t,a,b\nx,1,2\n60,3,4\n", None, "line 2: time 'x'"),
        (SERIES, "t,a,b\n0,1,2\n60,-3,4\n", None, "line 3: series 'a' has the value '-3'"),
        (SERIES, "t,a,b\n0,1,2\n60,3,NaN\n", None, "line 3: series 'b' has the value 'NaN'"),
        (SERIES, "t,a,b\n0,1,2\n60,3,inf\n", None, "line 3: series 'b' has the value 'inf'"),
        (SERIES, "t,a,b\n0,1,2\n60,3,4m\n", None, "line 3: series 'b' has the value '4m'"),
        (SERIES, "t,a,b\n0,1,2\n60,,nan\n", None, "line 3: series 'b' has the value 'nan'"),
        (SERIES, "t,a,b\n0,1,2\n60,,null\n", None, "line 3: series 'b' has the value 'null'"),
        (SERIES, "t,a,b\n0,1,2\n60,,-1\n", None, "line 3: series 'b' has the value '-1'"),
        (SERIES, "t,a,b\n0,1,2\n60,3,1e39\n", None, "line 3: series 'b' has the value '1e39'"),
        (SERIES, "t,a,b\n0,1,2\n60,3,1e400\n", None, "line 3: series 'b' has the value '1e400'"),
        (SERIES, 't,a,b\n0,1,2\n60,3,"4"\n', None, "line 3: series 'b' has the value '\"4\"'"),
        (SERIES, "t,a,b\n0,1,2\n60,3,[4]\n", None, "line 3: series 'b' has the value '[4]'"),
        (SERIES, f"t,a,b\n0,1,2\n60,3,{'[' * 5000}\n", None, "line 3: series 'b' has the value '[[["),
        (SERIES, "t,a,b\n0,1,2\n60,3\n", None, "line 3: 2 cells, expected 3"),
        (SERIES, "t,a,b\n0,1,2\n60,3,4,5\n", None, "line 3: 4 cells, expected 3"),
        (SERIES, "t,a,b\n0,1,2\n60\n", None, "line 3: 1 cells, expected 3"),
        (SERIES, "t,a,b\n0,1,2\n1.5,3,4\n", None, "line 3: time '1.5' is no whole number"),
        (SERIES, "t,a,b\n0,1,2\n,3,4\n", None, "line 3: time '' is no whole number"),
        (SERIES, f"t,a,b\n0,1,2\n{10**20},3,4\n", None, "line 3: time 1e+20 is out of all reason"),
        (SERIES, f"t,a,b\n0,1,2\n{'6' * 5000},3,4\n", None, "line 3: time '666"),
        (SERIES, "t,a,b\n\n\n0,1,2\n60,3,4\n", None, "line 2: empty"),
        (SERIES, "t,a,b\n0,1,2\n\n60,3,4\n", None, "line 3: empty"),
        (SERIES, "t,a,b\n0,1,2\n", None, "1 sample, a trace needs two"),
        (SERIES, "t,a,b\n", None, "0 samples, a trace needs two"),
        (SERIES, "t,a,b", None, "0 samples, a trace needs two"),
        (SERIES, "t,a,b\n0,1,2\n\n\n", None, "1 sample, a trace needs two"),
        (SERIES, CPU, MEMORY.replace("60,40", "61,40"), "memory_bytes.csv.gz: its times differ"),
    ],
)
def test_bad_input_is_one_line_with_its_place(
    tmp_path: Path, series: str | None, cpu: str | None, memory: str | None, message: str
) -> None:
    with pytest.raises(BadInputError) as rejection:
        read_trace(directory(tmp_path, series, cpu, memory))
    assert message in str(rejection.value)
    assert str(tmp_path) in str(rejection.value)
    assert "\n" not in str(rejection.value)


def _with_another_checksum() -> bytes:
    whole = gzip.compress(CPU.encode())
    return whole[:-8] + bytes(byte ^ 1 for byte in whole[-8:-4]) + whole[-4:]


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip",
        gzip.compress(CPU.encode())[:-9],
        gzip.compress(CPU.encode())[:12],
        b"\x1f\x8b\x08\x00" + b"x" * 30,
        _with_another_checksum(),
        gzip.compress(CPU.encode()) + b"more",
    ],
    ids=["plain", "cut", "cut early", "broken", "checksum", "garbage behind"],
)
def test_corrupt_gzip_is_named(tmp_path: Path, content: bytes) -> None:
    directory(tmp_path, cpu=None)
    (tmp_path / "cpu_millicores.csv.gz").write_bytes(content)
    with pytest.raises(BadInputError, match=r"cpu_millicores\.csv\.gz: corrupt or truncated gzip"):
        read_trace(tmp_path)


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    directory(tmp_path, cpu=None)
    for text, line in ((b"t,a,\xff\n", 1), (b"t,a,b\n0,1,2\n60,1,\xff\n", 3)):
        (tmp_path / "cpu_millicores.csv.gz").write_bytes(gzip.compress(text))
        with pytest.raises(BadInputError, match=rf"cpu_millicores\.csv\.gz: line {line}: 'utf-8' codec"):
            read_trace(tmp_path)


def test_what_editors_add_changes_nothing(tmp_path: Path) -> None:
    read = []
    for number, (start, end) in enumerate((("", "\n"), ("\ufeff", "\r\n"))):
        path = tmp_path / str(number)
        path.mkdir()
        texts = [start + (text + "\n" * number).replace("\n", end) for text in (SERIES, CPU, MEMORY)]
        # Written as bytes, since text would have its line ends changed.
        directory(path, None, *texts[1:])
        (path / "series.csv").write_bytes(texts[0].encode())
        read.append(read_trace(path))
    assert read[0].series == read[1].series
    np.testing.assert_array_equal(read[0].cpu_millicores, read[1].cpu_millicores)
    np.testing.assert_array_equal(read[0].memory_bytes, read[1].memory_bytes)


def test_numbers_may_be_written_in_any_usual_way(tmp_path: Path) -> None:
    trace = read_trace(directory(tmp_path, cpu="t,a,b\n0,007,1.\n60,+2,.5\n120, 3 ,4e2\n"))
    np.testing.assert_array_equal(trace.cpu_millicores, [[7, 2, 3], [1, 0.5, 400]])


def test_a_single_column_may_have_empty_cells(tmp_path: Path) -> None:
    trace = read_trace(directory(tmp_path, SERIES[: SERIES.index("b,db")], "t,a\n0,\n60,1\n120,\n"))
    np.testing.assert_array_equal(trace.cpu_millicores, [[np.nan, 1, np.nan]])


@given(
    st.lists(st.lists(st.none() | st.floats(0, 2.0**40, width=32), min_size=5, max_size=5), min_size=2, max_size=150),
    st.permutations(range(5)),
)
def test_reads_written_traces_in_any_order_of_columns(rows: list[list[float | None]], order: list[int]) -> None:
    lines = [",".join(["t", *(f"s{column}" for column in order)])]
    for time, row in enumerate(rows):
        lines.append(",".join([str(time), *("" if row[column] is None else repr(row[column]) for column in order)]))
    with TemporaryDirectory() as place:
        path = Path(place) / "cpu.csv.gz"
        path.write_bytes(gzip.compress("\n".join(lines).encode(), 1))
        times, matrix = read_matrix(path, [f"s{column}" for column in range(5)], np.float32)
    assert times.tolist() == list(range(len(rows)))
    np.testing.assert_array_equal(matrix, np.array(rows, dtype=np.float32))
    assert matrix.flags.c_contiguous


def test_missing_and_empty_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such trace directory"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(BadInputError, match=r"series\.csv: missing"):
        read_trace(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(BadInputError, match="file: no directory; a trace directory holds"):
        read_trace(tmp_path / "file")
    with pytest.raises(BadInputError, match="no such trace directory"):
        read_trace(tmp_path / "file" / "below")
    with pytest.raises(BadInputError, match="cannot be read: File name too long"):
        read_trace(tmp_path / ("x" * 300))


def test_directories_in_place_of_files_are_named(tmp_path: Path) -> None:
    (directory(tmp_path, cpu=None) / "cpu_millicores.csv.gz").mkdir()
    with pytest.raises(BadInputError, match=r"cpu_millicores\.csv\.gz: cannot be read: Is a directory"):
        read_trace(tmp_path)
    (tmp_path / "series.csv").unlink()
    (tmp_path / "series.csv").mkdir()
    with pytest.raises(BadInputError, match=r"series\.csv: cannot be read: Is a directory"):
        read_trace(tmp_path)


@pytest.mark.parametrize("name", [".", "series.csv", "cpu_millicores.csv.gz"])
def test_what_may_not_be_read_is_named(name: str) -> None:
    with TemporaryDirectory() as place, _without_privileges(Path(place)):
        made = Path(place) / "trace"
        made.mkdir()
        directory(made)
        (made / name).chmod(0)
        with pytest.raises(
            BadInputError, match=f"{'trace' if name == '.' else name}: cannot be read: Permission denied"
        ):
            read_trace(made)
        (made / name).chmod(0o700)


@contextmanager
def _without_privileges(directory: Path) -> Iterator[None]:
    """Become an unprivileged user, if tests run as root, who may read every file."""
    if os.geteuid():
        yield
        return
    os.chown(directory, UNPRIVILEGED, UNPRIVILEGED)
    os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        os.seteuid(0)


def test_shipped_trace_is_whole_and_small() -> None:
    trace = read_trace(SHIPPED_TRACE)
    assert len(trace.series) == 46
    assert trace.cpu_millicores.shape == (46, 919)
    assert trace.memory_bytes is not None
    assert np.isfinite(trace.memory_bytes).all()
    requested = np.array([one.requests.memory_bytes for one in trace.series])
    assert (trace.memory_bytes.max(axis=1) < requested).all()
    assert sum(file.stat().st_size for file in SHIPPED_TRACE.iterdir()) < 300_000
    assert "MIT License" in (SHIPPED_TRACE / "SOURCE.md").read_text()
