"""The pages Overview and Health."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from starlette.background import BackgroundTask

from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.annotations import ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Mode
from cruise.domain.records import HourlyClusterTotals, get_clock_hour
from cruise.domain.resources import ResourceName
from cruise.errors import UnavailableError
from cruise.interfaces.coverage import PARTLY_KNOWN_NOTE, CoverageRow, list_coverage_rows
from cruise.interfaces.dashboard.charts import (
    CHART_PERIODS,
    ChartLine,
    ChartPeriodParameter,
    TimeChart,
    build_coverage_card,
    build_recent_actions_card,
    build_reclaimable_card,
    build_saved_card,
)
from cruise.interfaces.dashboard.layout import Dashboard, MenuEntry
from cruise.interfaces.http.attention import (
    list_attention_items,
    list_visible_policy_problems,
    list_visible_risks,
)
from cruise.interfaces.http.audit import RECENT, describe_audit_cause, read_recent_actions
from cruise.interfaces.http.cluster_summary import UNREADABLE_MODE
from cruise.interfaces.http.controller import build_controller_status
from cruise.interfaces.http.coverage import read_coverage
from cruise.interfaces.http.figures import ClusterTotalsAtPass, ControllerFigures
from cruise.interfaces.http.view import NamespaceVisibility, VisibilityDependency, wait_for_store
from cruise.interfaces.reasons import REASON_DESCRIPTIONS, REJECTION_DESCRIPTIONS
from cruise.interfaces.scan.finding_text import RISK_TITLES, describe_risk
from cruise.interfaces.scan.html import build_capacity_bars
from cruise.runtime.node_pass import NodePassResult

OVERVIEW_PAGE = MenuEntry("", "Overview", "/summary")
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
class ModePodCount:
    """The number of pods in a mode; `width` is their share in percent."""

    mode: str
    description: str
    pods: int
    width: str


def create_overview_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the Overview page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.create_route_class())

    @routes.get("/")
    async def overview(
        request: Request, visibility: VisibilityDependency, period: ChartPeriodParameter = "30d"
    ) -> Response:
        summary = await dashboard.summaries.get_available()
        risks = await list_visible_risks(summary, visibility)
        policies = await list_visible_policy_problems(summary, visibility)
        now, figures = dashboard.view.now(), dashboard.view.get_figures()
        recent = await read_recent_actions(dashboard.view, visibility, now - RECENT)
        since = now - CHART_PERIODS[period]
        hours = await wait_for_store(dashboard.view.store.read_hourly_totals(get_clock_hour(since)))
        history = [one for one in figures.history if one.at >= since]
        refreshed_at = figures.statistics_at
        coverage = await _list_coverage_rows(summary.node_pass, visibility)
        cards = [
            build_saved_card(summary.savings, summary.prices),
            build_reclaimable_card(summary.totals.reclaimable, summary.totals.requested, summary.prices, "workloads"),
            *([build_coverage_card(coverage[0])] if coverage else []),
            build_recent_actions_card(recent),
        ]
        response = dashboard.render_page(
            request,
            "overview.html.j2",
            is_old=refreshed_at is None or summary.node_pass.at - refreshed_at > dashboard.view.policy.max_age,
            page=OVERVIEW_PAGE,
            summary=summary,
            recent=recent,
            attention=list_attention_items(figures, summary, risks, policies, recent, dashboard.view.policy, now),
            describe_cause=describe_audit_cause,
            cards=cards,
            coverage=coverage,
            partly_known_note=PARTLY_KNOWN_NOTE,
            risks=risks[:_MAX_RISKS],
            risk_count=len(risks),
            titles=RISK_TITLES,
            describe_risk=lambda risk: describe_risk(risk, now),
            capacity_bars=build_capacity_bars(summary.totals),
            adoption=count_pods_by_mode(summary.modes),
            hours=hours,
            charts=build_overview_charts(hours, history),
            period=period,
            periods=list(CHART_PERIODS),
        )
        response.background = BackgroundTask(dashboard.summaries.refresh)
        return response

    return routes


async def _list_coverage_rows(node_pass: NodePassResult, visibility: NamespaceVisibility) -> Sequence[CoverageRow]:
    """Return the lines of the coverage, empty if it is unknown."""
    if node_pass.coverage is None:
        return ()
    return list_coverage_rows(await read_coverage(node_pass, visibility))


def count_pods_by_mode(pods: Mapping[str, int]) -> Sequence[ModePodCount]:
    """Return the number of pods in each mode, the highest mode first."""
    total = max(1, sum(pods.values()))
    return [
        ModePodCount(mode, description, pods.get(mode, 0), f"{100 * pods.get(mode, 0) / total:.2f}")
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


HEALTH_PAGE = MenuEntry("health", "Health", "/status")


@dataclass(frozen=True, slots=True)
class WebhookSizedPodCount:
    """The number of pods on nodes, and of those that have the webhook's signature."""

    pods: int
    signed: int


def create_health_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the Health page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.create_route_class())
    view = dashboard.view

    @routes.get("/health")
    async def health(request: Request) -> Response:
        figures = view.get_figures()
        try:
            activity = count_pods_sized_by_webhook(await view.snapshot())
        except UnavailableError:
            activity = None
        return dashboard.render_page(
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


def count_pods_sized_by_webhook(snapshot: ClusterSnapshot) -> WebhookSizedPodCount:
    """Count the pods on nodes, and those that the webhook sized at creation."""
    running = [pod for pod in snapshot.pods if pod.node is not None and not pod.is_finished]
    return WebhookSizedPodCount(len(running), sum(ORIGINAL_RESOURCES_SIGNATURE in pod.annotations for pod in running))
