"""Trace directories as recordings: the time grid, and one clear line for an invalid one."""

import gzip
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from cruise.backtest.recordings.recording import (
    RecordedContainer,
    UsageRecording,
    load_trace,
    select_half_of_containers,
)
from cruise.domain.backtest import RecordingHalf
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import Resources
from cruise.errors import BadInputError

SERIES = "series,workload,cpu_request_millicores,memory_request_bytes\na-1,web,500,1024\nb,db,1000,0\n"
CPU = "t,a-1,b\n0,1,2\n60,,4\n120,5,6.5\n"
MEMORY = "t,b,a-1\n0,20,10\n60,40,\n120,60,50\n"
WEEK = 7 * 86_400


def directory(path: Path, cpu: str, memory: str | None = None, name: str = "Some_Trace") -> Path:
    made = path / name
    made.mkdir()
    (made / "series.csv").write_text(SERIES)
    (made / "cpu_millicores.csv.gz").write_bytes(gzip.compress(cpu.encode()))
    if memory is not None:
        (made / "memory_bytes.csv.gz").write_bytes(gzip.compress(memory.encode()))
    return made


def grid(*times: int) -> str:
    return "t,a-1,b\n" + "".join(f"{time},{place},{place}\n" for place, time in enumerate(times))


def test_a_trace_is_a_recording_that_starts_on_a_monday(tmp_path: Path) -> None:
    read = load_trace(directory(tmp_path, CPU, MEMORY))
    assert read.name == "Some_Trace"
    assert [(one.namespace, one.pod, one.workload, one.requests) for one in read.containers] == [
        ("some-trace", "a-1", WorkloadRef("Deployment", "web"), Resources(500, 1024)),
        ("some-trace", "b", WorkloadRef("Deployment", "db"), Resources(1000, 0)),
    ]
    start = datetime.fromtimestamp(read.start, UTC)
    assert (start.weekday(), start.hour, start.minute, start.second) == (0, 0, 0, 0)
    assert (read.step_seconds, read.has_memory) == (60, True)
    np.testing.assert_array_equal(read.cpu_millicores, [[1, 2], [np.nan, 4], [5, 6.5]])
    np.testing.assert_array_equal(read.memory_bytes, [[10, 20], [np.nan, 40], [50, 60]])
    assert {read.cpu_millicores.dtype, read.memory_bytes.dtype} == {np.dtype(np.float32)}


def test_containers_are_sorted_by_name_whatever_the_order_of_files(tmp_path: Path) -> None:
    made = directory(tmp_path, "t,b,a-1\n0,2,1\n60,4,\n120,6.5,5\n", MEMORY)
    header, first, second = SERIES.splitlines()
    (made / "series.csv").write_text("\n".join((header, second, first)))
    read = load_trace(made)
    assert [one.pod for one in read.containers] == ["a-1", "b"]
    np.testing.assert_array_equal(read.cpu_millicores, [[1, 2], [np.nan, 4], [5, 6.5]])


def test_memory_that_was_not_recorded_is_zero(tmp_path: Path) -> None:
    read = load_trace(directory(tmp_path, CPU))
    assert not read.has_memory
    np.testing.assert_array_equal(read.memory_bytes, np.zeros((3, 2)))


@pytest.mark.parametrize("times", [(0, 60, 180, 240, 540), (0, 240, 300), (300, 360, 480), (0, 600, 900)])
def test_times_that_are_missing_are_rows_without_samples(tmp_path: Path, times: tuple[int, ...]) -> None:
    read = load_trace(directory(tmp_path, grid(*times), grid(*times)))
    step = min(after - before for before, after in pairwise(times))
    expected = np.full(((times[-1] - times[0]) // step + 1, 2), np.nan)
    for place, time in enumerate(times):
        expected[(time - times[0]) // step] = place
    assert read.step_seconds == step
    np.testing.assert_array_equal(read.cpu_millicores, expected)
    np.testing.assert_array_equal(read.memory_bytes, expected)


@pytest.mark.parametrize(
    ("first", "start"),
    [(0, 1704067200), (7 * 300, 1704069300), (17, 1704067200), (1_700_000_017, 1_700_000_000 // 60 * 60)],
    ids=["its own start", "later", "off the grid", "Unix time"],
)
def test_the_first_time_sets_the_start(tmp_path: Path, first: int, start: int) -> None:
    assert load_trace(directory(tmp_path, grid(first, first + 60))).start == start


@pytest.mark.parametrize(
    ("cpu", "memory", "message"),
    [
        (grid(0, 60, 121, 180), None, "line 3: time 60 is off the grid of 59 s from 0, which lines 4 and 5 set"),
        (grid(0, 60, 120, 210), None, "line 5: time 210 is off the grid of 60 s from 0, which lines 2 and 3 set"),
        (grid(0, 7), None, "one sample every 7 s: a step must divide an hour, and divide the 300 s of pass_interval"),
        (grid(0, 400), None, "one sample every 400 s: a step must divide an hour, and divide the 300 s"),
        (grid(0, 7200), None, "one sample every 7200 s: a step must divide an hour"),
        (grid(0, 60, 60 + 5 * WEEK), None, "line 4: 35 days without a sample before it"),
        (grid(0), None, "1 sample, a trace needs two times or more"),
        ("t,a-1,b\n0,1,\n60,2,\n", None, "cpu_millicores.csv.gz: no sample at all of series 'b': leave it out"),
        (
            "t,a-1,b\n0,,\n60,,\n",
            None,
            "cpu_millicores.csv.gz: no sample at all of series 'a-1' and 1 more: leave them",
        ),
        (CPU, "t,a-1,b\n0,,1\n60,,2\n120,,3\n", "memory_bytes.csv.gz: no sample at all of series 'a-1': leave it"),
        (CPU, grid(0, 60, 180), "memory_bytes.csv.gz: its times differ from those of cpu_millicores.csv.gz"),
    ],
)
def test_what_does_not_fit_is_one_line_with_its_place(
    tmp_path: Path, cpu: str, memory: str | None, message: str
) -> None:
    with pytest.raises(BadInputError) as rejection:
        load_trace(directory(tmp_path, cpu, memory))
    assert message in str(rejection.value)
    assert str(tmp_path) in str(rejection.value)
    assert "\n" not in str(rejection.value)


@pytest.mark.parametrize(("step", "pass_seconds"), [(600, 300), (600, 600), (3600, 300), (300, 60), (20, 60)])
def test_samples_may_be_closer_or_further_apart_than_passes(tmp_path: Path, step: int, pass_seconds: int) -> None:
    assert load_trace(directory(tmp_path, grid(0, step)), pass_seconds).step_seconds == step


def test_the_step_must_match_the_pass_interval(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="divide the 120 s of pass_interval"):
        load_trace(directory(tmp_path, grid(0, 300)), pass_seconds=120)


@pytest.mark.parametrize("memory", [None, MEMORY])
def test_reports_progress(tmp_path: Path, memory: str | None) -> None:
    shares: list[float] = []
    load_trace(directory(tmp_path, CPU, memory), on_progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize(("name", "namespace"), [("__", "trace"), ("x" * 80, "x" * 63), ("A.b", "a-b")])
def test_the_namespace_is_a_name_that_kubernetes_takes(tmp_path: Path, name: str, namespace: str) -> None:
    assert load_trace(directory(tmp_path, CPU, name=name)).containers[0].namespace == namespace


def recorded(*pods: str) -> UsageRecording:
    containers = tuple(
        RecordedContainer("shop", pod, "main", WorkloadRef("Deployment", pod), Resources(at, at))
        for at, pod in enumerate(pods)
    )
    values = np.arange(3 * len(pods), dtype=np.float32).reshape(3, len(pods))
    return UsageRecording("trace", containers, 0, 300, values, values + 100)


def pods(recording: UsageRecording) -> list[str]:
    return [container.pod for container in recording.containers]


def test_even_places_by_name_are_to_tune_on_and_odd_ones_to_report_on():
    whole = recorded("d", "a", "c", "b", "e")
    assert pods(select_half_of_containers(whole, RecordingHalf.TUNE)) == ["a", "c", "e"]
    assert pods(select_half_of_containers(whole, RecordingHalf.REPORT)) == ["d", "b"]


def test_the_halves_are_the_same_whatever_the_order_of_the_columns():
    for half in RecordingHalf:
        assert set(pods(select_half_of_containers(recorded(*"abcdef"), half))) == set(
            pods(select_half_of_containers(recorded(*"fdbeca"), half))
        )


def test_usage_is_kept_per_container():
    whole = recorded("d", "a", "c", "b")
    half = select_half_of_containers(whole, RecordingHalf.REPORT)
    for column, container in enumerate(half.containers):
        before = container.requests.cpu_millicores
        assert half.cpu_millicores[:, column].tolist() == whole.cpu_millicores[:, before].tolist()
        assert half.memory_bytes[:, column].tolist() == whole.memory_bytes[:, before].tolist()
    assert (half.name, half.days) == (whole.name, whole.days)


def test_of_one_series_no_half_is_left_to_report_on():
    assert pods(select_half_of_containers(recorded("a"), RecordingHalf.TUNE)) == ["a"]
    with pytest.raises(BadInputError, match="--half report: trace has one series only"):
        select_half_of_containers(recorded("a"), RecordingHalf.REPORT)
