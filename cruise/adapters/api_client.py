"""The pause of a cruise that is reached over HTTP only, through its own API."""

import json
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from cruise.adapters.secrets import read_token
from cruise.errors import BadInput, Unavailable

_SECONDS = 10.0
_LONGEST_ANSWER_BYTES = 64 * 1024
_LONGEST_QUOTE = 160


class _NoRedirects(HTTPRedirectHandler):
    """The token is for the server that was named and for no other."""

    def redirect_request(self, *_: object) -> None:
        return None


class ApiClient:
    """Speaks to one server's API; blocks. Raises BadInput for what the caller can mend, else Unavailable."""

    def __init__(self, server: str, token_file: Path | None) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise BadInput(f'--server: "{server}" is not an address; write e.g. https://cruise.example.org')
        self.place = server.rstrip("/")
        self._token = read_token(token_file, "the token file") if token_file is not None else None
        context = ssl.create_default_context()
        self._opener = build_opener(_NoRedirects(), HTTPSHandler(context=context))

    def paused(self) -> bool:
        """Tell whether every write is stopped."""
        return self._pause("GET")

    def set_paused(self, wanted: bool) -> None:
        """Stop every write, or let them go on."""
        if self._token is None:
            raise BadInput("writing through --server needs its token: give --token-file, or set api_token_file")
        if self._pause("PUT" if wanted else "DELETE") is not wanted:
            raise Unavailable(f"{self.place} took the request and is as it was")

    def _pause(self, method: str) -> bool:
        document = self._ask(method, "/api/v1/pause")
        paused = document.get("paused")
        if not isinstance(paused, bool):
            raise BadInput(f"{self.place} answered with something else than cruise's API: is it the right address?")
        return paused

    def _ask(self, method: str, path: str) -> Mapping[str, object]:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = Request(f"{self.place}{path}", method=method, headers=headers)
        try:
            with self._opener.open(request, timeout=_SECONDS) as response:
                return _document(response.read(_LONGEST_ANSWER_BYTES))
        except HTTPError as error:
            raise self._refusal(error) from error
        except URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                raise BadInput(f"{self.place}: TLS failed: {error.reason}; set SSL_CERT_FILE to its CA") from error
            raise Unavailable(f"{self.place} cannot be reached: {error.reason}") from error
        except (OSError, HTTPException) as error:
            raise Unavailable(f"{self.place} cannot be reached: {str(error) or type(error).__name__}") from error

    def _refusal(self, error: HTTPError) -> BadInput | Unavailable:
        said = _document(error.read(_LONGEST_ANSWER_BYTES)).get("error")
        words = " ".join(said.split())[:_LONGEST_QUOTE] if isinstance(said, str) else error.reason
        kind = Unavailable if error.code >= 500 else BadInput
        return kind(f"{self.place} refused ({error.code}): {words}")


def _document(body: bytes) -> Mapping[str, object]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
