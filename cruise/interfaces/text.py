"""Amounts, times and counts as text; documents as JSON, YAML and CSV; HTML templates; messages for Slack."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from functools import cache
from pathlib import Path

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from cruise.domain.resources import MEBIBYTE, ResourceName

GIBIBYTE = 1 << 30
_FEW_DIGITS_FROM = 100
_EXACT_UNITS = {ResourceName.CPU: "m", ResourceName.MEMORY: "Mi"}


def format_cpu(millicores: int) -> str:
    """Write CPU in millicores of any size: `130m`, `13,800m`; zero as `–`."""
    return f"{millicores:,}m" if millicores else "–"


def format_cores(millicores: int) -> str:
    """Write CPU in cores: `0.13`, `12.5`, `1,204`."""
    cores = millicores / 1000
    if abs(cores) >= _FEW_DIGITS_FROM:
        return f"{cores:,.0f}"
    return f"{cores:.1f}" if abs(cores) >= 10 else f"{cores:.2f}"


def format_memory(memory_bytes: int) -> str:
    """Write memory as Kubernetes does, shortened: `257Mi`, `1.5Gi`; zero as `–`."""
    if abs(memory_bytes) >= _FEW_DIGITS_FROM * GIBIBYTE:
        return f"{memory_bytes / GIBIBYTE:,.0f}Gi"
    if abs(memory_bytes) >= GIBIBYTE:
        return f"{memory_bytes / GIBIBYTE:.1f}Gi"
    if abs(memory_bytes) >= MEBIBYTE or not memory_bytes:
        return f"{memory_bytes / MEBIBYTE:.0f}Mi" if memory_bytes else "–"
    return f"{memory_bytes}B"


def format_mebibytes(memory_bytes: int) -> str:
    """Write memory in MiB of any size, for columns that are compared: `257Mi`, `1,536Mi`; zero as `–`."""
    return f"{memory_bytes / MEBIBYTE:,.0f}Mi" if memory_bytes else "–"


def format_gibibytes(memory_bytes: int) -> str:
    """Write memory in GiB without the unit: `0.25`, `12.5`, `1,204`."""
    return format_cores(round(memory_bytes * 1000 / GIBIBYTE))


def format_exact(resource: ResourceName, value: float) -> str:
    """Write an amount for calculations: CPU to 0.1m, memory to 0.1Mi."""
    amount = round(value, 1) if resource is ResourceName.CPU else round(value / MEBIBYTE, 1)
    return f"{amount:.0f}{_EXACT_UNITS[resource]}" if amount == int(amount) else f"{amount}{_EXACT_UNITS[resource]}"


def format_age(now: datetime, then: datetime, ago: bool = True) -> str:
    """Write the age of a time: `40s ago`, `12m ago`, `3h ago`, `5d ago`; `just now` for a time in the future."""
    seconds = max(0, int((now - then).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size or (seconds >= size and not seconds % size):
            return f"{seconds // size}{unit}{' ago' if ago else ''}"
    if not seconds and ago:
        return "just now"
    return f"{seconds}s{' ago' if ago else ''}"


def format_share(part: float, whole: float) -> str:
    """Write a share in whole percent, `<1%` and `>99%` for values close to the ends, `–` if the whole is zero."""
    if whole <= 0:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1%"
    if 99.5 <= percent < 100:
        return ">99%"
    return f"{percent:.0f}%"


def format_count(number: int, one: str, many: str | None = None) -> str:
    """Write a count with its noun: `1 pod`, `1,204 pods`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def format_percent(share: float) -> str:
    """Write a share in percent without the sign, in five characters: `0`, `0.012`, `3.21`, `54.3`; unknown as `–`."""
    percent = 100 * share
    if not math.isfinite(percent):
        return "–"
    size = abs(percent)
    if 0 < size < 0.001:
        return "<.001"
    digits = 0 if not size or size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{percent:,.{digits}f}"


def format_rate(rate: float) -> str:
    """Write a rate: `0`, `0.31`, `12.5`, `1,204`; unknown as `–`."""
    if not math.isfinite(rate):
        return "–"
    if 0 < rate < 0.01:
        return "<.01"
    digits = 0 if not rate or rate >= 100 else 1 if rate >= 10 else 2
    return f"{rate:,.{digits}f}"


def join_words(parts: Sequence[str], word: str = "and") -> str:
    """Join parts of a sentence to a list: `a, b and c`."""
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}" if len(parts) > 1 else "".join(parts)


def suggest_similar(name: str, names: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: similar names, or nothing."""
    found = get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(found)}?" if found else ""


# Text of users and servers. A terminal or a page would act on these characters instead of showing them: C0, C1 and DEL,
# characters without width, of text direction, line separators, tags, and halves of surrogate pairs.
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_MAX_LENGTH = 2000


def escape_text(text: str, max_length: int = _MAX_LENGTH) -> str:
    """Escape control characters as Python does, and cut the text to a maximum length."""
    if len(text) > max_length:
        text = f"{text[: max_length - 1]}…"
    return _CONTROLS.sub(_escaped, text)


def escape_lines(text: str) -> str:
    """Escape control characters except line feeds."""
    return "\n".join([_CONTROLS.sub(_escaped, line) for line in text.split("\n")])


def find_control_characters(text: str) -> list[tuple[int, str]]:
    """Return the position of each control character, and its escape."""
    return [(match.start(), _escaped(match)) for match in _CONTROLS.finditer(text)]


def escape_json(document: bytes) -> bytes:
    """Escape the control characters in a JSON document; its content does not change."""
    if document.isascii() and b"\x7f" not in document:
        return document
    return _CONTROLS.sub(_json_escaped, document.decode()).encode()


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "surrogatepass").decode()


def _json_escaped(match: re.Match[str]) -> str:
    # White space between the values of a document.
    if match[0] in "\n\r\t":
        return match[0]
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


# Documents.

JsonValue = dict[str, "JsonValue"] | list["JsonValue"] | str | int | float | bool | None


def convert_to_json(value: object) -> JsonValue:
    """Convert a value for JSON and YAML: keys in camel case, times in ISO 8601, sets sorted. Raises TypeError."""
    if isinstance(value, Mapping):
        return {str(_scalar(key)): convert_to_json(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted((convert_to_json(item) for item in value), key=str)
    if isinstance(value, tuple | list):
        return [convert_to_json(item) for item in value]
    if is_dataclass(value):
        return {
            convert_to_camel_case(entry.name): convert_to_json(getattr(value, entry.name)) for entry in fields(value)
        }
    return _scalar(value)


def _scalar(value: object) -> str | int | float | bool | None:
    if isinstance(value, Enum):
        return str(getattr(value, "label", value.value))
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} cannot be converted to JSON")


def convert_to_camel_case(name: str) -> str:
    """Convert `memory_limit_bytes` to `memoryLimitBytes`, and `from_` to `from`."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


CAMEL_CASE_CONFIG: dict[str, object] = {"alias_generator": convert_to_camel_case, "populate_by_name": True}
"""The pydantic configuration of documents whose JSON keys are in camel case."""


def render_json(document: object) -> bytes:
    """Return a document as one line of JSON."""
    return msgspec.json.encode(document) + b"\n"


def render_yaml(document: JsonValue) -> bytes:
    """Return a YAML document in the order of its keys, without control characters."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = str(yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=160))
    if escape_lines(text) != text:
        text = str(yaml.dump(document, Dumper=dumper, sort_keys=False, width=160))
    return text.encode()


def render_csv(columns: Iterable[str], rows: Iterable[Mapping[str, object]]) -> bytes:
    """Return rows as CSV with a heading; a missing value is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: escape_text(value) if isinstance(value, str) else value for name, value in row.items()})
    return text.getvalue().encode()


# HTML templates.


def load_template(name: str) -> Template:
    """Return a template, which escapes its variables and raises an error for a missing one."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=_escape_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _escape_value(value: object) -> object:
    # The output of a macro is already escaped.
    return escape_text(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def build_slack_section(text: str) -> JsonValue:
    """Return a section of Slack's markup; text of others must be escaped."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def escape_slack(text: str) -> str:
    """Escape what Slack would take for a link or a mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
