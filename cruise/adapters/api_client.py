"""The webhook that people are notified by: one POST, signed so that a receiver can tell cruise's from anybody's."""

import asyncio
import hmac
import json
import re
import ssl
from collections.abc import Mapping
from hashlib import sha256
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from cruise import __version__
from cruise.errors import BadInputError, RefusedError, UnavailableError

# Secrets at the edge: tokens from files, which the process list does not show, and addresses without a password.

# User and password in an address.
_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")


def strip_credentials(text: str) -> str:
    """Take user and password out of every address in a text."""
    return _USER_INFO.sub("", text)


def read_token_file(path: Path, name: str) -> str:
    """Return the token in a file without the white space around it; `name` says what the file is.

    Raises BadInputError, which never quotes what the file holds.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise BadInputError(f"{name} {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{name} {path} holds no token: byte {error.start} is not ASCII") from error
    if not token or not token.isprintable():
        raise BadInputError(f"{name} {path} holds no token: a token is one line of printable characters")
    return token


# The pause of a cruise that is reached over HTTP only, through its own API.

_API_TIMEOUT_SECONDS = 10.0
_MAX_API_ANSWER_BYTES = 64 * 1024
_LONGEST_QUOTE = 160


class _RejectApiRedirects(HTTPRedirectHandler):
    """The token is for the server that was named and for no other."""

    def redirect_request(self, *_: object) -> None:
        return None


class ApiClient:
    """Speaks to one server's API; blocks. Raises BadInputError for what the caller can mend, else Unavailable."""

    def __init__(self, server: str, token_file: Path | None) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise BadInputError(f'--server: "{server}" is not an address; write e.g. https://cruise.example.org')
        self.address = server.rstrip("/")
        self._token = read_token_file(token_file, "the token file") if token_file is not None else None
        context = ssl.create_default_context()
        self._opener = build_opener(_RejectApiRedirects(), HTTPSHandler(context=context))

    def is_paused(self) -> bool:
        """Tell whether every write is stopped."""
        return self._pause("GET")

    def set_paused(self, wanted: bool) -> None:
        """Stop every write, or let them go on."""
        if self._token is None:
            raise BadInputError("writing through --server needs its token: give --token-file, or set api_token_file")
        if self._pause("PUT" if wanted else "DELETE") is not wanted:
            raise UnavailableError(f"{self.address} took the request and is as it was")

    def _pause(self, method: str) -> bool:
        document = self._ask(method, "/api/v1/pause")
        paused = document.get("paused")
        if not isinstance(paused, bool):
            raise BadInputError(
                f"{self.address} answered with something else than cruise's API: is it the right address?"
            )
        return paused

    def _ask(self, method: str, path: str) -> Mapping[str, object]:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = Request(f"{self.address}{path}", method=method, headers=headers)
        try:
            with self._opener.open(request, timeout=_API_TIMEOUT_SECONDS) as response:
                return _document(response.read(_MAX_API_ANSWER_BYTES))
        except HTTPError as error:
            raise self._refusal(error) from error
        except URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                raise BadInputError(
                    f"{self.address}: TLS failed: {error.reason}; set SSL_CERT_FILE to its CA"
                ) from error
            raise UnavailableError(f"{self.address} cannot be reached: {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{self.address} cannot be reached: {str(error) or type(error).__name__}") from error

    def _refusal(self, error: HTTPError) -> BadInputError | UnavailableError:
        said = _document(error.read(_MAX_API_ANSWER_BYTES)).get("error")
        words = " ".join(said.split())[:_LONGEST_QUOTE] if isinstance(said, str) else error.reason
        kind = UnavailableError if error.code >= 500 else BadInputError
        return kind(f"{self.address} refused ({error.code}): {words}")


def _document(body: bytes) -> Mapping[str, object]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


_NOTIFY_TIMEOUT_SECONDS = 10.0
_MAX_RECEIVER_ANSWER_BYTES = 4096
SIGNATURE_VERSION = "v1"
# A server that says so may take it later.
_LATER = frozenset({408, 425, 429})


class _RejectNotificationRedirects(HTTPRedirectHandler):
    """A message is for the address that was named and for no other."""

    def redirect_request(self, *_: object) -> None:
        return None


class NotificationWebhook:
    """Posts to one address; nothing that is raised quotes it, as it may hold a secret.

    Raises BadInputError at once for an address without TLS that is not on loopback.
    """

    def __init__(self, url: str, secret: bytes | None) -> None:
        check_notification_url(url)
        self._url = url
        self._secret = secret
        self.host = urlsplit(url).hostname or ""
        context = ssl.create_default_context()
        # On loopback there is no proxy on the way.
        proxies = [ProxyHandler({})] if _is_loopback(self.host) else []
        self._opener = build_opener(_RejectNotificationRedirects(), HTTPSHandler(context=context), *proxies)

    async def post(self, body: bytes, key: str, at: int) -> None:
        """Send a message, `key` its own, signed at a Unix time.

        Raises Refused where sending it again would not help, Unavailable where it might.
        """
        await asyncio.to_thread(self._post, body, key, at)

    def _post(self, body: bytes, key: str, at: int) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": f"cruise/{__version__}"}
        if self._secret is not None:
            headers |= sign_body(self._secret, body, key, at)
        request = Request(self._url, data=body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=_NOTIFY_TIMEOUT_SECONDS) as answer:
                answer.read(_MAX_RECEIVER_ANSWER_BYTES)
        except HTTPError as error:
            error.close()
            said = f"{self.host} answered with {error.code}"
            if error.code >= 500 or error.code in _LATER:
                raise UnavailableError(said) from None
            raise RefusedError(said, str(error.code)) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise UnavailableError(f"{self.host} cannot be reached: {type(error).__name__}") from None


def sign_body(secret: bytes, body: bytes, key: str, at: int) -> Mapping[str, str]:
    """Return the headers that prove who sent a body: over version, time, key and body, by HMAC-SHA256.

    A receiver refuses times that are over five minutes off, and keys that it has seen since.
    """
    text = f"{SIGNATURE_VERSION}:{at}:{key}:".encode() + body
    return {
        "X-Cruise-Timestamp": str(at),
        "X-Cruise-Id": key,
        "X-Cruise-Signature": f"{SIGNATURE_VERSION}={hmac.new(secret, text, sha256).hexdigest()}",
    }


def check_notification_url(url: str) -> None:
    """Refuse what would send messages in the clear beyond this machine. Raises BadInputError, which does not quote it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, None
    if parts is None or parts.scheme not in ("http", "https") or not host:
        raise BadInputError("notify_url is not an address; write e.g. https://hooks.example.com/…")
    if parts.username is not None or parts.password is not None:
        raise BadInputError("notify_url holds a user or a password; leave them out")
    if parts.scheme == "http" and not _is_loopback(host):
        raise BadInputError("notify_url is without TLS and not on this machine; write https://…")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
