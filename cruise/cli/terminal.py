"""Standard output and standard error: documents, tables, progress, and the one line that says what went wrong."""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Span, Text

from cruise.errors import UnavailableError
from cruise.interfaces.text import escape_json, escape_text, find_control_characters

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


class OutputClosedError(Exception):
    """The reader of standard output has closed it, as `head` does; nothing is wrong."""


class _EscapingConsole(Console):
    """Shows control characters of what it prints: a line is broken at either end of a text, and nowhere inside."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render a part; all parts of tables and panels come through here as well."""
        if isinstance(renderable, str):
            renderable = self.render_str(renderable)
        return super().render(_harmless(renderable) if isinstance(renderable, Text) else renderable, options)

    def on_broken_pipe(self) -> NoReturn:
        """Leave the ending to the program."""
        raise OutputClosedError


def _harmless(text: Text) -> Text:
    """Return the text with its control characters shown, each in the style of its place."""
    written = text.plain
    inside = range(len(written) - len(written.lstrip("\n")), len(written.rstrip("\n")))
    found = [(at, shown) for at, shown in find_control_characters(written) if at in inside or written[at] != "\n"]
    if not found:
        return text
    pieces = text.divide(sorted({edge for at, _ in found for edge in (at, at + 1)}))
    shown_at = dict(found)
    whole, at = text.blank_copy(), 0
    for piece in pieces:
        length = len(piece.plain)
        if length == 1 and at in shown_at:
            piece.plain = shown_at[at]
            piece.spans = [Span(0, len(piece.plain), span.style) for span in piece.spans]
        whole.append_text(piece)
        at += length
    return whole


def create_table_console() -> Console:
    """Return where tables go: as wide as the terminal or COLUMNS, without colour for a file or with NO_COLOR."""
    _require_output()
    return _EscapingConsole(highlight=False, markup=False, emoji=False, soft_wrap=False)


def create_file_console(file: TextIO, width: int) -> Console:
    """Return where the tables of a file go."""
    return _EscapingConsole(file=file, width=width, highlight=False, markup=False, emoji=False, color_system=None)


def print_report(parts: Iterable[RenderableType], console: Console) -> None:
    """Print the parts of a report as they come; what is not to be wrapped stays one line. Raises OutputClosedError."""
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text) and part.no_wrap is True)


def write_json(pieces: Iterable[bytes]) -> None:
    """Write a JSON document to standard output, so that a terminal may show it as well. Raises OutputClosedError."""
    write_document(map(escape_json, pieces))


def write_document(pieces: Iterable[bytes]) -> None:
    """Write one document to standard output as it is. Raises OutputClosedError."""
    _require_output()
    try:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise OutputClosedError from error


def flush_output() -> None:
    """Bring out what is still buffered. Raises OutputClosedError."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise OutputClosedError from error


def discard_output() -> None:
    """Drop what is still buffered, so that the interpreter does not try to write it once more at its end."""
    if sys.stdout is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def print_result(
    as_json: bool,
    document: Callable[[], Iterable[bytes]],
    parts: Callable[[Console], Iterable[RenderableType]],
) -> None:
    """Write a result as one document, or as tables for people. Raises OutputClosedError."""
    if as_json:
        write_json(document())
    else:
        console = create_table_console()
        print_report(parts(console), console)


def print_error(message: str) -> None:
    """Say in one line on standard error what went wrong."""
    if sys.stderr is not None:
        print(f"cruise: {escape_text(' '.join(message.split()))}", file=sys.stderr, flush=True)


_remarks: list[str] = []


def add_remark(message: str) -> None:
    """Say in one line on standard error what limits the result, once that is out; an error is all there is to say."""
    if message not in _remarks:
        _remarks.append(message)


def print_remarks(*, say: bool) -> None:
    """Say what was remarked, or drop it."""
    for message in _remarks if say else ():
        print_error(f"note: {message}")
    _remarks.clear()


def is_terminal() -> bool:
    """Tell whether standard error is a terminal, where people look on."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def show_spinner(what: str, worth_telling: bool = True) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that something takes a while; yields what changes the text."""
    if not worth_telling or not is_terminal():
        yield lambda text: None
        return
    console = _EscapingConsole(stderr=True, highlight=False, markup=False)
    with console.status(what) as status:
        yield status.update


@contextmanager
def show_progress(
    what: str, *columns: "ProgressColumn", total: float | None = None, visible: bool = True
) -> Iterator[Callable[..., None]]:
    """Show on a terminal how far a task is; yields what changes its fields, such as `completed`, as rich has them."""
    if not is_terminal():
        yield lambda **fields: None
        return
    from rich.progress import Progress

    with Progress(*columns, console=_EscapingConsole(stderr=True), transient=True) as shown:
        added = shown.add_task(what, total=total, visible=visible)
        yield lambda **fields: shown.update(added, **fields)


@contextmanager
def redirect_logs() -> Iterator[None]:
    """Keep the log of what a command does off standard output, which belongs to its result."""
    import structlog

    disable_logs()
    try:
        yield
    finally:
        structlog.reset_defaults()


def disable_logs() -> None:
    """Keep the log of this process off standard output from now on."""
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _require_output() -> None:
    if sys.stdout is None:
        raise UnavailableError("standard output is closed")
