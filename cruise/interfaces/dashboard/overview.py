"""The first page: what is at risk, what was saved, what is left to save, and how far cruise may go where."""

from collections import Counter
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
from cruise.interfaces.dashboard.charts import ChartLine, TimeChart
from cruise.interfaces.dashboard.layout import Dashboard, DashboardPage, get_adjacent_pages
from cruise.interfaces.http.cluster_summary import UNREADABLE_MODE
from cruise.interfaces.http.controller import MAX_FILTERED, AuditEntry, build_controller_status, read_audit_page
from cruise.interfaces.http.figures import ClusterTotalsAtPass, ControllerFigures
from cruise.interfaces.http.namespace_visibility import VisibilityDependency
from cruise.interfaces.http.packing import MAX_HOURS
from cruise.interfaces.http.user_actions import read_user_action_page
from cruise.interfaces.http.view import OffsetParameter, wait_for_store
from cruise.interfaces.reasons import CAUSE_DESCRIPTIONS, REASON_DESCRIPTIONS, REJECTION_DESCRIPTIONS
from cruise.interfaces.scan.finding_text import RISK_TITLES, describe_risk
from cruise.interfaces.scan.html import build_capacity_bars

OVERVIEW_PAGE = DashboardPage("", "Overview", "/overview")
_MOST_RISKS = 8
_MODES: Mapping[str, str] = {
    Mode.FULL.label: "resized, and evicted where a node does not hold its pods",
    Mode.RESIZE.label: "resized in place",
    Mode.INITIAL.label: "sized when they are created",
    Mode.OBSERVE.label: "watched; nothing is written",
    Mode.OFF.label: "left alone",
    UNREADABLE_MODE: "left alone until an annotation of theirs can be read",
}


@dataclass(frozen=True, slots=True)
class ModeAdoption:
    """How many pods a mode holds for; `width` is their share in percent."""

    mode: str
    message: str
    pods: int
    width: str


def create_overview_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the overview."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())

    @routes.get("/")
    async def overview(request: Request, sight: VisibilityDependency) -> Response:
        found = await dashboard.summaries.get_available()
        seen = await sight.get_visible_namespaces(risk.namespace for risk in found.risks)
        risks = [risk for risk in found.risks if seen is None or risk.namespace in seen]
        hours = await wait_for_store(
            dashboard.view.store.cluster_hours(get_clock_hour(dashboard.view.now() - MAX_HOURS))
        )
        refreshed_at = dashboard.view.get_figures().statistics_at
        response = dashboard.page(
            request,
            "overview.html.j2",
            is_old=refreshed_at is None or found.node_pass.at - refreshed_at > dashboard.view.policy.max_age,
            page=OVERVIEW_PAGE,
            survey=found,
            risks=risks[:_MOST_RISKS],
            risk_count=len(risks),
            risk_kinds=Counter(risk.kind for risk in risks),
            titles=RISK_TITLES,
            why=lambda risk: describe_risk(risk, dashboard.view.now()),
            rooms=build_capacity_bars(found.totals),
            adoption=count_pods_by_mode(found.modes),
            hours=hours,
            charts=build_overview_charts(hours, dashboard.view.get_figures().history),
        )
        response.background = BackgroundTask(dashboard.summaries.refresh)
        return response

    return routes


def count_pods_by_mode(pods: Mapping[str, int]) -> Sequence[ModeAdoption]:
    """Return how many pods each mode holds for, the furthest mode first."""
    whole = max(1, sum(pods.values()))
    return [
        ModeAdoption(mode, words, pods.get(mode, 0), f"{100 * pods.get(mode, 0) / whole:.2f}")
        for mode, words in _MODES.items()
        if pods.get(mode) or mode != UNREADABLE_MODE
    ]


def build_overview_charts(
    hours: Sequence[HourlyClusterTotals], history: Sequence[ClusterTotalsAtPass]
) -> Sequence[TimeChart]:
    """Return CPU and memory by the hour, before there are two by the passes of this process; none of fewer than two."""
    moments: Sequence[HourlyClusterTotals | ClusterTotalsAtPass] = hours if len(hours) > 1 else history
    if len(moments) < 2:
        return ()
    return [
        TimeChart(title, resource, [one.at for one in moments], _lines(moments, resource))
        for title, resource in (("CPU", ResourceName.CPU), ("Memory", ResourceName.MEMORY))
    ]


def _lines(moments: Sequence[HourlyClusterTotals | ClusterTotalsAtPass], resource: ResourceName) -> Sequence[ChartLine]:
    used = [None if one.used is None else one.used.get(resource) for one in moments]
    saved = [one.saved.get(resource) for one in moments if isinstance(one, HourlyClusterTotals)]
    return [
        ChartLine("allocatable", "allocatable", [one.allocatable.get(resource) for one in moments]),
        ChartLine("requested", "requested", [one.requested.get(resource) for one in moments]),
        ChartLine("used", "used", used, area=True),
        *([ChartLine("saved", "saved", saved)] if saved else ()),
    ]


# How cruise itself does: its statistics, its passes, what it costs Prometheus, who leads, and the webhook.

HEALTH_PAGE = DashboardPage("health", "Health", "/status")


@dataclass(frozen=True, slots=True)
class WebhookActivity:
    """What pods tell of the webhook: how many pods on nodes bear its signature."""

    pods: int
    signed: int


def create_health_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("/health")
    async def health(request: Request) -> Response:
        figures = view.get_figures()
        try:
            traces = count_webhook_activity(await view.snapshot())
        except UnavailableError:
            traces = None
        return dashboard.page(
            request,
            "health.html.j2",
            page=HEALTH_PAGE,
            status=await build_controller_status(view),
            policy=view.policy,
            reading=next((job for job in figures.jobs if job.name == "statistics"), None),
            traces=traces,
            risks=_risks(figures),
            held=sorted(figures.last_pass.skipped.items(), key=lambda item: -item[1]) if figures.last_pass else (),
            reasons=REASON_DESCRIPTIONS,
            refused=sum(figures.refused.values()),
            refusals=[(REJECTION_DESCRIPTIONS[why], number) for why, number in figures.refused.items() if number],
        )

    return routes


def _risks(figures: ControllerFigures) -> Sequence[tuple[str, ObservedRisk]]:
    """Return how stated risks were kept, by the names of the resources as people write them."""
    names = {ResourceName.CPU: "CPU", ResourceName.MEMORY: "Memory"}
    found = figures.last_pass.observed_risks if figures.last_pass is not None else {}
    return [(names[resource], risk) for resource, risk in found.items()]


def count_webhook_activity(snapshot: ClusterSnapshot) -> WebhookActivity:
    """Count the pods on nodes, and those that the webhook sized when they were created."""
    running = [pod for pod in snapshot.pods if pod.node is not None and not pod.is_finished]
    return WebhookActivity(len(running), sum(ORIGINAL_RESOURCES_SIGNATURE in pod.annotations for pod in running))


# What was done: the audit, who changed cruise itself, and the button that stops every write.

ACTIONS_PAGE = DashboardPage("actions", "Actions", "/outcomes")
_ROWS = 100
_MOST_INTERVENTIONS = 20
_PERIODS = {"1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
_COLOURS = {
    ActionResult.DONE: "green",
    ActionResult.SKIPPED: "",
    ActionResult.REFUSED: "red",
    ActionResult.FAILED: "red",
}


def create_actions_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("/actions")
    async def actions(
        request: Request,
        sight: VisibilityDependency,
        text: Annotated[str, Query(max_length=200)] = "",
        verdict: Annotated[str, Query(pattern=f"^({'|'.join(ActionResult)})?$")] = "",
        period: Annotated[str, Query(pattern=f"^({'|'.join(_PERIODS)})$")] = "1d",
        offset: OffsetParameter = 0,
    ) -> Response:
        since = view.now() - _PERIODS[period]
        found = await read_audit_page(view, sight, since, MAX_FILTERED)
        lines = [one for one in found.items if _fits(one, text, verdict)]
        stated = {"text": text, "verdict": verdict, "period": period}
        earlier, later = get_adjacent_pages(stated, offset, _ROWS, len(lines))
        return dashboard.page(
            request,
            "actions.html.j2",
            page=ACTIONS_PAGE,
            lines=lines[offset : offset + _ROWS],
            total=len(lines),
            more=found.more,
            most=MAX_FILTERED,
            text=text,
            verdict=verdict,
            verdicts=list(ActionResult),
            period=period,
            periods=list(_PERIODS),
            offset=offset,
            earlier=earlier,
            later=later,
            colours=_COLOURS,
            why=lambda line: (
                REASON_DESCRIPTIONS[line.purpose] if line.cause is None else CAUSE_DESCRIPTIONS[line.cause]
            ),
            reverts=_first_of_workloads(lines[offset : offset + _ROWS]),
            interventions=(await read_user_action_page(view, sight, since, _MOST_INTERVENTIONS)).items,
            paused=await wait_for_store(view.store.paused()),
        )

    return routes


def _first_of_workloads(lines: Sequence[AuditEntry]) -> Sequence[int]:
    """Return the places of the lines that say first that a workload was resized by a pass or after a kill."""
    first: dict[tuple[str | None, str], int] = {}
    for place, line in enumerate(lines):
        if line.action == "resize" and line.result == ActionResult.DONE and line.workload is not None:
            first.setdefault((line.namespace, line.workload), place)
    return [place for place in first.values() if lines[place].purpose != ReasonCode.REVERTED]


def _fits(line: AuditEntry, text: str, verdict: str) -> bool:
    if verdict and line.result != verdict:
        return False
    named = " ".join(part for part in (line.action, line.namespace, line.pod, line.node, line.workload) if part).lower()
    return all(word in named for word in text.lower().split())
