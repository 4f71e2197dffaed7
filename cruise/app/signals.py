"""The end of a process: SIGTERM or Ctrl-C begins it, a second one does not wait."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import structlog

log = structlog.get_logger()

_ENDING = (signal.SIGTERM, signal.SIGINT)
_BY_SIGNAL = 128


@contextmanager
def on_signals(first: Callable[[], None], again: Callable[[int], None] | None = None) -> Iterator[None]:
    """Call `first` at a signal to end, and for each later one `again`, or `first` once more."""
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def receive(number: int) -> None:
        received.append(number)
        if again is not None and len(received) > 1:
            again(number)
        else:
            first()

    for number in _ENDING:
        loop.add_signal_handler(number, receive, number)
    try:
        yield
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


async def until_signal(work: Coroutine[Any, Any, None]) -> bool:
    """Run `work`; at a signal cancel it, await its end and return True. A second signal exits at once."""
    running = asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        log.info("stopping")
        running.cancel()

    with on_signals(stop, leave):
        try:
            await running
        except asyncio.CancelledError:
            if not stopped:
                raise
    return stopped


async def for_good(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until a signal, and let nothing that is left then keep the process."""
    await until_signal(work)
    leave_if_busy(0)


def leave_if_busy(code: int) -> None:
    """End the process now, all being closed, if tasks or threads are left: the interpreter would wait for them.

    A thread may be idle, or wait for an answer for any time; that cannot be known.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if len(asyncio.all_tasks()) > 1 or not all(thread.daemon for thread in others):
        _exit(code)


def leave(number: int) -> None:
    """End the process at once, whatever is under way."""
    _exit(_BY_SIGNAL + number)


def _exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)
