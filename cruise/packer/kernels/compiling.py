"""How kernels are compiled: without the interpreter's lock, and kept on disk where the disk allows it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
T = TypeVar("T")


def kernel(function: Callable[P, T]) -> Callable[P, T]:
    """Compile at the first call.

    The compiled form is cached beside the source or in NUMBA_CACHE_DIR; where neither can be written, each process
    compiles anew.
    """
    return _compiled(function, {"nogil": True, "error_model": "numpy"})


def lean(function: Callable[P, T]) -> Callable[P, T]:
    """Compile at the first call a kernel that allocates nothing.

    It may then go without reference counts, whose atomic increments on every array of a tuple cost a proposal of
    the annealer 80 % of its time.
    """
    return _compiled(function, {"nogil": True, "error_model": "numpy", "_nrt": False})


def inlined(function: Callable[P, T]) -> Callable[P, T]:
    """Compile as a part of its callers, a kernel that allocates nothing.

    Calling it would copy every array's description: put, take and the proposals as such parts make the annealer twice
    as fast, and spare a third of the compiling.
    """
    return _compiled(function, {"nogil": True, "error_model": "numpy", "_nrt": False, "forceinline": True})


def _compiled(function: Callable[P, T], options: dict[str, object]) -> Callable[P, T]:
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        dispatcher = numba.njit(**options)(function)
    # Numba compiles a function once more for each constant that a kernel calls it with: a third of all compiling.
    template = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, kws: template(tuple(map(numba.types.unliteral, args)), kws)
    compiled: Callable[P, T] = dispatcher
    return compiled
