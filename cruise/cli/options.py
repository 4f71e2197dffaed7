"""Options that several commands share, and how their values are read."""

import os
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cruise.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cruise.domain.policy import Policy
    from cruise.settings import Settings


class Format(StrEnum):
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


def optional(name: str, metavar: str | None, help: str, *others: str, **more: Any) -> Any:  # noqa: ANN401 - typer's own
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
NowOption = Annotated[str | None, optional("--now", "TIME", "The time to decide at, e.g. 2026-01-01T12:00:00Z.")]
ModeOption = Annotated[ModeName, typer.Option("--mode", help="Decide as this mode of the cluster.")]
RulesOption = Annotated[
    RulesName | None, optional("--rules", None, "Instead of those set: seeds has the rules as first designed.")
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="A table for people or one JSON document.")]
ConfigOption = Annotated[Path | None, optional("--config", "FILE", "Settings in TOML; CRUISE_* variables win.")]


def settings_of(config: Path | None) -> "Settings":
    """Resolve the settings of this process. Raises BadInput."""
    from cruise.settings import load_settings

    return load_settings(os.environ, config)


def policy_of(config: Path | None, mode: ModeName, rules: RulesName | None = None) -> "Policy":
    """Return the policy to decide by, as `mode`. Raises BadInput."""
    from dataclasses import replace

    from cruise.domain.policy import Mode

    return by_rules(replace(settings_of(config).policy(), mode=Mode[mode.name]), rules)


def by_rules(policy: "Policy", name: RulesName | None) -> "Policy":
    """Return the policy by other rules, where some are named."""
    from dataclasses import replace

    from cruise.domain.rules import RULES

    return policy if name is None else replace(policy, rules=next(rules for rules in RULES if rules.name == name))


def parse_time(text: str | None) -> datetime | None:
    """Read --now. Raises BadInput for what is no time, or a time without its zone."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(f'--now: "{text}" is not a time; write e.g. 2026-01-01T12:00:00Z') from error
    if found.tzinfo is None:
        raise BadInput(f'--now: "{text}" lacks its zone; write e.g. {found.isoformat()}Z')
    return found.astimezone(UTC)


def near(name: str, names: "Iterable[str]") -> str:
    """Return the ending of a complaint about an unknown name: those that look like it, or nothing."""
    found = get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(found)}?" if found else ""
