"""Frozen values as plain JSON shapes: keys in camel case, names for enumerations, ISO 8601 for times."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum

Shape = dict[str, "Shape"] | list["Shape"] | str | int | float | bool | None


def shape(value: object) -> Shape:
    """Turn a value into what JSON and YAML can hold; sets come out sorted. Raises TypeError for anything else."""
    if isinstance(value, Mapping):
        return {str(_scalar(key)): shape(item) for key, item in value.items()}
    if isinstance(value, frozenset):
        return sorted((shape(item) for item in value), key=str)
    if isinstance(value, tuple | list):
        return [shape(item) for item in value]
    if is_dataclass(value):
        return {camel(entry.name): shape(getattr(value, entry.name)) for entry in fields(value)}
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
    raise TypeError(f"{type(value).__name__} has no JSON shape")


def camel(name: str) -> str:
    """Turn `memory_limit_bytes` into `memoryLimitBytes`; a trailing underscore, there to spare a keyword, goes."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
