"""The webhook that people are notified by: one POST, signed so that a receiver can tell cruise's from anybody's."""

import asyncio
import hmac
import ssl
from collections.abc import Mapping
from hashlib import sha256
from http.client import HTTPException
from ipaddress import ip_address
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from cruise import __version__
from cruise.errors import BadInput, Refused, Unavailable

_SECONDS = 10.0
_LONGEST_ANSWER_BYTES = 4096
SIGNED_VERSION = "v1"
# A server that says so may take it later.
_LATER = frozenset({408, 425, 429})


class _NoRedirects(HTTPRedirectHandler):
    """A message is for the address that was named and for no other."""

    def redirect_request(self, *_: object) -> None:
        return None


class NotifyWebhook:
    """Posts to one address; nothing that is raised quotes it, as it may hold a secret.

    Raises BadInput at once for an address without TLS that is not on loopback.
    """

    def __init__(self, url: str, secret: bytes | None) -> None:
        check_address(url)
        self._url = url
        self._secret = secret
        self.host = urlsplit(url).hostname or ""
        context = ssl.create_default_context()
        # On loopback there is no proxy on the way.
        proxies = [ProxyHandler({})] if _is_loopback(self.host) else []
        self._opener = build_opener(_NoRedirects(), HTTPSHandler(context=context), *proxies)

    async def post(self, body: bytes, key: str, at: int) -> None:
        """Send a message, `key` its own, signed at a Unix time.

        Raises Refused where sending it again would not help, Unavailable where it might.
        """
        await asyncio.to_thread(self._post, body, key, at)

    def _post(self, body: bytes, key: str, at: int) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": f"cruise/{__version__}"}
        if self._secret is not None:
            headers |= signed(self._secret, body, key, at)
        request = Request(self._url, data=body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                answer.read(_LONGEST_ANSWER_BYTES)
        except HTTPError as error:
            error.close()
            said = f"{self.host} answered with {error.code}"
            if error.code >= 500 or error.code in _LATER:
                raise Unavailable(said) from None
            raise Refused(said, str(error.code)) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise Unavailable(f"{self.host} cannot be reached: {type(error).__name__}") from None


def signed(secret: bytes, body: bytes, key: str, at: int) -> Mapping[str, str]:
    """Return the headers that prove who sent a body: over version, time, key and body, by HMAC-SHA256.

    A receiver refuses times that are over five minutes off, and keys that it has seen since.
    """
    text = f"{SIGNED_VERSION}:{at}:{key}:".encode() + body
    return {
        "X-Cruise-Timestamp": str(at),
        "X-Cruise-Id": key,
        "X-Cruise-Signature": f"{SIGNED_VERSION}={hmac.new(secret, text, sha256).hexdigest()}",
    }


def check_address(url: str) -> None:
    """Refuse what would send messages in the clear beyond this machine. Raises BadInput, which does not quote it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, None
    if parts is None or parts.scheme not in ("http", "https") or not host:
        raise BadInput("notify_url is not an address; write e.g. https://hooks.example.com/…")
    if parts.username is not None or parts.password is not None:
        raise BadInput("notify_url holds a user or a password; leave them out")
    if parts.scheme == "http" and not _is_loopback(host):
        raise BadInput("notify_url is without TLS and not on this machine; write https://…")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
