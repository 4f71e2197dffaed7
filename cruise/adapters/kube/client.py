"""The client of the API server: HTTP with rate limits, and rejections as cruise's errors."""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from cruise import __version__
from cruise.adapters.kube.credentials import (
    ApiIdentity,
    Credentials,
    CredentialSource,
    KubeconfigCredentials,
    ServiceAccountCredentials,
)
from cruise.adapters.kube.responses import (
    CONNECTION_ERRORS,
    create_error,
    create_error_from_status,
    find_failure_status,
    read_lines,
    translate_network_errors,
)
from cruise.errors import BadInputError, ThrottledError, UnavailableError

USER_AGENT = f"cruise/{__version__}"
FIELD_MANAGER = "cruise"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"

_READ_ATTEMPTS = 4
_CONNECTIONS = 100
# Requests with a certificate before the previous one ended long ago.
_MAX_SESSIONS = 2
# A watch without events receives a bookmark about every minute.
_WATCH_TIMEOUT_SECONDS = 90.0
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT}
_EMPTY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class _Request:
    """A request without the headers and address of an identity."""

    method: str
    path: str
    query: Mapping[str, str]
    timeout: aiohttp.ClientTimeout
    body: bytes | None = None
    content_type: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class KubernetesClient:
    """A client of one API server with one identity; `connect_to_kubernetes` creates it.

    `requests_per_second` and `burst` limit everything except watches. All methods raise ConflictError,
    ExpiredVersionError, NotFoundError, RefusedError, ThrottledError and UnavailableError.
    """

    def __init__(
        self, credentials: Credentials, *, requests_per_second: float, burst: int, timeout_seconds: float
    ) -> None:
        self._credentials = credentials
        self._bucket = TokenBucket(requests_per_second, burst)
        self._timeout_seconds = timeout_seconds
        self._sessions: dict[tuple[object, ...], aiohttp.ClientSession] = {}
        self._may_send: Callable[[], bool] = lambda: True

    def with_write_guard(self, may_send: Callable[[], bool]) -> "KubernetesClient":
        """Return this client with a check before each write, after the wait for the rate limit.

        A write raises UnavailableError if `may_send` returns False.
        """
        guarded = copy(self)
        guarded._may_send = may_send
        return guarded

    @property
    def in_cluster(self) -> bool:
        """Whether the identity is the service account of cruise's own pod."""
        return self._credentials.in_cluster

    async def get_identity(self) -> ApiIdentity:
        """Return the current identity, for other connections to the same server."""
        return await self._credentials.get_identity()

    async def renew(self, refused: ApiIdentity) -> ApiIdentity:
        """Read the credentials again after the server rejected an identity, and return the new one."""
        return await self._credentials.renew(refused)

    async def wait_for_turn(self) -> None:
        """Wait for the rate limit, in the order of the calls; an `urgent` request after it does not wait again."""
        wait = self._bucket.reserve(time.monotonic())
        if wait > 0:
            await asyncio.sleep(wait)

    async def get(self, path: str, query: Mapping[str, str] = _EMPTY, *, urgent: bool = False) -> bytes:
        """Return the JSON at a path; if throttled, wait as Retry-After says and try again a few times.

        An `urgent` request does not wait for the rate limit.
        """
        for attempt in range(_READ_ATTEMPTS):
            try:
                return await self._request_body(_Request("GET", path, query, self._timeout), urgent=urgent)
            except ThrottledError as error:
                if attempt + 1 == _READ_ATTEMPTS:
                    raise
                await asyncio.sleep(compute_retry_wait(attempt, error.retry_after_seconds))
        raise AssertionError

    async def send(
        self,
        method: str,
        path: str,
        body: object,
        *,
        content_type: str = "application/json",
        query: Mapping[str, str] = _EMPTY,
        repeatable: bool = False,
        urgent: bool = False,
    ) -> bytes:
        """Write `body` as JSON and return the answer; raise ThrottledError if throttled.

        A `repeatable` request is sent again if the connection breaks before the answer. An `urgent` one does not wait
        for the rate limit.
        """
        query = {**query, "fieldManager": FIELD_MANAGER}
        request = _Request(method, path, query, self._timeout, msgspec.json.encode(body), content_type)
        answer = await self._request_body(request, repeatable=repeatable, urgent=urgent)
        failure = find_failure_status(answer)
        if failure is not None:
            raise create_error_from_status(failure, str(request))
        return answer

    @asynccontextmanager
    async def stream_lines(
        self, path: str, query: Mapping[str, str], idle_timeout_seconds: float = _WATCH_TIMEOUT_SECONDS
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield its lines until the server ends it.

        The iterator raises UnavailableError if no byte arrives for `idle_timeout_seconds`, or if the stream ends within
        a line.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=self._timeout_seconds, sock_read=idle_timeout_seconds)
        request = _Request("GET", path, query, timeout)
        with translate_network_errors(str(request), idle_timeout_seconds):
            response = await self._respond(request)
        async with response:
            if response.status != 200:
                with translate_network_errors(str(request), self._timeout_seconds):
                    body = await response.read()
                raise create_error(response.status, body, str(request), response.headers.get("Retry-After"))
            yield read_lines(response, str(request), idle_timeout_seconds)

    async def close(self) -> None:
        """Close every connection."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    @property
    def _timeout(self) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=self._timeout_seconds)

    async def _request_body(self, request: _Request, *, repeatable: bool = True, urgent: bool = False) -> bytes:
        if not urgent:
            await self.wait_for_turn()
        with translate_network_errors(str(request), self._timeout_seconds):
            try:
                response, body = await self._exchange(request)
            except CONNECTION_ERRORS:
                if not repeatable:
                    raise
                response, body = await self._exchange(request)
        if not 200 <= response.status < 300:
            raise create_error(response.status, body, str(request), response.headers.get("Retry-After"))
        if "json" not in response.content_type:
            raise UnavailableError(
                f"{request} was answered with {response.content_type}: check that the address is a Kubernetes API "
                "server"
            )
        return body

    async def _exchange(self, request: _Request) -> tuple[aiohttp.ClientResponse, bytes]:
        async with await self._respond(request) as response:
            return response, await response.read()

    async def _respond(self, request: _Request) -> aiohttp.ClientResponse:
        """Send a request; if the server answers 401, read the credentials again and repeat it."""
        identity = await self._credentials.get_identity()
        response = await self._send_as(identity, request)
        if response.status != 401:
            return response
        response.release()
        return await self._send_as(await self._credentials.renew(identity), request)

    async def _send_as(self, identity: ApiIdentity, request: _Request) -> aiohttp.ClientResponse:
        query = f"?{urlencode(request.query)}" if request.query else ""
        content = {"Content-Type": request.content_type} if request.content_type else _EMPTY
        session = await self._session(identity)
        if request.method != "GET" and not self._may_send():
            raise UnavailableError(f"{request}: not sent: this process may no longer write")
        return await session.request(
            request.method,
            URL(f"{identity.server}{request.path}{query}", encoded=True),
            data=request.body,
            headers={**_HEADERS, **identity.headers, **content},
            timeout=request.timeout,
            proxy=identity.proxy,
            server_hostname=identity.server_name,
            allow_redirects=False,
        )

    async def _session(self, identity: ApiIdentity) -> aiohttp.ClientSession:
        session = self._sessions.get(identity.connection)
        if session is not None:
            return session
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=identity.create_tls_context())
        # aiohttp reads NO_PROXY differently from kubectl, and would add a password from a .netrc file.
        session = aiohttp.ClientSession(connector=connector, trust_env=False, read_bufsize=1 << 18)
        self._sessions[identity.connection] = session
        if len(self._sessions) > _MAX_SESSIONS:
            await self._sessions.pop(next(iter(self._sessions))).close()
        return session


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT_NAMESPACE = "cruise"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """How to find the API server, and the limits of requests to it.

    Without `kubeconfig`, the service account of the pod is used; outside a cluster, $KUBECONFIG and then
    ~/.kube/config. `context` None is the current context. `timeout_seconds` is for a whole request.
    """

    kubeconfig: Path | None = None
    requests_per_second: float = 100.0
    burst: int = 200
    timeout_seconds: float = 30.0
    context: str | None = None


@asynccontextmanager
async def connect_to_kubernetes(settings: KubernetesSettings) -> AsyncIterator[KubernetesClient]:
    """Yield a client with the credentials found; no request is sent yet. Raises BadInputError."""
    if settings.requests_per_second <= 0:
        raise BadInputError("kube_requests_per_second must be above 0: set it to 100")
    credentials = Credentials(find_credentials(settings.kubeconfig, context=settings.context))
    (await credentials.load()).create_tls_context()
    client = KubernetesClient(
        credentials,
        requests_per_second=settings.requests_per_second,
        burst=settings.burst,
        timeout_seconds=settings.timeout_seconds,
    )
    try:
        yield client
    finally:
        await client.close()


def find_credentials(
    kubeconfig: Path | None,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
    context: str | None = None,
) -> CredentialSource:
    """Return the source of credentials: the given file, else the pod's service account, else kubectl's files.

    With a `context`, the service account is not used.
    """
    in_pod = environment.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists()
    if kubeconfig is None and context is None and in_pod:
        return ServiceAccountCredentials(service_account)
    return KubeconfigCredentials(find_kubeconfig(kubeconfig, environment), context)


def find_kubeconfig(kubeconfig: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the given file, else kubectl's files, separated as in $KUBECONFIG. Raises BadInputError."""
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise BadInputError(f"kubeconfig {kubeconfig} does not exist; set kubeconfig to the file that kubectl uses")
        return str(kubeconfig)
    paths = environment.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if not any(Path(place).expanduser().is_file() for place in paths.split(os.pathsep) if place):
        raise BadInputError(
            f"no cluster is configured: cruise does not run in a pod with a service account, and {paths} does not "
            "exist; "
            "set kubeconfig, or KUBECONFIG"
        )
    return paths


def find_own_namespace(configured: str | None, service_account: Path = SERVICE_ACCOUNT) -> str:
    """Return the namespace of cruise: the configured one, else the service account's, else `cruise`."""
    if configured:
        return configured
    try:
        return (service_account / "namespace").read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE


# The upper limit of the wait before a read or a watch, even if Retry-After is longer.
MAX_WAIT_SECONDS = 30.0


class TokenBucket:
    """Allows a burst and then `per_second`; times are seconds of any one monotonic clock."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at: float | None = None

    def reserve(self, now: float) -> float:
        """Take the next token and return the seconds to wait for it; tokens are given in the order of the calls."""
        self._fill(now)
        self._tokens -= 1
        return max(0.0, -self._tokens / self._per_second)

    def acquire(self, now: float) -> bool:
        """Take a token if there is one."""
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _fill(self, now: float) -> None:
        if self._filled_at is not None and now > self._filled_at:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now if self._filled_at is None else max(now, self._filled_at)


def compute_retry_wait(attempt: int, retry_after_seconds: float | None) -> float:
    """Return the wait before the next attempt: as requested, plus up to a quarter so that clients spread out.

    `attempt` counts from 0. Without a time from the server, waits double from half a second.
    """
    seconds = 0.5 * 2**attempt if retry_after_seconds is None else retry_after_seconds
    return min(seconds, MAX_WAIT_SECONDS) * random.uniform(1.0, 1.25)


@dataclass(slots=True)
class Backoff:
    """Waits that double from `first_seconds` to `max_seconds`, each shortened by a random part of up to a half."""

    first_seconds: float
    max_seconds: float
    failures: int = 0

    def next_seconds(self, at_least: float | None = None) -> float:
        """Count a failure and return the wait, which is not shorter than `at_least` up to MAX_WAIT_SECONDS."""
        # The exponent is limited only to avoid an overflow.
        wait = min(self.max_seconds, self.first_seconds * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(min(at_least or 0.0, MAX_WAIT_SECONDS), wait * random.uniform(0.5, 1.0))

    def reset(self) -> None:
        """Start again with the first wait."""
        self.failures = 0
