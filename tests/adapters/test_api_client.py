"""The notification webhook against a real server: delivery, signature, and no secrets in error messages."""

import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from cruise.adapters.api_client import NotificationWebhook, check_notification_url
from cruise.errors import BadInputError, CruiseError, RefusedError, UnavailableError

SECRET = b"a secret that is long"


@contextmanager
def receiver(status: int = 200, location: str = "") -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """Yield the address of a server, and the requests that it received."""
    received: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response_only(status)
            self.send_header("Content-Length", "0")
            if location:
                self.send_header("Location", location)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook/canary8c1d", received
    finally:
        server.shutdown()
        server.server_close()


async def test_a_receiver_can_verify_sender_time_and_freshness():
    with receiver() as (url, received):
        await NotificationWebhook(url, SECRET).post(b'{"a":1}', "k1", 1700000000)
    [(headers, body)] = received
    assert (headers["X-Cruise-Timestamp"], headers["X-Cruise-Id"]) == ("1700000000", "k1")
    expected = hmac.new(SECRET, b"v1:1700000000:k1:" + body, sha256).hexdigest()
    assert headers["X-Cruise-Signature"] == f"v1={expected}"


async def test_without_a_secret_nothing_is_signed():
    with receiver() as (url, received):
        await NotificationWebhook(url, None).post(b"{}", "k", 1)
    assert not [name for name in received[0][0] if name.startswith("X-Cruise")]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (500, UnavailableError),
        (503, UnavailableError),
        (429, UnavailableError),
        (400, RefusedError),
        (404, RefusedError),
    ],
)
async def test_distinguishes_retryable_from_permanent_failures(status: int, error: type[CruiseError]):
    with receiver(status) as (url, _), pytest.raises(error) as raised:
        await NotificationWebhook(url, SECRET).post(b"{}", "k", 1)
    assert "canary" not in str(raised.value)


async def test_sends_the_message_to_no_other_server():
    with receiver() as (other, received), receiver(307, other) as (url, _):
        with pytest.raises(RefusedError):
            await NotificationWebhook(url, SECRET).post(b"{}", "k", 1)
        assert received == []


async def test_a_server_that_is_away_is_named_without_its_path():
    with pytest.raises(UnavailableError) as raised:
        await NotificationWebhook("http://127.0.0.1:9/canary8c1d", SECRET).post(b"{}", "k", 1)
    assert str(raised.value) == "127.0.0.1 cannot be reached: URLError"


@pytest.mark.parametrize(
    "url", ["https://hooks.example.com/x", "http://localhost:1/", "http://[::1]:8/", "http://127.3.0.1"]
)
def test_accepts_urls_with_tls_or_on_loopback(url: str):
    check_notification_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/canary",
        "http://10.0.0.1/canary",
        "ftp://localhost/canary",
        "canary",
        "https://canary@example.com/",
        "https://h:p/canary",
        "http://localhost.example.com/canary",
        "file:///etc/canary",
    ],
)
def test_rejects_other_urls_without_quoting_them(url: str):
    with pytest.raises(BadInputError, match="notify_url") as raised:
        check_notification_url(url)
    assert "canary" not in str(raised.value)
