"""CPU and memory, in whole millicores and bytes, and how far the kubelet is with a resize of them."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

MEBIBYTE = 1 << 20


class ResourceName(StrEnum):
    """The two resources that cruise sizes."""

    CPU = "cpu"
    MEMORY = "memory"

    @property
    def display_name(self) -> str:
        """The name in a sentence."""
        return "CPU" if self is ResourceName.CPU else "memory"


ROUNDING_UNIT = {ResourceName.CPU: 1, ResourceName.MEMORY: MEBIBYTE}
"""What requests are multiples of: millicores, and mebibytes in bytes."""


@dataclass(frozen=True, slots=True)
class Resources:
    """CPU and memory, as amounts or differences."""

    cpu_millicores: int = 0
    memory_bytes: int = 0

    def __add__(self, other: "Resources") -> "Resources":
        """Add resource by resource."""
        return Resources(self.cpu_millicores + other.cpu_millicores, self.memory_bytes + other.memory_bytes)

    def __sub__(self, other: "Resources") -> "Resources":
        """Subtract resource by resource; the result may be negative."""
        return Resources(self.cpu_millicores - other.cpu_millicores, self.memory_bytes - other.memory_bytes)

    def get(self, resource: ResourceName) -> int:
        """Return one resource's value."""
        return self.cpu_millicores if resource is ResourceName.CPU else self.memory_bytes

    def max_with(self, other: "Resources") -> "Resources":
        """Return the larger value of each resource."""
        return Resources(
            max(self.cpu_millicores, other.cpu_millicores),
            max(self.memory_bytes, other.memory_bytes),
        )

    def min_with(self, other: "Resources") -> "Resources":
        """Return the smaller value of each resource."""
        return Resources(
            min(self.cpu_millicores, other.cpu_millicores),
            min(self.memory_bytes, other.memory_bytes),
        )

    def fits_in(self, available: "Resources") -> bool:
        """Return whether both resources are within `available`."""
        return self.cpu_millicores <= available.cpu_millicores and self.memory_bytes <= available.memory_bytes

    def growth_fits_in(self, available: "Resources") -> bool:
        """Return whether the increases are within `available`; a resource that does not increase always fits."""
        return (self.cpu_millicores <= 0 or self.cpu_millicores <= available.cpu_millicores) and (
            self.memory_bytes <= 0 or self.memory_bytes <= available.memory_bytes
        )


@dataclass(frozen=True, slots=True)
class StatedResources:
    """CPU and memory as a container states them; None: not stated."""

    cpu_millicores: int | None = None
    memory_bytes: int | None = None

    def get(self, resource: ResourceName) -> int | None:
        """Return one resource's value, or None."""
        return self.cpu_millicores if resource is ResourceName.CPU else self.memory_bytes

    @property
    def resources(self) -> Resources:
        """The same, zero for resources that are not stated."""
        return Resources(self.cpu_millicores or 0, self.memory_bytes or 0)

    def with_defaults(self, other: "StatedResources") -> "StatedResources":
        """Return the stated values, those of `other` where none is stated."""
        if self.cpu_millicores is not None and self.memory_bytes is not None:
            return self
        return StatedResources(
            other.cpu_millicores if self.cpu_millicores is None else self.cpu_millicores,
            other.memory_bytes if self.memory_bytes is None else self.memory_bytes,
        )

    def cap_at(self, other: "StatedResources") -> "StatedResources":
        """Return the smaller values; unstated ones stay so, because a resize must not change the QoS class."""
        return StatedResources(
            _min_if_stated(self.cpu_millicores, other.cpu_millicores),
            _min_if_stated(self.memory_bytes, other.memory_bytes),
        )

    @property
    def is_empty(self) -> bool:
        """Whether neither resource is stated; zero counts as not stated, as in Kubernetes' QoS rules."""
        return not self.cpu_millicores and not self.memory_bytes


def _min_if_stated(stated: int | None, most: int | None) -> int | None:
    return stated if stated is None or most is None else min(stated, most)


NO_RESOURCES = Resources()
NOTHING_STATED = StatedResources()


def round_up_to_mebibytes(size_bytes: int) -> int:
    """Round up to whole mebibytes."""
    return -(-size_bytes // MEBIBYTE) * MEBIBYTE


def is_extended(resource: str) -> bool:
    """Return whether devices provide a resource, such as GPUs; not CPU, memory of any kind or local storage."""
    return resource not in ("cpu", "memory", "ephemeral-storage", "pods") and not resource.startswith(
        ("hugepages-", "attachable-volumes-")
    )


# User text in messages.

_LONGEST_QUOTE = 40


def quote_text(text: str) -> str:
    """Quote a text, shortened to 40 characters."""
    return f'"{text}"' if len(text) <= _LONGEST_QUOTE else f'"{text[:_LONGEST_QUOTE]}…"'


# Kubernetes quantities: parsed exactly, rounded up once, written in the shortest usual form.

LARGEST_QUANTITY = (1 << 63) - 1
"""Kubernetes caps every quantity here."""

_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))([A-Za-z]{0,2}|[eE][+-]?[0-9]{1,9})", re.ASCII)
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIXES = ("", *_POWERS_OF_TWO)
# Longer text is not a quantity and would cost time.
_LONGEST_TEXT = 100
# Beyond this a number of so few digits is above the cap, or rounds to one.
_LARGEST_EXPONENT = 2 * _LONGEST_TEXT


class QuantityError(ValueError):
    """Text that is not a quantity; the message quotes it and shows the form."""


@lru_cache(maxsize=1 << 16)
def parse_cpu_millicores(text: str) -> int:
    """Parse a CPU quantity, rounded up to whole millicores as Kubernetes' `MilliValue` does."""
    return _parse_rounded_up(text, 3)


@lru_cache(maxsize=1 << 16)
def parse_memory_bytes(text: str) -> int:
    """Parse a memory quantity or a count, rounded up to whole units as Kubernetes' `Value` does."""
    return _parse_rounded_up(text, 0)


def _parse_rounded_up(text: str, extra_power_of_ten: int) -> int:
    """Parse `text` times a power of ten, rounded away from zero and capped."""
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise _create_quantity_error(text)
    sign, whole, fraction, bare_fraction, suffix = match.groups()
    digits_after_point = bare_fraction or fraction or ""
    value = int((whole or "") + digits_after_point)
    power = extra_power_of_ten - len(digits_after_point)
    if suffix in _POWERS_OF_TWO:
        value <<= _POWERS_OF_TWO[suffix]
    elif suffix in _POWERS_OF_TEN:
        power += _POWERS_OF_TEN[suffix]
    elif suffix[1:2] and suffix[0] in "eE" and not suffix[-1].isalpha():
        power += max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, int(suffix[1:])))
    else:
        raise _create_quantity_error(text)
    scale: int = 10 ** abs(power)
    value = value * scale if power >= 0 else -(-value // scale)
    value = min(value, LARGEST_QUANTITY)
    return -value if sign == "-" else value


def _create_quantity_error(text: str) -> QuantityError:
    return QuantityError(f"{quote_text(text)} is not a quantity; write e.g. 500m, 2 or 1.5Gi")


@lru_cache(maxsize=1 << 12)
def format_cpu_millicores(millicores: int) -> str:
    """Format CPU in whole cores if possible, else in millicores: `2`, `130m`."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


@lru_cache(maxsize=1 << 12)
def format_memory_bytes(memory_bytes: int) -> str:
    """Format memory with the largest exact binary suffix, else in bytes: `257Mi`, `16Gi`."""
    # The number of trailing zero bits is the largest power of two that divides it.
    zeros = (memory_bytes & -memory_bytes).bit_length() - 1
    thousands = min(max(zeros, 0) // 10, len(_BINARY_SUFFIXES) - 1)
    return f"{memory_bytes >> 10 * thousands}{_BINARY_SUFFIXES[thousands]}"


class ResizePending(StrEnum):
    """The reason of the condition PodResizePending."""

    DEFERRED = "Deferred"
    INFEASIBLE = "Infeasible"


@dataclass(frozen=True, slots=True)
class ResizeState:
    """The resize conditions of a pod; `pending_since` is the last transition.

    `static_manager` is the resource whose static manager makes the resize infeasible; with `memory_swaps`, swap does.
    """

    pending: ResizePending | None = None
    pending_since: datetime | None = None
    in_progress: bool = False
    error: bool = False
    static_manager: ResourceName | None = None
    memory_swaps: bool = False


NO_RESIZE = ResizeState()
