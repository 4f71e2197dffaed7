"""Recordings split into pass intervals, with the containers created and removed in each."""

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.replay.replay import split_into_intervals
from cruise.domain.backtest import PodCreationTime
from tests.backtest.baselines.recordings import make_recording

NAN = np.nan


def sampled(*rows: str, step: int = 60, start: int = 60) -> UsageRecording:
    """One row a time, `x` for a sample."""
    cpu = np.array([[1.0 if cell == "x" else NAN for cell in row] for row in rows])
    return make_recording(cpu, cpu, step_seconds=step, start=start)


def cuts(recording: UsageRecording, options: ReplayOptions | None = None) -> list[tuple[int, int, int, int]]:
    return [
        (one.first_row, one.end_row, one.start_time, one.end_time)
        for one in split_into_intervals(recording, options or ReplayOptions())
    ]


def test_a_sample_on_the_boundary_belongs_to_the_interval_it_ends():
    assert cuts(sampled(*"x" * 7)) == [(0, 5, 0, 300), (5, 7, 300, 420)]
    assert cuts(sampled(*"x" * 7, start=300)) == [(0, 1, 240, 300), (1, 6, 300, 600), (6, 7, 600, 660)]


def test_samples_at_longer_intervals_than_passes_have_one_pass_each():
    assert cuts(sampled(*"xxx", step=900, start=0)) == [(0, 1, -900, 0), (1, 2, 0, 900), (2, 3, 900, 1800)]


def test_a_pod_arrives_with_its_first_sample_and_leaves_after_its_last():
    rows = ["x...", "x...", "....", "....", "....", "x.x.", "....", "..x."]
    first, second = split_into_intervals(sampled(*rows), ReplayOptions())
    assert (first.created_containers.tolist(), first.removed_containers.tolist()) == ([0], [])
    assert (second.created_containers.tolist(), second.removed_containers.tolist()) == ([2], [0, 2])


def test_all_pods_may_exist_from_the_start():
    rows = ["x...", "....", "....", "....", "....", "..x."]
    first, second = split_into_intervals(sampled(*rows), ReplayOptions(creation_time=PodCreationTime.START))
    assert first.created_containers.tolist() == [0, 2]
    assert second.created_containers.tolist() == []


def test_a_container_with_memory_alone_is_there():
    cpu = np.full((2, 1), NAN)
    (only,) = split_into_intervals(
        make_recording(cpu, np.array([[NAN], [5.0]]), step_seconds=60, start=60), ReplayOptions()
    )
    assert only.created_containers.tolist() == only.removed_containers.tolist() == [0]


def test_long_recordings_are_looked_through_in_stretches():
    cpu = np.full((1300, 2), NAN)
    cpu[[3, 700], 0] = cpu[[1100, 1299], 1] = 1
    found = list(split_into_intervals(make_recording(cpu, cpu, step_seconds=300), ReplayOptions()))
    arriving = {one.first_row: one.created_containers.tolist() for one in found if one.created_containers.size}
    leaving = {one.first_row: one.removed_containers.tolist() for one in found if one.removed_containers.size}
    assert (arriving, leaving) == ({3: [0], 1100: [1]}, {700: [0], 1299: [1]})
