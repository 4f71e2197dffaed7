"""The API's routes for user actions: pause, resume, revert, and the record of who did what."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated

import structlog
from fastapi import APIRouter, HTTPException, Query, Response

from cruise.domain.actions import Outcome, ResizePod
from cruise.domain.cluster import WorkloadRef
from cruise.domain.records import RETENTION
from cruise.domain.users import Caller, UserAction, UserActionKind
from cruise.errors import UnavailableError
from cruise.interfaces.http.view import (
    ApiView,
    CallerDependency,
    KindParameter,
    NamespaceParameter,
    NamespaceVisibility,
    VisibilityDependency,
    WorkloadNameParameter,
    list_error_responses,
    parse_since,
    wait_for_store,
)
from cruise.interfaces.reasons import describe_detail, describe_reason
from cruise.interfaces.revert_report import get_revert_state

log = structlog.get_logger()

_DAY = timedelta(days=1)
_MAX_ITEMS = 1000


@dataclass(frozen=True, slots=True)
class UserActionEntry:
    """One user action; `detail` has the settings of a policy."""

    at: datetime
    caller: str
    kind: str
    namespace: str | None
    workload: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class UserActionPage:
    """The newest user actions since a time, newest first; `more` says whether there are older ones."""

    items: list[UserActionEntry]
    more: bool


async def perform_user_action(
    view: ApiView,
    caller: Caller,
    kind: UserActionKind,
    change: Callable[[], Awaitable[None]],
    namespace: str | None = None,
    workload: WorkloadRef | None = None,
    detail: str = "",
) -> None:
    """Record a user action, do it, and announce it. Raises UnavailableError."""
    action = UserAction(view.now(), caller.name, kind, namespace, workload, detail)
    await wait_for_store(view.store.record_user_action(action))
    await change()
    subject = {"namespace": namespace, "workload": str(workload)} if workload is not None else {}
    log.info("user action", caller=caller.name, kind=kind.value, **subject, detail=detail)
    await view.announce(action)


def create_user_action_routes(view: ApiView) -> APIRouter:
    """Return the route at /user-actions."""
    routes = APIRouter(prefix="/user-actions", tags=["user actions"])

    @routes.get("", responses=list_error_responses(422, 503))
    async def user_actions(
        visibility: VisibilityDependency,
        since: Annotated[str | None, Query(description="A time with a zone; the default is a day ago.")] = None,
        limit: Annotated[int, Query(ge=1, le=_MAX_ITEMS, description="The maximum number of items.")] = 100,
    ) -> UserActionPage:
        """Return the newest user actions on namespaces whose pods the caller may get."""
        earliest = view.now() - _DAY if since is None else parse_since(since)
        return await read_user_action_page(view, visibility, earliest, limit)

    return routes


async def read_user_action_page(
    view: ApiView, visibility: NamespaceVisibility, since: datetime, limit: int
) -> UserActionPage:
    """Return the newest user actions on namespaces whose pods the caller may get."""
    visible = await visibility.get_visible_namespaces(await wait_for_store(view.store.read_audited_namespaces()))
    found = await wait_for_store(view.store.read_user_actions(since, limit + 1, visible))
    return UserActionPage([_entry(one) for one in found[:limit]], more=len(found) > limit)


def _entry(action: UserAction) -> UserActionEntry:
    workload = str(action.workload) if action.workload is not None else None
    return UserActionEntry(action.at, action.caller, action.kind.value, action.namespace, workload, action.detail)


# Pause and resume.


@dataclass(frozen=True, slots=True)
class PauseStatus:
    """Whether all writes to the cluster are paused, since when and by which user, null if that is not recorded."""

    paused: bool
    since: datetime | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class PausedWorkload:
    """A workload that is paused since a time, by a user or by a revert."""

    namespace: str
    kind: str
    name: str
    since: datetime


@dataclass(frozen=True, slots=True)
class PausedWorkloadList:
    """All paused workloads that the caller may see."""

    items: list[PausedWorkload]


async def get_pause_status(view: ApiView) -> PauseStatus:
    """Return whether cruise is paused, and who paused it. Raises UnavailableError."""
    if not await wait_for_store(view.store.is_paused()):
        return PauseStatus(False)
    cause = None
    for action in await wait_for_store(view.store.read_user_actions(view.now() - RETENTION.user_actions)):
        if action.kind is UserActionKind.RESUME:
            break
        # A revert of more than one workload pauses first.
        if action.kind is UserActionKind.PAUSE or (action.kind is UserActionKind.REVERT and action.workload is None):
            cause = action
    return PauseStatus(True) if cause is None else PauseStatus(True, cause.at, cause.caller)


def create_pause_routes(view: ApiView) -> APIRouter:
    """Return the routes at /pause."""
    routes = APIRouter(prefix="/pause", tags=["pause"])

    @routes.get("", responses=list_error_responses(503))
    async def paused() -> PauseStatus:
        """Return whether all writes to the cluster are paused, since when and by which user."""
        return await get_pause_status(view)

    @routes.put("", responses=list_error_responses(401, 403, 503))
    async def pause(caller: CallerDependency) -> PauseStatus:
        """Pause all writes to the cluster, also in the middle of a pass."""
        await perform_user_action(
            view, caller, UserActionKind.PAUSE, lambda: wait_for_store(view.store.set_paused(True))
        )
        return await get_pause_status(view)

    @routes.delete("", responses=list_error_responses(401, 403, 503))
    async def resume(caller: CallerDependency) -> PauseStatus:
        """Allow writes to the cluster again, starting with the next pass."""
        await perform_user_action(
            view, caller, UserActionKind.RESUME, lambda: wait_for_store(view.store.set_paused(False))
        )
        return PauseStatus(False)

    @routes.get("/workloads", responses=list_error_responses(503))
    async def paused_workloads(visibility: VisibilityDependency) -> PausedWorkloadList:
        """List the paused workloads of namespaces whose pods the caller may get, by namespace, kind and name."""
        return PausedWorkloadList(list(await list_paused_workloads(view, visibility)))

    @routes.put("/{namespace}/{kind}/{name}", responses=list_error_responses(401, 403, 404, 422, 503))
    async def pause_workload(
        caller: CallerDependency, namespace: NamespaceParameter, kind: KindParameter, name: WorkloadNameParameter
    ) -> PausedWorkload:
        """Pause one workload: its pods are neither resized nor evicted, and new ones get their template's sizes."""
        workload, now = WorkloadRef(kind, name), view.now()
        snapshot = await view.snapshot()
        if (namespace, workload) not in snapshot.workloads and not any(
            (pod.namespace, pod.workload) == (namespace, workload) for pod in snapshot.pods
        ):
            raise HTTPException(404, f"there is no {workload} in {namespace}")
        change = partial(_set_workload_pause, view, namespace, workload, now)
        await perform_user_action(view, caller, UserActionKind.PAUSE_WORKLOAD, change, namespace, workload)
        since = (await wait_for_store(view.store.read_paused_workloads())).get((namespace, workload), now)
        return PausedWorkload(namespace, kind, name, since)

    @routes.delete("/{namespace}/{kind}/{name}", responses=list_error_responses(401, 403, 422, 503), status_code=204)
    async def resume_workload(
        caller: CallerDependency, namespace: NamespaceParameter, kind: KindParameter, name: WorkloadNameParameter
    ) -> Response:
        """Resume one workload, also one that a revert paused; the cluster's pause still applies to it."""
        workload = WorkloadRef(kind, name)
        change = partial(_set_workload_pause, view, namespace, workload, None)
        await perform_user_action(view, caller, UserActionKind.RESUME_WORKLOAD, change, namespace, workload)
        return Response(status_code=204)

    return routes


async def _set_workload_pause(view: ApiView, namespace: str, workload: WorkloadRef, since: datetime | None) -> None:
    await wait_for_store(view.store.write_workload_pause(namespace, workload, since))


async def list_paused_workloads(view: ApiView, visibility: NamespaceVisibility) -> Sequence[PausedWorkload]:
    """Return the paused workloads that the caller may see. Raises UnavailableError."""
    found = await wait_for_store(view.store.read_paused_workloads())
    visible = await visibility.get_visible_namespaces(namespace for namespace, _ in found)
    return [
        PausedWorkload(namespace, workload.kind, workload.name, since)
        for (namespace, workload), since in sorted(found.items(), key=lambda item: (item[0][0], str(item[0][1])))
        if visible is None or namespace in visible
    ]


# Revert of one workload.

_MAX_SECONDS = 50.0


@dataclass(frozen=True, slots=True)
class RevertedPod:
    """One pod; `state` is `restored`, `pending` (another revert may restore it) or `not possible`."""

    pod: str
    state: str
    reason: str
    message: str
    detail: str


@dataclass(frozen=True, slots=True)
class RevertedWorkload:
    """The pods whose sizes were not their original ones; the workload is paused now."""

    namespace: str
    kind: str
    name: str
    pods: list[RevertedPod]


def create_revert_routes(view: ApiView) -> APIRouter:
    """Return the route under /reverts."""
    routes = APIRouter(prefix="/reverts", tags=["reverts"])

    @routes.put("/{namespace}/{kind}/{name}", responses=list_error_responses(401, 403, 404, 422, 503))
    async def revert(
        caller: CallerDependency, namespace: NamespaceParameter, kind: KindParameter, name: WorkloadNameParameter
    ) -> RevertedWorkload:
        """Pause one workload, and restore the original sizes of its pods, without evictions.

        To let cruise size it again, resume the workload: DELETE /pause/NAMESPACE/KIND/NAME.
        """
        workload = WorkloadRef(kind, name)
        outcomes: list[Outcome] = []

        async def change() -> None:
            outcomes.extend(await view.revert(namespace, workload))

        if not any((pod.namespace, pod.workload) == (namespace, workload) for pod in (await view.snapshot()).pods):
            raise HTTPException(404, f"there are no pods of {workload} in {namespace}")
        try:
            # A repeated request continues with the other pods.
            async with asyncio.timeout(_MAX_SECONDS):
                await perform_user_action(view, caller, UserActionKind.REVERT, change, namespace, workload)
        except TimeoutError as error:
            raise UnavailableError("not all pods are restored yet; repeat the request to continue") from error
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
