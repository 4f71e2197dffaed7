"""The running controller as the API uses it, the namespaces that a caller may see, and parameters of requests."""

import asyncio
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, HTTPException, Query, Request
from fastapi import Path as InPath
from starlette.requests import ClientDisconnect

from cruise.domain.actions import Outcome
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.policy import Policy
from cruise.domain.prices import PriceSettings
from cruise.domain.usage import StatisticsTable
from cruise.domain.users import Access, Caller, PodAccess, UserAction, WhatIfProposal, WhatIfRun
from cruise.domain.written_policies import PolicyOwnership
from cruise.errors import UnavailableError
from cruise.interfaces.http.figures import ControllerFigures
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.ports import StorePort

_STORE_SECONDS = 10.0

T = TypeVar("T")


class WhatIfPort(Protocol):
    """Runs what-if runs, one at a time."""

    def get_last(self) -> WhatIfRun | None:
        """Return the current run, or the last one."""

    async def begin(self, proposal: WhatIfProposal, caller: Caller) -> WhatIfRun:
        """Start a run.

        Raises BadInputError for an invalid proposal, ThrottledError while another one runs, UnavailableError.
        """

    async def cancel(self) -> None:
        """Cancel the current run, if there is one."""


class PolicyObjectPort(Protocol):
    """Reads and writes the policy objects of forms; the namespace of a ClusterRightsizingPolicy is empty."""

    async def list_missing_access(self, namespace: str, verbs: tuple[str, ...]) -> Sequence[str]:
        """Return which of the verbs cruise itself lacks. Raises CruiseError."""

    async def read_ownership(self, namespace: str, name: str) -> PolicyOwnership | None:
        """Return who maintains a policy, None if there is none. Raises CruiseError."""

    async def apply(
        self, namespace: str, name: str, document: Mapping[str, Any], before: PolicyOwnership | None
    ) -> None:
        """Write a policy, unless it changed since it was read as `before`.

        Raises ConflictError, NotFoundError if the kind is not served, RefusedError and other CruiseErrors.
        """

    async def delete(self, namespace: str, name: str, before: PolicyOwnership) -> None:
        """Delete a policy, unless it changed since it was read as `before`. Raises as `apply` does."""


class ApiView(Protocol):
    """A running controller as the API sees it."""

    @property
    def store(self) -> StorePort:
        """The database."""

    @property
    def policy(self) -> Policy:
        """The settings of decisions."""

    @property
    def prices(self) -> PriceSettings:
        """The prices that settings state."""

    def now(self) -> datetime:
        """Return the controller's time."""

    def get_figures(self) -> ControllerFigures:
        """Return the state of the controller; `paused` may be None."""

    def get_last_pass(self) -> NodePassResult | None:
        """Return the last node pass of this process, None before the first one or if another process is the leader."""

    async def snapshot(self) -> ClusterSnapshot:
        """Return the cluster as it is watched now. Raises UnavailableError."""

    async def statistics(self) -> StatisticsTable:
        """Return the statistics of the last usage pass. Raises UnavailableError."""

    @property
    def policy_objects(self) -> PolicyObjectPort | None:
        """What writes policy objects, None without an API server."""

    @property
    def what_if_runs(self) -> WhatIfPort | None:
        """The what-if runs, None if there is no recorded usage."""

    async def revert(self, namespace: str, workload: WorkloadRef) -> Sequence[Outcome]:
        """Restore one workload as `runtime.revert.revert_workload` does. Raises UnavailableError."""

    async def announce(self, action: UserAction) -> None:
        """Write an Event about a user action; raises nothing."""


async def wait_for_store(answer: Awaitable[T]) -> T:
    """Wait for the database for at most ten seconds. Raises UnavailableError."""
    try:
        async with asyncio.timeout(_STORE_SECONDS):
            return await answer
    except TimeoutError as error:
        raise UnavailableError(f"the database did not answer within {_STORE_SECONDS:g} s") from error


_MAX_BODY_BYTES = 64 * 1024
_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_SUBDOMAIN = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"
# Workloads of runs may be named by a label, and have a step after a colon.
_WORKLOAD = r"^[A-Za-z0-9]([-._:A-Za-z0-9]{0,317}[A-Za-z0-9])?$"

NamespaceParameter = Annotated[str, InPath(pattern=_LABEL, description="A namespace.")]
NameParameter = Annotated[str, InPath(pattern=_SUBDOMAIN, description="The name of an object.")]
WorkloadNameParameter = Annotated[str, InPath(pattern=_WORKLOAD, description="The name of a workload.")]
KindParameter = Annotated[str, InPath(pattern=r"^[A-Z][A-Za-z0-9]{0,62}$", description="A kind, such as Deployment.")]
OffsetParameter = Annotated[int, Query(ge=0, le=10_000_000, description="The number of items to skip.")]


@dataclass(frozen=True, slots=True)
class RequestError:
    """The error of a request, in one line."""

    error: str


def list_error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of an endpoint for its OpenAPI description."""
    return {status: {"model": RequestError} for status in statuses}


def parse_since(text: str) -> datetime:
    """Parse a time with a zone. Raises HTTPException 422."""
    # A plus sign that was not escaped arrives as a space.
    repaired = re.sub(r" (?=\d\d:?\d\d$)", "+", text)
    try:
        time = datetime.fromisoformat(repaired)
        if time.tzinfo is None:
            raise HTTPException(422, f'since: "{text[:40]}" has no zone; write e.g. 2026-01-01T12:00:00Z')
        return time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise HTTPException(422, f'since: "{text[:40]}" is not a time; write e.g. 2026-01-01T12:00:00Z') from error


async def read_body(request: Request) -> bytes:
    """Read a body of at most 64 KiB. Raises HTTPException 400 and 413."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                raise HTTPException(413, f"the body is larger than {_MAX_BODY_BYTES // 1024} KiB")
    except ClientDisconnect as error:
        raise HTTPException(400, "the body is incomplete") from error
    return bytes(body)


_ALL_NAMESPACES = PodAccess("")
# The limit leaves capacity for other callers' access reviews.
_CONCURRENT_REVIEWS = 8


class NamespaceAuthority(Protocol):
    """Decides what a caller may do."""

    async def authorize(self, caller: Caller, access: Access) -> bool:
        """Tell whether a caller has an access right. Raises ThrottledError, UnavailableError."""


@dataclass(frozen=True, slots=True)
class NamespaceVisibility:
    """The namespaces that one caller may see; all of them without an authority."""

    caller: Caller
    authority: NamespaceAuthority | None

    async def sees_all(self) -> bool:
        """Tell whether the caller may see all namespaces."""
        return self.authority is None or await self.authority.authorize(self.caller, _ALL_NAMESPACES)

    async def get_visible_namespaces(self, namespaces: Iterable[str]) -> Set[str] | None:
        """Return those of the namespaces that the caller may see, None if it may see all."""
        authority = self.authority
        if authority is None or await self.sees_all():
            return None
        names, visible = sorted(set(namespaces)), set[str]()
        for first in range(0, len(names), _CONCURRENT_REVIEWS):
            batch = names[first : first + _CONCURRENT_REVIEWS]
            allowed = await asyncio.gather(*(authority.authorize(self.caller, PodAccess(name)) for name in batch))
            visible.update(name for name, is_allowed in zip(batch, allowed, strict=True) if is_allowed)
        return visible

    async def require_access(self, namespace: str) -> None:
        """Raise HTTPException 403 if the caller may not see a namespace; empty means all namespaces."""
        if not await self.sees_all() and (
            not namespace or await self.get_visible_namespaces([namespace]) != {namespace}
        ):
            raise HTTPException(
                403, f"{self.caller.name} may not {PodAccess(namespace)}: no role of the user allows it"
            )


def get_namespace_visibility(request: Request) -> NamespaceVisibility:
    """Return the visibility that the request guard added to a request."""
    visibility = request.state.visibility
    assert isinstance(visibility, NamespaceVisibility)
    return visibility


def get_caller(request: Request) -> Caller:
    """Return the caller that the request guard added to a request."""
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller


VisibilityDependency = Annotated[NamespaceVisibility, Depends(get_namespace_visibility)]
CallerDependency = Annotated[Caller, Depends(get_caller)]


def collect_namespace_values(document: object) -> set[str]:
    """Return the values of all `namespace` keys in a JSON document."""
    if isinstance(document, dict):
        own = {document["namespace"]} if isinstance(document.get("namespace"), str) else set()
        return own.union(*(collect_namespace_values(value) for value in document.values()))
    if isinstance(document, list):
        return set().union(*(collect_namespace_values(value) for value in document))
    return set()


def filter_by_namespace(document: Any, visible: Set[str]) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """Return a JSON document without objects of other namespaces: removed from lists, null elsewhere."""
    if isinstance(document, list):
        return [filter_by_namespace(value, visible) for value in document if not _is_hidden(value, visible)]
    if isinstance(document, dict):
        return {
            key: None if _is_hidden(value, visible) else filter_by_namespace(value, visible)
            for key, value in document.items()
        }
    return document


def _is_hidden(value: object, visible: Set[str]) -> bool:
    return isinstance(value, dict) and isinstance(value.get("namespace"), str) and value["namespace"] not in visible
