"""The API's routes for the controller: its status, and the plans of the last node pass."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, HTTPException, Query, Response

from cruise import __version__
from cruise.decisions.node_load import format_untaint_command
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.domain.resources import Resources
from cruise.errors import CruiseError, UnavailableError, pause_garbage_collection
from cruise.interfaces.http.view import (
    ApiView,
    NameParameter,
    NamespaceVisibility,
    OffsetParameter,
    VisibilityDependency,
    list_error_responses,
    wait_for_store,
)
from cruise.interfaces.plan_document import build_node_plan_document
from cruise.interfaces.text import CAMEL_CASE_CONFIG
from cruise.runtime.node_load import NodeLoadPassResult
from cruise.runtime.node_pass import NodePassResult


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job of the controller; `error` is that of its latest run, null if it succeeded."""

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
    """The last check of the nodes' loads.

    `overloadedAtOnce` counts overloaded nodes if they are more than half of all, else 0: such loads taint no node.
    `remedy` is the command that removes taints which cruise may not remove, else null.
    """

    __pydantic_config__ = CAMEL_CASE_CONFIG
    at: datetime
    tainted: list[str]
    implausible: list[str]
    overloaded_at_once: int
    remedy: str | None


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """The process that answers; a value that is not known yet is null, and `storeError` says why `paused` is."""

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
class ResourceAmountsDocument:
    """CPU and memory."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    cpu_millicores: int
    memory_bytes: int


def build_resource_amounts_document(amount: Resources) -> ResourceAmountsDocument:
    """Return an amount for the API."""
    return ResourceAmountsDocument(amount.cpu_millicores, amount.memory_bytes)


@dataclass(frozen=True, slots=True)
class PlannedEvictionDocument:
    """A pod to evict, and the resource that does not fit."""

    namespace: str
    pod: str
    ranking: str
    resource: str


@dataclass(frozen=True, slots=True)
class TargetDocument:
    """The target of a container, whether or not it is written; no memory limit is null."""

    __pydantic_config__ = CAMEL_CASE_CONFIG
    namespace: str
    pod: str
    container: str
    cpu_millicores: int
    memory_bytes: int
    memory_limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class ResizeDocument:
    """A resize as a strategic merge patch of the pod's `resize` subresource."""

    namespace: str
    pod: str
    patch: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SkippedPodDocument:
    """A skipped pod."""

    namespace: str
    pod: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodePlanDocument:
    """One node's plan, as `cruise plan` prints it."""

    node: str
    fits: bool
    reason: str | None
    available: ResourceAmountsDocument
    evict: list[PlannedEvictionDocument]
    targets: list[TargetDocument]
    resize: list[ResizeDocument]
    hold: list[SkippedPodDocument]


@dataclass(frozen=True, slots=True)
class NodePage:
    """Some nodes of the last node pass by name, starting at `offset`; `total` counts all."""

    at: datetime
    total: int
    offset: int
    items: list[NodePlanDocument]


def create_controller_routes(view: ApiView) -> APIRouter:
    """Return the routes at /status and /nodes."""
    routes = APIRouter(tags=["controller"])

    @routes.get("/status")
    async def status() -> ControllerStatus:
        """Return the status of the controller."""
        return await build_controller_status(view)

    @routes.get("/nodes", response_model=NodePage, responses=list_error_responses(422, 503))
    async def nodes(
        visibility: VisibilityDependency,
        offset: OffsetParameter = 0,
        limit: Annotated[int, Query(ge=1, le=200, description="The maximum number of items.")] = 50,
    ) -> Response:
        """Return the node plans of the last node pass, without pods that the caller may not get."""
        node_pass = get_last_pass(view)
        plans = sorted(node_pass.plans, key=lambda plan: plan.node)[offset : offset + limit]
        visible_plans = await filter_plans_by_namespace(plans, visibility)
        # A page of large nodes takes a tenth of a second, which would delay other requests.
        return await asyncio.to_thread(_node_page, node_pass, visible_plans, offset)

    @routes.get("/nodes/{name}", response_model=NodePlanDocument, responses=list_error_responses(404, 422, 503))
    async def node(visibility: VisibilityDependency, name: NameParameter) -> Response:
        """Return the plan of one node in the last node pass, without pods that the caller may not get."""
        plan = next((one for one in get_last_pass(view).plans if one.node == name), None)
        if plan is None:
            raise HTTPException(404, f"the last node pass saw no node {name}")
        [visible_plan] = await filter_plans_by_namespace([plan], visibility)
        return _document(build_node_plan_document(visible_plan))

    return routes


async def build_controller_status(view: ApiView) -> ControllerStatus:
    """Return the status of the controller."""
    paused, store_error = None, None
    try:
        paused = await wait_for_store(view.store.is_paused())
    except CruiseError as error:
        store_error = str(error)
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


def _node_load(load_pass: NodeLoadPassResult) -> NodeLoadStatus:
    return NodeLoadStatus(
        at=load_pass.at,
        tainted=list(load_pass.tainted),
        implausible=list(load_pass.implausible),
        overloaded_at_once=load_pass.overloaded_at_once,
        remedy=format_untaint_command(load_pass.unremovable) if load_pass.unremovable else None,
    )


def get_last_pass(view: ApiView) -> NodePassResult:
    """Return the last node pass of this process. Raises UnavailableError if there is none."""
    node_pass = view.get_last_pass()
    if node_pass is None:
        is_leader = view.get_figures().leader
        reason = "no node pass has run yet" if is_leader else "another process is the leader and runs the node passes"
        raise UnavailableError(f"this process has no plan: {reason}")
    return node_pass


async def filter_plans_by_namespace(plans: Sequence[NodePlan], visibility: NamespaceVisibility) -> Sequence[NodePlan]:
    """Return the plans without pods of namespaces that the caller may not see."""
    visible = await visibility.get_visible_namespaces(namespace for plan in plans for namespace in _namespaces(plan))
    if visible is None:
        return plans
    return [
        replace(
            plan,
            evict=tuple(one for one in plan.evict if one.namespace in visible),
            targets=tuple(one for one in plan.targets if one.namespace in visible),
            resize=tuple(one for one in plan.resize if one.namespace in visible),
            skipped=tuple(one for one in plan.skipped if one.namespace in visible),
        )
        for plan in plans
    ]


def _namespaces(plan: NodePlan) -> Iterator[str]:
    yield from (one.namespace for one in plan.evict)
    yield from (one.namespace for one in plan.targets)
    yield from (one.namespace for one in plan.resize)
    yield from (one.namespace for one in plan.skipped)


def _node_page(node_pass: NodePassResult, plans: Sequence[NodePlan], offset: int) -> Response:
    page = {"at": node_pass.at, "total": len(node_pass.plans), "offset": offset}
    with pause_garbage_collection():
        return _document({**page, "items": [build_node_plan_document(plan) for plan in plans]})


def _document(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
