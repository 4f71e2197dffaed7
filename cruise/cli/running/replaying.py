"""What `cruise backtest` does once its options are understood: read, replay, and show how far it is."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cruise.backtest.backtest import backtest
from cruise.backtest.recordings.halves import Half, take_half
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.recordings.traces import load_trace
from cruise.backtest.replay.options import ReplayOptions
from cruise.cli.terminal import complain, quiet_logs
from cruise.domain.backtest import BacktestResult

if TYPE_CHECKING:
    from cruise.adapters.prometheus.settings import PrometheusSettings
    from cruise.domain.cluster import Snapshot

Show = Callable[[str, float], None]
_PASS_AS_CONTAINERS = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """What is replayed under which terms, whatever it is read from."""

    policies: Sequence[str]
    terms: ReplayOptions
    half: Half | None
    watched_node: str | None


def read_traces(directories: Sequence[Path], terms: ReplayOptions) -> list[Recording]:
    """Read all trace directories, so that a bad one is told of before an hour of replays. Raises BadInput."""
    found = []
    with bar(len(directories), "traces") as show:
        for at, directory in enumerate(directories):
            found.append(load_trace(directory, terms.pass_seconds, _shown(show, directory, at)))
    return found


def _shown(show: Show, directory: Path, before: int) -> Callable[[float], None]:
    return lambda share: show(f"reading {directory.name}", before + share)


def read_prometheus(
    prometheus: "PrometheusSettings", days: int, end: datetime, snapshot: "Snapshot | None", terms: ReplayOptions
) -> Recording:
    """Read the days before a time. Raises BadInput, Unavailable."""
    from cruise.backtest.recordings.prometheus import read_recording

    with quiet_logs(), bar(1, "usage") as show:
        return read_recording(
            prometheus,
            days,
            end,
            snapshot,
            on_progress=lambda share: show("reading usage", share),
            say=complain,
            pass_seconds=terms.pass_seconds,
        )


def replay_all(recordings: list[Recording], asked: Asked) -> list[BacktestResult]:
    """Replay one recording after the other, and let each go when it is done. Raises BadInput."""
    if asked.half is not None:
        recordings[:] = [take_half(recording, asked.half) for recording in recordings]
    found: list[BacktestResult] = []
    works = [_work(recording, asked.terms) for recording in recordings]
    done = 0.0
    with quiet_logs(), bar(sum(works) * len(asked.policies), "replays") as show:
        for work in works:
            found.append(_replay(recordings.pop(0), asked, work, done, show))
            done += work * len(asked.policies)
    return found


def _work(recording: Recording, terms: ReplayOptions) -> float:
    """Return how long a replay takes beside others: so much a pass, and so much for each container in it."""
    passes = recording.days * 86_400 / max(terms.pass_seconds, recording.step_seconds)
    return passes * (_PASS_AS_CONTAINERS + len(recording.containers))


def _replay(recording: Recording, asked: Asked, work: float, done: float, show: Show) -> BacktestResult:
    def progressed(policy: str, share: float) -> None:
        show(f"{recording.name}: {policy}", done + work * (list(asked.policies).index(policy) + share))

    return backtest(recording, asked.policies, asked.terms, on_progress=progressed, watched_node=asked.watched_node)


@contextmanager
def bar(total: float, what: str) -> Iterator[Show]:
    """Show on standard error how far something is and how long it will take, where people look on."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda text, done: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda text, done: progress.update(task, description=text, completed=done)
