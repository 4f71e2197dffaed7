"""Attacks on the webhook: each sends requests to a port for some seconds and returns what it received.

`python -m benchmarks.attacks NAME PORT SECONDS` runs one.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from benchmarks.open_loop import as_request
from benchmarks.steady_reviews import create_trusting_context
from benchmarks.webhook_world import make_reviews

Attack = Callable[[int, float], Awaitable[str]]
Json = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_CONNECTIONS = 4
_HEAD = b"POST /mutate HTTP/1.1\r\nHost: localhost\r\n"
_MEBIBYTE = 1 << 20


class _Client:
    """One connection, which the server may end at any time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, piece: bytes) -> None:
        self.writer.write(piece)
        await self.writer.drain()

    async def answer(self) -> tuple[str, bytes]:
        """Return status and body; `closed` if the server closed the connection."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return head.split()[1].decode(), await self.reader.readexactly(length)
        except (OSError, EOFError):
            return "closed", b""

    @property
    def open(self) -> bool:
        return not self.reader.at_eof() and not self.writer.is_closing()


async def _connect(port: int) -> _Client:
    return _Client(*await asyncio.open_connection("127.0.0.1", port, ssl=create_trusting_context()))


def _hostile(change: Callable[[Json, random.Random], None]) -> Attack:
    """Send the review of a changed pod repeatedly, with another change each time."""

    async def attack(port: int, seconds: float) -> str:
        generator, until = random.Random(1), time.perf_counter() + seconds
        usual = json.loads(make_reviews(1)[0])
        longest, answers = 0.0, Counter[str]()

        async def send() -> None:
            nonlocal longest
            client: _Client | None = None
            while time.perf_counter() < until:
                change(usual["request"]["object"], generator)
                request = as_request(json.dumps(usual, separators=(",", ":")).encode())
                try:
                    client = client or await _connect(port)
                except OSError:
                    answers["no connection"] += 1
                    continue
                started = time.perf_counter()
                with suppress(OSError):
                    await client.send(request)
                status, body = await client.answer()
                longest = max(longest, time.perf_counter() - started)
                warned = "unchanged, with a warning" if b"warnings" in body else "decided"
                answers[warned if status == "200" else status] += 1
                client = client if status == "200" and client.open else None

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CONNECTIONS):
                tasks.create_task(send())
        [(most, _)] = answers.most_common(1)
        return f"{most}; longest {longest * 1000:,.0f} ms"

    return attack


def _terms(count: int) -> Callable[[Json, random.Random], None]:
    def change(pod: Json, generator: random.Random) -> None:
        value = f"{generator.random()}"
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]}
        pod["spec"]["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [term] * count}}}

    return change


def _annotations(count: int) -> Callable[[Json, random.Random], None]:
    def change(pod: Json, generator: random.Random) -> None:
        pod["metadata"]["annotations"] = {f"key-{number}-{generator.random()}": "" for number in range(count)}

    return change


def _containers(pod: Json, generator: random.Random) -> None:
    names = [f"c-{number}-{generator.randrange(1000)}" for number in range(5000)]
    pod["spec"]["containers"] = [{"name": name, "image": "x"} for name in names]


def _resource(pod: Json, generator: random.Random) -> None:
    name = f"attachable-volumes-{generator.random()}{'x' * 900_000}"
    pod["spec"]["containers"][0]["resources"]["limits"] = {name: "1"}


async def _sent(port: int, beginning: bytes, piece: bytes, total: int) -> str:
    """Send pieces up to a total size, or until the server closes the connection."""
    client, sent = await _connect(port), len(beginning)
    try:
        await client.send(beginning)
        while sent < total and client.open:
            await client.send(piece)
            sent += len(piece)
        if sent >= total:
            await client.send(b"\r\n")
    except OSError:
        pass
    status, _ = await client.answer()
    client.writer.transport.abort()
    return f"{status} after {sent / _MEBIBYTE:.1f} MiB"


async def _small_headers(port: int, seconds: float) -> str:
    return await _sent(port, _HEAD, b"x: y\r\n" * 10_000, 12 * _MEBIBYTE)


async def _large_headers(port: int, seconds: float) -> str:
    return await _sent(port, _HEAD, b"x: " + b"y" * _MEBIBYTE + b"\r\n", 200 * _MEBIBYTE)


async def _handshakes(port: int, seconds: float) -> str:
    clients = [_Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(192)]
    watching = [asyncio.ensure_future(client.reader.read()) for client in clients]
    await asyncio.wait(watching, timeout=seconds)
    still = sum(not one.done() for one in watching)
    for client in clients:
        client.writer.transport.abort()
    await asyncio.wait(watching)
    return f"{still} of 192 open after {seconds:g} s"


async def _bodies(port: int, seconds: float) -> str:
    clients = [await _connect(port) for _ in range(30)]
    body = b" " * (8 * _MEBIBYTE - 1)

    async def send(client: _Client) -> None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                await client.send(_HEAD + b"Content-Length: %d\r\n\r\n" % (8 * _MEBIBYTE) + body)

    await asyncio.gather(*map(send, clients))
    answers = Counter[str]()
    for client in clients:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                answers[(await client.answer())[0]] += 1
        client.writer.transport.abort()
    waiting = len(clients) - answers.total()
    return ", ".join([*(f"{count} × {status}" for status, count in sorted(answers.items())), f"{waiting} × nothing"])


async def _silent(port: int, seconds: float) -> str:
    until = time.perf_counter() + seconds
    clients: list[_Client] = []
    while len(clients) < 1000 and time.perf_counter() < until:
        clients.append(await _connect(port))
    await asyncio.sleep(max(0.0, until - time.perf_counter()))
    still = sum(client.open for client in clients)
    for client in clients:
        client.writer.transport.abort()
    return f"{still} of {len(clients)} open at the end"


ATTACKS: Mapping[str, Attack] = {
    "20,000 affinity terms": _hostile(_terms(20_000)),
    "300 affinity terms, each with its value": _hostile(_terms(300)),
    "60,000 annotations": _hostile(_annotations(60_000)),
    "900 annotations": _hostile(_annotations(900)),
    "5,000 containers": _hostile(_containers),
    "resources with names of 900 KiB": _hostile(_resource),
    "12 MiB of small headers": _small_headers,
    "200 MiB of large headers": _large_headers,
    "192 handshakes begun": _handshakes,
    "30 unfinished bodies of 8 MiB": _bodies,
    "1,000 silent connections": _silent,
}


async def _main() -> None:
    name, port, seconds = sys.argv[1:]
    print(await ATTACKS[name](int(port), float(seconds)))


if __name__ == "__main__":
    asyncio.run(_main())
