"""The menu and all routes of the dashboard.

To add a page, write its function and template, and add a line to each list of this module.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from cruise.domain.users import Caller
from cruise.interfaces.dashboard import forms, namespaces, nodes, overview, policies, workload
from cruise.interfaces.dashboard.layout import HEADERS, Dashboard, SignInSessions, create_asset_routes
from cruise.interfaces.dashboard.sign_in import (
    DashboardAccess,
    IdentityProviderAuthority,
    add_problem_pages,
    create_provider_routes,
    create_sign_in_routes,
)
from cruise.interfaces.http.cluster_summary import ClusterSummaryCache
from cruise.interfaces.http.request_guard import CallerAuthority
from cruise.interfaces.http.view import ApiView, CallerDependency
from cruise.interfaces.http.workload import PodExplainer

# Server-sent events: live pages reload after a node pass.

_POLL_SECONDS = 5.0
_POLLS_PER_STREAM = 120
# Each stream counts as one of the caller's concurrent requests.
_STREAMS_PER_CALLER = 4


def create_event_stream_route(dashboard: Dashboard) -> APIRouter:
    """Return the route at /events."""
    routes = APIRouter(include_in_schema=False)
    open_streams: Counter[Caller] = Counter()

    @routes.get("/events")
    async def events(request: Request, caller: CallerDependency) -> Response:
        """Send an event after each node pass; with 204, browsers do not connect again."""
        if open_streams[caller] >= _STREAMS_PER_CALLER:
            return Response(status_code=204)

        async def stream() -> AsyncIterator[str]:
            open_streams[caller] += 1
            try:
                async for line in _stream_passes(dashboard):
                    yield line
            finally:
                open_streams[caller] -= 1

        return StreamingResponse(stream(), media_type="text/event-stream", headers=dict(HEADERS))

    return routes


async def _stream_passes(dashboard: Dashboard) -> AsyncIterator[str]:
    known = dashboard.view.get_last_pass()
    yield "retry: 10000\n\n"
    for _ in range(_POLLS_PER_STREAM):
        await asyncio.sleep(_POLL_SECONDS)
        newest = dashboard.view.get_last_pass()
        # A comment keeps proxies from closing an idle stream.
        yield ": nothing new\n\n" if newest is known else "event: pass\ndata: new\n\n"
        known = newest


MENU_PAGES = (
    overview.OVERVIEW_PAGE,
    namespaces.NAMESPACES_PAGE,
    workload.WORKLOADS_PAGE,
    nodes.NODES_PAGE,
    nodes.PENDING_PAGE,
    forms.ACTIONS_PAGE,
    policies.POLICIES_PAGE,
    overview.HEALTH_PAGE,
)


def add_dashboard(
    api: FastAPI,
    view: ApiView,
    summaries: ClusterSummaryCache,
    explanations: PodExplainer,
    sessions: SignInSessions,
    authority: CallerAuthority | None,
) -> DashboardAccess:
    """Add all pages to the API, and return the access rules of both for the request guard."""
    provider_authority = authority if isinstance(authority, IdentityProviderAuthority) else None
    dashboard = Dashboard(
        view,
        summaries,
        sessions,
        explanations,
        MENU_PAGES,
        requires_sign_in=authority is not None,
        provider="" if provider_authority is None else provider_authority.provider.host,
    )
    if provider_authority is not None:
        api.include_router(create_provider_routes(dashboard, provider_authority, time.monotonic))
    for routes in (
        overview.create_overview_page(dashboard),
        namespaces.create_namespaces_pages(dashboard),
        workload.create_workloads_page(dashboard),
        workload.create_workload_pages(dashboard),
        nodes.create_nodes_pages(dashboard),
        nodes.create_pending_page(dashboard),
        forms.create_actions_page(dashboard),
        policies.create_policies_pages(dashboard),
        overview.create_health_page(dashboard),
        forms.create_form_routes(dashboard, api),
        create_event_stream_route(dashboard),
        create_sign_in_routes(dashboard, authority),
        create_asset_routes(),
    ):
        api.include_router(routes)
    add_problem_pages(api, dashboard)
    return DashboardAccess(dashboard)
