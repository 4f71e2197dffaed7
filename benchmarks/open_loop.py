"""Sends requests at a constant rate: `python -m benchmarks.open_loop` prints latencies.

The latency of a request counts from its scheduled time, not from when a connection was free: a stalled server delays
all requests of that time. Delays of this process count too.
"""

import asyncio
import gc
import json
import os
import ssl
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import uvloop

CLIENT_CORE = 1
_START_SECONDS = 0.5
_TIMEOUT_SECONDS = 20.0
_LONG_TURN_SECONDS = 0.001


class _Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request in progress."""

    def __init__(self, idle: "deque[_Connection]", latencies: list[float]) -> None:
        self._idle = idle
        self._latencies = latencies
        self._due = 0.0
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._idle.append(self)

    def send(self, request: bytes, due: float) -> None:
        assert self._transport is not None
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) == length:
            self._latencies.append(time.perf_counter() - self._due)
            self._received = b""
            self._idle.append(self)


def as_request(body: bytes) -> bytes:
    """Return the bytes of one POST request."""
    head = f"POST /mutate?timeout=2s HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + body


async def latencies_at(
    port: int, bodies: Sequence[bytes], rate: float, seconds: float, connections: int
) -> tuple[list[float], float]:
    """Return the latency in seconds of every response, and the time that other processes took from this one.

    This process never waits, so an iteration above a millisecond means that another process had its core.
    """
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    idle: deque[_Connection] = deque()
    latencies: list[float] = []
    for _ in range(connections):
        await loop.create_connection(lambda: _Connection(idle, latencies), "127.0.0.1", port, ssl=trusting)
    total = int(rate * seconds)
    requests = [as_request(body) for body in bodies]
    waiting: deque[tuple[int, float]] = deque()
    began = time.perf_counter() + _START_SECONDS
    sent, stood_still, last = 0, 0.0, time.perf_counter()
    while len(latencies) < total:
        now = time.perf_counter()
        stood_still += now - last if now - last > _LONG_TURN_SECONDS else 0.0
        last = now
        if now > began + seconds + _TIMEOUT_SECONDS:
            raise RuntimeError(f"{total - len(latencies)} of {total} requests were not answered")
        while sent < total and began + sent / rate <= now:
            waiting.append((sent, began + sent / rate))
            sent += 1
        while waiting and idle:
            number, due = waiting.popleft()
            idle.popleft().send(requests[number % len(requests)], due)
        # Timers are too coarse for this rate; this process has its own core.
        await asyncio.sleep(0)
    return latencies, stood_still


def main() -> None:
    """Read port, file of bodies (one per line), rate, seconds and connections; print the results as JSON."""
    port, place, rate, seconds, connections = sys.argv[1:]
    os.sched_setaffinity(0, {CLIENT_CORE})
    bodies = Path(place).read_bytes().splitlines()
    gc.disable()
    found = uvloop.run(latencies_at(int(port), bodies, float(rate), float(seconds), int(connections)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
