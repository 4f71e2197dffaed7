"""Types of values: how each is written, as text in the environment and as a TOML value.

pydantic-settings is not used: tried at 2.16, it ignores misspelled variables, quotes values in errors of four lines and
takes `y` as true and `1_0` as an integer.
"""

import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from cruise.adapters.kubelets.client import KubeletAccessMode, KubeletMetricsPath
from cruise.adapters.prometheus.settings import CloudProvider
from cruise.decisions.sizing.headroom import HEADROOM_MODELS
from cruise.domain.namespace_patterns import is_dns_label
from cruise.domain.policy import (
    RULE_SETS,
    AdmissionSize,
    BestEffortPolicy,
    ConsolidationMode,
    CpuLimitPolicy,
    GuaranteedPolicy,
    HeapBoundPolicy,
    HpaPolicy,
    MemoryLimitPolicy,
    Mode,
    NodeAutoscalerSetting,
    OomReaction,
    StartupPolicy,
)
from cruise.domain.prices import SPOT_SUFFIX, is_currency_sign
from cruise.domain.resources import quote_text
from cruise.domain.users import NotificationTopic

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
class ValueType:
    """A type of values; `read` returns the setting for text or a TOML value, or raises ValueError.

    `description` completes "is not …"; a `secret` value is never quoted in messages.
    """

    description: str
    example: str
    read: Callable[[object], object]
    secret: bool = False


def create_setting(value_type: ValueType, default: object) -> Any:  # noqa: ANN401 - the field states the type
    """Return a dataclass field for a setting; its description is the string below the field."""
    return field(default=default, repr=not value_type.secret, metadata={"type": value_type})


class InvalidValueError(ValueError):
    """An invalid value; the message says which part is wrong and why."""


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as 90s, 5m, 1h30m or 7d; ValueError for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None or not text or len(text) > 20:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    try:
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError as error:
        raise ValueError(text) from error


def _read_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(value)
    return value.strip()


def create_duration_type(
    maximum: str, example: str = "15m or 1h30m", minimum: timedelta = timedelta(seconds=1)
) -> ValueType:
    """A duration between `minimum` and `maximum`; the maximum detects wrong units."""
    longest = parse_duration(maximum)

    def read(value: object) -> timedelta:
        found = parse_duration(_read_text(value))
        if not minimum <= found <= longest:
            raise ValueError(value)
        return found

    what = "a duration" if minimum <= timedelta(seconds=1) else f"a duration of at least {minimum.total_seconds():g}s"
    return ValueType(f"{what}{' and' if minimum > timedelta(seconds=1) else ' of'} at most {maximum}", example, read)


def create_count_type(example: str, minimum: int = 0) -> ValueType:
    """An integer of at least `minimum`."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(value)
        found = int(value) if isinstance(value, int) or value.strip().isdecimal() else -1
        if found < minimum:
            raise ValueError(value)
        return found

    return ValueType(f"a whole number of at least {minimum}", example, read)


def create_number_type(what: str, example: str, is_valid: Callable[[float], bool]) -> ValueType:
    """A finite number for which `is_valid` is true."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError(value)
        found = float(value)
        if not math.isfinite(found) or not is_valid(found):
            raise ValueError(value)
        return found

    return ValueType(what, example, read)


def create_positive_type(example: str) -> ValueType:
    """A number above 0."""
    return create_number_type("a positive number", example, lambda found: found > 0)


def create_price_type(example: str) -> ValueType:
    """A price of at least 0."""
    return create_number_type("a number of at least 0", example, lambda found: found >= 0)


def _read_currency(value: object) -> str:
    text = _read_text(value)
    if not 1 <= len(text) <= 5 or not all(one.isalpha() or one == "." or is_currency_sign(one) for one in text):
        raise ValueError(value)
    return text


CURRENCY = ValueType("a currency: at most 5 letters or currency signs", "EUR", _read_currency)


def _read_prices(value: object) -> dict[str, float]:
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {name.strip(): text.strip() for name, _, text in pairs}
    if not isinstance(value, dict):
        raise ValueError(value)
    if any("/" in name and not name.endswith(SPOT_SUFFIX) for name in value):
        raise ValueError(value)
    price = create_positive_type("0.096")
    return {name: cast(float, price.read(stated)) for name, stated in value.items()}


PRICES_BY_NAME = ValueType(
    "a list of prices above 0, each of an instance type or of its spot nodes",
    "m6i.large=0.096,m6i.large/spot=0.035",
    _read_prices,
)


def create_bounded_type(maximum: float, example: str, *, minimum: float = 0) -> ValueType:
    """A number above 0, or at least `minimum`, and at most `maximum`."""
    low = f"of at least {minimum:g}" if minimum else "above 0"
    return create_number_type(
        f"a number {low} and at most {maximum:g}", example, lambda found: 0 < found and minimum <= found <= maximum
    )


def _read_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = _read_text(value).lower()
    if text not in _TRUE + _FALSE:
        raise ValueError(value)
    return text in _TRUE


def create_choice_type(what: str, values: Iterable[tuple[str, object]]) -> ValueType:
    """One of several names."""
    named = dict(values)

    def read(value: object) -> object:
        text = _read_text(value).lower()
        if text not in named:
            raise ValueError(value)
        return named[text]

    return ValueType(
        what, " or ".join([", ".join(list(named)[:-1]), list(named)[-1]] if len(named) > 1 else named), read
    )


def create_list_type(what: str, values: Iterable[tuple[str, object]]) -> ValueType:
    """A list of at least one of several names."""
    named = dict(values)

    def read(value: object) -> frozenset[object]:
        names = parse_names(value)
        if not names or not names <= named.keys():
            raise ValueError(value)
        return frozenset(named[name] for name in names)

    return ValueType(what, ",".join(named), read)


def parse_names(value: object) -> frozenset[str]:
    """Read names from a list or from text; ValueError for anything else."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError(value)
    return frozenset(part.strip() for part in parts if part.strip())


def _read_namespace(value: object) -> str:
    text = _read_text(value)
    if not is_dns_label(text):
        raise ValueError(value)
    return text


def _read_namespaces(value: object) -> frozenset[str]:
    names = parse_names(value)
    for name in sorted(names):
        if not is_dns_label(name):
            raise InvalidValueError(f"{quote_text(name)} is not the name of a namespace")
    return names


def _read_url(value: object) -> str:
    text = _read_text(value)
    if not re.match(r"https?://[^/\s]+", text) or re.search(r"\s", text):
        raise ValueError(value)
    return text


def _read_address(value: object) -> str:
    text = _read_text(value)
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
    # Unlike Path.expanduser, this keeps the home of an unknown user as written.
    return Path(os.path.expanduser(_read_text(value)))


def _read_label(value: object) -> str:
    return "" if value in ("", "-") else _read_name(value)


def _read_name(value: object) -> str:
    text = _read_text(value)
    if not _SERIES_NAME.fullmatch(text):
        raise ValueError(value)
    return text


def _read_matchers(value: object) -> str:
    text = _read_text(value)
    if not _MATCHERS.fullmatch(text):
        raise ValueError(value)
    return text


def _read_hosts(value: object) -> frozenset[str]:
    names = parse_names(value)
    for name in sorted(names):
        if not _HOST.fullmatch(name):
            raise InvalidValueError(f"{quote_text(name)} is not the name of a host")
    return names


TEXT = ValueType("text", "web", _read_text)
SECRET = ValueType("text", "'…'", _read_text, secret=True)
NAME = ValueType("the name of a series or a label", "namespace", _read_name)
NAME_OR_NONE = ValueType("the name of a label, or - for none", "container_id", _read_label)
PATH = ValueType("a path", "/etc/cruise/token", _read_path)
FLAG = ValueType("true or false", "true", _read_flag)
NAMES = ValueType("a list of names", "kube-system,monitoring", parse_names)
HOSTS = ValueType("a list of hosts", "cruise.example.com", _read_hosts)
NAMESPACE = ValueType("the name of a namespace", "cruise", _read_namespace)
NAMESPACES = ValueType("a list of namespaces", "monitoring,observability", _read_namespaces)
URL = ValueType("an address", "http://prometheus.monitoring:9090", _read_url)
ADDRESS = ValueType("an address to listen on", "127.0.0.1:8080", _read_address)
HEADERS = ValueType("a list of headers", "X-Scope-OrgID=tenant", _read_headers, secret=True)


def create_matchers_type(example: str) -> ValueType:
    """Label matchers of PromQL, without braces."""
    return ValueType("a list of label matchers", example, _read_matchers)


# Choices.


class ApiAuthentication(StrEnum):
    """How the API authenticates callers: with one token, or through the API server."""

    TOKEN = "token"
    KUBERNETES = "kubernetes"


class UsageSourceChoice(StrEnum):
    """The source of usage: Prometheus if one is set, else kubelets if the right to read them is granted."""

    AUTO = "auto"
    PROMETHEUS = "prometheus"
    KUBELETS = "kubelets"


class VpaPublishing(StrEnum):
    """Whether recommendations are published as VerticalPodAutoscalers, and their update mode."""

    NONE = "none"
    OFF = "off"
    INITIAL = "initial"


class NotifyFormat(StrEnum):
    """The format of notifications."""

    GENERIC = "generic"
    SLACK = "slack"
    TEAMS = "teams"


class HttpTlsChoice(StrEnum):
    """Whether the API is served with TLS; AUTO if other machines reach it."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


MODE_CHOICE = create_choice_type("a mode", [(mode.label, mode) for mode in Mode if mode is not Mode.OFF])
RULES_CHOICE = create_choice_type("a set of rules", [(rules.name, rules) for rules in RULE_SETS])
HEADROOM_CHOICE = create_choice_type("a headroom model", [(model, model) for model in HEADROOM_MODELS])
CPU_LIMITS_CHOICE = create_choice_type("a choice of CPU limits", [(one.value, one) for one in CpuLimitPolicy])
MEMORY_LIMITS_CHOICE = create_choice_type("a choice of memory limits", [(one.value, one) for one in MemoryLimitPolicy])
GUARANTEED_CHOICE = create_choice_type("a choice for Guaranteed pods", [(one.value, one) for one in GuaranteedPolicy])
HEAP_BOUNDS_CHOICE = create_choice_type("a choice for heaps", [(one.value, one) for one in HeapBoundPolicy])
STARTUP_CHOICE = create_choice_type("a choice for the CPU of starts", [(one.value, one) for one in StartupPolicy])
BEST_EFFORT_CHOICE = create_choice_type("a choice for BestEffort pods", [(one.value, one) for one in BestEffortPolicy])
HPA_CHOICE = create_choice_type("a choice for pods of HPAs", [(one.value, one) for one in HpaPolicy])
OOM_REACTION_CHOICE = create_choice_type("a reaction", [(reaction.value, reaction) for reaction in OomReaction])
NODE_AUTOSCALER_CHOICE = create_choice_type("a node autoscaler", [(one.value, one) for one in NodeAutoscalerSetting])
CONSOLIDATION_CHOICE = create_choice_type("a way to consolidate", [(one.value, one) for one in ConsolidationMode])
ADMISSION_SIZE_CHOICE = create_choice_type("a size", [(one.value, one) for one in AdmissionSize])
USAGE_SOURCE_CHOICE = create_choice_type("a source of usage", [(one.value, one) for one in UsageSourceChoice])
PROMETHEUS_IDENTITY_CHOICE = create_choice_type("a cloud provider", [(one.value, one) for one in CloudProvider])
KUBELET_ACCESS_CHOICE = create_choice_type("an access to kubelets", [(one.value, one) for one in KubeletAccessMode])
KUBELET_ENDPOINT_CHOICE = create_choice_type(
    "an endpoint of kubelets", [(one.value, one) for one in KubeletMetricsPath]
)
HTTP_TLS_CHOICE = create_choice_type("a choice of TLS", [(one.value, one) for one in HttpTlsChoice])
API_AUTHENTICATION_CHOICE = create_choice_type(
    "a way of authentication", [(one.value, one) for one in ApiAuthentication]
)
PUBLISH_VPAS_CHOICE = create_choice_type("a way to publish", [(one.value, one) for one in VpaPublishing])
NOTIFY_FORMAT_CHOICE = create_choice_type("a format of notifications", [(one.value, one) for one in NotifyFormat])
NOTIFY_TOPICS_CHOICE = create_list_type("topics of notifications", [(one.value, one) for one in NotificationTopic])
