"""Python's garbage collector, held back while objects are read that all stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Hold back the collector: it would walk hundreds of thousands of new records over and over, none of them garbage.

    Measured on 265,000 statistics: 0.7 s instead of 2.3 s.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
