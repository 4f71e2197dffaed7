"""Usable cores: the process's CPU affinity, at most its container's limit."""

import os

import pytest

from cruise.runtime.cores import count_usable_cores


@pytest.mark.parametrize(
    ("limit", "most"),
    [("max 100000\n", 4096), ("50000 100000\n", 1), ("100000 100000\n", 1), ("150000 100000\n", 2), ("", 4096)],
)
def test_a_containers_limit_counts_in_whole_cores(tmp_path, limit, most):
    file = tmp_path / "cpu.max"
    file.write_text(limit)
    assert count_usable_cores(file) == min(len(os.sched_getaffinity(0)), most)


def test_without_a_container_all_cores_count(tmp_path):
    assert count_usable_cores(tmp_path / "none") == len(os.sched_getaffinity(0))
