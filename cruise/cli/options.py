"""Options that several commands share, and their parsers."""

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType

from cruise.cli.terminal import create_table_console, print_report, render_plain_report, write_document, write_json
from cruise.errors import BadInputError, UnavailableError
from cruise.interfaces.text import JsonValue, render_json, render_yaml

if TYPE_CHECKING:
    from cruise.domain.policy import Policy
    from cruise.settings import Settings


_FIRST_YEAR, _YEAR_AFTER_LAST = 1970, 3000


class OutputFormat(StrEnum):
    """The format of a result."""

    TABLE = "table"
    JSON = "json"


class ReportFormat(StrEnum):
    """The format of a report."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    HTML = "html"


class ModeName(StrEnum):
    """The mode to decide for."""

    OBSERVE = "observe"
    INITIAL = "initial"
    RESIZE = "resize"
    FULL = "full"


class RulesName(StrEnum):
    """The rules to decide by."""

    DEFAULT = "default"
    SEEDS = "seeds"


def create_option_without_default(name: str, metavar: str | None, help: str, *others: str, **extra: Any) -> Any:  # noqa: ANN401 - typer's own
    """Return an optional option without a displayed default."""
    return typer.Option(name, *others, metavar=metavar, help=help, show_default=False, **extra)


SnapshotOption = Annotated[
    str,
    typer.Option(
        "--snapshot",
        metavar="FILE",
        help="The output of `kubectl get nodes,pods,… -A -o json`; also .gz, - for standard input.",
    ),
]
UsageOption = Annotated[
    str, typer.Option("--usage", metavar="FILE", help="A UsageStatistics file; also .gz, - for standard input.")
]
NowOption = Annotated[
    str | None, create_option_without_default("--now", "TIME", "The time of the decision, e.g. 2026-01-01T12:00:00Z.")
]
ModeOption = Annotated[ModeName, typer.Option("--mode", help="Decide for this mode of the cluster.")]
RulesOption = Annotated[
    RulesName | None,
    create_option_without_default("--rules", None, "The rules to use; seeds has those of the first design."),
]
FormatOption = Annotated[OutputFormat, typer.Option("--format", "-f", help="A table or one JSON document.")]
ConfigOption = Annotated[
    Path | None,
    create_option_without_default("--config", "FILE", "Settings in TOML; CRUISE_* variables take precedence."),
]


def load_process_settings(config: Path | None) -> "Settings":
    """Load the settings of this process; BadInputError."""
    from cruise.settings import load_settings

    return load_settings(os.environ, config)


def resolve_policy(config: Path | None, mode: ModeName, rules: RulesName | None = None) -> "Policy":
    """Return the policy for `mode`; BadInputError."""
    from dataclasses import replace

    from cruise.domain.policy import Mode

    return apply_rule_set(replace(load_process_settings(config).to_policy(), mode=Mode[mode.name]), rules)


def apply_rule_set(policy: "Policy", name: RulesName | None) -> "Policy":
    """Return the policy with the named rules, if any."""
    from dataclasses import replace

    from cruise.domain.policy import RULE_SETS

    return policy if name is None else replace(policy, rules=next(rules for rules in RULE_SETS if rules.name == name))


def parse_time(text: str | None) -> datetime | None:
    """Parse --now; BadInputError for an invalid time or one without a time zone."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        if not _FIRST_YEAR <= found.year < _YEAR_AFTER_LAST:
            raise ValueError
    except ValueError as error:
        raise BadInputError(f'--now: "{text}" is not a time; write e.g. 2026-01-01T12:00:00Z') from error
    if found.tzinfo is None:
        raise BadInputError(f'--now: "{text}" has no time zone; write e.g. {found.isoformat()}Z')
    return found.astimezone(UTC)


# Files: written as a whole or not at all.


def save_report(path: Path, pieces: Iterable[bytes], option: str) -> None:
    """Write the file of an option; a device or a pipe is written directly. BadInputError, UnavailableError."""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                device.writelines(pieces)
            return
        target = path.resolve()
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with unfinished.open("wb") as file:
                file.writelines(pieces)
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        kind = UnavailableError if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else BadInputError
        raise kind(f"{option}: {path} cannot be written: {error.strerror}") from error


def write_report(
    chosen: ReportFormat,
    output: Path | None,
    table: Callable[[Console], Iterable[RenderableType]],
    document: Callable[[], JsonValue],
    others: Mapping[ReportFormat, Callable[[], bytes]],
) -> None:
    """Write a report in one format, to standard output or to the file of --output.

    `table` has its parts, `document` is for JSON and YAML, and `others` has its other formats. Raises OutputClosedError
    and what `save_report` raises.
    """
    if chosen is ReportFormat.TABLE and output is None:
        console = create_table_console()
        print_report(table(console), console)
        return
    renderers = {
        ReportFormat.TABLE: lambda: render_plain_report(table),
        ReportFormat.JSON: lambda: render_json(document()),
        ReportFormat.YAML: lambda: render_yaml(document()),
        **others,
    }
    text = renderers[chosen]()
    if output is not None:
        save_report(output, [text], "--output")
    elif chosen is ReportFormat.JSON:
        write_json([text])
    else:
        write_document([text])


def require_writable(path: Path, option: str) -> None:
    """Raise BadInputError if a file cannot be written, before a long run."""
    directory = path.resolve().parent
    if path.is_dir():
        raise BadInputError(f"{option}: {path} cannot be written: {os.strerror(errno.EISDIR)}")
    if not directory.is_dir():
        raise BadInputError(f"{option}: {path} cannot be written: {os.strerror(errno.ENOENT)}")
    if not os.access(path if path.exists() else directory, os.W_OK):
        raise BadInputError(f"{option}: {path} cannot be written: {os.strerror(errno.EACCES)}")
