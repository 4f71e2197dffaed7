"""The checks before every route: host name, origin, authentication, authorization and concurrency.

They use only the method, path and headers of a request.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from cruise.domain.users import Access, Caller, PathAccess
from cruise.errors import BadInputError, CruiseError, ThrottledError, UnavailableError
from cruise.interfaces.http.health import AsgiApp, Receive, Scope, Send, send_response
from cruise.interfaces.http.view import NamespaceAuthority, NamespaceVisibility

_LOCAL_NAMES = frozenset({"localhost"})


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The host names of a server, in lower case, against DNS rebinding; IP addresses are always allowed."""

    names: frozenset[str] = frozenset()

    def allows_host(self, host: str) -> bool:
        """Tell whether a Host header names this server."""
        name = _parse_host(f"//{host}")
        return name is not None and (name in _LOCAL_NAMES or name in self.names or _is_address(name))

    def allows_origin(self, origin: str, host: str) -> bool:
        """Tell whether a page of this origin may write: only a page of this server may."""
        if not origin.startswith(("http://", "https://")):
            return False
        return urlsplit(origin).netloc.lower() == host.lower()


def create_allowed_hosts(names: Iterable[str]) -> AllowedHosts:
    """Return the allowed hosts of some names, in any case."""
    return AllowedHosts(frozenset(name.lower().rstrip(".") for name in names if name))


def _parse_host(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        # Raises ValueError for an invalid port.
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment or parts.hostname is None:
        return None
    return parts.hostname.rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


_PROBES = frozenset({"/healthz", "/readyz"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON = b"application/json"
ANONYMOUS = Caller("an anonymous client")
READ_ONLY_METHODS = "the API is read-only: set api_token_file (CRUISE_API_TOKEN_FILE) to let it write"


class CallerAuthority(NamespaceAuthority, Protocol):
    """Authenticates and authorizes callers, such as `KubernetesAuthority` and `StaticTokenAuthority`."""

    async def authenticate(self, token: str) -> Caller | None:
        """Return the caller of a token, None if it is not accepted. Raises ThrottledError, UnavailableError."""


class ApiAccessRules:
    """Access to the API: each path is a separate permission, and rejections are JSON."""

    def get_required_access(self, method: str, path: str) -> PathAccess | None:
        """Return the access right that a request requires, the path as roles name it; None for a public path."""
        # Every authenticated user of a Kubernetes API server may get its own /api/*, so cruise's paths have a prefix.
        named = path if path == "/metrics" else f"/cruise{path}"
        return PathAccess("get" if method in _READS else method.lower(), named)

    def get_credentials(self, scope: Scope) -> str | None:
        """Return the Authorization value of a request that has no such header: API clients send it."""
        return None

    async def respond_rejection(
        self, scope: Scope, send: Send, status: HTTPStatus, reason: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Send the response to a rejected request, the reason as JSON."""
        await send_response(scope, send, status, msgspec.json.encode({"error": reason}), _JSON, headers)


@dataclass(frozen=True, slots=True)
class RequestGuardRules:
    """The rules of a request guard; `concurrent_requests` limits a caller. Without an authority, nobody may write."""

    authority: CallerAuthority | None = None
    hosts: AllowedHosts = AllowedHosts()
    allows_anonymous_reads: bool = True
    allows_anonymous_metrics: bool = True
    concurrent_requests: int = 16
    access_rules: ApiAccessRules = ApiAccessRules()


class _RejectedRequest(Exception):
    def __init__(self, status: HTTPStatus, reason: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, tuple(headers)


def guard_requests(inner: AsgiApp, rules: RequestGuardRules) -> AsgiApp:
    """Pass permitted requests to `inner`, with the caller and its namespace visibility in the request's state."""
    in_progress: Counter[Caller] = Counter()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _PROBES:
            await inner(scope, receive, send)
            return
        try:
            caller = await _check(scope, rules)
            if in_progress[caller] >= rules.concurrent_requests:
                raise _RejectedRequest(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    f"{rules.concurrent_requests} of your requests are in progress; wait for one of them",
                    [(b"retry-after", b"1")],
                )
        except _RejectedRequest as rejected:
            await rules.access_rules.respond_rejection(scope, send, rejected.status, rejected.reason, rejected.headers)
            return
        in_progress[caller] += 1
        try:
            sees_all = rules.authority is None or caller is ANONYMOUS
            visibility = NamespaceVisibility(caller, None if sees_all else rules.authority)
            state = {"caller": caller, "visibility": visibility}
            await inner({**scope, "state": {**scope.get("state", {}), **state}}, receive, send)
        finally:
            in_progress[caller] -= 1
            if not in_progress[caller]:
                del in_progress[caller]

    return app


async def _check(scope: Scope, rules: RequestGuardRules) -> Caller:
    """Return the caller of a permitted request. Raises _RejectedRequest."""
    path, method = scope["path"], scope["method"]
    headers = _get_headers(scope, b"host", b"origin", b"authorization")
    host, origin = headers[b"host"] or "", headers[b"origin"]
    if not rules.hosts.allows_host(host):
        raise _RejectedRequest(
            HTTPStatus.MISDIRECTED_REQUEST,
            "this host name is not allowed: if it is a name of this server, add it to http_allowed_hosts",
        )
    reads = method in _READS
    if not reads and origin is not None and not rules.hosts.allows_origin(origin, host):
        raise _RejectedRequest(HTTPStatus.FORBIDDEN, "a page of another origin may not write")
    access = rules.access_rules.get_required_access(method, path)
    if access is None or (
        reads and (rules.allows_anonymous_metrics if path == "/metrics" else rules.allows_anonymous_reads)
    ):
        return ANONYMOUS
    if rules.authority is None:
        raise _RejectedRequest(HTTPStatus.FORBIDDEN, READ_ONLY_METHODS)
    credentials = headers[b"authorization"] or rules.access_rules.get_credentials(scope)
    caller = await _authenticate(rules.authority, credentials)
    await _authorize(rules.authority, caller, access)
    return caller


async def _authenticate(authority: CallerAuthority, credentials: str | None) -> Caller:
    scheme, _, token = (credentials or "").partition(" ")
    try:
        caller = await authority.authenticate(token.strip()) if scheme.lower() == "bearer" and token.strip() else None
    except CruiseError as error:
        raise _reject_for_error(error) from error
    if caller is None:
        raise _RejectedRequest(
            HTTPStatus.UNAUTHORIZED,
            "this request requires the header Authorization: Bearer TOKEN with a token that this server accepts",
            [(b"www-authenticate", b"Bearer")],
        )
    return caller


async def _authorize(authority: CallerAuthority, caller: Caller, access: PathAccess) -> None:
    try:
        allowed = await authority.authorize(caller, access)
    except CruiseError as error:
        raise _reject_for_error(error) from error
    if not allowed:
        raise _RejectedRequest(HTTPStatus.FORBIDDEN, f"{caller.name} may not {access}: no role of the user allows it")


def _reject_for_error(error: CruiseError) -> _RejectedRequest:
    if isinstance(error, ThrottledError):
        return _RejectedRequest(HTTPStatus.TOO_MANY_REQUESTS, str(error), [(b"retry-after", b"1")])
    return _RejectedRequest(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def _get_headers(scope: Scope, *names: bytes) -> dict[bytes, str | None]:
    """Return some headers, one character a byte; a repeated header is joined by commas, which no check accepts."""
    values: dict[bytes, list[str]] = {name: [] for name in names}
    for name, value in scope["headers"]:
        if name in values:
            values[name].append(value.decode("latin-1"))
    return {name: ", ".join(found) if found else None for name, found in values.items()}


# One token in a file, which allows everything.

MIN_TOKEN_LENGTH = 32
_MAX_TOKEN_BYTES = 4096
TOKEN_HOLDER = Caller("API token")


class StaticTokenAuthority:
    """Implements `CallerAuthority`; it reads the file again when it changes, as a mounted Secret does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_version: tuple[int, int, int] | None = None
        self._token = b""

    def check(self) -> None:
        """Raise BadInputError if the file is missing or has no valid token."""
        if not self._path.is_file():
            raise BadInputError(
                f"api_token_file {self._path} does not exist; write a token to it, or unset the setting"
            )
        try:
            self._read_token()
        except UnavailableError as error:
            raise BadInputError(f"{error}; write a random one, e.g. openssl rand -hex 32 > {self._path}") from error

    async def authenticate(self, token: str) -> Caller | None:
        """Return the holder of the token, compared in constant time. Raises UnavailableError."""
        return TOKEN_HOLDER if compare_digest(token.encode("latin-1", "replace"), self._read_token()) else None

    async def authorize(self, caller: Caller, access: Access) -> bool:
        """Allow everything."""
        return True

    def _read_token(self) -> bytes:
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_ino, status.st_size)
            if version != self._file_version:
                with self._path.open("rb") as file:
                    self._token = file.read(_MAX_TOKEN_BYTES).strip()
                self._file_version = version
        except OSError as error:
            raise UnavailableError(f"api_token_file {self._path} cannot be read: {error.strerror}") from error
        if len(self._token) < MIN_TOKEN_LENGTH:
            raise UnavailableError(
                f"the token in api_token_file {self._path} has {len(self._token)} bytes; it needs at least "
                f"{MIN_TOKEN_LENGTH}"
            )
        return self._token
