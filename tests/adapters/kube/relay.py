"""A TCP relay between cruise and the API server that tests can interrupt."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.server_flags import kubeconfig_text


class Network(Enum):
    """What the relay does with bytes."""

    UP = "up"
    SILENT = "silent"  # nothing arrives on either side, every connection stays open
    DEAF = "deaf"  # requests arrive, answers do not
    DOWN = "down"  # connections break, and new ones are refused


class Relay:
    """Forwards bytes while `state` allows it; made by `relayed`."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.state = Network.UP
        self.connections = 0
        self.tunnels: list[str] = []

    def become(self, state: Network) -> None:
        """Change the network from now on."""
        self.state = state
        self._changed.set()
        self._changed = asyncio.Event()
        if state is Network.DOWN:
            for writer in self._writers:
                writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection."""
        if self.state is Network.DOWN:
            writer.transport.abort()
            return
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, far_writer}
        try:
            await asyncio.gather(self._pass(reader, far_writer, False), self._pass(far_reader, writer, True))
        finally:
            self._writers -= {writer, far_writer}
            writer.close()
            far_writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                while self.state is Network.SILENT or (self.state is Network.DEAF and answers):
                    await self._changed.wait()
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection after a CONNECT request, as a proxy does."""
        request = await reader.readuntil(b"\r\n\r\n")
        self.tunnels.append(request.split(b"\r\n")[0].decode())
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await self.serve(reader, writer)

    def close(self) -> None:
        """Break every connection."""
        self.become(Network.DOWN)


def _relay_to(control_plane: ControlPlane) -> Relay:
    parts = urlsplit(control_plane.address)
    assert parts.hostname is not None
    assert parts.port is not None
    return Relay(parts.hostname, parts.port)


@asynccontextmanager
async def run_through_proxy(control_plane: ControlPlane) -> AsyncIterator[tuple[Relay, str]]:
    """Yield a proxy that always connects to the API server, and its URL."""
    relay = _relay_to(control_plane)
    server = await asyncio.start_server(relay.tunnel, "127.0.0.1", 0)
    async with server:
        try:
            yield relay, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            relay.close()


@asynccontextmanager
async def run_through_relay(control_plane: ControlPlane, directory: Path) -> AsyncIterator[tuple[Relay, Path]]:
    """Yield a relay to the API server, and the admin's kubeconfig that leads through it."""
    relay = _relay_to(control_plane)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    kubeconfig = directory / f"relayed-{port}.kubeconfig"
    text = kubeconfig_text(f"https://127.0.0.1:{port}", control_plane.ca_file, "admin", control_plane.token("admin"))
    kubeconfig.write_text(text)
    async with server:
        try:
            yield relay, kubeconfig
        finally:
            relay.close()
