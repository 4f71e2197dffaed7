"""The page of settings, from the table that reads them."""

import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from enum import Enum

from cruise.domain.policy import Mode, RuleSet
from cruise.settings.loading import PREFIX
from cruise.settings.settings import SETTING_TYPES, Settings
from cruise.settings.value_types import FLAG, NAMES, PATH, SECRET, ValueType
from scripts.reference.markdown import code, page, section, table
from scripts.reference.setting_words import WORDS

_INTRODUCTION = f"""A setting is an environment variable, `{PREFIX}` and its name in upper case, or a line of the
TOML file that `--config` names; the environment goes before the file, and the file before the
default. A name or value that is not understood ends the process with one line that names it,
and the nearest one known. Durations are written `90s`, `5m`, `1h30m` or `7d`, lists with
commas or as TOML's. What matters most, and when to change it, is in
[operating.md](../operating.md#important-settings)."""
_PLAIN = {form.description for form in (FLAG, NAMES, PATH, SECRET)}
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def settings_page() -> str:
    """Return the page. Raises ValueError where a setting has no description, or a description no setting."""
    described = {name for words in WORDS.values() for name in words}
    if described != set(SETTING_TYPES):
        raise ValueError(
            f"setting_words.py: described or set, not both: {', '.join(sorted(described ^ set(SETTING_TYPES)))}"
        )
    parts = [section(topic, table(("setting", "value", "default", "meaning"), _rows(topic))) for topic in WORDS]
    return page("Settings", _INTRODUCTION, *parts)


def _rows(topic: str) -> Iterator[tuple[str, ...]]:
    defaults = {entry.name: entry.default for entry in fields(Settings)}
    for name, words in WORDS[topic].items():
        yield code(name), _form(SETTING_TYPES[name], written(defaults[name])), written(defaults[name]), words


def _form(form: ValueType, default: str) -> str:
    """Return how a value is written, with an example where the default is none."""
    if form.description.startswith("a duration") or form.description in _PLAIN or code(form.example) == default:
        return form.description
    if " or " in form.example:
        return ", ".join(map(code, re.split(", | or ", form.example)))
    return f"{form.description}, such as {code(form.example)}"


def written(value: object) -> str:
    """Return a default as it would be set."""
    if value is None or value in ("", frozenset()):
        return "none"
    if isinstance(value, frozenset):
        return ", ".join(code(str(one)) for one in sorted(value))
    return code(_text(value))


def _text(value: object) -> str:
    match value:
        case Mode():
            return value.label
        case RuleSet():
            return value.name
        case Enum():
            return str(value.value)
        case timedelta():
            return _duration(int(value.total_seconds()))
        case float():
            return f"{value:g}"
        case _:
            return str(value).lower() if isinstance(value, bool) else str(value)


def _duration(seconds: int) -> str:
    return next(f"{seconds // size}{unit}" for size, unit in _UNITS if seconds % size == 0 and seconds >= size)
