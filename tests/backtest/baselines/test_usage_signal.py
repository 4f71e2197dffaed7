import numpy as np
import pytest

from cruise.backtest.baselines.autopilot import CPU_BOUNDS, MEMORY_BOUNDS, build_cpu_signal, build_memory_signal
from cruise.domain.resources import MEBIBYTE

ONE_JOB_EACH = np.arange(3)


def test_four_hundred_boundaries_in_steps_of_three_percent_start_at_a_millicore_and_a_mebibyte() -> None:
    assert len(CPU_BOUNDS) == len(MEMORY_BOUNDS) == 400
    assert CPU_BOUNDS[0] == 1
    assert MEMORY_BOUNDS[0] == MEBIBYTE
    assert CPU_BOUNDS[1:] / CPU_BOUNDS[:-1] == pytest.approx(np.full(399, 1.03))
    assert CPU_BOUNDS[-1] > 128_000
    assert MEMORY_BOUNDS[-1] > 128 * 1024 * MEBIBYTE


def test_a_sample_belongs_to_the_first_bucket_with_a_boundary_above_it() -> None:
    cpu = np.array([[0.0, 1.0, 1.02]], dtype=np.float32)

    signal = build_cpu_signal(300, cpu, ONE_JOB_EACH)

    assert signal.buckets.tolist() == [0, 1, 1]  # the boundaries are 1, 1.03, …


def test_what_exceeds_every_boundary_falls_into_the_last_bucket() -> None:
    signal = build_cpu_signal(300, np.array([[1e9]], dtype=np.float32), np.array([0]))

    assert signal.buckets.tolist() == [399]


def test_every_cpu_sample_counts_and_missing_ones_do_not() -> None:
    cpu = np.array([[1, np.nan, 1], [1, np.nan, np.nan]], dtype=np.float32)

    signal = build_cpu_signal(300, cpu, ONE_JOB_EACH)

    assert sorted(signal.jobs.tolist()) == [0, 0, 2]


def test_of_memory_only_the_peak_of_each_task_counts() -> None:
    memory = np.array([[5e8, 1e8, np.nan], [2e8, np.nan, np.nan]], dtype=np.float32)

    signal = build_memory_signal(300, memory, np.array([0, 0, 1]))

    assert signal.jobs.tolist() == [0, 0]
    assert MEMORY_BOUNDS[signal.buckets - 1].tolist() <= [5e8, 1e8]
    assert (MEMORY_BOUNDS[signal.buckets] > [5e8, 1e8]).all()
