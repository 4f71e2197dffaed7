"""The kinds of usage that the benchmark of shapes draws."""

import numpy as np
import pytest

from benchmarks.bench_usage_shapes import OPTIONS
from benchmarks.usage_shapes import SHAPES, draw_recording
from cruise.backtest.recordings.recording import cap_requests_to_node


@pytest.mark.parametrize("kind", SHAPES)
def test_a_recording_depends_on_its_arguments_only_and_is_requested_for(kind: str) -> None:
    one, same, other = (draw_recording(kind, seed, days=2) for seed in (1, 1, 2))
    assert np.array_equal(one.cpu_millicores, same.cpu_millicores, equal_nan=True)
    assert not np.array_equal(one.cpu_millicores, other.cpu_millicores, equal_nan=True)
    for use, requests in (
        (one.cpu_millicores, [container.requests.cpu_millicores for container in one.containers]),
        (one.memory_bytes, [container.requests.memory_bytes for container in one.containers]),
    ):
        assert use.dtype == np.float32
        assert not np.isnan(use).all(axis=0).any()
        assert (np.nan_to_num(use) >= 0).all()
        assert (np.nanmax(use, axis=0) <= requests).all()
    assert cap_requests_to_node(one, OPTIONS.node)[1] == 0
