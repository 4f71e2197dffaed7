"""The work of `cruise backtest`: read, replay, and show how far it is."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cruise.backtest.fleet.here import Here
from cruise.backtest.fleet.running import Board, Entry, Show, replay_all, survey_all, work_of
from cruise.backtest.fleet.sources import Source
from cruise.cli.execution.dask_cluster import dask_cluster
from cruise.cli.execution.workers import processes
from cruise.cli.terminal import complain, progress, quiet_logs
from cruise.domain.backtest import BacktestResult


@dataclass(frozen=True, slots=True)
class Replay:
    """What to replay, and how; time lines are for pictures alone, cells for differences."""

    sources: Sequence[Source]
    entries: Sequence[Entry]
    watched_node: str | None
    with_time_lines: bool
    with_cells: bool = False


def replay_here(wanted: Replay, jobs: int) -> list[BacktestResult]:
    """Read all recordings, so that a bad one is refused before an hour of replays, and replay them.

    They are kept in files meanwhile, whose memory all processes share. Raises BadInput, Unavailable.
    """
    with TemporaryDirectory(prefix="cruise-backtest-") as directory, quiet_logs():
        if jobs == 1:
            board = Board()
            return _replay(wanted, Here(board), board, Path(directory))
        tasks = len(wanted.sources) * (1 + 2 * len(wanted.entries))
        with processes(min(jobs, tasks), tasks) as (executor, shares):
            return _replay(wanted, executor, Board(polled=shares), Path(directory))


def replay_on(wanted: Replay, address: str) -> list[BacktestResult]:
    """Do the same on a Dask cluster, whose workers read the recordings themselves. Raises BadInput, Unavailable."""
    with quiet_logs(), dask_cluster(address) as executor:
        return _replay(wanted, executor, Board(), None)


def _replay(wanted: Replay, executor: Executor, board: Board, kept_in: Path | None) -> list[BacktestResult]:
    with bar(len(wanted.sources), "recordings") as show:
        board.begin(show)
        surveys = survey_all(executor, wanted.sources, wanted.entries[0].options, kept_in, board)
    for found in surveys:
        for note in found.notes:
            complain(note)
    with bar(work_of(surveys, wanted.entries), "replays") as show:
        board.begin(show)
        return replay_all(
            executor,
            surveys,
            wanted.entries,
            board,
            watched_node=wanted.watched_node,
            with_time_lines=wanted.with_time_lines,
            with_cells=wanted.with_cells,
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
