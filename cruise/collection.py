"""Python's garbage collector, held back while there are many objects none of which is garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected(*, kept: bool = False) -> Iterator[None]:
    """Hold back the collector: it would walk hundreds of thousands of new records over and over, none of them garbage.

    Measured on 265,000 statistics: 0.7 s instead of 2.3 s. A command that makes a million objects, and keeps them until
    it ends, takes a third less time. What a page is made of is freed once it is sent; while it is there, it would set
    off walks through the whole last pass, of 0.2 s each in a cluster of 5,000 nodes. What is `kept` to the end of the
    process is not gone through afterwards either.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        if kept:
            gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def leave_to_counting() -> None:
    """Keep the collector from going through what stays for long, and is freed by reference counting.

    A walk through the objects of 150,000 pods would stop the event loop for some tenths of a second, again and again.
    """
    gc.collect()
    gc.freeze()
