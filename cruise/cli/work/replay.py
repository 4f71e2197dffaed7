"""The work of `cruise backtest`: read, replay, and show how far it is."""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cruise import __version__
from cruise.backtest.backtest import (
    InProcessExecutor,
    ReplayEntry,
    ShowProgress,
    TaskProgress,
    compute_work,
    read_all_recordings,
    replay_all,
)
from cruise.backtest.tasks import ProgressShares, RecordingSource, set_progress_shares
from cruise.cli.terminal import disable_logs, print_error, redirect_logs, show_progress
from cruise.domain.backtest import BacktestResult
from cruise.errors import BadInputError, UnavailableError

# A Dask cluster as the workers of `cruise backtest`: the task of a lost worker runs again on another.

_CONNECT_SECONDS = 15
_SCHEMES = ("tcp", "tls", "ws", "wss")


@contextmanager
def open_dask_cluster(address: str) -> Iterator[Executor]:
    """Yield an executor of the cluster at an address such as tcp://scheduler:8786.

    Raises BadInputError without the library, and where a worker has another version of cruise; Unavailable where nothing
    answers, and where the cluster gives a task up.
    """
    _check_address(address)
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise BadInputError(f'--scheduler needs the library of Dask ({error}): pip install "cruise[dask]"') from error
    _quieten("distributed")
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UnavailableError(f"--scheduler: no Dask scheduler answers at {address}: {error}") from error
    with client:
        try:
            versions = client.run(prepare_worker)
        except ImportError as error:
            raise BadInputError(f"--scheduler: the workers have no cruise of version {__version__}: {error}") from error
        _check_workers(address, versions)
        try:
            yield client.get_executor(pure=False)
        except KilledWorker as error:
            raise UnavailableError(f"--scheduler: one replay ended several workers and is given up: {error}") from error
        except CancelledError as error:
            raise UnavailableError(f"--scheduler: the Dask scheduler at {address} has gone away") from error


def prepare_worker() -> str:
    """Prepare a worker, and return its version of cruise."""
    disable_logs()
    return __version__


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        known = parts.scheme in _SCHEMES and parts.hostname and parts.port
    except ValueError:
        known = None
    if not known:
        raise BadInputError(
            f'--scheduler: "{address}" is no address of a Dask scheduler; write e.g. tcp://scheduler:8786'
        )


def _quieten(library: str) -> None:
    """Keep what a library logs off standard error: what goes wrong is said once, here."""
    for name in (library, *logging.root.manager.loggerDict):
        if name == library or name.startswith(f"{library}."):
            # Each has a level of its own.
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _check_workers(address: str, versions: Mapping[str, str]) -> None:
    if not versions:
        raise UnavailableError(
            f"--scheduler: the scheduler at {address} has no workers; start some: dask worker {address}"
        )
    for worker, version in versions.items():
        if version != __version__:
            raise BadInputError(
                f"--scheduler: worker {worker} has cruise {version}, and this is {__version__}: use one"
            )


# The workers of `cruise backtest`: this process, or several of this machine.


@contextmanager
def open_process_pool(jobs: int, tasks: int) -> Iterator[tuple[Executor, Sequence[float]]]:
    """Yield an executor of some processes, and the shares done of as many tasks; the processes end with the context.

    Raises Unavailable where one of them dies.
    """
    # Not forked: threads of this process may hold locks.
    context = multiprocessing.get_context("spawn")
    shares = RawArray("d", tasks)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(shares,))
    try:
        yield pool, shares
    except BrokenProcessPool as error:
        raise UnavailableError(
            "a worker process died, most likely for lack of memory, and its replay with it; "
            "fewer --jobs take less memory"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _begin(shares: ProgressShares) -> None:
    """Prepare a worker: it ends without a word when it is interrupted, and when the process that began it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    disable_logs()
    set_progress_shares(shares)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to replay, and how; time lines are for pictures alone, cells for differences."""

    sources: Sequence[RecordingSource]
    entries: Sequence[ReplayEntry]
    watched_node: str | None
    with_time_lines: bool
    with_hourly_counts: bool = False


def replay_locally(wanted: ReplayRequest, jobs: int) -> list[BacktestResult]:
    """Read all recordings, so that a bad one is refused before an hour of replays, and replay them.

    They are kept in files meanwhile, whose memory all processes share. Raises BadInputError, Unavailable.
    """
    with TemporaryDirectory(prefix="cruise-backtest-") as directory, redirect_logs():
        if jobs == 1:
            board = TaskProgress()
            return _replay(wanted, InProcessExecutor(board), board, Path(directory))
        tasks = len(wanted.sources) * (1 + 2 * len(wanted.entries))
        with open_process_pool(min(jobs, tasks), tasks) as (executor, shares):
            return _replay(wanted, executor, TaskProgress(polled_progress=shares), Path(directory))


def replay_on_dask(wanted: ReplayRequest, address: str) -> list[BacktestResult]:
    """Do the same on a Dask cluster, whose workers read the recordings themselves. Raises BadInputError, Unavailable."""
    with redirect_logs(), open_dask_cluster(address) as executor:
        return _replay(wanted, executor, TaskProgress(), None)


def _replay(
    wanted: ReplayRequest, executor: Executor, board: TaskProgress, kept_in: Path | None
) -> list[BacktestResult]:
    with show_replay_progress(len(wanted.sources), "recordings") as show:
        board.start(show)
        surveys = read_all_recordings(executor, wanted.sources, wanted.entries[0].options, kept_in, board)
    for found in surveys:
        for note in found.notes:
            print_error(note)
    with show_replay_progress(compute_work(surveys, wanted.entries), "replays") as show:
        board.start(show)
        return replay_all(
            executor,
            surveys,
            wanted.entries,
            board,
            watched_node=wanted.watched_node,
            with_time_lines=wanted.with_time_lines,
            with_hourly_counts=wanted.with_hourly_counts,
        )


@contextmanager
def show_replay_progress(total: float, what: str) -> Iterator[ShowProgress]:
    """Show on a terminal how far something is and how long it will take."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(),
    )
    with show_progress(what, *columns, total=total) as update:
        yield lambda text, done: update(description=text, completed=done)
