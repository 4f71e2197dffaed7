"""Forms of values: how each is written, in the environment (always text) and in TOML."""

import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cruise.domain.namespaces import check_pattern, is_namespace
from cruise.domain.quoting import quoted

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_ADDRESS = re.compile(r"(?:[A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", re.ASCII)
# Printable ASCII without a space at either end, which HTTP carries as it is.
_HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~A-Za-z0-9-]+", re.ASCII)
_SERIES_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*", re.ASCII)
_MATCHER = r"""[A-Za-z_][A-Za-z0-9_]*\s*(?:=|!=|=~|!~)\s*(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)"""
_MATCHERS = re.compile(rf"{_MATCHER}(?:\s*,\s*{_MATCHER})*", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?", re.ASCII)
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Form:
    """One way of writing values: `read` turns text or a TOML value into the setting, or raises ValueError.

    `what` completes "is not …"; a `secret` value is never quoted.
    """

    what: str
    example: str
    read: Callable[[object], object]
    secret: bool = False


class Slip(ValueError):
    """A value that cannot be meant; the message says what is wrong with which part of it."""


def parse_duration(text: str) -> timedelta:
    """Read a duration such as 90s, 5m, 1h30m or 7d. Raises ValueError for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None or not text or len(text) > 20:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    try:
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError as error:
        raise ValueError(text) from error


def _text_of(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(value)
    return value.strip()


def duration(most: str, example: str = "15m or 1h30m", least: timedelta = timedelta(seconds=1)) -> Form:
    """A duration from `least` to `most`: a slip of the unit makes it sixty times as long, or more."""
    longest = parse_duration(most)

    def read(value: object) -> timedelta:
        found = parse_duration(_text_of(value))
        if not least <= found <= longest:
            raise ValueError(value)
        return found

    what = "a duration" if least <= timedelta(seconds=1) else f"a duration of at least {least.total_seconds():g}s"
    return Form(f"{what}{' and' if least > timedelta(seconds=1) else ' of'} at most {most}", example, read)


def count(example: str, least: int = 0) -> Form:
    """A whole number."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(value)
        found = int(value) if isinstance(value, int) or value.strip().isdecimal() else -1
        if found < least:
            raise ValueError(value)
        return found

    return Form(f"a whole number of at least {least}", example, read)


def number(what: str, example: str, fits: Callable[[float], bool]) -> Form:
    """A finite number that `fits`."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(value)
        found = float(value)
        if not math.isfinite(found) or not fits(found):
            raise ValueError(value)
        return found

    return Form(what, example, read)


def positive(example: str) -> Form:
    """A number above 0."""
    return number("a positive number", example, lambda found: found > 0)


def price(example: str) -> Form:
    """A cost, which may be 0."""
    return number("a number of at least 0", example, lambda found: found >= 0)


def at_most(most: float, example: str, *, least: float = 0) -> Form:
    """A number above 0, or of at least `least`, and at most `most`."""
    low = f"of at least {least:g}" if least else "above 0"
    return number(f"a number {low} and at most {most:g}", example, lambda found: 0 < found and least <= found <= most)


def _read_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = _text_of(value).lower()
    if text not in _TRUE + _FALSE:
        raise ValueError(value)
    return text in _TRUE


def choice(what: str, values: Iterable[tuple[str, object]]) -> Form:
    """One of several names."""
    named = dict(values)

    def read(value: object) -> object:
        text = _text_of(value).lower()
        if text not in named:
            raise ValueError(value)
        return named[text]

    return Form(what, " or ".join([", ".join(list(named)[:-1]), list(named)[-1]] if len(named) > 1 else named), read)


def several(what: str, values: Iterable[tuple[str, object]]) -> Form:
    """Some of several names, at least one."""
    named = dict(values)

    def read(value: object) -> frozenset[object]:
        names = _read_names(value)
        if not names or not names <= named.keys():
            raise ValueError(value)
        return frozenset(named[name] for name in names)

    return Form(what, ",".join(named), read)


def _read_names(value: object) -> frozenset[str]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError(value)
    return frozenset(part.strip() for part in parts if part.strip())


def _read_namespace(value: object) -> str:
    text = _text_of(value)
    if not is_namespace(text):
        raise ValueError(value)
    return text


def _read_namespaces(value: object) -> frozenset[str]:
    names = _read_names(value)
    for name in sorted(names):
        if not is_namespace(name):
            raise Slip(f"{quoted(name)} is not the name of a namespace")
    return names


def excluding(protected: frozenset[str]) -> Form:
    """Names and patterns of namespaces, added to those that are `protected`; `!NAME` takes out one of these."""

    def read(value: object) -> frozenset[str]:
        stated = _read_names(value)
        taken_out = {name[1:] for name in stated if name.startswith("!")}
        for name in sorted(taken_out - protected):
            raise Slip(f'"!{name}" takes nothing out: only {", ".join(sorted(protected))} are excluded by themselves')
        added = frozenset(name for name in stated if not name.startswith("!"))
        for name in sorted(added):
            try:
                check_pattern(name)
            except ValueError as error:
                raise Slip(str(error)) from error
        return (protected - taken_out) | added

    return Form("a list of namespaces or patterns of their names", "monitoring,openshift-*", read)


def _read_url(value: object) -> str:
    text = _text_of(value)
    if not re.match(r"https?://[^/\s]+", text) or re.search(r"\s", text):
        raise ValueError(value)
    return text


def _read_address(value: object) -> str:
    text = _text_of(value)
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match.group(1)) > 65535:
        raise ValueError(value)
    return text


def _read_headers(value: object) -> dict[str, str]:
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {name.strip(): text.strip() if equals else None for name, equals, text in pairs}
    if not isinstance(value, dict):
        raise ValueError(value)
    for name, text in value.items():
        if not _HEADER_NAME.fullmatch(name) or not isinstance(text, str) or not _HEADER_VALUE.fullmatch(text):
            raise ValueError(name)
    return dict(value)


def _read_path(value: object) -> Path:
    # Unlike Path.expanduser, this leaves the home of an unknown user as it is written.
    return Path(os.path.expanduser(_text_of(value)))


def _read_label(value: object) -> str:
    return "" if value in ("", "-") else _read_name(value)


def _read_name(value: object) -> str:
    text = _text_of(value)
    if not _SERIES_NAME.fullmatch(text):
        raise ValueError(value)
    return text


def _read_matchers(value: object) -> str:
    text = _text_of(value)
    if not _MATCHERS.fullmatch(text):
        raise ValueError(value)
    return text


def _read_hosts(value: object) -> frozenset[str]:
    names = _read_names(value)
    for name in sorted(names):
        if not _HOST.fullmatch(name):
            raise Slip(f"{quoted(name)} is not the name of a host")
    return names


TEXT = Form("text", "web", _text_of)
SECRET = Form("text", "'…'", _text_of, secret=True)
NAME = Form("the name of a series or a label", "namespace", _read_name)
NAME_OR_NONE = Form("the name of a label, or - for none", "container_id", _read_label)
PATH = Form("a path", "/etc/cruise/token", _read_path)
FLAG = Form("true or false", "true", _read_flag)
NAMES = Form("a list of names", "kube-system,monitoring", _read_names)
HOSTS = Form("a list of hosts", "cruise.example.com", _read_hosts)
NAMESPACE = Form("the name of a namespace", "cruise", _read_namespace)
NAMESPACES = Form("a list of namespaces", "monitoring,observability", _read_namespaces)
URL = Form("an address", "http://prometheus.monitoring:9090", _read_url)
ADDRESS = Form("an address to listen on", "127.0.0.1:8080", _read_address)
HEADERS = Form("a list of headers", "X-Scope-OrgID=tenant", _read_headers, secret=True)


def matchers(example: str) -> Form:
    """Label matchers of PromQL, without braces."""
    return Form("a list of label matchers", example, _read_matchers)
