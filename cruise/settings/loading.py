"""Load settings: environment over file over defaults; an unknown key is an error."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cruise.adapters.prometheus.settings import CloudProvider
from cruise.domain.namespace_patterns import matches_any_pattern
from cruise.domain.policy import PROTECTED_NAMESPACES, Policy
from cruise.domain.prices import DOLLAR
from cruise.errors import BadInputError
from cruise.settings.settings import SETTING_TYPES, Settings
from cruise.settings.value_types import ApiAuthentication, InvalidValueError, NotifyFormat

# Contradictions between settings.


def check_contradictions(settings: Settings) -> Settings:
    """Return the settings; BadInputError with the fix if one makes another useless or unsafe."""
    if settings.overload_untaint_threshold > settings.overload_taint_threshold:
        raise BadInputError(
            f"overload_untaint_threshold ({settings.overload_untaint_threshold:g}) is above "
            f"overload_taint_threshold ({settings.overload_taint_threshold:g}); "
            "the taint would be added and removed again and again: lower it, e.g. to 0.9"
        )
    if settings.pass_interval > settings.max_age:
        raise BadInputError(
            "pass_interval is longer than max_age: statistics would be too old at every pass; raise max_age"
        )
    if settings.webhook_client_names and settings.webhook_client_ca_file is None:
        raise BadInputError(
            "webhook_client_names without webhook_client_ca_file: no client is verified; set both or neither"
        )
    _check_namespaces(settings)
    _check_prometheus_credentials(settings)
    if settings.api_authentication is ApiAuthentication.KUBERNETES and settings.api_token_file is not None:
        raise BadInputError("api_authentication is kubernetes and api_token_file is set; keep one")
    _check_oidc(settings)
    if settings.notify_url is not None and settings.notify_url_file is not None:
        raise BadInputError("notify_url and notify_url_file are both set; keep one")
    notifies = settings.notify_url is not None or settings.notify_url_file is not None
    if notifies and settings.notify_format is NotifyFormat.GENERIC and settings.notify_secret_file is None:
        raise BadInputError(
            "notify_format generic needs notify_secret_file: without it receivers cannot verify the sender"
        )
    if (settings.price_core_hour is None) != (settings.price_gibibyte_hour is None):
        raise BadInputError("price_core_hour and price_gibibyte_hour belong together; set both or neither")
    if settings.currency != DOLLAR and settings.price_core_hour is None:
        raise BadInputError("currency needs price_core_hour and price_gibibyte_hour: the list prices are in dollars")
    return settings


def _check_namespaces(settings: Settings) -> None:
    for name in sorted(settings.included_namespaces):
        if matches_any_pattern(settings.excluded_namespaces, name):
            fix = f"write !{name} there" if name in PROTECTED_NAMESPACES else "remove it from one of the two"
            raise BadInputError(f"included_namespaces: {name} is among excluded_namespaces as well; {fix}")


def _check_prometheus_credentials(settings: Settings) -> None:
    kinds = ("prometheus_identity", "prometheus_token_file", "prometheus_user")
    stated = [name for name in kinds if getattr(settings, name) is not None]
    if len(stated) > 1:
        raise BadInputError(f"{stated[0]} and {stated[1]} are both set; keep one")
    if settings.prometheus_aws_region is not None and settings.prometheus_identity is not CloudProvider.AWS:
        raise BadInputError("prometheus_aws_region is set without prometheus_identity = aws; set both or neither")
    if settings.prometheus_password is not None and settings.prometheus_password_file is not None:
        raise BadInputError("prometheus_password and prometheus_password_file are both set; keep one")


def _check_oidc(settings: Settings) -> None:
    if settings.oidc_issuer_url is None:
        return
    if settings.api_authentication is not ApiAuthentication.KUBERNETES:
        raise BadInputError("oidc_issuer_url needs api_authentication = kubernetes: RBAC says who may do what")
    for name in ("oidc_client_id", "oidc_redirect_url"):
        if getattr(settings, name) is None:
            raise BadInputError(f"oidc_issuer_url also needs {name}")
    if not (settings.oidc_redirect_url or "").endswith("/signed-in"):
        raise BadInputError(
            f"oidc_redirect_url: {settings.oidc_redirect_url} does not end with /signed-in; "
            "write e.g. https://cruise.example.com/signed-in"
        )
    if "openid" not in settings.oidc_scopes.split():
        raise BadInputError("oidc_scopes lacks openid, which ID tokens need")


PREFIX = "CRUISE_"
# Kubernetes sets the addresses of Services in the environment of containers, such as CRUISE_WEBHOOK_SERVICE_HOST for a
# Service cruise-webhook. They are not settings.
_SERVICE_LINK = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$"
)
# Settings that what-if runs can change; not the mode, because a replay has mode full.
REPLAYED_KEYS = sorted({field.name for field in fields(Policy)} & SETTING_TYPES.keys() - {"mode"})
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


def load_settings(environment: Mapping[str, str], config: Path | None = None) -> Settings:
    """Load all settings; BadInputError names place, key and a valid example."""
    values = {} if config is None else _from_file(config)
    values |= _from_environment(environment)
    return check_contradictions(Settings(**values))


def change_settings(settings: Settings, texts: Mapping[str, str]) -> Settings:
    """Return settings with some keys replaced for a replay; BadInputError."""
    values: dict[str, Any] = {}
    for key, text in texts.items():
        if key not in REPLAYED_KEYS:
            near = get_close_matches(key, REPLAYED_KEYS, n=1, cutoff=0.0)
            raise BadInputError(f"{key}: not a setting that a replay uses; did you mean {near[0]}?")
        values[key] = _read(key, key, text)
    return check_contradictions(replace(settings, **values))


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or _is_service_link(name, text):
            continue
        key = name.removeprefix(PREFIX).lower()
        if key not in SETTING_TYPES or name != name.upper():
            raise BadInputError(f"{name}: no such setting; did you mean {PREFIX}{find_nearest_key(key).upper()}?")
        # Manifests set unused variables to an empty text.
        if text.strip():
            values[key] = _read(name, key, text)
    return values


def _is_service_link(name: str, text: str) -> bool:
    return bool(_SERVICE_LINK.search(name)) or (name.endswith("_PORT") and bool(_SERVICE_ADDRESS.match(text)))


def _from_file(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
        raise BadInputError(
            f'{path}: not TOML: {problem[:1].lower()}{problem[1:]}; write e.g. max_age = "15m"'
        ) from error
    values = {}
    for key, value in document.items():
        if key not in SETTING_TYPES:
            raise BadInputError(f"{path}: {key}: no such setting; did you mean {find_nearest_key(key)}?")
        values[key] = _read(f"{path}: {key}", key, value)
    return values


def _read(place: str, key: str, value: object) -> object:
    value_type = SETTING_TYPES[key]
    try:
        return value_type.read(value)
    except InvalidValueError as error:
        raise BadInputError(f"{place}: {' '.join(str(error).split())}; write e.g. {value_type.example}") from error
    except ValueError as error:
        line = " ".join(str(value).split())[:60]
        # An address may contain a password.
        shown = "the value" if value_type.secret or "@" in line else f'"{line}"' if isinstance(value, str) else line
        raise BadInputError(
            f"{place}: {shown} is not {value_type.description}; write e.g. {value_type.example}"
        ) from error


def find_nearest_key(key: str) -> str:
    """Return the known key that is most similar to an unknown one."""
    [found] = get_close_matches(key.lower().replace("-", "_"), SETTING_TYPES, n=1, cutoff=0.0)
    return found
