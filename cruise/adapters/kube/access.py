"""Callers of cruise's API as the API server judges them: TokenReview says who, SubjectAccessReview what is allowed.

Answers are kept for some seconds, as API servers keep those of webhooks; how many are kept and asked for at a time is
bounded, since a token is asked about before anything is known of who sent it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.preflight import RequiredAccess
from cruise.domain.users import Access, Caller, PathAccess
from cruise.errors import CruiseError, NotFoundError, RefusedError, ThrottledError, UnavailableError

# What cruise may do, as the API server's authorizer decides, and whether policies hold it to less.

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


class _AccessReviewStatusJson(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReviewJson(msgspec.Struct, frozen=True):
    status: _AccessReviewStatusJson = _AccessReviewStatusJson()


async def check_access(client: KubernetesClient, needs: Sequence[RequiredAccess]) -> Sequence[bool]:
    """Tell for each need whether it is allowed. Raises Refused, Throttled, Unavailable."""
    return await asyncio.gather(*(_allowed(client, need) for need in needs))


async def is_restricted_by_policy(client: KubernetesClient, binding: str) -> bool | None:
    """Tell whether a ValidatingAdmissionPolicy is bound, None where this may not be asked. Raises Unavailable."""
    try:
        await client.get(f"{_BINDINGS}/{quote(binding, safe='')}")
    except NotFoundError:
        return False
    except RefusedError:
        return None
    return True


async def _allowed(client: KubernetesClient, need: RequiredAccess) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asdict(need)},
    }
    # The server stores nothing of a review, so it may be repeated.
    answer = await client.send("POST", _PATH, review, repeatable=True)
    return decode_answer(answer, _AccessReviewJson, f"whether cruise may {need}").status.allowed


_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_KEPT_SECONDS = 10.0
_MOST_TOKENS, _MOST_ANSWERS = 1024, 16_384
_TOKENS_AT_ONCE, _ANSWERS_AT_ONCE = 8, 16
_MOST_WAITING = 64
# No token of Kubernetes is shorter or longer; such a thing is not asked about.
_SHORTEST, _LONGEST = 16, 16_384

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


class KubernetesAuthority:
    """Implements `interfaces.http.request_guard.Authority`; `clock` is monotonic, in seconds."""

    def __init__(self, client: KubernetesClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._callers: _AnswerCache[bytes, Caller | None] = _AnswerCache(_MOST_TOKENS, _TOKENS_AT_ONCE, clock)
        self._answers: _AnswerCache[tuple[Caller, Access], bool] = _AnswerCache(_MOST_ANSWERS, _ANSWERS_AT_ONCE, clock)

    async def authenticate(self, token: str) -> Caller | None:
        """Return who has a token, None for one that is not accepted. Raises Throttled, Unavailable."""
        if not _SHORTEST <= len(token) <= _LONGEST or not token.isascii():
            return None
        return await self._callers.get(sha256(token.encode()).digest(), lambda: self._reviewed(token))

    async def authorize(self, caller: Caller, access: Access) -> bool:
        """Tell whether a caller may do something. Raises Throttled, Unavailable."""
        return await self._answers.get((caller, access), lambda: self._judged(caller, access))

    async def _reviewed(self, token: str) -> Caller | None:
        status = (await self._asked("authentication", "TokenReview", {"token": token}, _TokenReview)).status
        user = status.user
        if not status.authenticated or not user.username:
            return None
        extra = tuple(sorted((user.extra or {}).items()))
        return Caller(user.username, user.uid, user.groups or (), extra)

    async def _judged(self, caller: Caller, access: Access) -> bool:
        if isinstance(access, PathAccess):
            wanted = {"nonResourceAttributes": {"verb": access.verb, "path": access.path}}
        else:
            of_pods = {"verb": "get", "group": "", "version": "v1", "resource": "pods", "namespace": access.namespace}
            wanted = {"resourceAttributes": of_pods}
        user = {"user": caller.name, "uid": caller.uid, "groups": caller.groups, "extra": dict(caller.extra)}
        spec = {**user, **wanted}
        return (await self._asked("authorization", "SubjectAccessReview", spec, _AccessReview)).status.allowed

    async def _asked(self, group: str, kind: str, spec: object, shape: type[V]) -> V:
        path = _TOKEN_REVIEWS if group == "authentication" else _ACCESS_REVIEWS
        review = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
        try:
            # The server stores nothing of a review, so it may be repeated.
            answer = await self._client.send("POST", path, review, repeatable=True)
        except (ThrottledError, UnavailableError):
            raise
        except CruiseError as error:
            # What the API server says may quote what was sent, the token included.
            raise UnavailableError(
                f"cruise may not create a {kind}: apply deploy/rbac/observe.yaml, or the chart, anew"
            ) from error
        return decode_answer(answer, shape, f"a {kind}")


class _AnswerCache(Generic[K, V]):
    """The latest answers, each asked for once at a time; too many questions at a time are refused."""

    def __init__(self, most: int, at_once: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._turns = asyncio.Semaphore(at_once)
        self._most_pending = at_once + _MOST_WAITING
        self._pending: dict[K, asyncio.Future[V]] = {}
        self._known: OrderedDict[K, tuple[float, V]] = OrderedDict()

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return a kept answer, or ask. Raises Throttled where too many wait, and what asking raises."""
        known = self._known.get(key)
        if known is not None and self._clock() < known[0]:
            return known[1]
        pending = self._pending.get(key)
        if pending is None:
            if len(self._pending) >= self._most_pending:
                raise ThrottledError("too many callers have to be asked about at a time", 1.0)
            # Not ended by the one caller that began it.
            pending = self._pending[key] = asyncio.ensure_future(self._asked(key, ask))
            pending.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(pending)

    async def _asked(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        async with self._turns:
            answer = await ask()
        self._known.pop(key, None)
        self._known[key] = (self._clock() + _KEPT_SECONDS, answer)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return answer

    def _ended(self, key: K, done: "asyncio.Future[V]") -> None:
        self._pending.pop(key, None)
        if not done.cancelled():
            # Looked at here, where nobody waits for it any more.
            done.exception()
