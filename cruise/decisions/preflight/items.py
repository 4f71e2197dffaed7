"""One finding of a preflight, and how its parts are worded."""

from collections.abc import Iterable, Sized
from dataclasses import dataclass
from enum import StrEnum

from cruise.domain.preflight import HelmRelease

_MOST_NAMED = 3


class CheckLevel(StrEnum):
    """The severity of a finding; with red, cruise cannot do its task in this mode."""

    OK = "ok"
    WARN = "warn"
    RED = "red"


@dataclass(frozen=True, slots=True)
class CheckItem:
    """What was checked, what was found, and what to do about it (empty if nothing)."""

    area: str
    name: str
    level: CheckLevel
    finding: str
    fix: str = ""


def format_count(things: Sized, noun: str) -> str:
    """Return the number of things with their noun."""
    return f"{len(things):,} {noun}{'' if len(things) == 1 else 's'}"


def format_names(names: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _MOST_NAMED:,} more" if len(listed) > _MOST_NAMED else ""
    return ", ".join(listed[:_MOST_NAMED]) + more


def format_install_command(release: HelmRelease | None, files: Iterable[str], *values: str) -> str:
    """Return the command that applies files of deploy/, or sets the values by which the chart renders the same."""
    if release is None:
        return "kubectl apply " + " ".join(f"-f deploy/{file}" for file in files)
    command = f"helm upgrade {release.name} deploy/chart --namespace {release.namespace} --reset-then-reuse-values"
    return " ".join((command, *(f"--set {value}" for value in values)))
