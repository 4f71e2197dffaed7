"""The pages Namespaces and one namespace, which a team opens."""

from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response

from cruise.interfaces.coverage import PARTLY_KNOWN_NOTE, list_coverage_rows
from cruise.interfaces.dashboard.charts import (
    build_coverage_card,
    build_recent_actions_card,
    build_reclaimable_card,
    build_saved_card,
)
from cruise.interfaces.dashboard.layout import Dashboard, MenuEntry, SortableColumn, build_table_headings
from cruise.interfaces.dashboard.policies import list_namespace_settings
from cruise.interfaces.http.audit import RECENT, describe_audit_cause, read_recent_actions
from cruise.interfaces.http.namespaces import NamespaceSummary, list_namespaces
from cruise.interfaces.http.view import NamespaceParameter, VisibilityDependency, wait_for_store
from cruise.interfaces.reasons import describe_reason
from cruise.interfaces.scan.finding_text import RISK_TITLES, describe_risk

NAMESPACES_PAGE = MenuEntry("namespaces", "Namespaces", "/namespaces")
_MAX_WORKLOADS = 20
_COLUMNS = (
    SortableColumn("Namespace", "name", is_number=False, is_descending=False),
    SortableColumn("Pods", "pods"),
    SortableColumn("requested", "cpu"),
    SortableColumn("reclaimable", "cpu-reclaimable"),
    SortableColumn("requested", "memory"),
    SortableColumn("reclaimable", "memory-reclaimable"),
)
_SORT_KEYS: Mapping[str, Callable[[NamespaceSummary], int | str]] = {
    "name": lambda one: one.name,
    "pods": lambda one: one.pods,
    "cpu": lambda one: one.requested.cpu_millicores,
    "cpu-reclaimable": lambda one: one.reclaimable.cpu_millicores,
    "memory": lambda one: one.requested.memory_bytes,
    "memory-reclaimable": lambda one: one.reclaimable.memory_bytes,
}


def create_namespaces_pages(dashboard: Dashboard) -> APIRouter:
    """Return the routes of the Namespaces page and of one namespace."""
    routes = APIRouter(prefix="/namespaces", include_in_schema=False, route_class=dashboard.create_route_class())
    view = dashboard.view

    @routes.get("")
    async def namespaces(
        request: Request,
        visibility: VisibilityDependency,
        sort: Annotated[str, Query(pattern=f"^({'|'.join(_SORT_KEYS)})$")] = "cpu-reclaimable",
        up: bool = False,
    ) -> Response:
        summary = await dashboard.summaries.get_available()
        found = sorted(await list_namespaces(summary, visibility), key=_SORT_KEYS[sort], reverse=not up)
        return dashboard.render_page(
            request,
            "namespaces.html.j2",
            page=NAMESPACES_PAGE,
            summary=summary,
            found=found,
            headings=build_table_headings(_COLUMNS, {"sort": sort, "up": "true" if up else "false"}),
        )

    @routes.get("/{namespace}")
    async def one_namespace(
        request: Request, visibility: VisibilityDependency, namespace: NamespaceParameter
    ) -> Response:
        await visibility.require_access(namespace)
        summary = await dashboard.summaries.get_available()
        found = next((one for one in await list_namespaces(summary, visibility) if one.name == namespace), None)
        if found is None:
            raise HTTPException(404, f"the last node pass saw no pods in namespace {namespace}")
        now = view.now()
        recent = await read_recent_actions(view, visibility, now - RECENT, namespace)
        coverage = list_coverage_rows(found.coverage)
        cards = [
            build_saved_card(found.savings, summary.prices),
            build_reclaimable_card(found.reclaimable, found.requested, summary.prices, "#workloads"),
            build_coverage_card(coverage[0]),
            build_recent_actions_card(recent, f"../actions?text={namespace}"),
        ]
        paused_workloads = await wait_for_store(view.store.read_paused_workloads())
        settings = list_namespace_settings(summary.node_pass.snapshot, paused_workloads, namespace, view.policy.mode)
        return dashboard.render_page(
            request,
            "namespace.html.j2",
            page=NAMESPACES_PAGE,
            summary=summary,
            found=found,
            cards=cards,
            coverage=coverage,
            partly_known_note=PARTLY_KNOWN_NOTE,
            recent=recent,
            describe_cause=describe_audit_cause,
            risks=[risk for risk in summary.risks if risk.namespace == namespace],
            titles=RISK_TITLES,
            describe_risk=lambda risk: describe_risk(risk, now),
            describe_reason=describe_reason,
            settings=settings,
            workloads=found.workloads[:_MAX_WORKLOADS],
        )

    return routes
