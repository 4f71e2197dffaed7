"""The controller through the API: how it is doing, what the last pass decided, and what was done."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, HTTPException, Query, Response

from cruise import __version__
from cruise.decisions.node_load import format_untaint_command
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.domain.actions import ContainerTarget, EvictPod, Outcome, ResizePod
from cruise.errors import CruiseError, UnavailableError, pause_garbage_collection
from cruise.interfaces.http.figures import get_action_name
from cruise.interfaces.http.namespace_visibility import NamespaceVisibility, VisibilityDependency
from cruise.interfaces.http.view import (
    CAMEL_CASE_CONFIG,
    ApiView,
    NameParameter,
    OffsetParameter,
    list_error_responses,
    parse_since,
    wait_for_store,
)
from cruise.interfaces.plan_document import build_node_plan_document
from cruise.interfaces.reasons import describe_detail, describe_reason
from cruise.interfaces.size_changes import format_resize
from cruise.runtime.node_load import NodeLoadPassResult
from cruise.runtime.node_pass import NodePassResult

_DAY = timedelta(days=1)
# Of so many lines at most a caller sees those of its namespaces.
MAX_FILTERED = 5000


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job of the controller; `error` is why its latest run was dropped, null where it went through."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    name: str
    runs: int
    failures: int
    failures_in_a_row: int
    last_seconds: float
    last_ended_at: datetime | None
    last_success_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class NodeLoadStatus:
    """The last look at the nodes' loads.

    `tainted` bear cruise's taint. `implausible` have a load that cannot be true; `overloadedAtOnce` is how many are
    overloaded where that is more than half of the nodes, else 0: such loads taint no node. `remedy` is the command that
    takes off taints which cruise has no right to take off, else null.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    at: datetime
    tainted: list[str]
    implausible: list[str]
    overloaded_at_once: int
    remedy: str | None


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """The process that answers. `paused` is null where the store does not say, and `storeError` says why.

    `nodeLoad` is null before the first look at the nodes' loads.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    version: str
    mode: str
    paused: bool | None
    store_error: str | None
    leader: bool
    jobs: list[JobStatus]
    last_pass_at: datetime | None
    statistics_at: datetime | None
    watch_lag_seconds: float | None
    node_load: NodeLoadStatus | None


@dataclass(frozen=True, slots=True)
class SizeDocument:
    """CPU and memory."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    cpu_millicores: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedEvictionDocument:
    """A pod to evict, and the resource that does not fit."""

    namespace: str
    pod: str
    ranking: str
    resource: str


@dataclass(frozen=True, slots=True)
class TargetDocument:
    """What a container gets, moved far enough to be written or not; no memory limit is null."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    namespace: str
    pod: str
    container: str
    cpu_millicores: int
    memory_bytes: int
    memory_limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class ResizeDocument:
    """The strategic-merge patch of a pod's `resize` subresource."""

    namespace: str
    pod: str
    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SkippedPodDocument:
    """A pod left as it is."""

    namespace: str
    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodePlanDocument:
    """One node's plan, as `cruise plan` prints it."""

    node: str
    fits: bool
    reason: str | None
    available: SizeDocument
    evict: list[PlannedEvictionDocument]
    targets: list[TargetDocument]
    resize: list[ResizeDocument]
    hold: list[SkippedPodDocument]


@dataclass(frozen=True, slots=True)
class NodePage:
    """Some of the last pass's nodes by name, from `offset` on; `total` counts all."""

    at: datetime
    total: int
    offset: int
    items: list[NodePlanDocument]


@dataclass(frozen=True, slots=True)
class StatedSizeDocument:
    """What a container states; null for what it does not, or what a resize left as it was."""

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
    """One line of the audit: `why` is what the action was for, `reason` what decided how it ended.

    Of a resize `cause` is why a node pass found it worth a write, `containers` and `changes` are its sizes before and
    after.

    What ended like that `count` times did so first at `first_at` and last at `at`, as far as is known: what goes on is
    brought up to date once an hour.
    """

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
    """The newest lines since a time, newest first; `more` tells that there are older ones."""

    items: list[AuditEntry]
    more: bool


def create_controller_routes(view: ApiView) -> APIRouter:
    """Return the routes of the controller: its status, the last pass's nodes, and the audit."""
    routes = APIRouter(tags=["controller"])

    @routes.get("/status")
    async def status() -> ControllerStatus:
        """Tell how the controller is doing."""
        return await build_controller_status(view)

    @routes.get("/nodes", response_model=NodePage, responses=list_error_responses(422, 503))
    async def nodes(
        sight: VisibilityDependency,
        offset: OffsetParameter = 0,
        limit: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 50,
    ) -> Response:
        """Return the plans of the last node pass, by node, without pods that the caller may not get."""
        done = get_last_pass(view)
        plans = sorted(done.plans, key=lambda plan: plan.node)[offset : offset + limit]
        shown = await filter_plans_by_namespace(plans, sight)
        # A page of large nodes takes a tenth of a second, which others need not wait for.
        return await asyncio.to_thread(_node_page, done, shown, offset)

    @routes.get("/nodes/{name}", response_model=NodePlanDocument, responses=list_error_responses(404, 422, 503))
    async def node(sight: VisibilityDependency, name: NameParameter) -> Response:
        """Return the plan of one node in the last node pass, without pods that the caller may not get."""
        found = next((plan for plan in get_last_pass(view).plans if plan.node == name), None)
        if found is None:
            raise HTTPException(404, f"the last pass saw no node {name}")
        [shown] = await filter_plans_by_namespace([found], sight)
        return _document(build_node_plan_document(shown))

    @routes.get("/outcomes", responses=list_error_responses(422, 503))
    async def outcomes(
        sight: VisibilityDependency,
        since: Annotated[str | None, Query(description="A time with its zone; a day ago without it.")] = None,
        limit: Annotated[int, Query(ge=1, le=1000, description="How many at most.")] = 100,
    ) -> AuditPage:
        """Return the newest lines of the audit, without pods that the caller may not get."""
        earliest = view.now() - _DAY if since is None else parse_since(since)
        return await read_audit_page(view, sight, earliest, limit)

    return routes


async def read_audit_page(view: ApiView, sight: NamespaceVisibility, since: datetime, limit: int) -> AuditPage:
    """Return the newest lines of the audit, without pods that the caller may not get."""
    looked_at = limit + 1 if await sight.sees_all() else MAX_FILTERED
    found = await wait_for_store(view.store.outcomes(since, looked_at))
    lines = [_line(outcome) for outcome in found]
    seen = await sight.get_visible_namespaces(line.namespace for line in lines if line.namespace is not None)
    shown = [line for line in lines if seen is None or line.namespace is None or line.namespace in seen]
    return AuditPage(shown[:limit], more=len(shown) > limit or len(found) == looked_at)


async def build_controller_status(view: ApiView) -> ControllerStatus:
    """Return how the controller is doing."""
    paused, store_error = None, None
    try:
        paused = await wait_for_store(view.store.paused())
    except CruiseError as refusal:
        store_error = str(refusal)
    figures = view.get_figures()
    lag = figures.watch_lag_seconds
    return ControllerStatus(
        version=__version__,
        mode=figures.mode.label,
        paused=paused,
        store_error=store_error,
        leader=figures.leader,
        jobs=[
            JobStatus(
                job.name,
                job.runs,
                job.failures,
                job.failures_in_a_row,
                job.last_seconds,
                job.last_ended_at,
                job.last_success_at,
                job.error,
            )
            for job in figures.jobs
        ],
        last_pass_at=figures.last_pass.at if figures.last_pass is not None else None,
        statistics_at=figures.statistics_at,
        watch_lag_seconds=lag if lag is not None and math.isfinite(lag) else None,
        node_load=_node_load(figures.load_pass) if figures.load_pass is not None else None,
    )


def _node_load(done: NodeLoadPassResult) -> NodeLoadStatus:
    return NodeLoadStatus(
        at=done.at,
        tainted=list(done.tainted),
        implausible=list(done.implausible),
        overloaded_at_once=done.overloaded_at_once,
        remedy=format_untaint_command(done.unremovable) if done.unremovable else None,
    )


def get_last_pass(view: ApiView) -> NodePassResult:
    """Return the last node pass of this process. Raises Unavailable with the reason why there is none."""
    found = view.get_last_pass()
    if found is None:
        why = "no node pass was made yet" if view.get_figures().leader else "another process leads and makes the passes"
        raise UnavailableError(f"there is no plan here: {why}")
    return found


async def filter_plans_by_namespace(plans: Sequence[NodePlan], sight: NamespaceVisibility) -> Sequence[NodePlan]:
    """Return plans without the pods of namespaces that are not seen."""
    seen = await sight.get_visible_namespaces(namespace for plan in plans for namespace in _namespaces(plan))
    if seen is None:
        return plans
    return [
        replace(
            plan,
            evict=tuple(one for one in plan.evict if one.namespace in seen),
            targets=tuple(one for one in plan.targets if one.namespace in seen),
            resize=tuple(one for one in plan.resize if one.namespace in seen),
            skipped=tuple(one for one in plan.skipped if one.namespace in seen),
        )
        for plan in plans
    ]


def _namespaces(plan: NodePlan) -> Iterator[str]:
    yield from (one.namespace for one in plan.evict)
    yield from (one.namespace for one in plan.targets)
    yield from (one.namespace for one in plan.resize)
    yield from (one.namespace for one in plan.skipped)


def _node_page(done: NodePassResult, plans: Sequence[NodePlan], offset: int) -> Response:
    page = {"at": done.at, "total": len(done.plans), "offset": offset}
    with pause_garbage_collection():
        return _document({**page, "items": [build_node_plan_document(plan) for plan in plans]})


def _line(outcome: Outcome) -> AuditEntry:
    action = outcome.action
    of_pod = action if isinstance(action, ResizePod | EvictPod) else None
    return AuditEntry(
        at=outcome.at,
        first_at=outcome.since,
        count=outcome.count,
        action=get_action_name(outcome),
        namespace=of_pod.namespace if of_pod is not None else None,
        pod=of_pod.pod if of_pod is not None else None,
        node=action.node,
        workload=str(of_pod.workload) if of_pod is not None and of_pod.workload is not None else None,
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
    known = {one.container: one for one in before}
    return [
        ContainerChangeDocument(
            target.container,
            _stated(known[target.container]) if target.container in known else None,
            _stated(target),
        )
        for target in action.containers
    ]


def _stated(one: ContainerTarget) -> StatedSizeDocument:
    requests, limits = one.requests, one.limits
    return StatedSizeDocument(
        requests.cpu_millicores, requests.memory_bytes, limits.cpu_millicores, limits.memory_bytes
    )


def _document(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
