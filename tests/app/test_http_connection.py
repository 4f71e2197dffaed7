"""Limits of a listener for unknown clients: each is exceeded, and the memory held is measured."""

import asyncio
import gc
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cruise.adapters.webhook_tls.certificates import (
    create_server_context_without_certificate,
    make_key_pair,
    set_served_certificate,
)
from cruise.app.http_connection import ConnectionRejection, ListenerCounts, ListenerLimits
from cruise.app.http_server import serve_http
from cruise.interfaces.http.health import SINGLE_RESPONSE

MINUTES = 600.0
# No test waits for a time that it is not about.
PATIENT = ListenerLimits(
    header_bytes=8 << 10,
    headers=20,
    connections=16,
    body_bytes=1 << 20,
    handshake_seconds=MINUTES,
    header_seconds=MINUTES,
    body_seconds=MINUTES,
)
SOON = 0.2
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def echo(scope, receive, send):
    """Read the whole body, and return its length."""
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return
        size += len(message["body"])
        if not message["more_body"]:
            break
    body = b"%d" % size
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Client:
    """One raw connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def send(self, *pieces):
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def answer(self):
        """The status and the body of the next answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head.split()[1]), await self.reader.readexactly(length)

    async def ended(self):
        """Read until the server hangs up, in whatever way."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


@asynccontextmanager
async def serving(app=echo, tls=None, **more):
    counts = ListenerCounts()
    clients: list[Client] = []
    bounds = replace(PATIENT, **more)

    async def connect():
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        clients.append(client)
        return client

    async with asyncio.timeout(60), serve_http(app, "127.0.0.1", 0, tls=tls, bounds=bounds, counts=counts) as port:
        try:
            yield connect, counts
        finally:
            for client in clients:
                client.writer.transport.abort()


async def until(true):
    while not true():
        await asyncio.sleep(0.01)


# What comes in one read (256 KiB) with a part of the body may pass the limit, since that part is progress: the rest of
# these is another read in any case.
MORE_THAN_A_READ = 600
ENDLESS = {
    "a header without end": ([b"GET / HTTP/1.1\r\nX: ", *[b"x" * 1024] * 64], ConnectionRejection.HEADER_BYTES),
    "a header name without end": ([b"GET / HTTP/1.1\r\n", *[b"x" * 1024] * 64], ConnectionRejection.HEADER_BYTES),
    "an address without end": ([b"GET /", *[b"x" * 1024] * 64], ConnectionRejection.HEADER_BYTES),
    "a long header at once": (
        [b"GET / HTTP/1.1\r\nX: " + b"x" * 65536 + b"\r\n\r\n"],
        ConnectionRejection.HEADER_BYTES,
    ),
    "small headers without end": ([b"GET / HTTP/1.1\r\n", *[b"x: y\r\n" * 100] * 64], ConnectionRejection.HEADER_BYTES),
    "many small headers": ([b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 21 + b"\r\n"], ConnectionRejection.HEADERS),
    "long headers": ([b"GET / HTTP/1.1\r\n", *[b"x: " + b"y" * 1000 + b"\r\n"] * 15], ConnectionRejection.HEADER_BYTES),
    "trailers without end": (
        [
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
            *[b"x: y\r\n" * 171] * MORE_THAN_A_READ,
        ],
        ConnectionRejection.HEADER_BYTES,
    ),
    "one trailer without end": (
        [b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: ", *[b"x" * 1024] * MORE_THAN_A_READ],
        ConnectionRejection.HEADER_BYTES,
    ),
    "requests before any answer": ([GET * 5000], ConnectionRejection.PIPELINE),
    "no HTTP": ([b"\x16\x03\x01 and so on\r\n\r\n"], ConnectionRejection.MALFORMED),
}


@pytest.mark.parametrize("attack", ENDLESS)
async def test_what_has_no_end_is_cut(attack):
    pieces, why = ENDLESS[attack]
    async with serving() as (connect, counts):
        client = await connect()
        try:
            await client.send(*pieces)
        except ConnectionError:
            # The server hung up while this was still being sent.
            pass
        await client.ended()
        assert counts.rejected == {why: 1}


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([b"GET / HTTP/1.1\r\n", b"x: y\r\n" * 21, b"\r\n"], 431),
        ([b"nonsense\r\n\r\n"], 400),
    ],
)
async def test_the_client_is_answered_why(pieces, status):
    async with serving() as (connect, _):
        client = await connect()
        await client.send(*pieces)
        assert (await client.answer())[0] == status


async def test_what_is_within_the_bounds_is_answered_again_and_again():
    body = b"x" * 100_000
    post = b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n" + b"x: y\r\n" * 10 + b"\r\n"
    chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5\r\nhello\r\n" * 2 + b"0\r\nx: y\r\n\r\n"
    async with serving() as (connect, counts):
        client = await connect()
        for _ in range(20):
            await client.send(post, body)
            assert await client.answer() == (200, b"100000")
            await client.send(chunked)
            assert await client.answer() == (200, b"10")
        await client.send(GET * 3)
        assert [await client.answer() for _ in range(3)] == [(200, b"0")] * 3
        assert counts.body_bytes == 0
        assert not counts.rejected


async def test_no_body_waits_for_the_client_to_acknowledge_the_head():
    async with serving() as (connect, _):
        client = await connect()
        await client.send(GET)
        await client.answer()
        assert served(client).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def served(client):
    """The server's end of a connection."""
    mine = client.writer.get_extra_info("sockname")
    ends = [one for one in gc.get_objects() if isinstance(one, socket.socket) and one.fileno() >= 0]
    return next(one for one in ends if one.getsockname() != mine and _peer(one) == mine)


def _peer(end):
    with suppress(OSError):
        return end.getpeername()


SLOW = {
    "nothing": (b"", "header_seconds", ConnectionRejection.HEADER_TIME),
    "half a head": (b"GET / HT", "header_seconds", ConnectionRejection.HEADER_TIME),
    "half a second head": (GET + b"GET / HT", "header_seconds", ConnectionRejection.HEADER_TIME),
    "half a body": (b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nxx", "body_seconds", ConnectionRejection.BODY_TIME),
}


@pytest.mark.parametrize("beginning", SLOW)
async def test_the_rest_of_a_request_is_not_waited_for_for_ever(beginning):
    piece, bound, why = SLOW[beginning]
    async with serving(**{bound: SOON}) as (connect, counts):
        client = await connect()
        await client.send(piece)
        assert (b"408" in await client.ended()) == (piece != b"")
        assert counts.rejected == {why: 1}
        assert counts.body_bytes == 0


async def test_an_idle_connection_is_closed_without_a_word():
    async with serving(idle_seconds=SOON) as (connect, counts):
        client = await connect()
        await client.send(GET)
        assert await client.answer() == (200, b"0")
        assert await client.ended() == b""
        assert not counts.rejected


async def test_a_client_that_takes_no_answer_is_dropped():
    async def much(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with serving(much, body_seconds=SOON) as (connect, counts):
        client = await connect()
        client.writer.transport.pause_reading()
        await client.send(GET)
        await until(lambda: counts.rejected[ConnectionRejection.SLOW_READER] == 1)


async def test_an_answer_may_be_written_in_one_piece_unless_the_client_takes_nothing_or_leaves():
    body = b"x" * (1 << 20)
    written = []

    async def whole(scope, receive, send):
        write = scope["extensions"][SINGLE_RESPONSE]["write"]
        written.append(write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)))
        if not written[-1]:
            await echo(scope, receive, send)

    async with serving(whole, body_seconds=SOON) as (connect, counts):
        client = await connect()
        await client.send(GET * 3)
        assert [await client.answer() for _ in range(3)] == [(200, body)] * 3
        await client.send(GET[:-2] + b"Connection: close\r\n\r\n")
        assert await client.answer() == (200, b"0")
        assert await client.ended() == b""
        assert written == [True] * 3 + [False]
        deaf = await connect()
        deaf.writer.transport.pause_reading()
        while written[-1] or len(written) == 4:
            seen = len(written)
            await deaf.send(GET)
            while len(written) == seen:
                await asyncio.sleep(0.01)
        await until(lambda: counts.rejected[ConnectionRejection.SLOW_READER] == 1)


async def test_unfinished_bodies_share_a_bound_and_the_largest_are_dropped():
    size = 256 << 10
    post = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    async with serving(body_bytes=8 * size, connections=64) as (connect, counts):
        attackers = [await connect() for _ in range(30)]
        most = 0
        for attacker in attackers:
            await attacker.send(post % (8 << 20), b"x" * size)
            most = max(most, counts.body_bytes)
        await until(lambda: counts.rejected[ConnectionRejection.BODY_BYTES] >= 22)
        usual = await connect()
        await usual.send(post % 6000, b"x" * 6000)
        assert await usual.answer() == (200, b"6000")
        assert max(most, counts.body_bytes) <= 8 * size
        assert counts.rejected.keys() == {ConnectionRejection.BODY_BYTES}


async def test_clients_without_an_answer_are_disconnected_for_others():
    async with serving() as (connect, counts):
        served = await connect()
        await served.send(GET)
        assert await served.answer() == (200, b"0")
        for _ in range(100):
            attacker = await connect()
            await attacker.send(b"GET / HT")
        usual = await connect()
        await usual.send(GET)
        assert await usual.answer() == (200, b"0")
        await served.send(GET)
        assert await served.answer() == (200, b"0")
        assert counts.rejected == {ConnectionRejection.CONNECTIONS: 102 - PATIENT.connections}


async def test_a_connection_beyond_those_that_are_being_answered_is_closed():
    may_answer, asked = asyncio.Event(), []

    async def slow(scope, receive, send):
        await receive()
        asked.append(scope)
        await may_answer.wait()
        await echo(scope, receive, send)

    async with serving(slow, connections=2) as (connect, counts):
        first, second = await connect(), await connect()
        await first.send(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        await second.send(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        await until(lambda: len(asked) == 2)
        third = await connect()
        await third.send(GET)
        assert await third.ended() == b""
        assert counts.rejected == {ConnectionRejection.CONNECTIONS: 1}
        may_answer.set()


def tls_context():
    context = create_server_context_without_certificate()
    set_served_certificate(context, make_key_pair(["localhost"], datetime.now(UTC), timedelta(hours=1))[0])  # noqa: TID251
    return context


async def test_unfinished_handshakes_are_bounded_and_do_not_block_others():
    async with serving(tls=tls_context()) as (connect, counts):
        half_open = [await connect() for _ in range(192)]
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        usual = await connect()
        await usual.writer.start_tls(trusting, server_hostname="localhost")
        await usual.send(GET)
        assert await usual.answer() == (200, b"0")
        assert counts.rejected[ConnectionRejection.CONNECTIONS] == len(half_open) + 1 - PATIENT.connections


async def test_a_handshake_has_its_time():
    async with serving(tls=tls_context(), handshake_seconds=SOON) as (connect, counts):
        half_open = [await connect() for _ in range(5)]
        for one in half_open:
            assert await one.ended() == b""
        await until(lambda: counts.rejected == {ConnectionRejection.HANDSHAKE: 5})
