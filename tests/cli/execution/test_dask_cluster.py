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

from cruise.backtest.fleet.running import Entry
from cruise.backtest.fleet.sources import Source
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.options import ReplayOptions
from cruise.cli.execution import dask_cluster
from cruise.cli.execution.replay import Replay, replay_here, replay_on
from cruise.domain.backtest import BacktestResult
from cruise.errors import BadInput, Unavailable
from tests.backtest.replay.test_replay import made_up

OPTIONS = ReplayOptions(both_judgements=False)


@dataclass(frozen=True)
class Shared:
    """A recording that every worker can read; the reading of a number ends the process that does it."""

    readings: Path
    deadly: int | None = None
    label: str = "shared"

    def read(self, on_progress: Callable[[float], None], say: Callable[[str], None]) -> Recording:
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


def wanted(source: Source) -> Replay:
    entries = [Entry(name, name, OPTIONS) for name in ("as-requested", "vpa", "cruise")]
    return Replay([source], entries, None, with_time_lines=False)


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
    found = replay_on(wanted(Shared(there, deadly=1)), cluster)
    assert "half a day is missing" in capsys.readouterr().err
    assert timeless(found) == timeless(replay_here(wanted(Shared(here)), 1))
    assert len(list(there.iterdir())) == 1 + 3 + 1


def test_the_library_is_an_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BadInput, match=r'needs the library of Dask .*: pip install "cruise\[dask\]"'):
        replay_on(wanted(Shared(tmp_path)), "tcp://127.0.0.1:1")


def test_workers_of_another_version_are_refused(cluster, monkeypatch, tmp_path):
    monkeypatch.setattr(dask_cluster, "__version__", "0.0.1")
    with pytest.raises(BadInput, match=r"worker tcp://.* has cruise .*, and this is 0.0.1"):
        replay_on(wanted(Shared(tmp_path)), cluster)


def test_a_scheduler_that_does_not_answer_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(dask_cluster, "_CONNECT_SECONDS", 0.5)
    with pytest.raises(Unavailable, match=r"no Dask scheduler answers at tcp://127.0.0.1:1"):
        replay_on(wanted(Shared(tmp_path)), "tcp://127.0.0.1:1")


@pytest.mark.parametrize("address", ["nonsense", "http://scheduler:8786", "tcp://scheduler", "tcp://scheduler:port"])
def test_what_is_no_address_is_told_before_anything_is_tried(address, tmp_path):
    with pytest.raises(BadInput, match=r"is no address of a Dask scheduler; write e\.g\. tcp://scheduler:8786"):
        replay_on(wanted(Shared(tmp_path)), address)
