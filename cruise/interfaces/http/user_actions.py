"""Who paused, resumed and overrode: on record before it holds, in the log and as an Event once it does."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import structlog
from fastapi import APIRouter, HTTPException, Query

from cruise.domain.actions import Outcome, ResizePod
from cruise.domain.cluster import WorkloadRef
from cruise.domain.records import RETENTION
from cruise.domain.users import Caller, UserAction, UserActionKind
from cruise.errors import UnavailableError
from cruise.interfaces.http.namespace_visibility import CallerDependency, NamespaceVisibility, VisibilityDependency
from cruise.interfaces.http.view import (
    ApiView,
    KindParameter,
    NameParameter,
    NamespaceParameter,
    list_error_responses,
    parse_since,
    wait_for_store,
)
from cruise.interfaces.reasons import describe_detail, describe_reason
from cruise.interfaces.revert_report import get_revert_state

log = structlog.get_logger()

_DAY = timedelta(days=1)
_MOST = 1000


@dataclass(frozen=True, slots=True)
class UserActionEntry:
    """What somebody did to cruise; `detail` has the settings of an override."""

    at: datetime
    caller: str
    kind: str
    namespace: str | None
    workload: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class UserActionPage:
    """The newest interventions since a time, newest first; `more` tells that there are older ones."""

    items: list[UserActionEntry]
    more: bool


async def perform_user_action(
    view: ApiView,
    caller: Caller,
    deed: UserActionKind,
    change: Callable[[], Awaitable[None]],
    namespace: str | None = None,
    workload: WorkloadRef | None = None,
    detail: str = "",
) -> None:
    """Put on record who does what, do it, and tell. Raises Unavailable."""
    done = UserAction(view.now(), caller.name, deed, namespace, workload, detail)
    await wait_for_store(view.store.record_user_action(done))
    await change()
    of = {"namespace": namespace, "workload": str(workload)} if workload is not None else {}
    log.info("intervention", caller=caller.name, deed=deed.value, **of, detail=detail)
    await view.announce(done)


def create_user_action_routes(view: ApiView) -> APIRouter:
    """Return the route at /interventions."""
    routes = APIRouter(prefix="/interventions", tags=["interventions"])

    @routes.get("", responses=list_error_responses(422, 503))
    async def interventions(
        sight: VisibilityDependency,
        since: Annotated[str | None, Query(description="A time with its zone; a day ago without it.")] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST, description="How many at most.")] = 100,
    ) -> UserActionPage:
        """Return who paused, resumed and overrode, of namespaces whose pods the caller may get."""
        earliest = view.now() - _DAY if since is None else parse_since(since)
        return await read_user_action_page(view, sight, earliest, limit)

    return routes


async def read_user_action_page(
    view: ApiView, sight: NamespaceVisibility, since: datetime, limit: int
) -> UserActionPage:
    """Return who paused, resumed and overrode, of namespaces whose pods the caller may get."""
    found = await wait_for_store(view.store.user_actions(since, _MOST + 1))
    seen = await sight.get_visible_namespaces(one.namespace for one in found if one.namespace is not None)
    lines = [_line(one) for one in found if seen is None or one.namespace is None or one.namespace in seen]
    return UserActionPage(lines[:limit], more=len(lines) > limit or len(found) > _MOST)


def _line(one: UserAction) -> UserActionEntry:
    workload = str(one.workload) if one.workload is not None else None
    return UserActionEntry(one.at, one.caller, one.kind.value, one.namespace, workload, one.detail)


# Stopping every write, and letting them go on, through the API.


@dataclass(frozen=True, slots=True)
class PauseStatus:
    """Whether every write to the cluster is stopped, since when and by whom, null where that is not on record."""

    paused: bool
    since: datetime | None = None
    by: str | None = None


async def get_pause_status(view: ApiView) -> PauseStatus:
    """Return whether every write is stopped, and who stopped them. Raises Unavailable."""
    if not await wait_for_store(view.store.paused()):
        return PauseStatus(False)
    began = None
    for one in await wait_for_store(view.store.user_actions(view.now() - RETENTION.user_actions)):
        if one.kind is UserActionKind.RESUME:
            break
        # A revert of more than one workload pauses first.
        if one.kind is UserActionKind.PAUSE or (one.kind is UserActionKind.REVERT and one.workload is None):
            began = one
    return PauseStatus(True) if began is None else PauseStatus(True, began.at, began.caller)


def create_pause_routes(view: ApiView) -> APIRouter:
    """Return the routes at /pause."""
    routes = APIRouter(prefix="/pause", tags=["pause"])

    @routes.get("", responses=list_error_responses(503))
    async def paused() -> PauseStatus:
        """Tell whether every write to the cluster is stopped, since when and by whom."""
        return await get_pause_status(view)

    @routes.put("", responses=list_error_responses(401, 403, 503))
    async def pause(caller: CallerDependency) -> PauseStatus:
        """Stop every write to the cluster, also in the middle of a pass."""
        await perform_user_action(
            view, caller, UserActionKind.PAUSE, lambda: wait_for_store(view.store.set_paused(True))
        )
        return await get_pause_status(view)

    @routes.delete("", responses=list_error_responses(401, 403, 503))
    async def resume(caller: CallerDependency) -> PauseStatus:
        """Let writes to the cluster go on, from the next pass on."""
        await perform_user_action(
            view, caller, UserActionKind.RESUME, lambda: wait_for_store(view.store.set_paused(False))
        )
        return PauseStatus(False)

    return routes


# One workload back to the sizes that its pods had before cruise, through the API.

_LONGEST_SECONDS = 50.0


@dataclass(frozen=True, slots=True)
class RevertedPod:
    """What became of one pod: `state` is `put back`, `waits` (another revert may do it) or `not possible`."""

    pod: str
    state: str
    reason: str
    message: str
    detail: str


@dataclass(frozen=True, slots=True)
class RevertedWorkload:
    """What became of the pods that had other sizes than their original ones; a stored mode now holds the workload."""

    namespace: str
    kind: str
    name: str
    pods: list[RevertedPod]


def create_revert_routes(view: ApiView) -> APIRouter:
    """Return the route under /reverts."""
    routes = APIRouter(prefix="/reverts", tags=["reverts"])

    @routes.put("/{namespace}/{kind}/{name}", responses=list_error_responses(401, 403, 404, 422, 503))
    async def put_back(
        caller: CallerDependency, namespace: NamespaceParameter, kind: KindParameter, name: NameParameter
    ) -> RevertedWorkload:
        """Store mode observe for one workload, and put its pods back to their original sizes, without evictions.

        Removing what is stored for it, or storing another mode, lets cruise size it again.
        """
        workload = WorkloadRef(kind, name)
        outcomes: list[Outcome] = []

        async def change() -> None:
            outcomes.extend(await view.revert(namespace, workload))

        if not any((pod.namespace, pod.workload) == (namespace, workload) for pod in (await view.snapshot()).pods):
            raise HTTPException(404, f"there are no pods of {workload} in {namespace}")
        try:
            # What takes longer is asked for again, and goes on where it was.
            async with asyncio.timeout(_LONGEST_SECONDS):
                await perform_user_action(view, caller, UserActionKind.REVERT, change, namespace, workload)
        except TimeoutError as error:
            raise UnavailableError(
                "not all pods are put back yet; ask again, and it goes on with the others"
            ) from error
        return RevertedWorkload(namespace, kind, name, [_document(outcome) for outcome in outcomes])

    return routes


def _document(outcome: Outcome) -> RevertedPod:
    action = outcome.action
    assert isinstance(action, ResizePod)
    return RevertedPod(
        action.pod,
        get_revert_state(outcome),
        outcome.reason.value,
        describe_reason(outcome.reason),
        describe_detail(outcome.detail),
    )
