"""Trace directories: what is read, and one clear line for what cannot be."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from cruise.domain.resources import Resources
from cruise.errors import BadInput
from cruise.simulation.trace import SHIPPED_TRACE, read_trace

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
        (SERIES, "t,a,b\n0,1,2\n60,3\n", None, "line 3: 2 cells, expected 3"),
        (SERIES, "t,a,b\n0,1,2\n\n60,3,4\n", None, "line 3: empty"),
        (SERIES, "t,a,b\n0,1,2\n", None, "1 sample, a trace needs two"),
        (SERIES, "t,a,b\n", None, "0 samples, a trace needs two"),
        (SERIES, CPU, MEMORY.replace("60,40", "61,40"), "memory_bytes.csv.gz: its times differ"),
    ],
)
def test_bad_input_is_one_line_with_its_place(
    tmp_path: Path, series: str | None, cpu: str | None, memory: str | None, message: str
) -> None:
    with pytest.raises(BadInput) as refusal:
        read_trace(directory(tmp_path, series, cpu, memory))
    assert message in str(refusal.value)
    assert str(tmp_path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(CPU.encode())[:-9], b"\x1f\x8b\x08\x00" + b"x" * 30],
    ids=["plain", "cut", "broken"],
)
def test_corrupt_gzip_is_named(tmp_path: Path, content: bytes) -> None:
    directory(tmp_path, cpu=None)
    (tmp_path / "cpu_millicores.csv.gz").write_bytes(content)
    with pytest.raises(BadInput, match=r"cpu_millicores\.csv\.gz: corrupt or truncated gzip"):
        read_trace(tmp_path)


def test_missing_and_empty_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such trace directory"):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"series\.csv: missing"):
        read_trace(tmp_path)


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
