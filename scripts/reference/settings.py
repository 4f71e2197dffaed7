"""The reference page of settings, from their fields and the strings below them."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import timedelta
from enum import Enum
from itertools import pairwise

from cruise.domain.policy import EnabledRules, Mode
from cruise.settings.loading import PREFIX
from cruise.settings.settings import SETTING_TYPES, Settings
from cruise.settings.value_types import FLAG, NAMES, PATH, SECRET, ValueType
from scripts.reference.markdown import code, page, section, table

_INTRODUCTION = f"""Look up what each setting does, how its value is written, and its default. A setting is an
environment variable, `{PREFIX}` and its name in upper case, or a line of the TOML file that
`--config` names. The environment takes precedence over the file, and the file over the
default. An unknown name or an invalid value ends the process with one line that names it and
the nearest known name. Durations are written `90s`, `5m`, `1h30m` or `7d`, lists with commas
or as in TOML. [operating.md](../operating.md#important-settings) has the most important settings,
and when to change them."""
_PLAIN = {form.description for form in (FLAG, NAMES, PATH, SECRET)}
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def settings_page() -> str:
    """Return the page: a section for each group of settings."""
    parts = [
        section(
            (group.__doc__ or "").removesuffix("."), table(("setting", "value", "default", "meaning"), _rows(group))
        )
        for group in Settings.__bases__
    ]
    return page("Settings", _INTRODUCTION, *parts)


def _rows(group: type) -> Iterator[tuple[str, ...]]:
    descriptions = read_descriptions(group)
    for entry in fields(group):
        default = written(entry.default)
        yield code(entry.name), _form(SETTING_TYPES[entry.name], default), default, descriptions.get(entry.name, "")


def read_descriptions(group: type) -> Mapping[str, str]:
    """Return the string below each field of a class, by field."""
    [definition] = ast.parse(inspect.getsource(group)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        entry.target.id: " ".join(text.value.value.split())
        for entry, text in pairwise(definition.body)
        if isinstance(entry, ast.AnnAssign)
        and isinstance(entry.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


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
        case EnabledRules():
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
