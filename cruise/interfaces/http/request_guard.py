"""What stands before every route: for whom the request is, who sends it, whether that one may, and how many at a time.

Nothing of a request is looked at beside its method, path and headers until it has passed.
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
from cruise.interfaces.http.namespace_visibility import NamespaceVisibility

# By which names a server answers: a page whose name points here for a moment is not among them.

_OWN = frozenset({"localhost"})


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The names of a server, in lower case; its addresses are always among them, since no page has those by DNS."""

    names: frozenset[str] = frozenset()

    def allows_host(self, host: str) -> bool:
        """Tell whether a request with this Host header is for this server."""
        name = _name_of(f"//{host}")
        return name is not None and (name in _OWN or name in self.names or _is_address(name))

    def allows_origin(self, origin: str, host: str) -> bool:
        """Tell whether a browser's page of this origin may write here: one that this very server sent."""
        if not origin.startswith(("http://", "https://")):
            return False
        return urlsplit(origin).netloc.lower() == host.lower()


def create_allowed_hosts(names: Iterable[str]) -> AllowedHosts:
    """Return the hosts of some names, in whatever case."""
    return AllowedHosts(frozenset(name.lower().rstrip(".") for name in names if name))


def _name_of(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        # Read for the error that a wrong one raises.
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
ANONYMOUS = Caller("anybody on this machine")
READ_ONLY_METHODS = "the API is read-only: set api_token_file (CRUISE_API_TOKEN_FILE) to let it write"


class CallerAuthority(Protocol):
    """Who knows callers: `adapters.kube.access.KubernetesAuthority`, `interfaces.http.request_guard.StaticTokenAuthority`."""

    async def authenticate(self, token: str) -> Caller | None:
        """Return who has a token, None for one that is not accepted. Raises Throttled, Unavailable."""
        ...

    async def authorize(self, caller: Caller, access: Access) -> bool:
        """Tell whether a caller may do something. Raises Throttled, Unavailable."""
        ...


class PathAccessRules(Protocol):
    """What a server's paths ask of callers, and how it turns away: `ApiAccessRules`, and the dashboard's before it."""

    def get_required_access(self, method: str, path: str) -> PathAccess | None:
        """Return what a request needs, None where it is for anybody."""
        ...

    def get_credentials(self, scope: Scope) -> str | None:
        """Return the credentials of a request without a header of that name."""
        ...

    async def respond_refusal(
        self, scope: Scope, send: Send, status: HTTPStatus, why: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Turn a request away."""
        ...


class ApiAccessRules:
    """The paths of programs: each is a right of its own, by its own name; refusals are JSON."""

    def get_required_access(self, method: str, path: str) -> PathAccess | None:
        """Name the path as roles do."""
        # Everybody whom a Kubernetes API server knows may get its own /api/*, so ours is asked about by another name.
        named = path if path == "/metrics" else f"/cruise{path}"
        return PathAccess("get" if method in _READS else method.lower(), named)

    def get_credentials(self, scope: Scope) -> str | None:
        """Return none: programs send the header."""
        return None

    async def respond_refusal(
        self, scope: Scope, send: Send, status: HTTPStatus, why: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Answer with the reason."""
        await send_response(scope, send, status, msgspec.json.encode({"error": why}), _JSON, headers)


@dataclass(frozen=True, slots=True)
class RequestGuardRules:
    """What a gate lets through; without an authority nobody writes.

    `reads_open` and `metrics_allow_anonymous` are for anybody who can connect. `at_once` counts the requests of one caller.
    """

    authority: CallerAuthority | None = None
    hosts: AllowedHosts = AllowedHosts()
    allows_anonymous_reads: bool = True
    allows_anonymous_metrics: bool = True
    concurrent_requests: int = 16
    access_rules: PathAccessRules = ApiAccessRules()


class _RequestRefusal(Exception):
    def __init__(self, status: HTTPStatus, why: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(why)
        self.status, self.reason, self.headers = status, why, tuple(headers)


def guard_requests(inner: AsgiApp, rules: RequestGuardRules) -> AsgiApp:
    """Let to `inner` what may pass, with the caller and what it may see in the request's state."""
    under_way: Counter[Caller] = Counter()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _PROBES:
            await inner(scope, receive, send)
            return
        try:
            caller = await _admitted(scope, rules)
            if under_way[caller] >= rules.concurrent_requests:
                raise _RequestRefusal(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    f"{rules.concurrent_requests} requests of yours are under way; wait for one of them",
                    [(b"retry-after", b"1")],
                )
        except _RequestRefusal as refusal:
            await rules.access_rules.respond_refusal(scope, send, refusal.status, refusal.reason, refusal.headers)
            return
        under_way[caller] += 1
        try:
            sees_all = rules.authority is None or caller is ANONYMOUS
            state = {"caller": caller, "sight": NamespaceVisibility(caller, None if sees_all else rules.authority)}
            await inner({**scope, "state": {**scope.get("state", {}), **state}}, receive, send)
        finally:
            under_way[caller] -= 1
            if not under_way[caller]:
                del under_way[caller]

    return app


async def _admitted(scope: Scope, rules: RequestGuardRules) -> Caller:
    """Return who sends a request that may pass. Raises _Refusal."""
    path, method = scope["path"], scope["method"]
    sent = _headers(scope, b"host", b"origin", b"authorization")
    host = sent[b"host"] or ""
    if not rules.hosts.allows_host(host):
        raise _RequestRefusal(
            HTTPStatus.MISDIRECTED_REQUEST, "this server has no such name: add it to http_allowed_hosts if it has"
        )
    reads = method in _READS
    if not reads and sent[b"origin"] is not None and not rules.hosts.allows_origin(sent[b"origin"] or "", host):
        raise _RequestRefusal(HTTPStatus.FORBIDDEN, "a page of another origin may not write here")
    access = rules.access_rules.get_required_access(method, path)
    if access is None or (
        reads and (rules.allows_anonymous_metrics if path == "/metrics" else rules.allows_anonymous_reads)
    ):
        return ANONYMOUS
    if rules.authority is None:
        raise _RequestRefusal(HTTPStatus.FORBIDDEN, READ_ONLY_METHODS)
    caller = await _known(rules.authority, sent[b"authorization"] or rules.access_rules.get_credentials(scope))
    await _require(rules.authority, caller, access)
    return caller


async def _known(authority: CallerAuthority, authorization: str | None) -> Caller:
    scheme, _, token = (authorization or "").partition(" ")
    try:
        found = await authority.authenticate(token.strip()) if scheme.lower() == "bearer" and token.strip() else None
    except CruiseError as error:
        raise _unjudged(error) from error
    if found is None:
        raise _RequestRefusal(
            HTTPStatus.UNAUTHORIZED,
            "this needs the header Authorization: Bearer TOKEN with a token that is accepted here",
            [(b"www-authenticate", b"Bearer")],
        )
    return found


async def _require(authority: CallerAuthority, caller: Caller, access: PathAccess) -> None:
    try:
        allowed = await authority.authorize(caller, access)
    except CruiseError as error:
        raise _unjudged(error) from error
    if not allowed:
        raise _RequestRefusal(HTTPStatus.FORBIDDEN, f"{caller.name} may not {access}: no role of theirs allows it")


def _unjudged(error: CruiseError) -> _RequestRefusal:
    if isinstance(error, ThrottledError):
        return _RequestRefusal(HTTPStatus.TOO_MANY_REQUESTS, str(error), [(b"retry-after", b"1")])
    return _RequestRefusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def _headers(scope: Scope, *names: bytes) -> dict[bytes, str | None]:
    """Return some headers, one byte a character; one that is there twice is none that could pass."""
    found: dict[bytes, list[str]] = {name: [] for name in names}
    for name, value in scope["headers"]:
        if name in found:
            found[name].append(value.decode("latin-1"))
    return {name: ", ".join(values) if values else None for name, values in found.items()}


# One token for whoever has it: the content of a file, which may do everything.

MIN_TOKEN_LENGTH = 32
_LONGEST_TOKEN_BYTES = 4096
TOKEN_HOLDER = Caller("api_token_file")


class StaticTokenAuthority:
    """Implements `gate.Authority`; the file is read again when it changes, as a mounted secret does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = b""

    def check(self) -> None:
        """Raise BadInputError for a file that cannot serve."""
        if not self._path.is_file():
            raise BadInputError(f"api_token_file {self._path} is not there; write a token into it, or leave it unset")
        try:
            self._current()
        except UnavailableError as error:
            raise BadInputError(f"{error}; write a random one, e.g. openssl rand -hex 32 > {self._path}") from error

    async def authenticate(self, token: str) -> Caller | None:
        """Compare in constant time; headers come with each byte as a character. Raises Unavailable."""
        return TOKEN_HOLDER if compare_digest(token.encode("latin-1", "replace"), self._current()) else None

    async def authorize(self, caller: Caller, access: Access) -> bool:
        """Allow everything."""
        return True

    def _current(self) -> bytes:
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                with self._path.open("rb") as file:
                    self._token = file.read(_LONGEST_TOKEN_BYTES).strip()
                self._seen = seen
        except OSError as error:
            raise UnavailableError(f"api_token_file {self._path} cannot be read: {error.strerror}") from error
        if len(self._token) < MIN_TOKEN_LENGTH:
            raise UnavailableError(
                f"api_token_file {self._path} holds {len(self._token)} bytes, and a token has at least {MIN_TOKEN_LENGTH}"
            )
        return self._token
