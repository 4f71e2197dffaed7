"""Replay recordings for `cruise backtest`: in this process, in several, or on a Dask cluster."""

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
    ReplayConfiguration,
    ShowProgress,
    TotalProgress,
    compute_replay_work,
    read_all_recordings,
    replay_all,
)
from cruise.backtest.tasks import ProgressShares, RecordingSource, set_progress_shares
from cruise.cli.terminal import disable_logs, print_error, show_progress, suppress_logs
from cruise.domain.backtest import BacktestResult
from cruise.errors import BadInputError, UnavailableError

# Dask: the task of a lost worker runs again on another one.

_CONNECT_SECONDS = 15
_SCHEMES = ("tcp", "tls", "ws", "wss")


@contextmanager
def open_dask_cluster(address: str) -> Iterator[Executor]:
    """Yield an executor of the cluster at an address such as tcp://scheduler:8786.

    BadInputError without the library, or if a worker has another version of cruise; Unavailable if no scheduler
    answers, or if the cluster gives up a task.
    """
    _check_address(address)
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise BadInputError(f'--scheduler needs Dask ({error}): pip install "cruise[dask]"') from error
    _disable_library_logs("distributed")
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
            raise UnavailableError(f"--scheduler: one replay crashed several workers: {error}") from error
        except CancelledError as error:
            raise UnavailableError(f"--scheduler: the connection to the Dask scheduler at {address} is lost") from error


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
            f'--scheduler: "{address}" is not an address of a Dask scheduler; write e.g. tcp://scheduler:8786'
        )


def _disable_library_logs(library: str) -> None:
    """Disable a library's logs; errors are reported here."""
    for name in (library, *logging.root.manager.loggerDict):
        if name == library or name.startswith(f"{library}."):
            # Each logger has its own level.
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _check_workers(address: str, versions: Mapping[str, str]) -> None:
    if not versions:
        raise UnavailableError(
            f"--scheduler: the scheduler at {address} has no workers; start some: dask worker {address}"
        )
    for worker, version in versions.items():
        if version != __version__:
            raise BadInputError(
                f"--scheduler: worker {worker} has cruise {version}, this is {__version__}: use one version"
            )


# Processes of this machine.


@contextmanager
def open_process_pool(jobs: int, tasks: int) -> Iterator[tuple[Executor, Sequence[float]]]:
    """Yield an executor of processes, and the progress of the tasks; the processes end with the context.

    Unavailable if one of them dies.
    """
    # Not fork: threads of this process may hold locks.
    context = multiprocessing.get_context("spawn")
    shares = RawArray("d", tasks)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_initialize_worker, initargs=(shares,))
    try:
        yield pool, shares
    except BrokenProcessPool as error:
        raise UnavailableError(
            "a worker process died, most likely because of lack of memory; fewer --jobs need less memory"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _initialize_worker(shares: ProgressShares) -> None:
    """Initialize a worker; it exits when it is interrupted, and when its parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    disable_logs()
    set_progress_shares(shares)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to replay; time lines are for charts, hourly counts for comparisons."""

    sources: Sequence[RecordingSource]
    entries: Sequence[ReplayConfiguration]
    watched_node: str | None
    with_time_lines: bool
    with_hourly_counts: bool = False


def replay_locally(request: ReplayRequest, jobs: int) -> list[BacktestResult]:
    """Read all recordings first, so that an invalid one is found early, and replay them.

    They are kept in files, whose memory all processes share. BadInputError, UnavailableError.
    """
    with TemporaryDirectory(prefix="cruise-backtest-") as directory, suppress_logs():
        if jobs == 1:
            progress = TotalProgress()
            return _replay(request, InProcessExecutor(progress), progress, Path(directory))
        tasks = len(request.sources) * (1 + 2 * len(request.entries))
        with open_process_pool(min(jobs, tasks), tasks) as (executor, shares):
            return _replay(request, executor, TotalProgress(polled_progress=shares), Path(directory))


def replay_on_dask(request: ReplayRequest, address: str) -> list[BacktestResult]:
    """Replay on a Dask cluster, whose workers read the recordings. BadInputError, UnavailableError."""
    with suppress_logs(), open_dask_cluster(address) as executor:
        return _replay(request, executor, TotalProgress(), None)


def _replay(
    request: ReplayRequest, executor: Executor, progress: TotalProgress, directory: Path | None
) -> list[BacktestResult]:
    with show_replay_progress(len(request.sources), "recordings") as show:
        progress.start(show)
        recordings = read_all_recordings(executor, request.sources, request.entries[0].options, directory, progress)
    for found in recordings:
        for note in found.notes:
            print_error(note)
    with show_replay_progress(compute_replay_work(recordings, request.entries), "replays") as show:
        progress.start(show)
        return replay_all(
            executor,
            recordings,
            request.entries,
            progress,
            watched_node=request.watched_node,
            with_time_lines=request.with_time_lines,
            with_hourly_counts=request.with_hourly_counts,
        )


@contextmanager
def show_replay_progress(total: float, what: str) -> Iterator[ShowProgress]:
    """Show progress and remaining time on a terminal."""
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
