"""A small HTTP server on a loopback port that returns answers which a real API server does not give on demand."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cruise.adapters.kube.client import KubernetesClient, KubernetesSettings, connect_to_kubernetes


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it came in; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class PreparedAnswer:
    """What to send back: the pieces one after the other, `pause_seconds` before each.

    `length` is what the header claims, None for a chunked answer; `end` False leaves that without its last chunk.
    `silent` sends nothing at all and hangs up.
    """

    pieces: Sequence[bytes] = (b"{}\n",)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    length: int | None = -1
    end: bool = True
    pause_seconds: float = 0
    silent: bool = False


def build_status(
    code: int, message: str = "no", headers: Mapping[str, str] | None = None, **more: Any
) -> PreparedAnswer:
    """Return a Status as the API server writes it."""
    body = {"kind": "Status", "status": "Failure", "message": message, "code": code, **more}
    return PreparedAnswer((json.dumps(body).encode(),), code, {"Content-Type": "application/json", **(headers or {})})


class AnsweringServer:
    """Answers each request by `respond`, and records the requests."""

    def __init__(self, respond: Callable[[ReceivedRequest], PreparedAnswer]) -> None:
        self._respond = respond
        self.asked: list[ReceivedRequest] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side has enough."""
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                if not await self._answer(writer, self._respond(asked)):
                    break
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, answer: PreparedAnswer) -> bool:
        if answer.silent:
            return False
        length = sum(len(piece) for piece in answer.pieces) if answer.length == -1 else answer.length
        framing = {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
        head = "".join(f"{name}: {value}\r\n" for name, value in {**answer.headers, **framing}.items())
        writer.write(f"HTTP/1.1 {answer.status} X\r\n{head}\r\n".encode())
        sent = 0
        for piece in answer.pieces:
            if answer.pause_seconds:
                await writer.drain()
                await asyncio.sleep(answer.pause_seconds)
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if length is None else piece)
            sent += len(piece)
        if length is None and answer.end:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return answer.end if length is None else sent == length


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    start = await reader.readline()
    if not start:
        return None
    method, path, _ = start.decode().split(" ")
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return ReceivedRequest(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


def answer_in_order(*answers: PreparedAnswer) -> Callable[[ReceivedRequest], PreparedAnswer]:
    """Return the answers one after the other, and then always the last one."""
    left = list(answers)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]


def kubeconfig(directory: Path, server: str, user: Mapping[str, Any] | None = None) -> Path:
    """A kubeconfig for a server without TLS; `user` is the user's entry."""
    place = directory / "kubeconfig"
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": dict(user or {})}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    place.write_text(json.dumps(config))
    return place


@asynccontextmanager
async def run_answering_server(
    respond: Callable[[ReceivedRequest], PreparedAnswer], address: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[AnsweringServer, str]]:
    """Yield a server and its URL."""
    answers = AnsweringServer(respond)
    server = await asyncio.start_server(answers.serve, address, 0, ssl=tls)
    async with server:
        yield answers, f"{'https' if tls else 'http'}://{address}:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def create_client(
    directory: Path,
    respond: Callable[[ReceivedRequest], PreparedAnswer],
    user: Mapping[str, Any] | None = None,
    timeout_seconds: float = 5,
) -> AsyncIterator[tuple[KubernetesClient, AnsweringServer]]:
    """Yield a client of a server with the given answers."""
    async with run_answering_server(respond) as (server, url):
        settings = KubernetesSettings(kubeconfig(directory, url, user), timeout_seconds=timeout_seconds)
        async with connect_to_kubernetes(settings) as client:
            yield client, server
