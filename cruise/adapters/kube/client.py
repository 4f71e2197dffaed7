"""HTTP to the API server: raw answers, every refusal as one of cruise's errors, requests at a limited rate."""

import asyncio
import os
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
from cruise.adapters.kube.throttling import TokenBucket, compute_retry_wait
from cruise.errors import BadInputError, ThrottledError, UnavailableError

USER_AGENT = f"cruise/{__version__}"
FIELD_MANAGER = "cruise"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"

_READ_TRIES = 4
_CONNECTIONS = 100
# Those made with the certificate before last are closed: what was under way on them has ended long ago.
_SESSIONS = 2
# A quiet watch receives a bookmark about every minute.
_WATCH_SILENCE_SECONDS = 90.0
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT}
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class _Request:
    """A request as every identity sends it."""

    method: str
    path: str
    query: Mapping[str, str]
    timeout: aiohttp.ClientTimeout
    body: bytes | None = None
    content_type: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class KubernetesClient:
    """One API server, with one identity; made by `connecting.connect`.

    Everything but watches is counted against `requests_per_second` and `burst`. Errors of all methods: Conflict,
    Expired, NotFoundError, Refused, Throttled, Unavailable.
    """

    def __init__(
        self, credentials: Credentials, *, requests_per_second: float, burst: int, timeout_seconds: float
    ) -> None:
        self._credentials = credentials
        self._bucket = TokenBucket(requests_per_second, burst)
        self._seconds = timeout_seconds
        self._sessions: dict[tuple[object, ...], aiohttp.ClientSession] = {}
        self._may_send: Callable[[], bool] = lambda: True

    def check_health(self, may_send: Callable[[], bool]) -> "KubernetesClient":
        """Return the same client such that it writes only while it may, checked after every wait for its turn.

        Raises Unavailable for a write that comes too late.
        """
        guarded = copy(self)
        guarded._may_send = may_send
        return guarded

    @property
    def in_cluster(self) -> bool:
        """Tell whether the identity is a pod's own account, from within the cluster."""
        return self._credentials.in_cluster

    async def identity(self) -> ApiIdentity:
        """Return the identity in use, for other connections to the same server."""
        return await self._credentials.current()

    async def renewed(self, refused: ApiIdentity) -> ApiIdentity:
        """Return the identity as it is when read anew, since `refused` was not accepted."""
        return await self._credentials.renewed(refused)

    async def get(self, path: str, query: Mapping[str, str] = _NOTHING, *, urgent: bool = False) -> bytes:
        """Return the JSON at a path; when throttled, wait as long as Retry-After says and try again a few times.

        What is `urgent` does not wait behind other requests.
        """
        for attempt in range(_READ_TRIES):
            try:
                return await self._ask(_Request("GET", path, query, self._timeout), urgent=urgent)
            except ThrottledError as error:
                if attempt + 1 == _READ_TRIES:
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
        query: Mapping[str, str] = _NOTHING,
        repeatable: bool = False,
        urgent: bool = False,
    ) -> bytes:
        """Write `body` as JSON and return the answer; when throttled, raise Throttled at once.

        `repeatable` says that twice is the same as once: only then is it sent again where a connection broke before
        there was an answer. PUT is so by HTTP's own rules. What is `urgent` does not wait behind other requests.
        """
        query = {**query, "fieldManager": FIELD_MANAGER}
        request = _Request(method, path, query, self._timeout, msgspec.json.encode(body), content_type)
        answer = await self._ask(request, repeatable=repeatable, urgent=urgent)
        failure = find_failure_status(answer)
        if failure is not None:
            raise create_error_from_status(failure, str(request))
        return answer

    @asynccontextmanager
    async def stream_lines(
        self, path: str, query: Mapping[str, str], silence_seconds: float = _WATCH_SILENCE_SECONDS
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield its lines as they come, until the server ends it.

        There is no limit to the whole, but after `silence_seconds` without a byte, or where a line breaks off, the
        iterator raises Unavailable.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=self._seconds, sock_read=silence_seconds)
        request = _Request("GET", path, query, timeout)
        with translate_network_errors(str(request), silence_seconds):
            response = await self._respond(request)
        async with response:
            if response.status != 200:
                with translate_network_errors(str(request), self._seconds):
                    body = await response.read()
                raise create_error(response.status, body, str(request), response.headers.get("Retry-After"))
            yield read_lines(response, str(request), silence_seconds)

    async def close(self) -> None:
        """Close every connection."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    @property
    def _timeout(self) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=self._seconds)

    async def _ask(self, request: _Request, *, repeatable: bool = True, urgent: bool = False) -> bytes:
        wait = 0.0 if urgent else self._bucket.reserve(time.monotonic())
        if wait > 0:
            await asyncio.sleep(wait)
        with translate_network_errors(str(request), self._seconds):
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
                f"{request} was answered with {response.content_type}: is that a Kubernetes API server?"
            )
        return body

    async def _exchange(self, request: _Request) -> tuple[aiohttp.ClientResponse, bytes]:
        async with await self._respond(request) as response:
            return response, await response.read()

    async def _respond(self, request: _Request) -> aiohttp.ClientResponse:
        """Send a request, once more with credentials read anew where those in use are not accepted."""
        identity = await self._credentials.current()
        response = await self._send_as(identity, request)
        if response.status != 401:
            return response
        response.release()
        return await self._send_as(await self._credentials.renewed(identity), request)

    async def _send_as(self, identity: ApiIdentity, request: _Request) -> aiohttp.ClientResponse:
        query = f"?{urlencode(request.query)}" if request.query else ""
        content = {"Content-Type": request.content_type} if request.content_type else _NOTHING
        session = await self._session(identity)
        if request.method != "GET" and not self._may_send():
            raise UnavailableError(f"{request}: not sent, since this process may not write any more")
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
        kept = self._sessions.get(identity.connection)
        if kept is not None:
            return kept
        connector = aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=identity.tls())
        # Neither proxies nor passwords are taken from the environment by the library: it reads NO_PROXY otherwise than
        # kubectl does, and would add a password from a .netrc file.
        session = aiohttp.ClientSession(connector=connector, trust_env=False, read_bufsize=1 << 18)
        self._sessions[identity.connection] = session
        if len(self._sessions) > _SESSIONS:
            await self._sessions.pop(next(iter(self._sessions))).close()
        return session


# From a kubeconfig or a pod's service account to a client.

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT_NAMESPACE = "cruise"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """How the API server is found, and how fast and how long it is asked.

    `kubeconfig` None means the pod's own service account, or outside of a cluster what kubectl would use: $KUBECONFIG,
    then ~/.kube/config. `context` is of a kubeconfig; None means the current one. A request has
    `timeout_seconds` for its whole answer.
    """

    kubeconfig: Path | None = None
    requests_per_second: float = 100.0
    burst: int = 200
    timeout_seconds: float = 30.0
    context: str | None = None


@asynccontextmanager
async def connect_to_kubernetes(settings: KubernetesSettings) -> AsyncIterator[KubernetesClient]:
    """Yield a client with the credentials found; nothing is asked of the server yet.

    Raises BadInputError where there are none that can be used.
    """
    if settings.requests_per_second <= 0:
        raise BadInputError("kube_requests_per_second is 0: nothing could ever be asked; set it to 100")
    credentials = Credentials(find_credentials(settings.kubeconfig, context=settings.context))
    (await credentials.load()).tls()
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
    """Return where the credentials are: the stated file, else the pod's service account, else kubectl's files.

    A pod's account is not for the context of a kubeconfig.
    """
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise BadInputError(f"kubeconfig {kubeconfig} is not there; set kubeconfig to the file that kubectl uses")
        return KubeconfigCredentials(str(kubeconfig), context)
    if context is None and environment.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return ServiceAccountCredentials(service_account)
    listed = environment.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if not any(Path(place).expanduser().is_file() for place in listed.split(os.pathsep) if place):
        raise BadInputError(
            f"no cluster is known: cruise is not in a pod with a service account, and there is no {listed}; "
            "set kubeconfig, or KUBECONFIG"
        )
    return KubeconfigCredentials(listed, context)


def find_own_namespace(stated: str | None, service_account: Path = SERVICE_ACCOUNT) -> str:
    """Return cruise's own namespace: the stated one, else the service account's, else `cruise`."""
    if stated:
        return stated
    try:
        return (service_account / "namespace").read_text(encoding="utf-8").strip() or _DEFAULT_NAMESPACE
    except OSError:
        return _DEFAULT_NAMESPACE
