"""Sends normal reviews at a constant rate during an attack: `python -m benchmarks.steady_reviews` prints latencies.

Connections are open before the first review, like an API server's. A connection that the server closes is opened again,
and its pending review counts as failed. Latencies count from the scheduled time.
"""

import asyncio
import json
import os
import ssl
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from benchmarks.open_loop import CLIENT_CORE, as_request

_CONNECTIONS = 16
_TIMEOUT_SECONDS = 30.0


@dataclass(slots=True)
class ReceivedAnswers:
    """The latencies of responses and the delays of sending in seconds, and the number of reviews without a response."""

    latencies: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    failed: int = 0


async def reviews_at(port: int, bodies: Sequence[bytes], rate: float, seconds: float) -> ReceivedAnswers:
    """Send reviews for some time."""
    received, due, context = ReceivedAnswers(), asyncio.Queue[tuple[float, bytes]](), create_trusting_context()
    opened = [await asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(_CONNECTIONS)]
    async with asyncio.TaskGroup() as tasks:
        tasks_sending = [tasks.create_task(_ask(port, context, one, due, received)) for one in opened]
        started = time.perf_counter()
        for number in range(int(rate * seconds)):
            at = started + number / rate
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            received.late.append(time.perf_counter() - at)
            due.put_nowait((at, as_request(bodies[number % len(bodies)])))
        await due.join()
        for task in tasks_sending:
            task.cancel()
    return received


async def _ask(
    port: int,
    context: ssl.SSLContext,
    opened: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    due: "asyncio.Queue[tuple[float, bytes]]",
    received: ReceivedAnswers,
) -> None:
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = opened
    while True:
        at, request = await due.get()
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                connection = connection or await asyncio.open_connection("127.0.0.1", port, ssl=context)
                reader, writer = connection
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
            if not head.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(head)
            received.latencies.append(time.perf_counter() - at)
        except (OSError, EOFError, TimeoutError):
            received.failed += 1
            if connection is not None:
                connection[1].transport.abort()
            connection = None
        due.task_done()


def answer_to(port: int, path: str, body: bytes) -> bytes:
    """Return the body of the response to one request."""
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, context=create_trusting_context(), timeout=_TIMEOUT_SECONDS) as answered:
        return bytes(answered.read())


def create_trusting_context() -> ssl.SSLContext:
    """Return a client context that accepts any certificate; the system's certificates would take 30 ms to read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def main() -> None:
    """Read port, file of bodies (one per line), rate and seconds; print the results as JSON."""
    port, place, rate, seconds = sys.argv[1:]
    os.sched_setaffinity(0, {CLIENT_CORE})
    received = uvloop.run(reviews_at(int(port), Path(place).read_bytes().splitlines(), float(rate), float(seconds)))
    print(json.dumps([received.latencies, received.late, received.failed]))


if __name__ == "__main__":
    main()
