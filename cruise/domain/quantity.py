"""Kubernetes quantities: read exactly, rounded up once, written in their shortest usual form."""

import re
from functools import lru_cache

from cruise.domain.quoting import quoted

LARGEST = (1 << 63) - 1
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
    value = min(value, LARGEST)
    return -value if sign == "-" else value


def _not_a_quantity(text: str) -> QuantityError:
    return QuantityError(f"{quoted(text)} is not a quantity; write e.g. 500m, 2 or 1.5Gi")


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
