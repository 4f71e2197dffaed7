"""The menu, and the dashboard as a whole. To add a page: its module, its template, and its line in each list here."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from cruise.domain.users import Caller
from cruise.interfaces.dashboard import (
    nodes,
    overview,
    policies,
    workload,
)
from cruise.interfaces.dashboard import (
    nodes as pending,
)
from cruise.interfaces.dashboard import (
    overview as actions,
)
from cruise.interfaces.dashboard import (
    overview as health,
)
from cruise.interfaces.dashboard import (
    workload as workloads,
)
from cruise.interfaces.dashboard.access import DashboardAccess, add_problem_pages
from cruise.interfaces.dashboard.forms import create_form_routes
from cruise.interfaces.dashboard.layout import HEADERS, Dashboard, SignInSessions, create_asset_routes, set_menu
from cruise.interfaces.dashboard.sign_in import ProviderAuthority, create_provider_routes, create_sign_in_routes
from cruise.interfaces.http.cluster_summary import ClusterSummaries
from cruise.interfaces.http.namespace_visibility import CallerDependency
from cruise.interfaces.http.request_guard import CallerAuthority
from cruise.interfaces.http.view import ApiView
from cruise.interfaces.http.workload import PodExplanations

# Server-sent events: pages that are live load themselves anew after a node pass.

_LOOK_SECONDS = 5.0
_LOOKS = 120
# Each takes one of the requests that a caller may have under way.
_MOST_OF_ONE = 4


def create_event_stream_route(dashboard: Dashboard) -> APIRouter:
    """Return the route at /events."""
    routes = APIRouter(include_in_schema=False)
    open_streams: Counter[Caller] = Counter()

    @routes.get("/events")
    async def events(request: Request, caller: CallerDependency) -> Response:
        """Tell of every new node pass; browsers ask again when the stream ends, save where they have too many."""
        if open_streams[caller] >= _MOST_OF_ONE:
            return Response(status_code=204)

        async def stream() -> AsyncIterator[str]:
            open_streams[caller] += 1
            try:
                async for line in _passes(dashboard):
                    yield line
            finally:
                open_streams[caller] -= 1

        return StreamingResponse(stream(), media_type="text/event-stream", headers=dict(HEADERS))

    return routes


async def _passes(dashboard: Dashboard) -> AsyncIterator[str]:
    known = dashboard.view.get_last_pass()
    yield "retry: 10000\n\n"
    for _ in range(_LOOKS):
        await asyncio.sleep(_LOOK_SECONDS)
        newest = dashboard.view.get_last_pass()
        # A comment keeps proxies from ending what is quiet.
        yield ": nothing new\n\n" if newest is known else "event: pass\ndata: new\n\n"
        known = newest


MENU_PAGES = (
    overview.OVERVIEW_PAGE,
    workloads.WORKLOADS_PAGE,
    nodes.NODES_PAGE,
    pending.PENDING_PAGE,
    actions.ACTIONS_PAGE,
    policies.POLICIES_PAGE,
    health.HEALTH_PAGE,
)


def add_dashboard(
    api: FastAPI,
    view: ApiView,
    surveys: ClusterSummaries,
    explanations: PodExplanations,
    sessions: SignInSessions,
    authority: CallerAuthority | None,
) -> DashboardAccess:
    """Add all pages to the API, and return what the gate before both goes by."""
    provided = authority if isinstance(authority, ProviderAuthority) else None
    host = "" if provided is None else provided.provider.host
    dashboard = set_menu(
        Dashboard(view, surveys, sessions, explanations, requires_sign_in=authority is not None, provider=host),
        MENU_PAGES,
    )
    if provided is not None:
        api.include_router(create_provider_routes(dashboard, provided, time.monotonic))
    for routes in (
        overview.create_overview_page(dashboard),
        workloads.create_workloads_page(dashboard),
        workload.create_workload_pages(dashboard),
        nodes.create_nodes_pages(dashboard),
        pending.create_pending_page(dashboard),
        actions.create_actions_page(dashboard),
        policies.create_policies_pages(dashboard),
        health.create_health_page(dashboard),
        create_form_routes(dashboard, api),
        create_event_stream_route(dashboard),
        create_sign_in_routes(dashboard, authority),
        create_asset_routes(),
    ):
        api.include_router(routes)
    add_problem_pages(api, dashboard)
    return DashboardAccess(dashboard)
