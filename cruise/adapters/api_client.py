"""HTTP clients of `--server` (cruise's own API) and of the webhook for notifications."""

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
from urllib.parse import quote, urlsplit
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from cruise import __version__
from cruise.domain.cluster import WorkloadRef
from cruise.errors import UNPARSABLE_ERRORS, BadInputError, RefusedError, UnavailableError

_TIMEOUT_SECONDS = 10.0
_MAX_ANSWER_BYTES = 64 * 1024
_MAX_MESSAGE_LENGTH = 160
# User and password in a URL.
_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")


def strip_credentials(text: str) -> str:
    """Remove user and password from every URL in a text."""
    return _USER_INFO.sub("", text)


def read_token_file(path: Path, name: str) -> str:
    """Return the token in a file, without white space around it; `name` is for messages.

    Raises BadInputError, whose message never contains the file's content.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise BadInputError(f"{name} {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{name} {path} contains no token: byte {error.start} is not ASCII") from error
    if not token or not token.isprintable():
        raise BadInputError(f"{name} {path} contains no token: a token is one line of printable characters")
    return token


class _RejectRedirects(HTTPRedirectHandler):
    """Follows no redirect: tokens and messages are only for the configured server."""

    def redirect_request(self, *_: object) -> None:
        return None


def _create_opener(*handlers: BaseHandler) -> OpenerDirector:
    return build_opener(_RejectRedirects(), HTTPSHandler(context=ssl.create_default_context()), *handlers)


class ApiClient:
    """A blocking client of another cruise's API. Raises BadInputError if the user can fix it, else UnavailableError."""

    def __init__(self, server: str, token_file: Path | None) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise BadInputError(f'--server: "{server}" is not a URL; an example is https://cruise.example.org')
        self.address = server.rstrip("/")
        self._token = read_token_file(token_file, "the token file") if token_file is not None else None
        self._opener = _create_opener()

    def is_paused(self) -> bool:
        """Return whether writes are paused."""
        return self._request_pause("GET")

    def set_paused(self, paused: bool) -> None:
        """Pause or resume writes."""
        self._require_token()
        if self._request_pause("PUT" if paused else "DELETE") is not paused:
            raise UnavailableError(f"{self.address} accepted the request, but did not change")

    def is_workload_paused(self, namespace: str, workload: WorkloadRef) -> bool:
        """Return whether a workload is paused by itself."""
        items = self._request("GET", "/api/v1/pause/workloads").get("items")
        if not isinstance(items, list):
            raise BadInputError(f"{self.address} did not answer as cruise's API does: check the address")
        key = {"namespace": namespace, "kind": workload.kind, "name": workload.name}
        return any(isinstance(one, dict) and key.items() <= one.items() for one in items)

    def set_workload_paused(self, namespace: str, workload: WorkloadRef, paused: bool) -> None:
        """Pause or resume a workload."""
        self._require_token()
        path = "/".join(quote(part, safe="") for part in (namespace, workload.kind, workload.name))
        self._request("PUT" if paused else "DELETE", f"/api/v1/pause/{path}")

    def _require_token(self) -> None:
        if self._token is None:
            raise BadInputError("writing through --server needs its token: give --token-file, or set api_token_file")

    def _request_pause(self, method: str) -> bool:
        document = self._request(method, "/api/v1/pause")
        paused = document.get("paused")
        if not isinstance(paused, bool):
            raise BadInputError(f"{self.address} did not answer as cruise's API does: check the address")
        return paused

    def _request(self, method: str, path: str) -> Mapping[str, object]:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = Request(f"{self.address}{path}", method=method, headers=headers)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                return _decode_document(response.read(_MAX_ANSWER_BYTES))
        except HTTPError as error:
            raise self._create_error(error) from error
        except URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                raise BadInputError(
                    f"{self.address}: TLS failed: {error.reason}; set SSL_CERT_FILE to its CA"
                ) from error
            raise UnavailableError(f"{self.address} cannot be reached: {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{self.address} cannot be reached: {str(error) or type(error).__name__}") from error

    def _create_error(self, error: HTTPError) -> BadInputError | UnavailableError:
        message = _decode_document(error.read(_MAX_ANSWER_BYTES)).get("error")
        line = " ".join(message.split())[:_MAX_MESSAGE_LENGTH] if isinstance(message, str) else error.reason
        kind = UnavailableError if error.code >= 500 else BadInputError
        return kind(f"{self.address} answered {error.code}: {line}")


def _decode_document(body: bytes) -> Mapping[str, object]:
    try:
        document = json.loads(body)
    except UNPARSABLE_ERRORS:
        return {}
    return document if isinstance(document, dict) else {}


SIGNATURE_VERSION = "v1"
# HTTP codes after which the same request may succeed later.
_RETRYABLE = frozenset({408, 425, 429})


class NotificationWebhook:
    """Posts to one URL, which no error contains, because it may be a secret.

    Raises BadInputError for a URL without TLS that is not on loopback.
    """

    def __init__(self, url: str, secret: bytes | None) -> None:
        check_notification_url(url)
        self._url = url
        self._secret = secret
        self.host = urlsplit(url).hostname or ""
        # No proxy for loopback addresses.
        self._opener = _create_opener(*([ProxyHandler({})] if is_loopback(self.host) else []))

    async def post(self, body: bytes, key: str, at: int) -> None:
        """Send a message with its `key`, signed at a Unix time.

        Raises RefusedError if a repetition would not help, UnavailableError if it might.
        """
        await asyncio.to_thread(self._post, body, key, at)

    def _post(self, body: bytes, key: str, at: int) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": f"cruise/{__version__}"}
        if self._secret is not None:
            headers |= sign_body(self._secret, body, key, at)
        request = Request(self._url, data=body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                answer.read(_MAX_ANSWER_BYTES)
        except HTTPError as error:
            error.close()
            problem = f"{self.host} answered with {error.code}"
            if error.code >= 500 or error.code in _RETRYABLE:
                raise UnavailableError(problem) from None
            raise RefusedError(problem, str(error.code)) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise UnavailableError(f"{self.host} cannot be reached: {type(error).__name__}") from None


def sign_body(secret: bytes, body: bytes, key: str, at: int) -> Mapping[str, str]:
    """Return the headers that sign a body: HMAC-SHA256 over version, time, key and body.

    A receiver should reject times that differ by more than five minutes, and repeated keys.
    """
    text = f"{SIGNATURE_VERSION}:{at}:{key}:".encode() + body
    return {
        "X-Cruise-Timestamp": str(at),
        "X-Cruise-Id": key,
        "X-Cruise-Signature": f"{SIGNATURE_VERSION}={hmac.new(secret, text, sha256).hexdigest()}",
    }


def check_notification_url(url: str) -> None:
    """Reject URLs that would send messages unencrypted to another machine. Raises BadInputError without the URL."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, None
    if parts is None or parts.scheme not in ("http", "https") or not host:
        raise BadInputError("notify_url is not a URL; an example is https://hooks.example.com/…")
    if parts.username is not None or parts.password is not None:
        raise BadInputError("notify_url contains a user or a password; remove them")
    if parts.scheme == "http" and not is_loopback(host):
        raise BadInputError("notify_url has no TLS and is not on this machine; use https://…")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its address or as localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
