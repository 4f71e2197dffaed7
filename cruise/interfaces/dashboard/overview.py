"""The pages Overview, Health and Actions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.background import BackgroundTask

from cruise.decisions.sizing.risk_level import ObservedRisk
from cruise.domain.actions import ActionResult, ReasonCode
from cruise.domain.annotations import ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Mode
from cruise.domain.records import HourlyClusterTotals, get_clock_hour
from cruise.domain.resources import ResourceName
from cruise.errors import UnavailableError
from cruise.interfaces.coverage import PARTLY_KNOWN_NOTE, CoverageRow, list_coverage_rows
from cruise.interfaces.dashboard.charts import ChartLine, TimeChart
from cruise.interfaces.dashboard.layout import Dashboard, DashboardPage, get_adjacent_pages
from cruise.interfaces.http.cluster_summary import UNREADABLE_MODE
from cruise.interfaces.http.controller import MAX_FILTERED, AuditEntry, build_controller_status, read_audit_page
from cruise.interfaces.http.coverage import read_coverage
from cruise.interfaces.http.figures import ClusterTotalsAtPass, ControllerFigures
from cruise.interfaces.http.namespace_visibility import NamespaceVisibility, VisibilityDependency
from cruise.interfaces.http.packing import MAX_HOURS
from cruise.interfaces.http.user_actions import read_user_action_page
from cruise.interfaces.http.view import OffsetParameter, wait_for_store
from cruise.interfaces.reasons import CAUSE_DESCRIPTIONS, REASON_DESCRIPTIONS, REJECTION_DESCRIPTIONS
from cruise.interfaces.scan.finding_text import RISK_TITLES, describe_risk
from cruise.interfaces.scan.html import build_capacity_bars
from cruise.runtime.node_pass import NodePassResult

OVERVIEW_PAGE = DashboardPage("", "Overview", "/summary")
_MAX_RISKS = 8
_MODE_DESCRIPTIONS: Mapping[str, str] = {
    Mode.FULL.label: "resized in place, and evicted if a node cannot hold its pods",
    Mode.RESIZE.label: "resized in place",
    Mode.INITIAL.label: "sized at creation",
    Mode.OBSERVE.label: "observed; nothing is written",
    Mode.OFF.label: "skipped",
    UNREADABLE_MODE: "skipped until their annotations are corrected",
}


@dataclass(frozen=True, slots=True)
class ModeAdoption:
    """The number of pods in a mode; `width` is their share in percent."""

    mode: str
    description: str
    pods: int
    width: str


def create_overview_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the Overview page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())

    @routes.get("/")
    async def overview(request: Request, visibility: VisibilityDependency) -> Response:
        summary = await dashboard.summaries.get_available()
        visible = await visibility.get_visible_namespaces(risk.namespace for risk in summary.risks)
        risks = [risk for risk in summary.risks if visible is None or risk.namespace in visible]
        hours = await wait_for_store(
            dashboard.view.store.cluster_hours(get_clock_hour(dashboard.view.now() - MAX_HOURS))
        )
        refreshed_at = dashboard.view.get_figures().statistics_at
        response = dashboard.page(
            request,
            "overview.html.j2",
            is_old=refreshed_at is None or summary.node_pass.at - refreshed_at > dashboard.view.policy.max_age,
            page=OVERVIEW_PAGE,
            summary=summary,
            coverage=await _list_coverage_rows(summary.node_pass, visibility),
            partly_known_note=PARTLY_KNOWN_NOTE,
            resources={one.value: one for one in ResourceName},
            risks=risks[:_MAX_RISKS],
            risk_count=len(risks),
            titles=RISK_TITLES,
            describe_risk=lambda risk: describe_risk(risk, dashboard.view.now()),
            capacity_bars=build_capacity_bars(summary.totals),
            adoption=count_pods_by_mode(summary.modes),
            hours=hours,
            charts=build_overview_charts(hours, dashboard.view.get_figures().history),
        )
        response.background = BackgroundTask(dashboard.summaries.refresh)
        return response

    return routes


async def _list_coverage_rows(node_pass: NodePassResult, visibility: NamespaceVisibility) -> Sequence[CoverageRow]:
    """Return the lines of the coverage, empty if it is unknown."""
    if node_pass.coverage is None:
        return ()
    return list_coverage_rows(await read_coverage(node_pass, visibility))


def count_pods_by_mode(pods: Mapping[str, int]) -> Sequence[ModeAdoption]:
    """Return the number of pods in each mode, the highest mode first."""
    total = max(1, sum(pods.values()))
    return [
        ModeAdoption(mode, description, pods.get(mode, 0), f"{100 * pods.get(mode, 0) / total:.2f}")
        for mode, description in _MODE_DESCRIPTIONS.items()
        if pods.get(mode) or mode != UNREADABLE_MODE
    ]


def build_overview_charts(
    hours: Sequence[HourlyClusterTotals], history: Sequence[ClusterTotalsAtPass]
) -> Sequence[TimeChart]:
    """Return charts of CPU and memory by hour, or by node pass of this process while there are fewer than two hours."""
    totals: Sequence[HourlyClusterTotals | ClusterTotalsAtPass] = hours if len(hours) > 1 else history
    if len(totals) < 2:
        return ()
    return [
        TimeChart(title, resource, [one.at for one in totals], _build_lines(totals, resource))
        for title, resource in (("CPU", ResourceName.CPU), ("Memory", ResourceName.MEMORY))
    ]


def _build_lines(
    totals: Sequence[HourlyClusterTotals | ClusterTotalsAtPass], resource: ResourceName
) -> Sequence[ChartLine]:
    used = [None if one.used is None else one.used.get(resource) for one in totals]
    saved = [one.saved.get(resource) for one in totals if isinstance(one, HourlyClusterTotals)]
    return [
        ChartLine("allocatable", "allocatable", [one.allocatable.get(resource) for one in totals]),
        ChartLine("requested", "requested", [one.requested.get(resource) for one in totals]),
        ChartLine("used", "used", used, area=True),
        *([ChartLine("saved", "saved", saved)] if saved else ()),
    ]


# Health.

HEALTH_PAGE = DashboardPage("health", "Health", "/status")


@dataclass(frozen=True, slots=True)
class WebhookActivity:
    """The number of pods on nodes, and of those that have the webhook's signature."""

    pods: int
    signed: int


def create_health_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the Health page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("/health")
    async def health(request: Request) -> Response:
        figures = view.get_figures()
        try:
            activity = count_webhook_activity(await view.snapshot())
        except UnavailableError:
            activity = None
        return dashboard.page(
            request,
            "health.html.j2",
            page=HEALTH_PAGE,
            status=await build_controller_status(view),
            policy=view.policy,
            reading=next((job for job in figures.jobs if job.name == "statistics"), None),
            activity=activity,
            risks=_list_observed_risks(figures),
            skipped=sorted(figures.last_pass.skipped.items(), key=lambda item: -item[1]) if figures.last_pass else (),
            reasons=REASON_DESCRIPTIONS,
            rejected=sum(figures.refused.values()),
            rejections=[(REJECTION_DESCRIPTIONS[kind], number) for kind, number in figures.refused.items() if number],
        )

    return routes


def _list_observed_risks(figures: ControllerFigures) -> Sequence[tuple[str, ObservedRisk]]:
    names = {ResourceName.CPU: "CPU", ResourceName.MEMORY: "Memory"}
    risks = figures.last_pass.observed_risks if figures.last_pass is not None else {}
    return [(names[resource], risk) for resource, risk in risks.items()]


def count_webhook_activity(snapshot: ClusterSnapshot) -> WebhookActivity:
    """Count the pods on nodes, and those that the webhook sized at creation."""
    running = [pod for pod in snapshot.pods if pod.node is not None and not pod.is_finished]
    return WebhookActivity(len(running), sum(ORIGINAL_RESOURCES_SIGNATURE in pod.annotations for pod in running))


# Actions.

ACTIONS_PAGE = DashboardPage("actions", "Actions", "/audit")
_ROWS = 100
_MAX_USER_ACTIONS = 20
_PERIODS = {"1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
_COLOURS = {
    ActionResult.DONE: "green",
    ActionResult.SKIPPED: "",
    ActionResult.REFUSED: "red",
    ActionResult.FAILED: "red",
}


def create_actions_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the Actions page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("/actions")
    async def actions(
        request: Request,
        visibility: VisibilityDependency,
        text: Annotated[str, Query(max_length=200)] = "",
        result: Annotated[str, Query(pattern=f"^({'|'.join(ActionResult)})?$")] = "",
        period: Annotated[str, Query(pattern=f"^({'|'.join(_PERIODS)})$")] = "1d",
        offset: OffsetParameter = 0,
    ) -> Response:
        since = view.now() - _PERIODS[period]
        audit = await read_audit_page(view, visibility, since, MAX_FILTERED)
        entries = [one for one in audit.items if _matches(one, text, result)]
        shown = entries[offset : offset + _ROWS]
        query = {"text": text, "result": result, "period": period}
        earlier, later = get_adjacent_pages(query, offset, _ROWS, len(entries))
        return dashboard.page(
            request,
            "actions.html.j2",
            page=ACTIONS_PAGE,
            lines=shown,
            total=len(entries),
            more=audit.more,
            most=MAX_FILTERED,
            text=text,
            result=result,
            results=list(ActionResult),
            period=period,
            periods=list(_PERIODS),
            offset=offset,
            earlier=earlier,
            later=later,
            colours=_COLOURS,
            describe_cause=lambda entry: (
                REASON_DESCRIPTIONS[entry.purpose] if entry.cause is None else CAUSE_DESCRIPTIONS[entry.cause]
            ),
            reverts=_find_revertible(shown),
            user_actions=(await read_user_action_page(view, visibility, since, _MAX_USER_ACTIONS)).items,
            paused=await wait_for_store(view.store.paused()),
        )

    return routes


def _find_revertible(entries: Sequence[AuditEntry]) -> Sequence[int]:
    """Return the index of each workload's newest resize, unless that was a revert."""
    newest: dict[tuple[str | None, str], int] = {}
    for index, entry in enumerate(entries):
        if entry.action == "resize" and entry.result == ActionResult.DONE and entry.workload is not None:
            newest.setdefault((entry.namespace, entry.workload), index)
    return [index for index in newest.values() if entries[index].purpose != ReasonCode.REVERTED]


def _matches(entry: AuditEntry, text: str, result: str) -> bool:
    if result and entry.result != result:
        return False
    names = (entry.action, entry.namespace, entry.pod, entry.node, entry.workload)
    searched = " ".join(name for name in names if name).lower()
    return all(word in searched for word in text.lower().split())
