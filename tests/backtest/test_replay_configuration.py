"""Replays of several recordings: the answer is the same wherever they run, and progress is that of all together."""

from dataclasses import replace

from cruise.backtest.backtest import (
    InProcessExecutor,
    ReplayConfiguration,
    TotalProgress,
    backtest_policies,
    compute_replay_work,
    read_all_recordings,
    replay_all,
)
from cruise.backtest.replay.policy import ConsolidationSizeBasis, ReplayOptions
from cruise.backtest.tasks import LoadedRecordingSource, ReplayTask, save_recording
from cruise.domain.resources import Resources
from tests.backtest.replay.test_replay import made_up
from tests.backtest.replayed import make_recording

OPTIONS = ReplayOptions(node=Resources(2000, 8 << 30))
ENTRIES = [ReplayConfiguration("vpa", "vpa", OPTIONS), ReplayConfiguration("patient", "cruise", OPTIONS)]


def scores(results):
    """Return results without what a clock told."""
    return [
        replace(
            result, policies={name: replace(one, seconds=0, time_line=None) for name, one in result.policies.items()}
        )
        for result in results
    ]


def replayed(sources, progress, directory=None):
    here = InProcessExecutor(progress)
    summaries = read_all_recordings(here, sources, OPTIONS, directory, progress)
    progress.start(progress.show)
    return summaries, replay_all(here, summaries, ENTRIES, progress)


def test_recordings_and_rows_keep_the_given_order_regardless_of_their_names():
    recordings = [made_up(hours=8, step=300), replace(made_up(hours=2, step=300), name="other")]
    _, results = replayed([LoadedRecordingSource(one) for one in recordings], TotalProgress())
    assert [(one.trace, list(one.policies)) for one in results] == [
        ("made-up", ["vpa", "patient"]),
        ("other", ["vpa", "patient"]),
    ]
    for recording, result in zip(recordings, results, strict=True):
        alone = backtest_policies(recording, ["cruise"], OPTIONS)
        assert scores([result])[0].policies["patient"] == scores([alone])[0].policies["cruise"]


def test_a_kept_recording_is_the_recording(tmp_path):
    for name, recording in (("both", made_up(hours=1)), ("cpu", make_recording("web", "api", has_memory=False))):
        kept = save_recording(recording, tmp_path / name).read(lambda share: None, lambda note: None)
        assert (kept.cpu_millicores == recording.cpu_millicores).all()
        assert (kept.memory_bytes == recording.memory_bytes).all()
        assert list(kept.containers) == list(recording.containers)
        assert (kept.start, kept.step_seconds, kept.has_memory) == (
            recording.start,
            recording.step_seconds,
            recording.has_memory,
        )


def test_the_answer_is_the_same_from_memory_and_from_files(tmp_path):
    recordings = [made_up(hours=8, step=300), replace(made_up(hours=2, step=300), name="other")]
    sources = [LoadedRecordingSource(one) for one in recordings]
    assert scores(replayed(sources, TotalProgress())[1]) == scores(replayed(sources, TotalProgress(), tmp_path)[1])


def test_progress_reaches_the_total_work():
    seen: list[tuple[str, float]] = []
    progress = TotalProgress(lambda what, done: seen.append((what, done)))
    summaries, _ = replayed([LoadedRecordingSource(made_up(hours=8, step=300))], progress)
    done = [share for what, share in seen if what != "reading made-up"]
    assert done == sorted(done)
    assert done[-1] == compute_replay_work(summaries, ENTRIES)
    assert {what for what, _ in seen} == {"reading made-up", "made-up: vpa", "made-up: patient"}


def test_progress_of_other_processes_is_read_from_their_shares():
    seen: list[tuple[str, float]] = []
    shares = [0.0, 0.0, 0.0]
    progress = TotalProgress(lambda what, done: seen.append((what, done)), polled_progress=shares)
    for name in ("one", "two", "three"):
        progress.add(name, 10.0)
    progress.poll()
    shares[0], shares[1] = 1.0, 0.5
    progress.poll()
    shares[2] = 0.1
    progress.poll()
    assert seen == [("two", 15.0), ("two and 1 more", 16.0)]


def test_the_longest_replays_begin_first_and_each_is_made_once():
    begun: list[tuple[str, ConsolidationSizeBasis]] = []

    class Listing(InProcessExecutor):
        def submit(self, fn, /, *args, **kwargs):
            begun.extend((one.policy, one.consolidation) for one in args if isinstance(one, ReplayTask))
            return super().submit(fn, *args, **kwargs)

    progress = TotalProgress()
    here = Listing(progress)
    summaries = read_all_recordings(here, [LoadedRecordingSource(made_up(hours=8, step=300))], OPTIONS, None, progress)
    [result] = replay_all(here, summaries, ENTRIES, progress)
    assert list(result.policies) == ["vpa", "patient"]
    assert all(score.nodes_peak > 1 for score in result.policies.values())
    assert begun == [
        (policy, consolidation) for consolidation in ConsolidationSizeBasis for policy in ("cruise", "vpa")
    ]
