"""The work of `cruise backtest`: read, replay, and show how far it is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cruise.backtest.backtest import backtest
from cruise.backtest.recordings.halves import Half, take_half
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.recordings.traces import load_trace
from cruise.backtest.replay.options import ReplayOptions
from cruise.cli.terminal import complain, progress, quiet_logs
from cruise.domain.backtest import BacktestResult

if TYPE_CHECKING:
    from cruise.adapters.prometheus.settings import PrometheusSettings
    from cruise.domain.cluster import Snapshot

Show = Callable[[str, float], None]
_PASS_AS_CONTAINERS = 200


@dataclass(frozen=True, slots=True)
class Replay:
    """What to replay, and how, whatever it is read from."""

    policies: Sequence[str]
    options: ReplayOptions
    half: Half | None
    watched_node: str | None


def read_traces(directories: Sequence[Path], options: ReplayOptions) -> list[Recording]:
    """Read all trace directories, so that a bad one is refused before an hour of replays. Raises BadInput."""
    found = []
    with bar(len(directories), "traces") as show:
        for at, directory in enumerate(directories):
            found.append(load_trace(directory, options.pass_seconds, _shown(show, directory, at)))
    return found


def _shown(show: Show, directory: Path, before: int) -> Callable[[float], None]:
    return lambda share: show(f"reading {directory.name}", before + share)


def read_prometheus(
    prometheus: "PrometheusSettings", days: int, end: datetime, snapshot: "Snapshot | None", options: ReplayOptions
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
            pass_seconds=options.pass_seconds,
        )


def replay_all(recordings: list[Recording], wanted: Replay) -> list[BacktestResult]:
    """Replay one recording after the other, and let each go when it is done. Raises BadInput."""
    if wanted.half is not None:
        recordings[:] = [take_half(recording, wanted.half) for recording in recordings]
    found: list[BacktestResult] = []
    works = [_work(recording, wanted.options) for recording in recordings]
    done = 0.0
    with quiet_logs(), bar(sum(works) * len(wanted.policies), "replays") as show:
        for work in works:
            found.append(_replay(recordings.pop(0), wanted, work, done, show))
            done += work * len(wanted.policies)
    return found


def _work(recording: Recording, options: ReplayOptions) -> float:
    """Return how long a replay takes beside others: so much a pass, and so much for each container in it."""
    passes = recording.days * 86_400 / max(options.pass_seconds, recording.step_seconds)
    return passes * (_PASS_AS_CONTAINERS + len(recording.containers))


def _replay(recording: Recording, wanted: Replay, work: float, done: float, show: Show) -> BacktestResult:
    def progressed(policy: str, share: float) -> None:
        show(f"{recording.name}: {policy}", done + work * (list(wanted.policies).index(policy) + share))

    return backtest(
        recording, wanted.policies, wanted.options, on_progress=progressed, watched_node=wanted.watched_node
    )


@contextmanager
def bar(total: float, what: str) -> Iterator[Show]:
    """Show on a terminal how far something is and how long it will take."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(),
    )
    with progress(what, *columns, total=total) as update:
        yield lambda text, done: update(description=text, completed=done)
