"""What requests to the API may say: names, times, pages."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import HTTPException, Query, Request
from fastapi import Path as InPath
from starlette.requests import ClientDisconnect

from cruise.interfaces.shapes import camel

# Keys in JSON are in camel case.
CAMEL: dict[str, Any] = {"alias_generator": camel, "populate_by_name": True}
_LARGEST_BODY_BYTES = 64 * 1024
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


async def read_body(request: Request) -> bytes:
    """Read the body, as much as settings or a form can take. Raises HTTPException 400 and 413."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _LARGEST_BODY_BYTES:
                raise HTTPException(413, f"the body is larger than {_LARGEST_BODY_BYTES // 1024} KiB")
    except ClientDisconnect as error:
        raise HTTPException(400, "the body broke off") from error
    return bytes(body)
