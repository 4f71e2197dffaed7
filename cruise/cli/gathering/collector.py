"""Python's garbage collector, out of the way of commands that load a cluster once."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Do without the garbage collector.

    A command makes a million objects, none of them in cycles, and keeps them until it ends: looking through them for
    garbage again and again would cost a third of its time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
