"""What every command of cruise does as a process: handle signals, exit, read the time, configure logs."""

import asyncio
import ctypes
import gc
import getpass
import io
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from cruise.adapters.api_client import strip_credentials
from cruise.interfaces.text import escape_lines, escape_text

log = structlog.get_logger()

# How often free memory is returned: a few milliseconds each time, in a thread.
_RETURN_SECONDS = 60.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SIGNAL_EXIT_BASE = 128
# These libraries log normal events, or those that cruise logs itself: skipped runs of a job, closed connections,
# retried requests.
_QUIET = {
    "apscheduler": logging.ERROR,
    "uvicorn": logging.WARNING,
    "alembic": logging.WARNING,
    "urllib3": logging.ERROR,
}
# Without local variables, which may contain tokens and passwords.
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=40)
)
_FIRST = ("timestamp", "level", "event")
_LONGEST = 4000


@contextmanager
def handle_signals(first: Callable[[], None], again: Callable[[int], None] | None = None) -> Iterator[None]:
    """Call `first` at SIGTERM or SIGINT, and for each later signal `again`, or `first` again."""
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def receive(number: int) -> None:
        received.append(number)
        if again is not None and len(received) > 1:
            again(number)
        else:
            first()

    for number in _SIGNALS:
        loop.add_signal_handler(number, receive, number)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def run_until_signal(work: Coroutine[Any, Any, None]) -> bool:
    """Run `work`; at a signal cancel it, wait for its end and return True. A second signal exits immediately."""
    running = asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        log.info("stopping")
        running.cancel()

    with handle_signals(stop, exit_process):
        try:
            await running
        except asyncio.CancelledError:
            if not stopped:
                raise
    return stopped


async def run_as_service(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` until a signal, then exit at once. What was imported before is exempt from garbage collection.

    `work` has released all resources. The interpreter would spend more than a second of CPU on releasing memory, which
    takes long enough on a busy node for the kubelet to kill the process.
    """
    # A full collection waits until a quarter of the objects that survived the last one are new: the 250,000 objects of
    # imports would put it off, and would be traversed in each.
    gc.collect()
    gc.freeze()
    threading.Thread(target=_return_free_memory_regularly, name="free memory", daemon=True).start()
    await run_until_signal(work)
    _exit(0)


def return_free_memory() -> bool:
    """Return the C library's free memory to the operating system; False where it cannot do that (glibc can).

    By itself glibc returns only what is free at the end of a heap. What passes and relists used and freed lies below
    objects that are kept, and would stay with the process.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True


def release_unused_memory() -> None:
    """Collect all garbage, and return what is free.

    Objects in cycles stay until enough new ones exist, however large the arrays are that they keep.
    """
    gc.collect()
    return_free_memory()


def _return_free_memory_regularly() -> None:
    while return_free_memory():
        time.sleep(_RETURN_SECONDS)


def exit_if_busy(code: int) -> None:
    """Exit now if tasks or threads remain, which the interpreter would wait for; all resources must be released.

    Whether a thread is idle or waits for an answer cannot be known.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if len(asyncio.all_tasks()) > 1 or not all(thread.daemon for thread in others):
        _exit(code)


def exit_process(number: int) -> None:
    """Exit immediately, with the code of a signal."""
    _exit(_SIGNAL_EXIT_BASE + number)


def _exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def get_local_caller() -> str:
    """Return the user and the host, if they have names."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container's user rarely has a name.
        user = f"user {os.getuid()}"
    return f"{user} at {socket.gethostname()}"


def get_current_time() -> datetime:
    """Return the present time; the only place that reads the wall clock."""
    return datetime.now(UTC)  # noqa: TID251 - the edge that hands time to everything else


def configure_logging(form: str, level: str, stream: TextIO | None = None) -> None:
    """Send all logs, including those of libraries, to `stream` (standard error by default).

    `form` is json, text, or auto: text for a terminal, otherwise JSON.
    """
    out = stream or sys.stderr
    if out is None:
        # The process was started with a closed standard error.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        return
    as_text = form == "text" or (form == "auto" and out.isatty())
    render: list[Processor] = _build_text_processors(out.isatty()) if as_text else _build_json_processors()
    least = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _remove_credentials,
        _shorten_values,
    ]
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    named: Processor = structlog.stdlib.add_logger_name
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, named],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    handler.addFilter(is_worth_logging)
    logging.basicConfig(handlers=[handler], level=max(least, logging.INFO), force=True)


def _build_json_processors() -> list[Processor]:
    return [_order_keys, _TRACEBACKS, structlog.processors.JSONRenderer(default=str)]


def _build_text_processors(colours: bool) -> list[Processor]:
    return [
        _escape_control_characters,
        structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, exception_formatter=_write_plain_traceback),
    ]


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Return whether a library's record is logged: libraries set their own levels when imported."""
    return record.levelno >= _QUIET.get(record.name.partition(".")[0], logging.NOTSET)


def _order_keys(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Order the keys that every line has first."""
    return {**{key: event[key] for key in _FIRST if key in event}, **event}


def _remove_credentials(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Remove user and password from every address."""
    for key, value in event.items():
        if isinstance(value, str) and "@" in value:
            event[key] = strip_credentials(value)
    return event


def _shorten_values(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Shorten long values."""
    for key, value in event.items():
        if isinstance(value, str) and len(value) > _LONGEST:
            event[key] = f"{value[: _LONGEST - 1]}…"
    return event


def _escape_control_characters(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Escape control characters; JSON does so itself."""
    return {key: escape_text(value) if isinstance(value, str) else value for key, value in event.items()}


def _write_plain_traceback(stream: TextIO, failure: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, failure)
    stream.write(escape_lines(text.getvalue()))
