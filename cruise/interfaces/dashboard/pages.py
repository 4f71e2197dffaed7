"""The menu, and the dashboard as a whole. To add a page: its module, its template, and its line in each list here."""

import time

from fastapi import FastAPI

from cruise.interfaces.dashboard import actions, health, nodes, overview, pending, policies, workload, workloads
from cruise.interfaces.dashboard.assets import asset_routes
from cruise.interfaces.dashboard.doing import doing_routes
from cruise.interfaces.dashboard.events import event_routes
from cruise.interfaces.dashboard.frame import Dashboard, with_menu
from cruise.interfaces.dashboard.front import DashboardFront
from cruise.interfaces.dashboard.problems import add_problem_pages
from cruise.interfaces.dashboard.providers import ProvidedCallers, provider_routes
from cruise.interfaces.dashboard.sessions import Sessions
from cruise.interfaces.dashboard.signing_in import signing_in_routes
from cruise.interfaces.http.gate import Authority
from cruise.interfaces.http.pods import Explanations
from cruise.interfaces.http.survey import Surveys
from cruise.interfaces.http.view import ApiView

MENU = (overview.PAGE, workloads.PAGE, nodes.PAGE, pending.PAGE, actions.PAGE, policies.PAGE, health.PAGE)


def add_dashboard(
    api: FastAPI,
    view: ApiView,
    surveys: Surveys,
    explanations: Explanations,
    sessions: Sessions,
    authority: Authority | None,
) -> DashboardFront:
    """Add all pages to the API, and return what the gate before both goes by."""
    provided = authority if isinstance(authority, ProvidedCallers) else None
    host = "" if provided is None else provided.provider.host
    dashboard = with_menu(
        Dashboard(view, surveys, sessions, explanations, signs_in=authority is not None, provider=host), MENU
    )
    if provided is not None:
        api.include_router(provider_routes(dashboard, provided, time.monotonic))
    for routes in (
        overview.overview_page(dashboard),
        workloads.workloads_page(dashboard),
        workload.workload_page(dashboard),
        nodes.nodes_page(dashboard),
        pending.pending_page(dashboard),
        actions.actions_page(dashboard),
        policies.policies_page(dashboard),
        health.health_page(dashboard),
        doing_routes(dashboard, api),
        event_routes(dashboard),
        signing_in_routes(dashboard, authority),
        asset_routes(),
    ):
        api.include_router(routes)
    add_problem_pages(api, dashboard)
    return DashboardFront(dashboard)
