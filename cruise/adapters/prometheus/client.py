"""HTTP to a Prometheus server: connection, credentials, and every refusal as one clear line."""

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
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.errors import BadInputError, ThrottledError, UnavailableError, UnreachableError

MAX_QUOTE_LENGTH = 160
# How Prometheus, Thanos, Cortex, Mimir and VictoriaMetrics say that one query covers too much.
_TOO_LARGE = re.compile(
    r"too many (samples|points|series|chunks)|maximum resolution|time range exceeds|query length|-search\.max|"
    r"max(imum)? number of (series|chunks|samples)|matching timeseries exceeds|chunks? size limit|larger than max|"
    r"err-mimir-max-|limit \S+ violated|amount of memory consumed|response (size|is) (is )?too large",
    re.IGNORECASE,
)


class QueryTooLargeError(BadInputError):
    """A query that covers more than the server allows: fewer series or less time may be answered."""


class PrometheusClient(PrometheusConnect):
    """Prometheus-api-client's connection, returning the bytes of answers.

    Queries are posted as a form by default, since a selector may outgrow what servers take as an address.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        url = _checked(settings.url)
        # Only a connection that was never made is tried again: a query that was heard may have cost its work already.
        retry = Retry(total=1, connect=1, read=0, redirect=0, status=0, other=0, backoff_factor=0.2)
        # One encoding: inside a cluster the bytes are cheaper than the packing.
        headers = {"Accept-Encoding": "identity", **settings.headers}
        super().__init__(url=url, headers=headers, retry=retry, method="GET" if settings.uses_get else "POST")
        self._by_get = settings.uses_get
        self._session.cert = settings.client_certificate
        self._seconds = settings.timeout_seconds
        self._session.verify = _verification(settings)
        self._credentials = _credentials(settings)
        self._has_credentials = settings.token_file is not None or settings.user is not None

    def query_range(self, query: str, first: int, last: int, step: int) -> bytes:
        """Return the answer to a range query. Raises BadInputError, Throttled, Unavailable."""
        return self._ask("query_range", {"query": query, "start": first, "end": last, "step": step})

    def query(self, query: str, at: int) -> bytes:
        """Return the answer to an instant query. Raises BadInputError, Throttled, Unavailable."""
        return self._ask("query", {"query": query, "time": at})

    def series(self, selectors: Sequence[str], first: int, last: int) -> bytes:
        """Return the label sets of the series that had samples in a time. Raises BadInputError, Throttled, Unavailable."""
        return self._ask("series", {"match[]": selectors, "start": first, "end": last})

    def _ask(self, endpoint: str, form: Mapping[str, str | int | Sequence[str]]) -> bytes:
        # Thanos then refuses what it cannot answer whole; the others ignore the field.
        form = {**form, "partial_response": "false", "timeout": f"{self._seconds:g}s"}
        place = f"Prometheus at {self.url}"
        try:
            with self._session.request(
                "GET" if self._by_get else "POST",
                f"{self.url}/api/v1/{endpoint}",
                params=form if self._by_get else None,
                data=None if self._by_get else form,
                headers=self.headers,
                auth=self._credentials,
                # Given again: the session's own choice would give way to REQUESTS_CA_BUNDLE.
                verify=self._session.verify,
                timeout=self._seconds,
                allow_redirects=False,
                stream=True,
            ) as response:
                if response.status_code != requests.codes.ok:
                    raise self._refusal(response)
                return self._body(response)
        except requests.exceptions.SSLError as error:
            raise BadInputError(f"{place}: TLS failed: {_shortened(str(error))}; set its CA file") from error
        except requests.exceptions.ConnectTimeout as error:
            raise UnreachableError(f"{place} did not answer within {self._seconds:g} s") from error
        except requests.exceptions.Timeout as error:
            raise UnavailableError(f"{place} did not answer within {self._seconds:g} s") from error
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
            raise UnavailableError(f"{place}: the answer was incomplete") from error
        except requests.exceptions.ConnectionError as error:
            refusal = UnreachableError if _was_never_made(error) else UnavailableError
            raise refusal(f"{place} cannot be reached: {_cause(error)}") from error
        except requests.exceptions.InvalidHeader as error:
            # The library quotes the header, which may be a secret.
            raise BadInputError(f"{place}: one of prometheus_headers cannot be sent: take out line breaks") from error
        except requests.exceptions.RequestException as error:
            raise BadInputError(f"{place}: {_shortened(str(error))}") from error

    def _body(self, response: requests.Response) -> bytes:
        """Read the whole answer; the library's time-out bounds each wait alone, and a trickle could go on for ever."""
        deadline = time.monotonic() + self._seconds
        pieces: list[bytes] = []
        for piece in response.iter_content(1 << 20):
            pieces.append(piece)
            if time.monotonic() > deadline:
                raise UnavailableError(f"Prometheus at {self.url} did not finish its answer within {self._seconds:g} s")
        return b"".join(pieces)

    def _refusal(self, response: requests.Response) -> BadInputError | ThrottledError | UnavailableError:
        place, status, reason = f"Prometheus at {self.url}", response.status_code, _reason(response)
        said = f": {_shortened(reason)}" if reason else ""
        if status in (401, 403):
            hint = "refused the credentials" if self._has_credentials else "asks for credentials"
            return BadInputError(f"{place} {hint} ({status}): set prometheus_token_file, or a user and password")
        if _TOO_LARGE.search(reason) or status == 413:
            said = f": {_shortened(reason, MAX_QUOTE_LENGTH // 2)}" if reason else ""
            return QueryTooLargeError(
                f"{place} calls the query too large ({status}){said}: lower prometheus_max_samples_per_query or "
                "prometheus_max_series_per_query"
            )
        wait = _retry_after(response)
        if status == 429 or (status == 503 and wait is not None):
            return ThrottledError(f"{place} asks to slow down ({status}){said}", wait)
        # 422: the query was understood, and something failed while it was carried out, such as a store of Thanos.
        if status in (408, 422, 500, 502, 503, 504):
            return UnavailableError(f"{place} cannot answer now ({status}){said}")
        if 200 < status < 300:
            return UnavailableError(f"{place} answered without the result of the query ({status})")
        return self._misdirected(response, said)

    def _misdirected(self, response: requests.Response, said: str) -> BadInputError:
        place, status = f"Prometheus at {self.url}", response.status_code
        if 300 <= status < 400:
            target = response.headers.get("Location", "somewhere else")
            return BadInputError(
                f"{place} redirects to {_shortened(target)} ({status}): set prometheus_url to the final address"
            )
        if status == 404:
            return BadInputError(
                f"{place} has no query API there (404){said}: set prometheus_url to the address before /api/v1"
            )
        return BadInputError(f"{place} refused the query ({status}){said}")


class _Token(AuthBase):
    """A bearer token from a file, read again when the file changes, as a mounted token does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = ""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        try:
            status = self._path.stat()
            if (status.st_mtime_ns, status.st_ino) != self._seen:
                self._token = read_token_file(self._path, "prometheus_token_file")
                self._seen = (status.st_mtime_ns, status.st_ino)
        except OSError as error:
            raise BadInputError(f"prometheus_token_file {self._path} cannot be read: {error.strerror}") from error
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _NoCredentials(AuthBase):
    """Nothing; given explicitly, so that requests does not look for some in a .netrc file."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


def _checked(written: str) -> str:
    """Return the server's address without a slash at its end. Raises BadInputError, which quotes no password."""
    try:
        parts = urlsplit(written)
        place, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadInputError("prometheus_url is not an address; write e.g. http://prometheus.monitoring:9090") from error
    if "@" in parts.netloc:
        raise BadInputError("prometheus_url holds a user: set prometheus_user and prometheus_password_file instead")
    if parts.scheme not in ("http", "https") or not place:
        shown = "" if "@" in written else f" is {written!r}"
        raise BadInputError(f"prometheus_url{shown}: expected http://… or https://…")
    return written.rstrip("/")


def _credentials(settings: PrometheusSettings) -> AuthBase:
    if settings.token_file is not None:
        return _Token(settings.token_file)
    if settings.user is not None:
        # As bytes: text would have to be Latin-1.
        return HTTPBasicAuth(settings.user.encode(), (settings.password or "").encode())
    return _NoCredentials()


def _verification(settings: PrometheusSettings) -> bool | str:
    if settings.insecure_tls:
        # Asked for; a warning at each request would say nothing new.
        disable_warnings(InsecureRequestWarning)
        return False
    if settings.ca_file is None:
        return True
    if not settings.ca_file.is_file():
        raise BadInputError(f"Prometheus' CA file {settings.ca_file} is not there")
    return str(settings.ca_file)


def _reason(response: requests.Response) -> str:
    """Return what the server gave as its reason, empty where it gave none."""
    try:
        document: Any = response.json()
    except (ValueError, requests.exceptions.RequestException):
        return ""
    # An API server that does not proxy a query gives its own reason.
    reason = (document.get("error") or document.get("message")) if isinstance(document, dict) else None
    return reason if isinstance(reason, str) else ""


def _shortened(text: str, longest: int = MAX_QUOTE_LENGTH) -> str:
    line = strip_credentials(" ".join(text.split()))
    return line if len(line) <= longest else f"{line[:longest]}…"


def _was_never_made(error: requests.exceptions.ConnectionError) -> bool:
    """Tell whether there was no connection at all: one that ends early was heard by something."""
    cause = error.args[0] if error.args else None
    return isinstance(cause, MaxRetryError) and isinstance(cause.reason, NewConnectionError)


def _cause(error: requests.exceptions.ConnectionError) -> str:
    """Return the system's own words, without the layers that wrapped them."""
    text = str(error)
    for pattern in (r"\[Errno -?\d+\] ([^'\")]+)", r"(Remote end closed connection)", r"(Read timed out)"):
        found = re.search(pattern, text)
        if found:
            return found.group(1)
    return _shortened(text)


def _retry_after(response: requests.Response) -> float | None:
    """Return the seconds of `Retry-After`, whose date form is read against the server's own clock."""
    value = response.headers.get("Retry-After", "")
    if value.isdecimal():
        return float(value)
    try:
        then = parsedate_to_datetime(value)
        return max(0.0, (then - parsedate_to_datetime(response.headers.get("Date", ""))).total_seconds())
    except (TypeError, ValueError):
        return None


# Whether a server calls its own answer incomplete, or only remarks on the query. Both come in the same list. Prometheus begins its remarks with "PromQL". A text that names a store, a failure, a time-out or a limit is about data that is missing: partial responses of Thanos, a remote read that failed, results that were cut off. Any other text is taken for a remark and logged, since a note that comes with every answer must not end all reading.

log = structlog.get_logger()

_REMARK = re.compile(r"\s*PromQL (info|warning)\b", re.IGNORECASE)
_MISSING = re.compile(
    r"stores?\b|storeapi|partial|incomplete|truncat|limit|exceed|too many|skip|drop|missing|miss\b|not all|some of|"
    r"fail|error|\berr\b|timed? ?out|timeout|deadline|cancel|abort|unavailable|unreachable|unhealthy|refused|reset|"
    r"\baway\b|\bdown\b|could ?n.t|can ?not|unable|remote.read|(receive|fetch) series|ingester|querier",
    re.IGNORECASE,
)


def check_completeness(warnings: Sequence[str] | None, is_partial: bool, accept_partial: bool) -> None:
    """Raise Unavailable where a server says that something is missing from its answer."""
    if accept_partial:
        return
    if is_partial:
        raise _incomplete("isPartial")
    for said in warnings or ():
        if _REMARK.match(said):
            continue
        if _MISSING.search(said):
            raise _incomplete(said)
        log.info("warning of Prometheus taken for a remark on the query", said=_shorten_warning(said))


def _incomplete(said: str) -> UnavailableError:
    return UnavailableError(
        f"Prometheus calls its own answer incomplete: {_shorten_warning(said)} (prometheus_allow_partial_response would take it)"
    )


def _shorten_warning(said: str) -> str:
    return " ".join(said.split())[:160]
