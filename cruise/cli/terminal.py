"""Standard output and standard error: documents, tables, progress and errors."""

import io
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Span, Text

from cruise.errors import UnavailableError
from cruise.interfaces.text import escape_json, escape_text, find_control_characters

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


class OutputClosedError(Exception):
    """The reader closed standard output, as `head` does; this is not an error."""


class _EscapingConsole(Console):
    """Escapes control characters in text it prints; line breaks are kept only at the ends of a text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render a part, with all parts of tables and panels."""
        if isinstance(renderable, str):
            renderable = self.render_str(renderable)
        return super().render(
            _escape_control_characters(renderable) if isinstance(renderable, Text) else renderable, options
        )

    def on_broken_pipe(self) -> NoReturn:
        """Let the program handle it."""
        raise OutputClosedError


def _escape_control_characters(text: Text) -> Text:
    """Return the text with escaped control characters, in the style of their place."""
    plain = text.plain
    inside = range(len(plain) - len(plain.lstrip("\n")), len(plain.rstrip("\n")))
    found = [(at, shown) for at, shown in find_control_characters(plain) if at in inside or plain[at] != "\n"]
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
    """Return the console for tables: as wide as the terminal or COLUMNS; without colour for files or with NO_COLOR."""
    _require_output()
    return _EscapingConsole(highlight=False, markup=False, emoji=False, soft_wrap=False)


def render_plain_report(render: Callable[[Console], Iterable[RenderableType]]) -> bytes:
    """Return a report for a file, 160 columns wide and without colour."""
    text = io.StringIO()
    console = _EscapingConsole(file=text, width=160, highlight=False, markup=False, emoji=False, color_system=None)
    print_report(render(console), console)
    return text.getvalue().encode()


def print_report(parts: Iterable[RenderableType], console: Console) -> None:
    """Print the parts of a report without spaces at the ends of lines. OutputClosedError.

    Texts with `no_wrap` stay on one line.
    """
    for part in parts:
        is_one_line = isinstance(part, Text) and part.no_wrap is True
        console.print(part if is_one_line else _LinesWithoutPadding(part), soft_wrap=is_one_line)


@dataclass(frozen=True, slots=True)
class _LinesWithoutPadding:
    """A part whose lines end with their last character, because tables pad each cell to the width of its column."""

    part: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the segments of each line."""
        for line in Segment.split_lines(console.render(self.part, options)):
            while line and not line[-1].control and not line[-1].text.strip(" "):
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(" "), line[-1].style, line[-1].control)
            yield from line
            yield Segment.line()


def write_json(pieces: Iterable[bytes]) -> None:
    """Write a JSON document to standard output, escaped for terminals. OutputClosedError."""
    write_document(map(escape_json, pieces))


def write_document(pieces: Iterable[bytes]) -> None:
    """Write a document to standard output. OutputClosedError."""
    _require_output()
    try:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise OutputClosedError from error


def flush_output() -> None:
    """Flush standard output. OutputClosedError."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise OutputClosedError from error


def discard_output() -> None:
    """Discard buffered output, so that the interpreter does not write it at exit."""
    if sys.stdout is not None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def print_result(
    as_json: bool,
    document: Callable[[], Iterable[bytes]],
    parts: Callable[[Console], Iterable[RenderableType]],
) -> None:
    """Write a result as a JSON document or as tables. OutputClosedError."""
    if as_json:
        write_json(document())
    else:
        console = create_table_console()
        print_report(parts(console), console)


def print_error(message: str) -> None:
    """Print an error in one line on standard error."""
    if sys.stderr is not None:
        print(f"cruise: {escape_text(' '.join(message.split()))}", file=sys.stderr, flush=True)


_notes: list[str] = []


def add_note(message: str) -> None:
    """Add a note about the result, printed on standard error after it, unless the command fails."""
    if message not in _notes:
        _notes.append(message)


def print_notes(*, discard: bool = False) -> None:
    """Print the notes, or discard them."""
    for message in () if discard else _notes:
        print_error(f"note: {message}")
    _notes.clear()


def is_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def print_progress(text: str) -> None:
    """Print a line on standard error if it is a terminal."""
    if is_terminal():
        print_error(text)


@contextmanager
def show_spinner(text: str, visible: bool = True) -> Iterator[Callable[[str], None]]:
    """Show a spinner on a terminal; yields a function that changes its text."""
    if not visible or not is_terminal():
        yield lambda text: None
        return
    console = _EscapingConsole(stderr=True, highlight=False, markup=False)
    with console.status(text) as status:
        yield status.update


@contextmanager
def show_progress(
    text: str, *columns: "ProgressColumn", total: float | None = None, visible: bool = True
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on a terminal; yields a function that updates fields of the task, such as `completed`."""
    if not is_terminal():
        yield lambda **fields: None
        return
    from rich.progress import Progress

    with Progress(*columns, console=_EscapingConsole(stderr=True), transient=True) as shown:
        added = shown.add_task(text, total=total, visible=visible)
        yield lambda **fields: shown.update(added, **fields)


@contextmanager
def suppress_logs() -> Iterator[None]:
    """Disable logs while a command runs, because standard output belongs to its result."""
    import structlog

    disable_logs()
    try:
        yield
    finally:
        structlog.reset_defaults()


def disable_logs() -> None:
    """Disable the logs of this process."""
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _require_output() -> None:
    if sys.stdout is None:
        raise UnavailableError("standard output is closed")
