"""What the API shows, and how it asks for it."""

import asyncio
import re
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import HTTPException, Query, Request
from fastapi import Path as InPath
from starlette.requests import ClientDisconnect

from cruise.domain.actions import Outcome
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.policy import Policy
from cruise.domain.usage import StatisticsTable
from cruise.domain.users import Caller, UserAction, WhatIfProposal, WhatIfRun
from cruise.errors import UnavailableError
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.text import convert_to_camel_case
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.ports import StorePort

_STORE_SECONDS = 10.0

T = TypeVar("T")


class WhatIfPort(Protocol):
    """Who replays proposals: `app.serve.what_if.Rehearsals`."""

    def last(self) -> WhatIfRun | None:
        """Return the one that runs, else the last one."""
        ...

    async def begin(self, proposal: WhatIfProposal, caller: Caller) -> WhatIfRun:
        """Begin one. Raises BadInputError for what cannot be tried, Throttled while another one runs, Unavailable."""
        ...

    async def cancel(self) -> None:
        """End the one that runs, if one does."""
        ...


class ApiView(Protocol):
    """A running controller as the API sees it."""

    @property
    def store(self) -> StorePort:
        """The store."""
        ...

    @property
    def policy(self) -> Policy:
        """The policy that decides."""
        ...

    def now(self) -> datetime:
        """Return the time of the controller."""
        ...

    def get_figures(self) -> ControllerFigures:
        """Return how the controller is doing; whether it is paused may be left open."""
        ...

    def get_last_pass(self) -> NodePassResult | None:
        """Return the last node pass of this process, None before the first one and where another process leads."""
        ...

    async def snapshot(self) -> ClusterSnapshot:
        """Return the cluster as it is known now. Raises Unavailable."""
        ...

    async def statistics(self) -> StatisticsTable:
        """Return the statistics as of their last refresh. Raises Unavailable."""
        ...

    @property
    def what_if_runs(self) -> WhatIfPort | None:
        """Who replays proposals, None where there is no history to replay."""
        ...

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        """Put one workload back as `runtime.revert.revert_workload` does. Raises Unavailable."""
        ...

    async def announce(self, intervention: UserAction) -> None:
        """Let those who look at the cluster see what somebody did; raises nothing."""
        ...


async def wait_for_store(answer: Awaitable[T]) -> T:
    """Wait for the store no longer than a person would. Raises Unavailable."""
    try:
        async with asyncio.timeout(_STORE_SECONDS):
            return await answer
    except TimeoutError as error:
        raise UnavailableError(f"the store did not answer within {_STORE_SECONDS:g} s") from error


# What requests to the API may say: names, times, pages.

# Keys in JSON are in camel case.
CAMEL_CASE_CONFIG: dict[str, Any] = {"alias_generator": convert_to_camel_case, "populate_by_name": True}
_LARGEST_BODY_BYTES = 64 * 1024
_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_SUBDOMAIN = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"

NamespaceParameter = Annotated[str, InPath(pattern=_LABEL, description="A namespace.")]
NameParameter = Annotated[str, InPath(pattern=_SUBDOMAIN, description="The name of an object.")]
KindParameter = Annotated[str, InPath(pattern=r"^[A-Z][A-Za-z0-9]{0,62}$", description="A kind, such as Deployment.")]
OffsetParameter = Annotated[int, Query(ge=0, le=10_000_000, description="How many to pass over.")]


@dataclass(frozen=True, slots=True)
class RequestError:
    """Why a request was not answered, in one line."""

    error: str


def list_error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the failures of an endpoint for its OpenAPI description."""
    return {status: {"model": RequestError} for status in statuses}


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
