"""The audit for the API and the dashboard: its lines, and what cruise did since a time."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query

from cruise.domain.actions import ActionResult, ContainerTarget, EvictPod, Outcome, ReasonCode, ResizeCause, ResizePod
from cruise.domain.records import OutcomeCount
from cruise.interfaces.http.figures import get_action_name
from cruise.interfaces.http.view import (
    ApiView,
    NamespaceVisibility,
    VisibilityDependency,
    list_error_responses,
    parse_since,
    wait_for_store,
)
from cruise.interfaces.plan_document import format_resize
from cruise.interfaces.reasons import CAUSE_DESCRIPTIONS, REASON_DESCRIPTIONS, describe_detail, describe_reason
from cruise.interfaces.text import CAMEL_CASE_CONFIG

RECENT = timedelta(days=1)
_NEWEST = 5
# Among so many of the newest actions, one of each workload is looked for.
_SEARCHED = 500


@dataclass(frozen=True, slots=True)
class StatedSizeDocument:
    """The requests and limits of a container; null for an amount that is absent or that the resize did not change."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    cpu_millicores: int | None
    memory_bytes: int | None
    cpu_limit_millicores: int | None
    memory_limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class ContainerChangeDocument:
    """One container of a resize: what it stated before, null where that is not on record, and what was written."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    container: str
    before: StatedSizeDocument | None
    after: StatedSizeDocument


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the audit: `purpose` is the reason for the action, `reason` the reason for its result.

    For a resize, `cause` is the condition that caused it, and `containers` and `changes` are its sizes before and
    after. The same result occurred `count` times, first at `firstAt` and last at `at`, as updated once an hour.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    at: datetime
    first_at: datetime
    count: int
    action: str
    namespace: str | None
    pod: str | None
    node: str | None
    workload: str | None
    purpose: str
    result: str
    reason: str
    message: str
    detail: str
    cause: str | None
    changes: str
    containers: list[ContainerChangeDocument]


@dataclass(frozen=True, slots=True)
class AuditPage:
    """The newest lines since a time, newest first; `more` says whether there are older ones."""

    items: list[AuditEntry]
    more: bool


@dataclass(frozen=True, slots=True)
class RecentActions:
    """The actions since a time in namespaces whose pods the caller may get.

    `resizes` and `evictions` are those done; `oomKillsAnswered` of them followed an OOM kill. `refused` counts the
    results of attempts that the API server refused or that failed. `causes` counts the resizes done by cause. `newest`
    are the last actions done, one for each workload, newest first.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    since: datetime
    resizes: int
    evictions: int
    oom_kills_answered: int
    refused: int
    causes: dict[str, int]
    newest: list[AuditEntry]


def create_audit_routes(view: ApiView) -> APIRouter:
    """Return the routes at /audit and /actions."""
    routes = APIRouter(tags=["controller"])

    @routes.get("/audit", responses=list_error_responses(422, 503))
    async def audit(
        visibility: VisibilityDependency,
        since: Annotated[str | None, Query(description="A time with a zone; the default is a day ago.")] = None,
        limit: Annotated[int, Query(ge=1, le=1000, description="The maximum number of items.")] = 100,
    ) -> AuditPage:
        """Return the newest lines of the audit, without pods that the caller may not get."""
        earliest = view.now() - RECENT if since is None else parse_since(since)
        return await read_audit_page(view, visibility, earliest, limit)

    @routes.get("/actions", responses=list_error_responses(403, 422, 503))
    async def actions(
        visibility: VisibilityDependency,
        since: Annotated[str | None, Query(description="A time with a zone; the default is a day ago.")] = None,
        namespace: Annotated[str, Query(max_length=63, description="Only this namespace.")] = "",
    ) -> RecentActions:
        """Return what cruise did since a time."""
        if namespace:
            await visibility.require_access(namespace)
        earliest = view.now() - RECENT if since is None else parse_since(since)
        return await read_recent_actions(view, visibility, earliest, namespace)

    return routes


async def read_audit_page(view: ApiView, visibility: NamespaceVisibility, since: datetime, limit: int) -> AuditPage:
    """Return the newest lines of the audit, without pods that the caller may not get."""
    visible = await visibility.get_visible_namespaces(await wait_for_store(view.store.read_audited_namespaces()))
    outcomes = await wait_for_store(view.store.read_outcomes(since, limit + 1, visible))
    return AuditPage([build_audit_entry(one) for one in outcomes[:limit]], more=len(outcomes) > limit)


async def read_recent_actions(
    view: ApiView, visibility: NamespaceVisibility, since: datetime, namespace: str = ""
) -> RecentActions:
    """Return the actions since a time, of one namespace or of all that the caller may see."""
    counts = await wait_for_store(view.store.count_outcomes(since))
    names = {one.namespace for one in counts if one.namespace is not None}
    visible = {namespace} if namespace else await visibility.get_visible_namespaces(names)
    outcomes = await wait_for_store(view.store.read_done_outcomes(since, _SEARCHED, visible))
    shown = [
        one
        for one in counts
        if visible is None or one.namespace in visible or (one.namespace is None and not namespace)
    ]
    newest: dict[tuple[str, object], Outcome] = {}
    for outcome in outcomes:
        action = outcome.action
        if isinstance(action, ResizePod | EvictPod):
            newest.setdefault((action.namespace, action.workload or action.pod), outcome)
    return _summarize(since, shown, [build_audit_entry(one) for one in islice(newest.values(), _NEWEST)])


def _summarize(since: datetime, counts: Sequence[OutcomeCount], newest: list[AuditEntry]) -> RecentActions:
    done = [one for one in counts if one.result is ActionResult.DONE]
    causes = Counter[str]()
    for one in done:
        if one.cause is not None:
            causes[one.cause.value] += one.count
    return RecentActions(
        since,
        resizes=_sum(one for one in done if one.action_type is ResizePod),
        evictions=_sum(one for one in done if one.action_type is EvictPod),
        oom_kills_answered=_sum(one for one in done if one.purpose is ReasonCode.OOM_KILLED),
        refused=_sum(one for one in counts if one.result in (ActionResult.REFUSED, ActionResult.FAILED)),
        causes=dict(causes.most_common()),
        newest=newest,
    )


def _sum(counts: Iterable[OutcomeCount]) -> int:
    return sum(one.count for one in counts)


def describe_audit_cause(entry: AuditEntry) -> str:
    """Return the cause of a resize in words, or the reason for the action if there is no cause."""
    if entry.cause is None:
        return REASON_DESCRIPTIONS[ReasonCode(entry.purpose)]
    return CAUSE_DESCRIPTIONS[ResizeCause(entry.cause)]


def build_audit_entry(outcome: Outcome) -> AuditEntry:
    """Return the line of the audit for an outcome."""
    action = outcome.action
    pod_action = action if isinstance(action, ResizePod | EvictPod) else None
    workload = pod_action.workload if pod_action is not None else None
    return AuditEntry(
        at=outcome.at,
        first_at=outcome.since,
        count=outcome.count,
        action=get_action_name(outcome),
        namespace=pod_action.namespace if pod_action is not None else None,
        pod=pod_action.pod if pod_action is not None else None,
        node=action.node,
        workload=str(workload) if workload is not None else None,
        purpose=action.reason.value,
        result=outcome.result.value,
        reason=outcome.reason.value,
        message=describe_reason(outcome.reason),
        detail=describe_detail(outcome.detail),
        cause=action.cause.value if isinstance(action, ResizePod) and action.cause is not None else None,
        changes=format_resize(action, outcome.before, "→") if isinstance(action, ResizePod) else "",
        containers=_changes(action, outcome.before) if isinstance(action, ResizePod) else [],
    )


def _changes(action: ResizePod, before: Sequence[ContainerTarget]) -> list[ContainerChangeDocument]:
    recorded = {one.container: one for one in before}
    return [
        ContainerChangeDocument(
            target.container,
            _stated_size(recorded[target.container]) if target.container in recorded else None,
            _stated_size(target),
        )
        for target in action.containers
    ]


def _stated_size(one: ContainerTarget) -> StatedSizeDocument:
    requests, limits = one.requests, one.limits
    return StatedSizeDocument(
        requests.cpu_millicores, requests.memory_bytes, limits.cpu_millicores, limits.memory_bytes
    )
