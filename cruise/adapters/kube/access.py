"""Authentication and authorization by the API server: TokenReview, SubjectAccessReview and cruise's own access.

Answers are cached for some seconds, as API servers cache those of webhooks. The numbers of cached answers and parallel
reviews are limited, because a token is reviewed before its sender is known.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import asdict
from hashlib import sha256
from typing import Generic, TypeVar, assert_never
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.preflight import RequiredAccess
from cruise.domain.rightsizing_policies import POLICY_GROUP, POLICY_VERSION
from cruise.domain.users import Access, Caller, PathAccess, PodAccess, PolicyAccess
from cruise.errors import CruiseError, NotFoundError, RefusedError, ThrottledError, UnavailableError

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


async def check_access(client: KubernetesClient, required: Sequence[RequiredAccess]) -> Sequence[bool]:
    """Return for each access whether cruise has it. Raises RefusedError, ThrottledError and UnavailableError."""
    return await asyncio.gather(*(_is_allowed(client, access) for access in required))


async def is_admission_policy_bound(client: KubernetesClient, binding: str) -> bool | None:
    """Return whether a ValidatingAdmissionPolicy is bound, None if cruise may not read it. Raises UnavailableError."""
    try:
        await client.get(f"{_BINDINGS}/{quote(binding, safe='')}")
    except NotFoundError:
        return False
    except RefusedError:
        return None
    return True


async def _is_allowed(client: KubernetesClient, access: RequiredAccess) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asdict(access)},
    }
    # The server does not store reviews, so they may be repeated.
    answer = await client.send("POST", _PATH, review, repeatable=True)
    return decode_answer(answer, _AccessReview, f"whether cruise may {access}").status.allowed


_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_CACHE_SECONDS = 10.0
_MAX_TOKENS, _MAX_ANSWERS = 1024, 16_384
_PARALLEL_TOKENS, _PARALLEL_ANSWERS = 8, 16
_MAX_WAITING = 64
# Tokens of other lengths are rejected without a review.
_MIN_TOKEN_LENGTH, _MAX_TOKEN_LENGTH = 16, 16_384

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


class KubernetesAuthority:
    """Implements `interfaces.http.request_guard.Authority`; `clock` is monotonic, in seconds."""

    def __init__(self, client: KubernetesClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._callers: _AnswerCache[bytes, Caller | None] = _AnswerCache(_MAX_TOKENS, _PARALLEL_TOKENS, clock)
        self._answers: _AnswerCache[tuple[Caller, Access], bool] = _AnswerCache(_MAX_ANSWERS, _PARALLEL_ANSWERS, clock)

    async def authenticate(self, token: str) -> Caller | None:
        """Return the caller of a token, None if it is not valid. Raises ThrottledError and UnavailableError."""
        if not _MIN_TOKEN_LENGTH <= len(token) <= _MAX_TOKEN_LENGTH or not token.isascii():
            return None
        return await self._callers.get(sha256(token.encode()).digest(), lambda: self._review_token(token))

    async def authorize(self, caller: Caller, access: Access) -> bool:
        """Return whether a caller has an access. Raises ThrottledError and UnavailableError."""
        return await self._answers.get((caller, access), lambda: self._review_access(caller, access))

    async def _review_token(self, token: str) -> Caller | None:
        status = (await self._create_review("authentication", "TokenReview", {"token": token}, _TokenReview)).status
        user = status.user
        if not status.authenticated or not user.username:
            return None
        extra = tuple(sorted((user.extra or {}).items()))
        return Caller(user.username, user.uid, user.groups or (), extra)

    async def _review_access(self, caller: Caller, access: Access) -> bool:
        match access:
            case PathAccess(verb, path):
                attributes = {"nonResourceAttributes": {"verb": verb, "path": path}}
            case PodAccess(namespace):
                named = {"group": "", "version": "v1", "resource": "pods"}
                attributes = {"resourceAttributes": {"verb": "get", **named, "namespace": namespace}}
            case PolicyAccess(verb, namespace):
                named = {"group": POLICY_GROUP, "version": POLICY_VERSION, "resource": access.resource}
                attributes = {"resourceAttributes": {"verb": verb, **named, "namespace": namespace}}
            case _:
                assert_never(access)
        user = {"user": caller.name, "uid": caller.uid, "groups": caller.groups, "extra": dict(caller.extra)}
        spec = {**user, **attributes}
        return (await self._create_review("authorization", "SubjectAccessReview", spec, _AccessReview)).status.allowed

    async def _create_review(self, group: str, kind: str, spec: object, shape: type[V]) -> V:
        path = _TOKEN_REVIEWS if group == "authentication" else _ACCESS_REVIEWS
        review = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
        try:
            # The server does not store reviews, so they may be repeated.
            answer = await self._client.send("POST", path, review, repeatable=True)
        except (ThrottledError, UnavailableError):
            raise
        except CruiseError as error:
            # The API server's message may quote the token.
            raise UnavailableError(
                f"cruise may not create a {kind}: apply deploy/rbac/observe.yaml or the chart again"
            ) from error
        return decode_answer(answer, shape, f"a {kind}")


class _AnswerCache(Generic[K, V]):
    """The latest answers; equal questions share one request, and too many pending questions are rejected."""

    def __init__(self, max_answers: int, parallel: int, clock: Callable[[], float]) -> None:
        self._max_answers = max_answers
        self._clock = clock
        self._slots = asyncio.Semaphore(parallel)
        self._max_pending = parallel + _MAX_WAITING
        self._pending: dict[K, asyncio.Future[V]] = {}
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()

    async def get(self, key: K, request: Callable[[], Awaitable[V]]) -> V:
        """Return the cached answer, or request it. Raises ThrottledError, and what the request raises."""
        known = self._answers.get(key)
        if known is not None and self._clock() < known[0]:
            return known[1]
        pending = self._pending.get(key)
        if pending is None:
            if len(self._pending) >= self._max_pending:
                raise ThrottledError("too many access reviews are pending", 1.0)
            # A task, so that cancelling the first caller does not cancel the others.
            pending = self._pending[key] = asyncio.ensure_future(self._request(key, request))
            pending.add_done_callback(lambda done: self._finish(key, done))
        return await asyncio.shield(pending)

    async def _request(self, key: K, request: Callable[[], Awaitable[V]]) -> V:
        async with self._slots:
            answer = await request()
        self._answers.pop(key, None)
        self._answers[key] = (self._clock() + _CACHE_SECONDS, answer)
        while len(self._answers) > self._max_answers:
            self._answers.popitem(last=False)
        return answer

    def _finish(self, key: K, done: "asyncio.Future[V]") -> None:
        self._pending.pop(key, None)
        if not done.cancelled():
            # Retrieve the exception in case no caller waits for it any more.
            done.exception()
