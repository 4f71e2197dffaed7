"""Columns of numbers: their types, capping so that sums stay exact, and rounding up.

Apart from `resources`, so that the command line starts without numpy.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
Float64Array = NDArray[np.float64]
Float32Array = NDArray[np.float32]
BoolArray = NDArray[np.bool_]

# A pebibyte or 10^12 cores: above any machine, and thousands of them add up in 64 bits.
UNBOUNDED = 1 << 50
# Far below any share, far above the rounding error of a product of doubles.
_ROUNDING = 1e-9


def convert_to_int64(values: Sequence[int]) -> Int64Array:
    """Return numbers of any size as a column, capped to ± `UNBOUNDED`."""
    try:
        return cap_against_overflow(np.array(values, dtype=np.int64))
    except OverflowError:
        return np.array([max(-UNBOUNDED, min(value, UNBOUNDED)) for value in values], dtype=np.int64)


def cap_against_overflow(values: Int64Array) -> Int64Array:
    """Return a column capped to ± `UNBOUNDED`, so that sums cannot overflow."""
    return np.minimum(np.maximum(values, -UNBOUNDED), UNBOUNDED)


def round_up(values: NDArray[np.float64], unit: int) -> Int64Array:
    """Round up to whole units, tolerating rounding errors of earlier arithmetic."""
    return np.ceil(values / unit - _ROUNDING).astype(np.int64) * unit


def round_up_integers(values: Int64Array, unit: int) -> Int64Array:
    """Round integers up to whole units, exactly."""
    return -(-values // unit) * unit
