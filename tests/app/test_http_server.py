"""The HTTP server: ready when bound, drains requests at shutdown, reports invalid addresses in one line."""

import asyncio
import os
import socket
import ssl
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from cruise.adapters.webhook_tls.certificates import (
    create_server_context_without_certificate,
    make_key_pair,
    set_served_certificate,
)
from cruise.app.http_server import serve_http
from cruise.errors import BadInputError

ANSWER = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}


async def hello(scope, receive, send):
    await send(ANSWER)
    await send({"type": "http.response.body", "body": b"hi"})


async def test_it_listens_once_entered_and_no_longer_after():
    async with serve_http(hello, "127.0.0.1", 0) as port, httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{port}/")
        assert (answer.status_code, answer.text) == (200, "hi")
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(f"http://127.0.0.1:{port}/")


async def test_every_address_of_a_name_has_the_same_port():
    async with serve_http(hello, "localhost", 0) as port, httpx.AsyncClient() as client:
        assert (await client.get(f"http://localhost:{port}/")).text == "hi"
        assert (await client.get(f"http://127.0.0.1:{port}/")).text == "hi"


async def test_what_is_in_flight_is_answered_and_idle_connections_are_closed():
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(scope, receive, send):
        begun.set()
        await may_end.wait()
        await hello(scope, receive, send)

    async with httpx.AsyncClient() as client, asyncio.TaskGroup() as tasks:
        async with serve_http(slow, "127.0.0.1", 0) as port:
            asking = tasks.create_task(client.get(f"http://127.0.0.1:{port}/"))
            await begun.wait()
            tasks.create_task(asyncio.sleep(0.05)).add_done_callback(lambda _: may_end.set())
    answer = asking.result()
    assert answer.text == "hi"
    assert answer.headers["connection"] == "close"


async def test_a_client_that_ignores_the_close_does_not_delay_the_shutdown():
    context = create_server_context_without_certificate()
    set_served_certificate(context, make_key_pair(["localhost"], datetime.now(UTC), timedelta(hours=1))[0])  # noqa: TID251
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    # Waiting for the client would take the server's whole patience, which this test does not have.
    async with asyncio.timeout(60), serve_http(hello, "127.0.0.1", 0, tls=context, stop_seconds=60) as port:
        plain = socket.create_connection(("127.0.0.1", port))
        deaf = await asyncio.to_thread(trusting.wrap_socket, plain)
        deaf.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await asyncio.to_thread(deaf.recv, 100)).startswith(b"HTTP/1.1 200")
        left_open = deaf.detach()
    os.close(left_open)


async def test_what_never_ends_is_given_up():
    begun = asyncio.Event()

    async def endless(scope, receive, send):
        begun.set()
        await asyncio.Event().wait()

    async with httpx.AsyncClient(timeout=30) as client, asyncio.TaskGroup() as tasks:
        async with serve_http(endless, "127.0.0.1", 0, stop_seconds=1) as port:
            asking = tasks.create_task(_failure(client, f"http://127.0.0.1:{port}/"))
            await begun.wait()
    assert asking.result() is not None


async def _failure(client, url):
    try:
        answer = await client.get(url)
    except httpx.HTTPError as error:
        return error
    return answer.status_code if answer.status_code != 200 else None


async def test_a_taken_port_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInputError, match=f"127.0.0.1:{port}: another process listens there already"):
            async with serve_http(hello, "127.0.0.1", port):
                pass


@pytest.mark.parametrize(
    ("host", "words"),
    [("no-such-host.invalid", "the host is not known"), ("192.0.2.1", "no interface of this machine")],
)
async def test_an_invalid_address_is_refused(host, words):
    with pytest.raises(BadInputError, match=words):
        async with serve_http(hello, host, 8080):
            pass
