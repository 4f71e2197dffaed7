"""The HTTP API under /api/v1: everything that cruise knows may be read, what steers it is written with a token."""

import asyncio
import math
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated

import msgspec
from fastapi import APIRouter, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from cruise import __version__
from cruise.decisions.explaining.explanation import Explanation, explain
from cruise.decisions.explaining.past import Past, past_of
from cruise.domain.actions import EvictPod, Outcome, ResizePod
from cruise.domain.cluster import Pod
from cruise.domain.retention import RETENTION
from cruise.errors import CruiseError, Unavailable
from cruise.interfaces.explain.document import explanation_json
from cruise.interfaces.http.figures import action_name
from cruise.interfaces.http.models import JobStatus, NodePage, NodePlanDocument, OutcomeLine, OutcomePage, Status
from cruise.interfaces.http.overrides import override_routes
from cruise.interfaces.http.packing import packing_routes
from cruise.interfaces.http.pause import pause_routes
from cruise.interfaces.http.requests import Name, Namespace, Offset, failures, parse_since, token_check
from cruise.interfaces.http.view import ApiView, in_time
from cruise.interfaces.plan.document import node_document
from cruise.interfaces.reasons import detail_words, in_words
from cruise.runtime.sizing.node_pass import NodePass
from cruise.runtime.sizing.stored_headroom import stored_headroom

__all__ = ["ApiView", "create_api"]

PREFIX = "/api/v1"
_DAY = timedelta(days=1)


def create_api(view: ApiView) -> FastAPI:
    """Return the API of one controller; it looks at `view` anew at each request."""
    api = FastAPI(
        title="cruise",
        version=__version__,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    may_write = token_check(view.token_file)
    api.include_router(_controller_routes(view), prefix=PREFIX)
    api.include_router(_pod_routes(view), prefix=PREFIX)
    api.include_router(override_routes(view, may_write), prefix=PREFIX)
    api.include_router(pause_routes(view, may_write), prefix=PREFIX)
    api.include_router(packing_routes(view), prefix=PREFIX)
    api.add_exception_handler(StarletteHTTPException, _refused)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(CruiseError, _unavailable)
    api.add_exception_handler(Exception, _broken)
    return api


def _controller_routes(view: ApiView) -> APIRouter:
    routes = APIRouter(tags=["controller"])

    @routes.get("/status")
    async def status() -> Status:
        """Tell how the controller is doing."""
        paused, error = None, None
        try:
            paused = await in_time(view.store.paused())
        except CruiseError as refusal:
            error = str(refusal)
        return _status(view, paused, error)

    @routes.get("/nodes", response_model=NodePage, responses=failures(422, 503))
    async def nodes(
        offset: Offset = 0, limit: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 50
    ) -> Response:
        """Return the plans of the last node pass, by node."""
        # A page of large nodes takes a tenth of a second, which others need not wait for.
        return await asyncio.to_thread(_node_page, _last_pass(view), offset, limit)

    @routes.get("/nodes/{name}", response_model=NodePlanDocument, responses=failures(404, 422, 503))
    async def node(name: Name) -> Response:
        """Return the plan of one node in the last node pass."""
        found = next((plan for plan in _last_pass(view).plans if plan.node == name), None)
        if found is None:
            raise HTTPException(404, f"the last pass saw no node {name}")
        return _document(node_document(found))

    @routes.get("/outcomes", responses=failures(422, 503))
    async def outcomes(
        since: Annotated[str | None, Query(description="A time with its zone; a day ago without it.")] = None,
        limit: Annotated[int, Query(ge=1, le=1000, description="How many at most.")] = 100,
    ) -> OutcomePage:
        """Return the newest lines of the audit."""
        earliest = view.now() - _DAY if since is None else parse_since(since)
        found = await in_time(view.store.outcomes(earliest, limit + 1))
        return OutcomePage([_line(outcome) for outcome in found[:limit]], more=len(found) > limit)

    return routes


def _pod_routes(view: ApiView) -> APIRouter:
    routes = APIRouter(tags=["pods"])
    # An explanation takes the node's pass again, over the whole snapshot: one at a time is enough for people.
    one_at_a_time = asyncio.Lock()

    @routes.get("/pods/{namespace}/{name}", response_model=dict, responses=failures(404, 422, 503))
    async def pod(namespace: Namespace, name: Name) -> Response:
        """Explain a pod as `cruise explain --format json` does."""
        snapshot = await view.snapshot()
        found = next((one for one in snapshot.pods if (one.namespace, one.name) == (namespace, name)), None)
        if found is None:
            raise HTTPException(404, f"there is no pod {namespace}/{name}")
        statistics = await in_time(view.statistics())
        stored = await in_time(view.store.overrides())
        refused = await in_time(view.store.refused_targets())
        past = await _past(view, found)
        headroom = await in_time(stored_headroom(view.store, statistics, view.policy))
        now = view.now()

        def explained() -> Explanation:
            return explain(
                found, snapshot, statistics, view.policy, now, stored=stored, refused=refused, headroom=headroom
            )

        async with one_at_a_time:
            explanation = await asyncio.to_thread(explained)
        return Response(explanation_json(explanation, now, past), media_type="application/json")

    return routes


async def _past(view: ApiView, pod: Pod) -> Past:
    now = view.now()
    workload = str(pod.workload) if pod.workload is not None else ""
    since_hour = int((now - RETENTION.hourly_peaks).timestamp()) // 3600
    return past_of(
        pod.namespace,
        pod.name,
        workload,
        pod.identity,
        await in_time(view.store.outcomes_of_pod(pod.namespace, pod.name, now - RETENTION.outcomes)),
        await in_time(view.store.oom_records(now - RETENTION.oom_records)),
        await in_time(view.store.hourly_peaks(pod.namespace, workload or f"Pod/{pod.name}", since_hour)),
    )


def _status(view: ApiView, paused: bool | None, store_error: str | None) -> Status:
    figures = view.figures()
    lag = figures.watch_lag_seconds
    return Status(
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
    )


def _last_pass(view: ApiView) -> NodePass:
    found = view.last_pass()
    if found is None:
        who = "no node pass was made yet" if view.figures().leader else "another process leads and makes the passes"
        raise Unavailable(f"there is no plan here: {who}")
    return found


def _node_page(done: NodePass, offset: int, limit: int) -> Response:
    plans = sorted(done.plans, key=lambda plan: plan.node)[offset : offset + limit]
    page = {"at": done.at, "total": len(done.plans), "offset": offset}
    return _document({**page, "items": [node_document(plan) for plan in plans]})


def _line(outcome: Outcome) -> OutcomeLine:
    action = outcome.action
    of_pod = action if isinstance(action, ResizePod | EvictPod) else None
    return OutcomeLine(
        at=outcome.at,
        action=action_name(outcome),
        namespace=of_pod.namespace if of_pod is not None else None,
        pod=of_pod.pod if of_pod is not None else None,
        node=action.node,
        workload=str(of_pod.workload) if of_pod is not None and of_pod.workload is not None else None,
        why=action.reason.value,
        verdict=outcome.verdict.value,
        reason=outcome.reason.value,
        words=in_words(outcome.reason),
        detail=detail_words(outcome.detail),
    )


def _document(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _failure(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": " ".join(message.split())}, status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND and error.detail == HTTPStatus.NOT_FOUND.phrase:
        return _failure(404, f"there is nothing at {request.url.path}; see {PREFIX}/openapi.json")
    headers = dict(error.headers) if error.headers is not None else None
    return _failure(error.status_code, str(error.detail), headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    return _failure(422, f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}")


async def _unavailable(request: Request, error: Exception) -> Response:
    return _failure(503, str(error))


async def _broken(request: Request, error: Exception) -> Response:
    # The server logs the error itself; what it says is no business of the caller's.
    return _failure(500, "an error of cruise's own; its log has more")
