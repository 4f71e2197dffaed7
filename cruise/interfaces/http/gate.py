"""What stands before every route: for whom the request is, who sends it, whether that one may, and how many at a time.

Nothing of a request is looked at beside its method, path and headers until it has passed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import msgspec

from cruise.domain.callers import Access, Caller, PathAccess
from cruise.errors import CruiseError, Throttled
from cruise.interfaces.http.health import AsgiApp, Receive, Scope, Send, answer
from cruise.interfaces.http.hosts import Hosts
from cruise.interfaces.http.sight import Sight

_PROBES = frozenset({"/healthz", "/readyz"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON = b"application/json"
ANYBODY = Caller("anybody on this machine")
READ_ONLY = "the API is read-only: set api_token_file (CRUISE_API_TOKEN_FILE) to let it write"


class Authority(Protocol):
    """Who knows callers: `adapters.kube.asking.reviews.KubeReviews`, `interfaces.http.static_token.StaticToken`."""

    async def caller(self, token: str) -> Caller | None:
        """Return who has a token, None for one that is not accepted. Raises Throttled, Unavailable."""
        ...

    async def allows(self, caller: Caller, access: Access) -> bool:
        """Tell whether a caller may do something. Raises Throttled, Unavailable."""
        ...


class Front(Protocol):
    """What a server's paths ask of callers, and how it turns away: `ApiFront`, and the dashboard's before it."""

    def access(self, method: str, path: str) -> PathAccess | None:
        """Return what a request needs, None where it is for anybody."""
        ...

    def authorization(self, scope: Scope) -> str | None:
        """Return the credentials of a request without a header of that name."""
        ...

    async def refuse(
        self, scope: Scope, send: Send, status: HTTPStatus, why: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Turn a request away."""
        ...


class ApiFront:
    """The paths of programs: each is a right of its own, by its own name; refusals are JSON."""

    def access(self, method: str, path: str) -> PathAccess | None:
        """Name the path as roles do."""
        # Everybody whom a Kubernetes API server knows may get its own /api/*, so ours is asked about by another name.
        named = path if path == "/metrics" else f"/cruise{path}"
        return PathAccess("get" if method in _READS else method.lower(), named)

    def authorization(self, scope: Scope) -> str | None:
        """Return none: programs send the header."""
        return None

    async def refuse(
        self, scope: Scope, send: Send, status: HTTPStatus, why: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Answer with the reason."""
        await answer(scope, send, status, msgspec.json.encode({"error": why}), _JSON, headers)


@dataclass(frozen=True, slots=True)
class GateRules:
    """What a gate lets through; without an authority nobody writes.

    `reads_open` and `metrics_open` are for anybody who can connect. `at_once` counts the requests of one caller.
    """

    authority: Authority | None = None
    hosts: Hosts = Hosts()
    reads_open: bool = True
    metrics_open: bool = True
    at_once: int = 16
    front: Front = ApiFront()


class _Refusal(Exception):
    def __init__(self, status: HTTPStatus, why: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(why)
        self.status, self.why, self.headers = status, why, tuple(headers)


def gated(inner: AsgiApp, rules: GateRules) -> AsgiApp:
    """Let to `inner` what may pass, with the caller and what it may see in the request's state."""
    under_way: Counter[Caller] = Counter()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _PROBES:
            await inner(scope, receive, send)
            return
        try:
            caller = await _admitted(scope, rules)
            if under_way[caller] >= rules.at_once:
                raise _Refusal(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    f"{rules.at_once} requests of yours are under way; wait for one of them",
                    [(b"retry-after", b"1")],
                )
        except _Refusal as refusal:
            await rules.front.refuse(scope, send, refusal.status, refusal.why, refusal.headers)
            return
        under_way[caller] += 1
        try:
            sees_all = rules.authority is None or caller is ANYBODY
            state = {"caller": caller, "sight": Sight(caller, None if sees_all else rules.authority)}
            await inner({**scope, "state": {**scope.get("state", {}), **state}}, receive, send)
        finally:
            under_way[caller] -= 1
            if not under_way[caller]:
                del under_way[caller]

    return app


async def _admitted(scope: Scope, rules: GateRules) -> Caller:
    """Return who sends a request that may pass. Raises _Refusal."""
    path, method = scope["path"], scope["method"]
    sent = _headers(scope, b"host", b"origin", b"authorization")
    host = sent[b"host"] or ""
    if not rules.hosts.allows(host):
        raise _Refusal(
            HTTPStatus.MISDIRECTED_REQUEST, "this server has no such name: add it to http_allowed_hosts if it has"
        )
    reads = method in _READS
    if not reads and sent[b"origin"] is not None and not rules.hosts.allows_origin(sent[b"origin"] or "", host):
        raise _Refusal(HTTPStatus.FORBIDDEN, "a page of another origin may not write here")
    access = rules.front.access(method, path)
    if access is None or (reads and (rules.metrics_open if path == "/metrics" else rules.reads_open)):
        return ANYBODY
    if rules.authority is None:
        raise _Refusal(HTTPStatus.FORBIDDEN, READ_ONLY)
    caller = await _known(rules.authority, sent[b"authorization"] or rules.front.authorization(scope))
    await _require(rules.authority, caller, access)
    return caller


async def _known(authority: Authority, authorization: str | None) -> Caller:
    scheme, _, token = (authorization or "").partition(" ")
    try:
        found = await authority.caller(token.strip()) if scheme.lower() == "bearer" and token.strip() else None
    except CruiseError as error:
        raise _unjudged(error) from error
    if found is None:
        raise _Refusal(
            HTTPStatus.UNAUTHORIZED,
            "this needs the header Authorization: Bearer TOKEN with a token that is accepted here",
            [(b"www-authenticate", b"Bearer")],
        )
    return found


async def _require(authority: Authority, caller: Caller, access: PathAccess) -> None:
    try:
        allowed = await authority.allows(caller, access)
    except CruiseError as error:
        raise _unjudged(error) from error
    if not allowed:
        raise _Refusal(HTTPStatus.FORBIDDEN, f"{caller.name} may not {access}: no role of theirs allows it")


def _unjudged(error: CruiseError) -> _Refusal:
    if isinstance(error, Throttled):
        return _Refusal(HTTPStatus.TOO_MANY_REQUESTS, str(error), [(b"retry-after", b"1")])
    return _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def _headers(scope: Scope, *names: bytes) -> dict[bytes, str | None]:
    """Return some headers, one byte a character; one that is there twice is none that could pass."""
    found: dict[bytes, list[str]] = {name: [] for name in names}
    for name, value in scope["headers"]:
        if name in found:
            found[name].append(value.decode("latin-1"))
    return {name: ", ".join(values) if values else None for name, values in found.items()}
