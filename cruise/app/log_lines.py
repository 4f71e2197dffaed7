"""Logs: one line an event on standard error, as JSON for machines and as text for people."""

import io
import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from cruise.adapters.secrets import without_credentials
from cruise.interfaces.plain_text import plain, plain_lines

# Chatty where nothing is wrong, or where cruise logs it itself: turns that are skipped because the one before
# still runs, connections that close, requests that are sent again.
_QUIET = {
    "apscheduler": logging.ERROR,
    "uvicorn": logging.WARNING,
    "alembic": logging.WARNING,
    "urllib3": logging.ERROR,
}
# Without the variables of each frame: they hold tokens and passwords.
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=40)
)
_FIRST = ("timestamp", "level", "event")
_LONGEST = 4000


def set_up_logs(form: str, level: str, stream: TextIO | None = None) -> None:
    """Send all logs, those of libraries too, to `stream` (standard error by default).

    `form` is json, text, or auto: text for a terminal, JSON for anything else.
    """
    out = stream or sys.stderr
    if out is None:
        # The process was started with its standard error closed.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        return
    as_text = form == "text" or (form == "auto" and out.isatty())
    render: list[Processor] = _text(out.isatty()) if as_text else _json()
    least = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_credentials,
        _cut,
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
    handler.addFilter(worth_logging)
    logging.basicConfig(handlers=[handler], level=max(least, logging.INFO), force=True)


def _json() -> list[Processor]:
    return [_in_order, _TRACEBACKS, structlog.processors.JSONRenderer(default=str)]


def _text(colours: bool) -> list[Processor]:
    return [_plain, structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, exception_formatter=_plain_traceback)]


def worth_logging(record: logging.LogRecord) -> bool:
    """Tell whether a library's record is worth a line: here, since they set their own levels once imported."""
    return record.levelno >= _QUIET.get(record.name.partition(".")[0], logging.NOTSET)


def _in_order(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Put first what every line has."""
    return {**{key: event[key] for key in _FIRST if key in event}, **event}


def _without_credentials(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Take user and password out of every address."""
    for key, value in event.items():
        if isinstance(value, str) and "@" in value:
            event[key] = without_credentials(value)
    return event


def _cut(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Cut what somebody wrote at length."""
    for key, value in event.items():
        if isinstance(value, str) and len(value) > _LONGEST:
            event[key] = f"{value[: _LONGEST - 1]}…"
    return event


def _plain(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Show control characters; JSON does so by itself, as does what is no text but printed as one."""
    return {key: plain(value) if isinstance(value, str) else value for key, value in event.items()}


def _plain_traceback(stream: TextIO, failure: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, failure)
    stream.write(plain_lines(text.getvalue()))
