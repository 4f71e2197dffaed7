"""The monotonic clock inside kernels, for deadlines only."""

import numpy as np
from numba import types

from cruise.packer.kernels.compiling import kernel

_CLOCK_MONOTONIC = 1
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))


@kernel
def seconds() -> float:
    """Seconds on the same clock as Python's `time.monotonic`."""
    parts = np.empty(2, np.int64)
    _clock_gettime(np.int32(_CLOCK_MONOTONIC), parts.ctypes)
    return float(parts[0]) + float(parts[1]) * 1e-9


# Compiled at once: a kernel that allocates nothing cannot compile it on its own way.
seconds()
