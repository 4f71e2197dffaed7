"""The workers of `cruise backtest`: this process, or several of this machine."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.sharedctypes import RawArray

from cruise.backtest.fleet.tasks import Shares, report_to
from cruise.cli.terminal import silence_logs
from cruise.errors import Unavailable


@contextmanager
def processes(jobs: int, tasks: int) -> Iterator[tuple[Executor, Sequence[float]]]:
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
        raise Unavailable(
            "a worker process died, most likely for lack of memory, and its replay with it; "
            "fewer --jobs take less memory"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def _begin(shares: Shares) -> None:
    """Prepare a worker: it ends without a word when it is interrupted, and when the process that began it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    silence_logs()
    report_to(shares)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
