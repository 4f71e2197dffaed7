"""What requests to the API may say: names, times, pages, and the token of writes."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Query
from fastapi import Path as InPath
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from cruise.interfaces.http.models import Failure
from cruise.interfaces.http.token import ApiToken

_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_SUBDOMAIN = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"

Namespace = Annotated[str, InPath(pattern=_LABEL, description="A namespace.")]
Name = Annotated[str, InPath(pattern=_SUBDOMAIN, description="The name of an object.")]
Kind = Annotated[str, InPath(pattern=r"^[A-Z][A-Za-z0-9]{0,62}$", description="A kind, such as Deployment.")]
Offset = Annotated[int, Query(ge=0, le=10_000_000, description="How many to pass over.")]


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI is told about answers other than success."""
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


def token_check(token_file: Path | None) -> Callable[..., None]:
    """Return the dependency that lets only those write who present the token. It raises HTTPException 401 and 403."""
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
