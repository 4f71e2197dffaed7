"""HTTP to the API server: raw answers, every refusal as one of cruise's errors, asked no faster than agreed."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from cruise import __version__
from cruise.adapters.kube.http.answers import BROKEN, lines_of, translated
from cruise.adapters.kube.http.credentials import Credentials, Identity
from cruise.adapters.kube.http.throttling import TokenBucket, wait_seconds
from cruise.adapters.kube.http.translation import error_of, error_of_status, failure_of
from cruise.errors import Throttled, Unavailable

USER_AGENT = f"cruise/{__version__}"
FIELD_MANAGER = "cruise"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

_READ_TRIES = 4
_CONNECTIONS = 100
# Those made with the certificate before last are closed: what was under way on them has ended long ago.
_SESSIONS = 2
# A quiet watch hears a bookmark about every minute.
_WATCH_SILENCE_SECONDS = 90.0
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": USER_AGENT}
_NOTHING: Mapping[str, str] = {}


class KubeClient:
    """One API server, asked as one identity; made by `connecting.connect`.

    Everything but watches is counted against `requests_per_second` and `burst`. Errors of all methods: Conflict,
    Expired, NotFound, Refused, Throttled, Unavailable.
    """

    def __init__(
        self, credentials: Credentials, *, requests_per_second: float, burst: int, timeout_seconds: float
    ) -> None:
        self._credentials = credentials
        self._bucket = TokenBucket(requests_per_second, burst)
        self._seconds = timeout_seconds
        self._sessions: dict[tuple[object, ...], aiohttp.ClientSession] = {}
        self._may_send: Callable[[], bool] = lambda: True

    def guarded(self, may_send: Callable[[], bool]) -> "KubeClient":
        """Return the same client such that it writes only while it may, asked after every wait for its turn.

        Raises Unavailable for a write that comes too late.
        """
        guarded = copy(self)
        guarded._may_send = may_send
        return guarded

    @property
    def in_cluster(self) -> bool:
        """Tell whether it is asked with a pod's own account, from within the cluster."""
        return self._credentials.in_cluster

    async def identity(self) -> Identity:
        """Return what it is asked with now, for others that have to ask the same server."""
        return await self._credentials.current()

    async def get(self, path: str, query: Mapping[str, str] = _NOTHING, *, urgent: bool = False) -> bytes:
        """Return the JSON at a path; told to slow down, wait as asked and try again a few times.

        What is `urgent` does not wait behind other requests.
        """
        for attempt in range(_READ_TRIES):
            try:
                return await self._ask("GET", path, query, urgent=urgent)
            except Throttled as error:
                if attempt + 1 == _READ_TRIES:
                    raise
                await asyncio.sleep(wait_seconds(attempt, error.retry_after_seconds))
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
        """Write `body` as JSON and return the answer; told to slow down, raise Throttled at once.

        `repeatable` says that twice is the same as once: only then is it sent again where a connection broke before
        there was an answer. PUT is so by HTTP's own rules. What is `urgent` does not wait behind other requests.
        """
        query = {**query, "fieldManager": FIELD_MANAGER}
        sent = msgspec.json.encode(body)
        answer = await self._ask(method, path, query, sent, content_type, repeatable=repeatable, urgent=urgent)
        failure = failure_of(answer)
        if failure is not None:
            raise error_of_status(failure, f"{method} {path}")
        return answer

    @asynccontextmanager
    async def lines(
        self, path: str, query: Mapping[str, str], silence_seconds: float = _WATCH_SILENCE_SECONDS
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and yield its lines as they come, until the server ends it.

        There is no limit to the whole, but after `silence_seconds` without a byte, or where a line breaks off, the
        iterator raises Unavailable.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=self._seconds, sock_read=silence_seconds)
        asked = f"GET {path}"
        with translated(asked, silence_seconds):
            response = await self._respond("GET", path, query, None, _NOTHING, timeout)
        async with response:
            if response.status != 200:
                with translated(asked, self._seconds):
                    body = await response.read()
                raise error_of(response.status, body, asked, response.headers.get("Retry-After"))
            yield lines_of(response, asked, silence_seconds)

    async def close(self) -> None:
        """Close every connection."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        sent: bytes | None = None,
        content_type: str = "",
        *,
        repeatable: bool = True,
        urgent: bool = False,
    ) -> bytes:
        wait = 0.0 if urgent else self._bucket.reserve(time.monotonic())
        if wait > 0:
            await asyncio.sleep(wait)
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        headers = {"Content-Type": content_type} if content_type else _NOTHING
        asked = f"{method} {path}"
        with translated(asked, self._seconds):
            try:
                response, body = await self._exchange(method, path, query, sent, headers, timeout)
            except BROKEN:
                if not repeatable:
                    raise
                response, body = await self._exchange(method, path, query, sent, headers, timeout)
        if not 200 <= response.status < 300:
            raise error_of(response.status, body, asked, response.headers.get("Retry-After"))
        if "json" not in response.content_type:
            raise Unavailable(f"{asked} was answered with {response.content_type}: is that a Kubernetes API server?")
        return body

    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        sent: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        async with await self._respond(method, path, query, sent, headers, timeout) as response:
            return response, await response.read()

    async def _respond(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        sent: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send a request, once more with credentials read anew where those in use are not accepted."""
        identity = await self._credentials.current()
        response = await self._request(identity, method, path, query, sent, headers, timeout)
        if response.status != 401:
            return response
        response.release()
        identity = await self._credentials.renewed(identity)
        return await self._request(identity, method, path, query, sent, headers, timeout)

    async def _request(
        self,
        identity: Identity,
        method: str,
        path: str,
        query: Mapping[str, str],
        sent: bytes | None,
        headers: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        address = f"{identity.server}{path}?{urlencode(query)}" if query else f"{identity.server}{path}"
        session = await self._session(identity)
        if method != "GET" and not self._may_send():
            raise Unavailable(f"{method} {path}: not sent, since this process may not write any more")
        return await session.request(
            method,
            URL(address, encoded=True),
            data=sent,
            headers={**_HEADERS, **identity.headers, **headers},
            timeout=timeout,
            proxy=identity.proxy,
            server_hostname=identity.server_name,
            allow_redirects=False,
        )

    async def _session(self, identity: Identity) -> aiohttp.ClientSession:
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
