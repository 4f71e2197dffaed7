"""Runs a server in a separate process, so that its memory and work are not measured."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def serve_in_process(serve: Callable[[T, Connection], None], what: T) -> Iterator[str]:
    """Run `serve`, which sends its address through the pipe and ends when it receives a message; yield the address."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(what, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(timeout=30)
