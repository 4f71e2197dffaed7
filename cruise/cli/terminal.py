"""Standard output and standard error: documents, tables, progress, and the one line that says what went wrong."""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console, RenderableType
from rich.text import Text

from cruise.errors import Unavailable


class OutputClosed(Exception):
    """Whoever read standard output has had enough, as `head` does; nothing is wrong."""


class _Terminal(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave the ending to whoever started the command."""
        raise OutputClosed


def table_console() -> Console:
    """Return where tables go: as wide as the terminal or COLUMNS, without colour for a file or with NO_COLOR."""
    _require_output()
    return _Terminal(highlight=False, markup=False, emoji=False, soft_wrap=False)


def print_parts(parts: Iterable[RenderableType], console: Console) -> None:
    """Print the parts of a report as they come; what is not to be wrapped stays one line. Raises OutputClosed."""
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text) and part.no_wrap is True)


def write_document(pieces: Iterable[bytes]) -> None:
    """Write one document to standard output as it is. Raises OutputClosed."""
    _require_output()
    try:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error


def flush_output() -> None:
    """Bring out what is still buffered. Raises OutputClosed."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise OutputClosed from error


def abandon_output() -> None:
    """Drop what is still buffered, so that the interpreter does not try to write it once more at its end."""
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def complain(message: str) -> None:
    """Say in one line on standard error what went wrong."""
    if sys.stderr is not None:
        print(f"cruise: {' '.join(message.split())}", file=sys.stderr, flush=True)


@contextmanager
def busy(what: str, worth_telling: bool = True) -> Iterator[None]:
    """Show on standard error that something takes a while, where people look on."""
    if not worth_telling or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    console = Console(stderr=True, highlight=False, markup=False)
    with console.status(what):
        yield


@contextmanager
def updating(what: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error how far something is and for how long, where people look on; yields what sets the text."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task(what, total=None)
        yield lambda text: progress.update(shown, description=text)


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Keep the log of what a command does off standard output, which belongs to its result."""
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.reset_defaults()


def _require_output() -> None:
    if sys.stdout is None:
        raise Unavailable("standard output is closed")
