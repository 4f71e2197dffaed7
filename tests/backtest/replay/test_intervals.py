"""Times cut into pass intervals, and who comes and goes in them."""

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.intervals import intervals_of
from cruise.backtest.replay.options import Arrivals, ReplayOptions
from tests.backtest.baselines.recordings import recording_of

NAN = np.nan


def sampled(*rows: str, step: int = 60, start: int = 60) -> Recording:
    """One row a time, `x` for a sample."""
    cpu = np.array([[1.0 if cell == "x" else NAN for cell in row] for row in rows])
    return recording_of(cpu, cpu, step_seconds=step, start=start)


def cuts(recording: Recording, options: ReplayOptions | None = None) -> list[tuple[int, int, int, int]]:
    return [(one.first, one.end, one.since, one.at) for one in intervals_of(recording, options or ReplayOptions())]


def test_a_sample_on_the_cut_belongs_to_what_it_ends():
    assert cuts(sampled(*"x" * 7)) == [(0, 5, 0, 300), (5, 7, 300, 420)]
    assert cuts(sampled(*"x" * 7, start=300)) == [(0, 1, 240, 300), (1, 6, 300, 600), (6, 7, 600, 660)]


def test_samples_further_apart_than_passes_have_a_pass_each():
    assert cuts(sampled(*"xxx", step=900, start=0)) == [(0, 1, -900, 0), (1, 2, 0, 900), (2, 3, 900, 1800)]


def test_a_pod_arrives_with_its_first_sample_and_leaves_after_its_last():
    rows = ["x...", "x...", "....", "....", "....", "x.x.", "....", "..x."]
    first, second = intervals_of(sampled(*rows), ReplayOptions())
    assert (first.arriving.tolist(), first.leaving.tolist()) == ([0], [])
    assert (second.arriving.tolist(), second.leaving.tolist()) == ([2], [0, 2])


def test_all_who_ever_come_may_be_there_from_the_start():
    rows = ["x...", "....", "....", "....", "....", "..x."]
    first, second = intervals_of(sampled(*rows), ReplayOptions(arrivals=Arrivals.START))
    assert first.arriving.tolist() == [0, 2]
    assert second.arriving.tolist() == []


def test_a_container_with_memory_alone_is_there():
    cpu = np.full((2, 1), NAN)
    (only,) = intervals_of(recording_of(cpu, np.array([[NAN], [5.0]]), step_seconds=60, start=60), ReplayOptions())
    assert only.arriving.tolist() == only.leaving.tolist() == [0]


def test_long_recordings_are_looked_through_in_stretches():
    cpu = np.full((1300, 2), NAN)
    cpu[[3, 700], 0] = cpu[[1100, 1299], 1] = 1
    found = list(intervals_of(recording_of(cpu, cpu, step_seconds=300), ReplayOptions()))
    arriving = {one.first: one.arriving.tolist() for one in found if one.arriving.size}
    leaving = {one.first: one.leaving.tolist() for one in found if one.leaving.size}
    assert (arriving, leaving) == ({3: [0], 1100: [1]}, {700: [0], 1299: [1]})
