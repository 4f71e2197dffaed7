"""Generated recordings: reproducible, of the requested shape, and readable as a trace."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.recordings import make_recording, write_trace
from cruise.backtest.recordings.recording import load_trace


def test_the_same_arguments_give_the_same_recording() -> None:
    one, two, other = (make_recording(30, 0.5, 300, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.cpu_millicores, two.cpu_millicores)
    np.testing.assert_array_equal(one.memory_bytes, two.memory_bytes)
    assert one.containers == two.containers
    assert not np.array_equal(one.cpu_millicores, other.cpu_millicores, equal_nan=True)


@pytest.mark.parametrize(("containers", "days", "step", "rows"), [(1, 1, 300, 288), (200, 2, 60, 2880)])
def test_has_the_requested_shape(containers: int, days: int, step: int, rows: int) -> None:
    made = make_recording(containers, days, step)
    assert made.cpu_millicores.shape == made.memory_bytes.shape == (rows, containers)
    assert made.days == days
    assert len({one.pod for one in made.containers}) == containers
    np.testing.assert_array_equal(np.isnan(made.cpu_millicores), np.isnan(made.memory_bytes))
    assert not np.isnan(made.cpu_millicores).all(axis=0).any()


def test_containers_burst_within_their_requests() -> None:
    made = make_recording(300, 7, 300)
    asked = np.array([one.requests.memory_bytes for one in made.containers])
    assert (np.nanmax(made.memory_bytes, axis=0) < asked).all()
    cores = np.array([one.requests.cpu_millicores for one in made.containers])
    assert 0.1 < np.nanmean(made.cpu_millicores / cores) < 0.6
    assert np.median(np.nanmax(made.cpu_millicores, axis=0) / np.nanmean(made.cpu_millicores, axis=0)) > 3
    replicas = np.unique([one.workload.name for one in made.containers], return_counts=True)[1]
    assert replicas.max() > 5


def test_a_written_recording_reads_back_the_same(tmp_path: Path) -> None:
    made = make_recording(40, 0.5, 60, seed=3)
    write_trace(made, tmp_path / "made-40")
    read = load_trace(tmp_path / "made-40")
    assert (read.name, read.start, read.step_seconds, read.has_memory) == ("made-40", made.start, 60, True)
    assert [(one.pod, one.workload, one.requests) for one in read.containers] == [
        (one.pod, one.workload, one.requests) for one in made.containers
    ]
    np.testing.assert_array_equal(read.cpu_millicores, made.cpu_millicores)
    np.testing.assert_array_equal(read.memory_bytes, made.memory_bytes)
