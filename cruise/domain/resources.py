"""CPU and memory, in whole millicores and bytes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MEBIBYTE = 1 << 20


class ResourceName(StrEnum):
    """The two resources that cruise sizes."""

    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Resources:
    """CPU and memory, absolute or as a difference."""

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

    def at_least(self, other: "Resources") -> "Resources":
        """Return the larger value of each resource."""
        return Resources(
            max(self.cpu_millicores, other.cpu_millicores),
            max(self.memory_bytes, other.memory_bytes),
        )

    def at_most(self, other: "Resources") -> "Resources":
        """Return the smaller value of each resource."""
        return Resources(
            min(self.cpu_millicores, other.cpu_millicores),
            min(self.memory_bytes, other.memory_bytes),
        )

    def fits_in(self, room: "Resources") -> bool:
        """Tell whether both resources are within `room`."""
        return self.cpu_millicores <= room.cpu_millicores and self.memory_bytes <= room.memory_bytes

    def growth_fits_in(self, room: "Resources") -> bool:
        """Tell whether what is above zero is within `room`: a resource that does not grow needs none."""
        return (self.cpu_millicores <= 0 or self.cpu_millicores <= room.cpu_millicores) and (
            self.memory_bytes <= 0 or self.memory_bytes <= room.memory_bytes
        )


@dataclass(frozen=True, slots=True)
class StatedResources:
    """CPU and memory as a container states them: either may be absent (None)."""

    cpu_millicores: int | None = None
    memory_bytes: int | None = None

    def get(self, resource: ResourceName) -> int | None:
        """Return one resource's value, None where it is absent."""
        return self.cpu_millicores if resource is ResourceName.CPU else self.memory_bytes

    @property
    def resources(self) -> Resources:
        """The same with nothing counted for what is absent."""
        return Resources(self.cpu_millicores or 0, self.memory_bytes or 0)

    def with_defaults(self, other: "StatedResources") -> "StatedResources":
        """Return what is stated here, and what the other states where nothing is."""
        if self.cpu_millicores is not None and self.memory_bytes is not None:
            return self
        return StatedResources(
            other.cpu_millicores if self.cpu_millicores is None else self.cpu_millicores,
            other.memory_bytes if self.memory_bytes is None else self.memory_bytes,
        )

    @property
    def is_empty(self) -> bool:
        """Tell whether neither resource is stated (a stated zero counts as absent, as in Kubernetes' QoS rules)."""
        return not self.cpu_millicores and not self.memory_bytes


NO_RESOURCES = Resources()
NOTHING_STATED = StatedResources()


def round_up_to_mebibytes(size_bytes: int) -> int:
    """Round up to whole mebibytes."""
    return -(-size_bytes // MEBIBYTE) * MEBIBYTE


def is_extended(resource: str) -> bool:
    """Tell whether a resource is one that devices offer, such as GPUs: not memory of any kind, CPU or local storage."""
    return resource not in ("cpu", "memory", "ephemeral-storage", "pods") and not resource.startswith(
        ("hugepages-", "attachable-volumes-")
    )


# Text of others inside of a message.

_LONGEST = 40


def quote_text(text: str) -> str:
    """Quote a text, cut where it is longer than what was meant could be."""
    return f'"{text}"' if len(text) <= _LONGEST else f'"{text[:_LONGEST]}…"'


# Kubernetes quantities: read exactly, rounded up once, written in their shortest usual form.

LARGEST_QUANTITY = (1 << 63) - 1
"""Kubernetes caps every quantity here."""

_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))([A-Za-z]{0,2}|[eE][+-]?[0-9]{1,9})", re.ASCII)
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIXES = ("", *_POWERS_OF_TWO)
# Text longer than this is no amount of anything, and would only cost time.
_LONGEST_TEXT = 100
# Beyond this any number of so few digits is above the cap, or rounds to one.
_LARGEST_EXPONENT = 2 * _LONGEST_TEXT


class QuantityError(ValueError):
    """Text that is no quantity; the message quotes it and shows the form."""


@lru_cache(maxsize=1 << 16)
def parse_cpu_millicores(text: str) -> int:
    """Read a CPU quantity, rounded up to whole millicores as Kubernetes' `MilliValue` does."""
    return _rounded_up(text, 3)


@lru_cache(maxsize=1 << 16)
def parse_memory_bytes(text: str) -> int:
    """Read a memory quantity, or a plain count, rounded up to whole units as Kubernetes' `Value` does."""
    return _rounded_up(text, 0)


def _rounded_up(text: str, extra_power_of_ten: int) -> int:
    """Read `text` times a power of ten, rounded away from zero and capped."""
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise _not_a_quantity(text)
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
        raise _not_a_quantity(text)
    scale: int = 10 ** abs(power)
    value = value * scale if power >= 0 else -(-value // scale)
    value = min(value, LARGEST_QUANTITY)
    return -value if sign == "-" else value


def _not_a_quantity(text: str) -> QuantityError:
    return QuantityError(f"{quote_text(text)} is not a quantity; write e.g. 500m, 2 or 1.5Gi")


@lru_cache(maxsize=1 << 12)
def format_cpu_millicores(millicores: int) -> str:
    """Write CPU in whole cores where they are whole, else in millicores: `2`, `130m`."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


@lru_cache(maxsize=1 << 12)
def format_memory_bytes(memory_bytes: int) -> str:
    """Write memory with the largest binary suffix that is exact: `257Mi`, `16Gi`, plain bytes if none is."""
    # A power of two divides what has so many zeros at its end.
    zeros = (memory_bytes & -memory_bytes).bit_length() - 1
    thousands = min(max(zeros, 0) // 10, len(_BINARY_SUFFIXES) - 1)
    return f"{memory_bytes >> 10 * thousands}{_BINARY_SUFFIXES[thousands]}"


# Columns of numbers: their types, whole numbers capped so that sums stay exact, and rounding up to whole units.

Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]
Float32Array = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

# A pebibyte, or a million million cores: over any machine, and thousands of such values still add up in 64 bits.
UNBOUNDED = 1 << 50
# Far under the least share that is not zero, far over the rounding error of a product of doubles.
_ROUNDING = 1e-9


def convert_to_int64(values: Sequence[int]) -> Int64Array:
    """Return numbers of any size as a column, those beyond ± `UNBOUNDED` brought back to it."""
    try:
        return cap_to_bounds(np.array(values, dtype=np.int64))
    except OverflowError:
        return np.array([max(-UNBOUNDED, min(value, UNBOUNDED)) for value in values], dtype=np.int64)


def cap_to_bounds(values: Int64Array) -> Int64Array:
    """Return a column with what is beyond ± `UNBOUNDED` brought back to it, so that sums cannot overflow."""
    return np.minimum(np.maximum(values, -UNBOUNDED), UNBOUNDED)


def round_up(values: NDArray[np.float64], unit: int) -> Int64Array:
    """Round up to whole units, forgiving the rounding error of the arithmetic before."""
    return np.ceil(values / unit - _ROUNDING).astype(np.int64) * unit


def round_up_integers(values: Int64Array, unit: int) -> Int64Array:
    """Round whole numbers up to whole units, exactly."""
    return -(-values // unit) * unit
