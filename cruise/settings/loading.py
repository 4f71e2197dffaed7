"""The sources of settings joined: environment over file over defaults; an unknown key is refused."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cruise.domain.policy import Policy
from cruise.errors import BadInput
from cruise.settings.contradictions import without_contradictions
from cruise.settings.forms import Slip
from cruise.settings.table import FORMS, Settings

PREFIX = "CRUISE_"
# Kubernetes puts the addresses of Services into every container of their namespace; a Service called cruise-webhook
# so becomes CRUISE_WEBHOOK_SERVICE_HOST. They are not settings.
_SERVICE_LINK = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
# What decides about sizes; the mode does not, since a replay is of mode full.
RULE_KEYS = sorted({field.name for field in fields(Policy)} & FORMS.keys() - {"mode"})
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


def load_settings(environment: Mapping[str, str], config: Path | None = None) -> Settings:
    """Resolve all settings. Raises BadInput that names place, key and a well-formed example."""
    values = {} if config is None else _from_file(config)
    values |= _from_environment(environment)
    return without_contradictions(Settings(**values))


def changed(settings: Settings, texts: Mapping[str, str]) -> Settings:
    """Return settings with some of the rules set anew, as they are written. Raises BadInput."""
    values: dict[str, Any] = {}
    for key, text in texts.items():
        if key not in RULE_KEYS:
            near = get_close_matches(key, RULE_KEYS, n=1, cutoff=0.0)
            raise BadInput(f"{key}: no setting that a replay depends on; did you mean {near[0]}?")
        values[key] = _read(key, key, text)
    return without_contradictions(replace(settings, **values))


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or _is_service_link(name, text):
            continue
        key = name.removeprefix(PREFIX).lower()
        if key not in FORMS or name != name.upper():
            raise BadInput(f"{name}: no such setting; did you mean {PREFIX}{nearest_key(key).upper()}?")
        # Manifests set to empty what they leave open.
        if text.strip():
            values[key] = _read(name, key, text)
    return values


def _is_service_link(name: str, text: str) -> bool:
    return bool(_SERVICE_LINK.search(name)) or (name.endswith("_PORT") and bool(_SERVICE_ADDRESS.match(text)))


def _from_file(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
        raise BadInput(f'{path}: not TOML: {problem[:1].lower()}{problem[1:]}; write e.g. max_age = "15m"') from error
    values = {}
    for key, value in document.items():
        if key not in FORMS:
            raise BadInput(f"{path}: {key}: no such setting; did you mean {nearest_key(key)}?")
        values[key] = _read(f"{path}: {key}", key, value)
    return values


def _read(place: str, key: str, value: object) -> object:
    form = FORMS[key]
    try:
        return form.read(value)
    except Slip as slip:
        raise BadInput(f"{place}: {' '.join(str(slip).split())}; write e.g. {form.example}") from slip
    except ValueError as error:
        line = " ".join(str(value).split())[:60]
        # An address may hold a password.
        shown = "the value" if form.secret or "@" in line else f'"{line}"' if isinstance(value, str) else line
        raise BadInput(f"{place}: {shown} is not {form.what}; write e.g. {form.example}") from error


def nearest_key(key: str) -> str:
    """Return the known key that is most similar to an unknown one."""
    [found] = get_close_matches(key.lower().replace("-", "_"), FORMS, n=1, cutoff=0.0)
    return found
