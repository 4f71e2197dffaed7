"""Columns of numbers: their types, whole numbers capped so that sums stay exact, and rounding up to whole units."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]
Float32Array = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

# A pebibyte, or a million million cores: over any machine, and thousands of such values still add up in 64 bits.
UNBOUNDED = 1 << 50
# Far under the least share that is not zero, far over the rounding error of a product of doubles.
_ROUNDING = 1e-9


def whole_numbers(values: Sequence[int]) -> Int64Array:
    """Return numbers of any size as a column, those beyond ± `UNBOUNDED` brought back to it."""
    try:
        return capped(np.array(values, dtype=np.int64))
    except OverflowError:
        return np.array([max(-UNBOUNDED, min(value, UNBOUNDED)) for value in values], dtype=np.int64)


def capped(values: Int64Array) -> Int64Array:
    """Return a column with what is beyond ± `UNBOUNDED` brought back to it, so that sums cannot overflow."""
    return np.minimum(np.maximum(values, -UNBOUNDED), UNBOUNDED)


def round_up(values: NDArray[np.float64], unit: int) -> Int64Array:
    """Round up to whole units, forgiving the rounding error of the arithmetic before."""
    return np.ceil(values / unit - _ROUNDING).astype(np.int64) * unit


def round_up_whole(values: Int64Array, unit: int) -> Int64Array:
    """Round whole numbers up to whole units, exactly."""
    return -(-values // unit) * unit
