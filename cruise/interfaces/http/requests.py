"""What requests to the API may say: names, times, pages, and the token of writes."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Query
from fastapi import Path as InPath
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from cruise.errors import Unavailable
from cruise.interfaces.shapes import camel

# Keys in JSON are in camel case.
CAMEL: dict[str, Any] = {"alias_generator": camel, "populate_by_name": True}
_LONGEST_TOKEN_BYTES = 4096
_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_SUBDOMAIN = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"

Namespace = Annotated[str, InPath(pattern=_LABEL, description="A namespace.")]
Name = Annotated[str, InPath(pattern=_SUBDOMAIN, description="The name of an object.")]
Kind = Annotated[str, InPath(pattern=r"^[A-Z][A-Za-z0-9]{0,62}$", description="A kind, such as Deployment.")]
Offset = Annotated[int, Query(ge=0, le=10_000_000, description="How many to pass over.")]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request was not answered, in one line."""

    error: str


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the failures of an endpoint for its OpenAPI description."""
    return {status: {"model": Failure} for status in statuses}


def parse_since(text: str) -> datetime:
    """Read a time with its zone. Raises HTTPException 422."""
    # A plus sign that was not escaped arrives as a blank.
    repaired = re.sub(r" (?=\d\d:?\d\d$)", "+", text)
    try:
        found = datetime.fromisoformat(repaired)
        if found.tzinfo is None:
            raise HTTPException(422, f'since: "{text[:40]}" lacks its zone; write e.g. 2026-01-01T12:00:00Z')
        return found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise HTTPException(422, f'since: "{text[:40]}" is not a time; write e.g. 2026-01-01T12:00:00Z') from error


class ApiToken:
    """The content of a file, read again when the file changes, as a mounted secret does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = b""

    def matches(self, presented: str) -> bool:
        """Compare in constant time; headers come with each byte as a character.

        Raises Unavailable where the file cannot be read or holds nothing.
        """
        return compare_digest(presented.encode("latin-1", "replace"), self._current())

    def _current(self) -> bytes:
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                with self._path.open("rb") as file:
                    self._token = file.read(_LONGEST_TOKEN_BYTES).strip()
                self._seen = seen
        except OSError as error:
            raise Unavailable(f"api_token_file {self._path} cannot be read: {error.strerror}") from error
        if not self._token:
            raise Unavailable(f"api_token_file {self._path} is empty")
        return self._token


def token_check(token_file: Path | None) -> Callable[..., None]:
    """Return the dependency that requires the token for writes. It raises HTTPException 401 and 403."""
    token = ApiToken(token_file) if token_file is not None else None
    bearer = HTTPBearer(auto_error=False, description="The content of api_token_file.")

    def check(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
        if token is None:
            raise HTTPException(403, "the API is read-only: set api_token_file (CRUISE_API_TOKEN_FILE) to let it write")
        if credentials is None or not token.matches(credentials.credentials):
            raise HTTPException(
                401,
                "writing needs the header Authorization: Bearer TOKEN with the token in api_token_file",
                {"WWW-Authenticate": "Bearer"},
            )

    return check
