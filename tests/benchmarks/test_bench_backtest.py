"""The replay benchmark on small inputs."""

import numpy as np

from benchmarks.bench_backtest import RecordingSize, measure, measure_twice
from benchmarks.recordings import make_recording


def test_a_replay_is_measured_in_a_separate_process() -> None:
    took = measure("as-requested", RecordingSize(20, 0.25, 300))
    assert took.series == 20
    assert took.seconds > 0
    assert 20 < took.memory_mib < 2000


def test_a_trace_is_taken_twice_under_two_names_and_cut_to_days() -> None:
    one = make_recording(7, 1, 300)
    two = measure_twice(one, 0.5)
    assert two.cpu_millicores.shape == (144, 14)
    np.testing.assert_array_equal(two.memory_bytes[:, :7], two.memory_bytes[:, 7:])
    assert len({container.pod for container in two.containers}) == 14
    assert {container.workload for container in one.containers} < {container.workload for container in two.containers}
    assert [container.requests for container in two.containers[7:]] == [one.requests for one in one.containers]
