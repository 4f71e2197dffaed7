"""HTTP to a Prometheus server: the connection, credentials, and each rejection as one line."""

import re
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import structlog
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3 import disable_warnings
from urllib3.exceptions import InsecureRequestWarning, MaxRetryError, NewConnectionError
from urllib3.util.retry import Retry

from cruise.adapters.api_client import read_token_file, strip_credentials
from cruise.adapters.prometheus.cloud_identity import create_cloud_auth
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.errors import UNPARSABLE_ERRORS, BadInputError, ThrottledError, UnavailableError, UnreachableError

MAX_QUOTE_LENGTH = 160
# Messages of Prometheus, Thanos, Cortex, Mimir and VictoriaMetrics for a query that covers too much.
_TOO_LARGE = re.compile(
    r"too many (samples|points|series|chunks)|maximum resolution|time range exceeds|query length|-search\.max|"
    r"max(imum)? number of (series|chunks|samples)|matching timeseries exceeds|chunks? size limit|larger than max|"
    r"err-mimir-max-|limit \S+ violated|amount of memory consumed|response (size|is) (is )?too large",
    re.IGNORECASE,
)


class QueryTooLargeError(BadInputError):
    """The query covers more than the server allows; fewer series or less time may be answered."""


class PrometheusClient(PrometheusConnect):
    """The connection of prometheus-api-client (session, retries, URL), with answers as bytes.

    The library's own queries return parsed JSON, which needs eight times the memory at 20,000 series. Queries are sent
    by POST by default, because a selector may exceed the length of URLs.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        url = _check_url(settings.url)
        # Only failed connections are retried: a query that was received may have cost the server its work already.
        retry = Retry(total=1, connect=1, read=0, redirect=0, status=0, other=0, backoff_factor=0.2)
        # Uncompressed: inside a cluster, bytes are cheaper than compression.
        headers = {"Accept-Encoding": "identity", **settings.headers}
        super().__init__(url=url, headers=headers, retry=retry, method="GET" if settings.uses_get else "POST")
        self._uses_get = settings.uses_get
        self._session.cert = settings.client_certificate
        self._timeout_seconds = settings.timeout_seconds
        self._session.verify = _get_verification(settings)
        self._auth = _create_auth(settings)
        self._has_credentials = not isinstance(self._auth, _NoCredentials)

    def query_range(self, query: str, first: int, last: int, step: int) -> bytes:
        """Return the answer to a range query. Raises BadInputError, ThrottledError and UnavailableError."""
        return self._request("query_range", {"query": query, "start": first, "end": last, "step": step})

    def query(self, query: str, at: int) -> bytes:
        """Return the answer to an instant query. Raises BadInputError, ThrottledError and UnavailableError."""
        return self._request("query", {"query": query, "time": at})

    def query_series(self, selectors: Sequence[str], first: int, last: int) -> bytes:
        """Return the label sets of series with samples in a time range; raises as `query` does."""
        return self._request("series", {"match[]": selectors, "start": first, "end": last})

    def _request(self, endpoint: str, form: Mapping[str, str | int | Sequence[str]]) -> bytes:
        # Thanos then rejects what it cannot answer completely; other servers ignore the field.
        form = {**form, "partial_response": "false", "timeout": f"{self._timeout_seconds:g}s"}
        place = f"Prometheus at {self.url}"
        try:
            with self._session.request(
                "GET" if self._uses_get else "POST",
                f"{self.url}/api/v1/{endpoint}",
                params=form if self._uses_get else None,
                data=None if self._uses_get else form,
                headers=self.headers,
                auth=self._auth,
                # Given again, because REQUESTS_CA_BUNDLE would override the session's value.
                verify=self._session.verify,
                timeout=self._timeout_seconds,
                allow_redirects=False,
                stream=True,
            ) as response:
                if response.status_code != requests.codes.ok:
                    raise self._create_error(response)
                return self._read_body(response)
        except requests.exceptions.SSLError as error:
            raise BadInputError(f"{place}: TLS failed: {_shorten(str(error))}; set its CA file") from error
        except requests.exceptions.ConnectTimeout as error:
            raise UnreachableError(f"{place} did not answer within {self._timeout_seconds:g} s") from error
        except requests.exceptions.Timeout as error:
            raise UnavailableError(f"{place} did not answer within {self._timeout_seconds:g} s") from error
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
            raise UnavailableError(f"{place}: the answer was incomplete") from error
        except requests.exceptions.ConnectionError as error:
            kind = UnreachableError if _was_never_connected(error) else UnavailableError
            raise kind(f"{place} cannot be reached: {_describe_cause(error)}") from error
        except requests.exceptions.InvalidHeader as error:
            # The library's message contains the header, which may be a secret.
            raise BadInputError(f"{place}: one of prometheus_headers cannot be sent: remove line breaks") from error
        except requests.exceptions.RequestException as error:
            raise BadInputError(f"{place}: {_shorten(str(error))}") from error

    def _read_body(self, response: requests.Response) -> bytes:
        """Read the whole answer before the timeout; the library's own timeout applies to each read alone."""
        deadline = time.monotonic() + self._timeout_seconds
        pieces: list[bytes] = []
        for piece in response.iter_content(1 << 20):
            pieces.append(piece)
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"Prometheus at {self.url} did not finish its answer within {self._timeout_seconds:g} s"
                )
        return b"".join(pieces)

    def _create_error(self, response: requests.Response) -> BadInputError | ThrottledError | UnavailableError:
        place, status, reason = f"Prometheus at {self.url}", response.status_code, _read_reason(response)
        detail = f": {_shorten(reason)}" if reason else ""
        if status in (401, 403):
            hint = "rejected the credentials" if self._has_credentials else "requires credentials"
            return BadInputError(
                f"{place} {hint} ({status}): set prometheus_token_file, a user and password, or prometheus_identity"
            )
        if _TOO_LARGE.search(reason) or status == 413:
            detail = f": {_shorten(reason, MAX_QUOTE_LENGTH // 2)}" if reason else ""
            return QueryTooLargeError(
                f"{place} rejected the query as too large ({status}){detail}: lower "
                "prometheus_max_samples_per_query or "
                "prometheus_max_series_per_query"
            )
        wait = _retry_after(response)
        if status == 429 or (status == 503 and wait is not None):
            return ThrottledError(f"{place} throttles requests ({status}){detail}", wait)
        # 422: the server failed while it executed the query, for example a store of Thanos.
        if status in (408, 422, 500, 502, 503, 504):
            return UnavailableError(f"{place} cannot answer at present ({status}){detail}")
        if 200 < status < 300:
            return UnavailableError(f"{place} answered without the result of the query ({status})")
        return self._misdirected(response, detail)

    def _misdirected(self, response: requests.Response, detail: str) -> BadInputError:
        place, status = f"Prometheus at {self.url}", response.status_code
        if 300 <= status < 400:
            target = response.headers.get("Location", "another address")
            return BadInputError(
                f"{place} redirects to {_shorten(target)} ({status}): set prometheus_url to the final address"
            )
        if status == 404:
            return BadInputError(
                f"{place} has no query API at this address (404){detail}: set prometheus_url to the address "
                "before /api/v1"
            )
        return BadInputError(f"{place} rejected the query ({status}){detail}")


class _Token(AuthBase):
    """A bearer token from a file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self._token = ""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            status = self._path.stat()
            if (status.st_mtime_ns, status.st_ino) != self._version:
                self._token = read_token_file(self._path, "prometheus_token_file")
                self._version = (status.st_mtime_ns, status.st_ino)
        except OSError as error:
            raise BadInputError(f"prometheus_token_file {self._path} cannot be read: {error.strerror}") from error
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _NoCredentials(AuthBase):
    """No credentials; given explicitly, so that requests does not read a .netrc file."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


def _check_url(url: str) -> str:
    """Return the URL without a trailing slash. Raises BadInputError, whose message contains no password."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadInputError("prometheus_url is not a URL; an example is http://prometheus.monitoring:9090") from error
    if "@" in parts.netloc:
        raise BadInputError("prometheus_url contains a user: set prometheus_user and prometheus_password_file instead")
    if parts.scheme not in ("http", "https") or not host:
        shown = "" if "@" in url else f" is {url!r}"
        raise BadInputError(f"prometheus_url{shown}: expected http://… or https://…")
    return url.rstrip("/")


def _create_auth(settings: PrometheusSettings) -> AuthBase:
    if settings.identity is not None:
        return create_cloud_auth(settings.identity, settings.url, settings.aws_region)
    if settings.token_file is not None:
        return _Token(settings.token_file)
    if settings.user is not None:
        # As bytes, because requests encodes text as Latin-1.
        return HTTPBasicAuth(settings.user.encode(), (settings.password or "").encode())
    return _NoCredentials()


def _get_verification(settings: PrometheusSettings) -> bool | str:
    if settings.insecure_tls:
        # The user configured it; no warning at each request.
        disable_warnings(InsecureRequestWarning)
        return False
    if settings.ca_file is None:
        return True
    if not settings.ca_file.is_file():
        raise BadInputError(f"Prometheus' CA file {settings.ca_file} does not exist")
    return str(settings.ca_file)


def _read_reason(response: requests.Response) -> str:
    """Return the server's reason, empty if it gives none."""
    try:
        document: Any = response.json()
    except (*UNPARSABLE_ERRORS, requests.exceptions.RequestException):
        return ""
    # An API server that does not proxy a query answers with a Status.
    reason = (document.get("error") or document.get("message")) if isinstance(document, dict) else None
    return reason if isinstance(reason, str) else ""


def _shorten(text: str, max_length: int = MAX_QUOTE_LENGTH) -> str:
    line = strip_credentials(" ".join(text.split()))
    return line if len(line) <= max_length else f"{line[:max_length]}…"


def _was_never_connected(error: requests.exceptions.ConnectionError) -> bool:
    """Return whether no connection was established."""
    cause = error.args[0] if error.args else None
    return isinstance(cause, MaxRetryError) and isinstance(cause.reason, NewConnectionError)


def _describe_cause(error: requests.exceptions.ConnectionError) -> str:
    """Return the message of the operating system, without those of the libraries."""
    text = str(error)
    for pattern in (r"\[Errno -?\d+\] ([^'\")]+)", r"(Remote end closed connection)", r"(Read timed out)"):
        found = re.search(pattern, text)
        if found:
            return found.group(1)
    return _shorten(text)


def _retry_after(response: requests.Response) -> float | None:
    """Return the seconds of `Retry-After`; a date is compared with the server's own clock."""
    value = response.headers.get("Retry-After", "")
    if value.isdecimal():
        return float(value)
    try:
        retry_at = parsedate_to_datetime(value)
        return max(0.0, (retry_at - parsedate_to_datetime(response.headers.get("Date", ""))).total_seconds())
    except (TypeError, ValueError):
        return None


log = structlog.get_logger()

# Prometheus starts annotations of a query with "PromQL". A warning that names a store, a failure, a timeout or a limit
# is about missing data. Any other warning is logged: one that is in every answer must not stop all reads.
_REMARK = re.compile(r"\s*PromQL (info|warning)\b", re.IGNORECASE)
_MISSING = re.compile(
    r"stores?\b|storeapi|partial|incomplete|truncat|limit|exceed|too many|skip|drop|missing|miss\b|not all|some of|"
    r"fail|error|\berr\b|timed? ?out|timeout|deadline|cancel|abort|unavailable|unreachable|unhealthy|refused|reset|"
    r"\baway\b|\bdown\b|could ?n.t|can ?not|unable|remote.read|(receive|fetch) series|ingester|querier",
    re.IGNORECASE,
)


def check_completeness(warnings: Sequence[str] | None, is_partial: bool, accept_partial: bool) -> None:
    """Raise UnavailableError if the server reports that its answer is incomplete."""
    if accept_partial:
        return
    if is_partial:
        raise _incomplete("isPartial")
    for warning in warnings or ():
        if _REMARK.match(warning):
            continue
        if _MISSING.search(warning):
            raise _incomplete(warning)
        log.info("ignored a warning of Prometheus", warning=_shorten_warning(warning))


def _incomplete(warning: str) -> UnavailableError:
    return UnavailableError(
        f"Prometheus reports an incomplete answer: {_shorten_warning(warning)} (prometheus_allow_partial_response "
        "accepts it)"
    )


def _shorten_warning(warning: str) -> str:
    return " ".join(warning.split())[:MAX_QUOTE_LENGTH]
