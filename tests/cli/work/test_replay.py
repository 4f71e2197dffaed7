"""Replays on a Dask cluster of two worker processes: the same answer, a lost worker or not."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from distributed import LocalCluster

from cruise.backtest.backtest import ReplayConfiguration
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.tasks import RecordingSource
from cruise.cli.work import replay
from cruise.cli.work.replay import ReplayRequest, replay_locally, replay_on_dask
from cruise.domain.backtest import BacktestResult
from cruise.errors import BadInputError, UnavailableError
from tests.backtest.replay.test_replay import made_up

OPTIONS = ReplayOptions(with_both_consolidations=False)


@dataclass(frozen=True)
class Shared:
    """A recording that every worker can read; the reading of a number ends the process that does it."""

    readings: Path
    deadly: int | None = None
    label: str = "shared"

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> UsageRecording:
        if _next(self.readings) == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        say("half a day is missing")
        return made_up(hours=2, step=300)


def _next(directory: Path) -> int:
    """Take the next number, which no other process has."""
    for number in count():
        try:
            (directory / str(number)).touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    raise AssertionError


def wanted(source: RecordingSource) -> ReplayRequest:
    entries = [ReplayConfiguration(name, name, OPTIONS) for name in ("as-requested", "vpa", "cruise")]
    return ReplayRequest([source], entries, None, with_time_lines=False)


def timeless(results: list[BacktestResult]) -> list[BacktestResult]:
    return [
        replace(one, policies={name: replace(score, seconds=0) for name, score in one.policies.items()})
        for one in results
    ]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as found:
        yield found.scheduler_address


def test_a_replay_of_a_lost_worker_runs_again_with_the_same_answer(cluster, tmp_path, capsys):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    # The first reading looks at the recording; the second is that of a replay.
    found = replay_on_dask(wanted(Shared(there, deadly=1)), cluster)
    assert "half a day is missing" in capsys.readouterr().err
    assert timeless(found) == timeless(replay_locally(wanted(Shared(here)), 1))
    assert len(list(there.iterdir())) == 1 + 3 + 1


def test_the_library_is_an_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BadInputError, match=r'needs Dask .*: pip install "cruise\[dask\]"'):
        replay_on_dask(wanted(Shared(tmp_path)), "tcp://127.0.0.1:1")


def test_workers_of_another_version_are_rejected(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(replay, "__version__", "0.0.1")
    with pytest.raises(BadInputError, match=r"worker tcp://.* has cruise .*, this is 0.0.1"):
        replay_on_dask(wanted(Shared(tmp_path)), cluster)


def test_a_scheduler_that_does_not_answer_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(replay, "_CONNECT_SECONDS", 0.5)
    with pytest.raises(UnavailableError, match=r"no Dask scheduler answers at tcp://127.0.0.1:1"):
        replay_on_dask(wanted(Shared(tmp_path)), "tcp://127.0.0.1:1")


@pytest.mark.parametrize("address", ["nonsense", "http://scheduler:8786", "tcp://scheduler", "tcp://scheduler:port"])
def test_what_is_no_address_is_reported_before_anything_is_tried(address, tmp_path):
    with pytest.raises(
        BadInputError, match=r"is not an address of a Dask scheduler; write e\.g\. tcp://scheduler:8786"
    ):
        replay_on_dask(wanted(Shared(tmp_path)), address)
