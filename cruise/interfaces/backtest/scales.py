"""Scales of a picture's axes: where a value lies between the ends, and which values are written beside it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_DECADES_FROM = 20
_MOST_DECADES = 5
_ZERO_ROOM = 0.16


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis: `place` returns a share of its length, `ticks` are values with what is written at them."""

    place: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]


def linear_scale(values: Sequence[float], write: Callable[[float], str], ticks: int = 5) -> Scale:
    """Return a scale from zero, or a round value below the least, to a round value above the largest.

    Where there is nothing but zero it lies at the start.
    """
    low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    if low == high:
        return Scale(lambda value: 0.0, [(0.0, write(0.0))])
    step = round_step((high - low) / ticks)
    first, last = math.floor(low / step), math.ceil(high / step)
    start, length = first * step, (last - first) * step
    return Scale(
        lambda value: (value - start) / length,
        [(at * step, write(at * step)) for at in range(first, last + 1)],
    )


def decades_scale(values: Sequence[float], write: Callable[[float], str]) -> Scale:
    """Return a scale with decades of equal lengths and a place of its own for zero; linear where that is enough."""
    positive = [value for value in values if value > 0]
    if not positive or max(positive) < _DECADES_FROM * min(positive):
        return linear_scale(values, write)
    first, last = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))

    def place(value: float) -> float:
        if value <= 0:
            return 0.0
        return _ZERO_ROOM + (1 - _ZERO_ROOM) * (math.log10(value) - first) / (last - first)

    every = -(-(last - first) // _MOST_DECADES)
    decades = [10.0**at for at in range(last, first - 1, -every)]
    return Scale(place, [(value, write(value)) for value in (0.0, *reversed(decades))])


def round_step(least: float) -> float:
    """Return the least of 1, 2, 2.5 and 5 times a power of ten that is not below a length."""
    power: float = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if power * factor >= least * (1 - 1e-9))
