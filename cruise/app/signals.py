"""The end of a process: SIGTERM and Ctrl-C ask for it, a second one does not wait."""

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

_ASKING = (signal.SIGTERM, signal.SIGINT)
_BY_SIGNAL = 128


@contextmanager
def on_signals(asked: Callable[[], None], again: Callable[[int], None] | None = None) -> Iterator[None]:
    """Call `asked` at a signal to end, and for each later one `again`, or `asked` once more."""
    loop = asyncio.get_running_loop()
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        if again is not None and len(heard) > 1:
            again(number)
        else:
            asked()

    for number in _ASKING:
        loop.add_signal_handler(number, hear, number)
    try:
        yield
    finally:
        for number in _ASKING:
            loop.remove_signal_handler(number)


async def until_signal(work: Coroutine[Any, Any, None]) -> bool:
    """Run `work`; at a signal cancel it and await its end. Tell whether it was a signal. A second one exits at once."""
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


def leave_if_busy(code: int) -> None:
    """End the process now, all being closed, if tasks or threads are left: the interpreter would wait for them.

    A thread may be idle, or wait for the world for as long as that may take to answer; nobody can tell which.
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
