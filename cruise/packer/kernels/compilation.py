"""Compiles kernels without the interpreter lock, with a cache on disk where possible."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

P = ParamSpec("P")
T = TypeVar("T")


def compile_kernel(function: Callable[P, T]) -> Callable[P, T]:
    """Compile at the first call.

    The result is cached next to the source or in NUMBA_CACHE_DIR; if neither is writable, each process compiles again.
    """
    return _compiled(function, {"nogil": True, "error_model": "numpy"})


def compile_without_allocation(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a kernel that allocates nothing, at the first call.

    It then needs no reference counts, whose atomic increments on every array of a tuple would take 80 % of an annealing
    proposal.
    """
    return _compiled(function, {"nogil": True, "error_model": "numpy", "_nrt": False})


def compile_inline(function: Callable[P, T]) -> Callable[P, T]:
    """Compile a kernel that allocates nothing as a part of its callers.

    A call would copy every array's description: inlining makes the annealer twice as fast and saves a third of the
    compilation.
    """
    return _compiled(function, {"nogil": True, "error_model": "numpy", "_nrt": False, "forceinline": True})


def _compiled(function: Callable[P, T], options: dict[str, object]) -> Callable[P, T]:
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        dispatcher = numba.njit(**options)(function)
    # Numba compiles a function again for each constant argument: a third of all compilation.
    template = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, kws: template(tuple(map(numba.types.unliteral, args)), kws)
    compiled: Callable[P, T] = dispatcher
    return compiled


# The monotonic clock in kernels, for deadlines only.

_CLOCK_MONOTONIC = 1
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))


@compile_kernel
def read_monotonic_seconds() -> float:
    """Return seconds on the clock of `time.monotonic`."""
    parts = np.empty(2, np.int64)
    _clock_gettime(np.int32(_CLOCK_MONOTONIC), parts.ctypes)
    return float(parts[0]) + float(parts[1]) * 1e-9


# Compiled at import: a kernel that allocates nothing cannot compile it while it compiles.
read_monotonic_seconds()

# Random numbers in kernels (xorshift64*), from a state that the caller owns.

# Typed constants: a plain int would make the arithmetic signed, and then floating point.
_A, _B, _C = np.uint64(12), np.uint64(25), np.uint64(27)
_HALF = np.uint64(32)
_SCRAMBLE = np.uint64(0x2545F4914F6CDD1D)
_UNIT = 1.0 / 4294967296.0


@compile_inline
def draw_integer_below(state: NDArray[np.uint64], below: int) -> int:
    """Return a whole number from 0 to `below` - 1; `below` is at least 1 and under 2**31."""
    x = state[0]
    x ^= x >> _A
    x ^= x << _B
    x ^= x >> _C
    state[0] = x
    return int(np.int64(((x * _SCRAMBLE) >> _HALF) * np.uint64(below) >> _HALF))


@compile_inline
def draw_unit_interval(state: NDArray[np.uint64]) -> float:
    """Return a number in [0, 1)."""
    x = state[0]
    x ^= x >> _A
    x ^= x << _B
    x ^= x >> _C
    state[0] = x
    return float((x * _SCRAMBLE) >> _HALF) * _UNIT
