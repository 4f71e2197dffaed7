"""Random numbers inside kernels (xorshift64*), from a state that the caller owns."""

import numpy as np
from numpy.typing import NDArray

from cruise.packer.kernels.compiling import inlined

# Typed constants: a plain int would turn the arithmetic signed, and then into floats.
_A, _B, _C = np.uint64(12), np.uint64(25), np.uint64(27)
_HALF = np.uint64(32)
_SCRAMBLE = np.uint64(0x2545F4914F6CDD1D)
_UNIT = 1.0 / 4294967296.0


@inlined
def draw(state: NDArray[np.uint64], below: int) -> int:
    """A whole number from 0 to `below` - 1; `below` is at least 1 and under 2**31."""
    x = state[0]
    x ^= x >> _A
    x ^= x << _B
    x ^= x >> _C
    state[0] = x
    return int(np.int64(((x * _SCRAMBLE) >> _HALF) * np.uint64(below) >> _HALF))


@inlined
def draw_unit(state: NDArray[np.uint64]) -> float:
    """A number in [0, 1)."""
    x = state[0]
    x ^= x >> _A
    x ^= x << _B
    x ^= x >> _C
    state[0] = x
    return float((x * _SCRAMBLE) >> _HALF) * _UNIT
