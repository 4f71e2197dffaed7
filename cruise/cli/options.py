"""Options that several commands share, and how their values are read."""

import errno
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cruise.errors import BadInputError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cruise.domain.policy import Policy
    from cruise.settings import Settings


class OutputFormat(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"


class ReportFormat(StrEnum):
    """How a report is written."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    HTML = "html"


class ModeName(StrEnum):
    """As which mode is decided."""

    OBSERVE = "observe"
    INITIAL = "initial"
    RESIZE = "resize"
    FULL = "full"


class RulesName(StrEnum):
    """By which rules is decided."""

    DEFAULT = "default"
    SEEDS = "seeds"


def create_optional_option(name: str, metavar: str | None, help: str, *others: str, **more: Any) -> Any:  # noqa: ANN401 - typer's own
    """Return an option that may be left out, and whose default says nothing."""
    return typer.Option(name, *others, metavar=metavar, help=help, show_default=False, **more)


SnapshotOption = Annotated[
    str,
    typer.Option(
        "--snapshot",
        metavar="FILE",
        help="What `kubectl get nodes,pods,… -A -o json` printed; .gz as well, - for standard input.",
    ),
]
UsageOption = Annotated[
    str, typer.Option("--usage", metavar="FILE", help="A UsageStatistics file; .gz as well, - for standard input.")
]
NowOption = Annotated[
    str | None, create_optional_option("--now", "TIME", "The time to decide at, e.g. 2026-01-01T12:00:00Z.")
]
ModeOption = Annotated[ModeName, typer.Option("--mode", help="Decide as this mode of the cluster.")]
RulesOption = Annotated[
    RulesName | None,
    create_optional_option("--rules", None, "Instead of those set: seeds has the rules as first designed."),
]
FormatOption = Annotated[OutputFormat, typer.Option("--format", "-f", help="A table for people or one JSON document.")]
ConfigOption = Annotated[
    Path | None, create_optional_option("--config", "FILE", "Settings in TOML; CRUISE_* variables win.")
]


def resolve_settings(config: Path | None) -> "Settings":
    """Resolve the settings of this process. Raises BadInputError."""
    from cruise.settings import load_settings

    return load_settings(os.environ, config)


def resolve_policy(config: Path | None, mode: ModeName, rules: RulesName | None = None) -> "Policy":
    """Return the policy to decide by, as `mode`. Raises BadInputError."""
    from dataclasses import replace

    from cruise.domain.policy import Mode

    return apply_rule_set(replace(resolve_settings(config).to_policy(), mode=Mode[mode.name]), rules)


def apply_rule_set(policy: "Policy", name: RulesName | None) -> "Policy":
    """Return the policy by other rules, where some are named."""
    from dataclasses import replace

    from cruise.domain.policy import RULE_SETS

    return policy if name is None else replace(policy, rules=next(rules for rules in RULE_SETS if rules.name == name))


def parse_time(text: str | None) -> datetime | None:
    """Read --now. Raises BadInputError for what is no time, or a time without its zone."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInputError(f'--now: "{text}" is not a time; write e.g. 2026-01-01T12:00:00Z') from error
    if found.tzinfo is None:
        raise BadInputError(f'--now: "{text}" lacks its zone; write e.g. {found.isoformat()}Z')
    return found.astimezone(UTC)


def suggest_similar(name: str, names: "Iterable[str]") -> str:
    """Return the ending of a complaint about an unknown name: those that look like it, or nothing."""
    found = get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(found)}?" if found else ""


# Reports in files: the whole file or none of it.


def save_report(path: Path, pieces: Iterable[bytes], option: str) -> None:
    """Write a file that an option named; a device or a pipe takes it as it comes. Raises BadInputError, Unavailable."""
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


def require_writable(path: Path, option: str) -> None:
    """Raise BadInputError at once where a file could not be written after a long run."""
    directory = path.resolve().parent
    if path.is_dir():
        raise BadInputError(f"{option}: {path} cannot be written: {os.strerror(errno.EISDIR)}")
    if not directory.is_dir():
        raise BadInputError(f"{option}: {path} cannot be written: {os.strerror(errno.ENOENT)}")
    if not os.access(path if path.exists() else directory, os.W_OK):
        raise BadInputError(f"{option}: {path} cannot be written: {os.strerror(errno.EACCES)}")
