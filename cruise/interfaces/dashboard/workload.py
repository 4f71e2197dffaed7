"""The pages Workloads, one workload, and the explanation of a pod."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response
from starlette.background import BackgroundTask

from cruise.decisions.template_sizes import SkippedTemplate, TemplateSizes
from cruise.domain.actions import ActionResult, ContainerTarget, EvictPod, Outcome, ResizePod
from cruise.domain.cluster import Container
from cruise.domain.policy import Mode
from cruise.domain.records import get_clock_hour
from cruise.domain.resources import ResourceName, StatedResources
from cruise.domain.usage import Statistic
from cruise.errors import NotFoundError
from cruise.interfaces.dashboard.charts import CHART_PERIODS, ChartEvent, ChartLine, TimeChart, convert_output_to_html
from cruise.interfaces.dashboard.layout import (
    Dashboard,
    MenuEntry,
    SortableColumn,
    build_table_headings,
    get_adjacent_pages,
)
from cruise.interfaces.explain.text import render_explanation_text
from cruise.interfaces.export_files import build_patch, render_manifest
from cruise.interfaces.export_report import describe_skipped_template
from cruise.interfaces.http.cluster_summary import WORKLOAD_SORT_KEYS, WorkloadQuery, find_workloads
from cruise.interfaces.http.view import (
    KindParameter,
    NamespaceParameter,
    OffsetParameter,
    VisibilityDependency,
    WorkloadNameParameter,
)
from cruise.interfaces.http.workload import WorkloadDetails, compute_template_sizes, read_workload_details
from cruise.interfaces.plan_document import describe_resize_cause, format_resize
from cruise.interfaces.reasons import describe_reason
from cruise.interfaces.scan.finding_text import RISK_TITLES, describe_risk
from cruise.interfaces.text import format_memory

WORKLOAD_PAGE = MenuEntry("workloads", "Workload", "/workloads")
_MAX_OUTCOMES = 12
# Hourly peaks are kept for eight days.
_CHART_PERIODS = ("1d", "7d")


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """One container: its sizes, statistics and charts."""

    container: Container
    statistic: Statistic | None
    charts: Sequence[TimeChart]


def create_workload_pages(dashboard: Dashboard) -> APIRouter:
    """Return the routes of one workload's page, and of the explanation of one of its pods."""
    routes = APIRouter(prefix="/workloads", include_in_schema=False, route_class=dashboard.create_route_class())
    view = dashboard.view

    @routes.get("/{namespace}/{kind}/{name}")
    async def workload(
        request: Request,
        visibility: VisibilityDependency,
        namespace: NamespaceParameter,
        kind: KindParameter,
        name: WorkloadNameParameter,
        pod: str = "",
        period: Annotated[str, Query(pattern=f"^({'|'.join(_CHART_PERIODS)})$")] = "7d",
    ) -> Response:
        await visibility.require_access(namespace)
        summary = await dashboard.summaries.get_available()
        try:
            found = await read_workload_details(view, summary, namespace, f"{kind}/{name}", pod)
        except NotFoundError as error:
            raise HTTPException(404, str(error)) from error
        since = get_clock_hour(view.now() - CHART_PERIODS[period])
        return dashboard.render_page(
            request,
            "workload.html.j2",
            page=WORKLOAD_PAGE,
            found=found,
            pass_at=summary.node_pass.at,
            rows=[_build_row(found, container, since) for container in found.selected.sized_containers],
            period=period,
            periods=_CHART_PERIODS,
            outcomes=found.outcomes[:_MAX_OUTCOMES],
            describe_reason=describe_reason,
            format_resize=format_resize,
            describe_resize_cause=describe_resize_cause,
            is_resize=lambda outcome: isinstance(outcome.action, ResizePod),
            titles=RISK_TITLES,
            describe_risk=lambda risk: describe_risk(risk, view.now()),
        )

    @routes.get("/{namespace}/{kind}/{name}/why/{pod}")
    async def explain(
        request: Request,
        visibility: VisibilityDependency,
        namespace: NamespaceParameter,
        kind: KindParameter,
        name: WorkloadNameParameter,
        pod: WorkloadNameParameter,
    ) -> Response:
        await visibility.require_access("" if not await visibility.sees_all() else namespace)
        snapshot = await view.snapshot()
        found = next((one for one in snapshot.pods if (one.namespace, one.name) == (namespace, pod)), None)
        if found is None:
            raise HTTPException(404, f"there is no pod {namespace}/{pod}")
        explanation = await dashboard.explanations.explain(found, snapshot)
        pods = [one for one in snapshot.pods if (one.namespace, one.workload_name) == (namespace, found.workload_name)]
        template = await compute_template_sizes(view, snapshot, pods)
        return dashboard.render_page(
            request,
            "why.html.j2",
            page=WORKLOAD_PAGE,
            pod=found,
            explanation=convert_output_to_html(render_explanation_text(explanation, view.policy, view.now())),
            patch=render_manifest(build_patch(template)) if isinstance(template, TemplateSizes) else None,
            skip_reason=describe_skipped_template(template) if isinstance(template, SkippedTemplate) else None,
        )

    return routes


def _build_row(found: WorkloadDetails, container: Container, since: int) -> ContainerRow:
    statistic = found.statistics.get(container.name)
    charts = [_build_chart(found, container, resource, since) for resource in ResourceName]
    return ContainerRow(container, statistic, [chart for chart in charts if chart is not None])


def _build_chart(found: WorkloadDetails, container: Container, resource: ResourceName, since: int) -> TimeChart | None:
    """Return usage by hour from hour `since` on, with request and limit, None before the first complete hour."""
    peaks, is_cpu = found.peaks, resource is ResourceName.CPU
    values = (peaks.cpu_demand_millicores if is_cpu else peaks.memory_bytes).tolist()
    by_hour: dict[int, float] = {}
    for key, hour, value in zip(peaks.keys, peaks.hours.tolist(), values, strict=True):
        if (
            hour >= since
            and key.container == container.name
            and key.identity in (found.selected.identity, "")
            and value == value
        ):
            by_hour[hour] = max(value, by_hour.get(hour, 0.0))
    if not by_hour:
        return None
    hours = range(min(by_hour), max(by_hour) + 2)
    times = [datetime.fromtimestamp(hour * 3600, UTC) for hour in hours]
    lines = [
        ChartLine("largest usage of the hour", "used", [by_hour.get(hour) for hour in hours], area=True),
        ChartLine(
            "request",
            "requested",
            get_amounts_over_time(found, container, times, resource, lambda one: one.requests),
            step=True,
        ),
    ]
    limits = get_amounts_over_time(found, container, times, resource, lambda one: one.limits)
    if any(limits):
        lines.append(ChartLine("limit", "limit", limits, step=True))
    title = f"{'CPU' if is_cpu else 'Memory'} of {container.name}"
    return TimeChart(title, resource, times, lines, [*_list_events(found, container, resource)])


def get_amounts_over_time(
    found: WorkloadDetails,
    container: Container,
    times: Sequence[datetime],
    resource: ResourceName,
    get_stated: Callable[[Container | ContainerTarget], StatedResources],
) -> Sequence[float | None]:
    """Return a request or limit of the selected pod at each time; None if unknown, and the present value last."""
    steps: list[tuple[datetime, int | None]] = []
    original = found.original.containers if found.original is not None else ()
    before = _find_amount(original, container, resource, get_stated)
    for outcome in reversed(found.outcomes):
        action = outcome.action
        if isinstance(action, ResizePod) and outcome.result is ActionResult.DONE and action.uid == found.selected.uid:
            if not steps and outcome.before:
                before = _find_amount(outcome.before, container, resource, get_stated)
            written = _find_amount(action.containers, container, resource, get_stated)
            if written is not None:
                steps.append((outcome.at, written))
    current = get_stated(container).get(resource)
    if not steps:
        # No recorded resize changed it.
        before = current
    created_at = found.selected.created_at
    amounts: list[float | None] = []
    for at in times:
        amount = next((written for written_at, written in reversed(steps) if written_at <= at), before)
        amounts.append(float(amount) if amount and (created_at is None or at >= created_at) else None)
    amounts[-1] = float(current) if current else None
    return amounts


def _find_amount(
    containers: Iterable[ContainerTarget],
    container: Container,
    resource: ResourceName,
    get_stated: Callable[[Container | ContainerTarget], StatedResources],
) -> int | None:
    return next((get_stated(one).get(resource) for one in containers if one.container == container.name), None)


def _list_events(found: WorkloadDetails, container: Container, resource: ResourceName) -> Iterable[ChartEvent]:
    if resource is ResourceName.MEMORY:
        for kill in found.oom_kills:
            if kill.container == container.name:
                limit = f" at {format_memory(kill.memory_limit_bytes)}" if kill.memory_limit_bytes else ""
                yield ChartEvent(kill.finished_at, "kill", f"OOM killed{limit}: {kill.pod}")
    for outcome in found.outcomes:
        if outcome.result is ActionResult.DONE and _is_about(outcome, found, container):
            kind = "evict" if isinstance(outcome.action, EvictPod) else "resize"
            yield ChartEvent(outcome.at, kind, f"{kind}: {_describe_cause(outcome)}")


def _describe_cause(outcome: Outcome) -> str:
    action = outcome.action
    return describe_resize_cause(action) if isinstance(action, ResizePod) else describe_reason(action.reason)


def _is_about(outcome: Outcome, found: WorkloadDetails, container: Container) -> bool:
    action = outcome.action
    if isinstance(action, ResizePod):
        return action.uid == found.selected.uid and any(one.container == container.name for one in action.containers)
    return isinstance(action, EvictPod)


# The table of workloads, which the server sorts and filters.

WORKLOADS_PAGE = MenuEntry("workloads", "Workloads", "/workloads")
_ROWS = 50


_COLUMNS = (
    SortableColumn("Workload", "name", is_number=False, is_descending=False),
    SortableColumn("At risk", "risk", is_number=False),
    SortableColumn("Pods", "pods"),
    SortableColumn("used", "cpu-used"),
    SortableColumn("requested", "cpu"),
    SortableColumn("reclaimable", "cpu-reclaimable"),
    SortableColumn("used", "memory-used"),
    SortableColumn("requested", "memory"),
    SortableColumn("reclaimable", "memory-reclaimable"),
)


def create_workloads_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the Workloads page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.create_route_class())

    @routes.get("/workloads")
    async def workloads(
        request: Request,
        visibility: VisibilityDependency,
        text: Annotated[str, Query(max_length=200)] = "",
        namespace: Annotated[str, Query(max_length=63)] = "",
        mode: Annotated[str, Query(max_length=20)] = "",
        risk: bool = False,
        sort: Annotated[str, Query(pattern=f"^({'|'.join(WORKLOAD_SORT_KEYS)})$")] = "share",
        up: bool = False,
        offset: OffsetParameter = 0,
    ) -> Response:
        query = WorkloadQuery(text, namespace, mode, risk, sort, not up, offset, _ROWS)
        summary = await dashboard.summaries.get_available()
        found = await find_workloads(summary, query, visibility)
        values = build_query_values(query)
        earlier, later = get_adjacent_pages(values, offset, _ROWS, found.total)
        response = dashboard.render_page(
            request,
            "workloads.html.j2",
            page=WORKLOADS_PAGE,
            summary=summary,
            query=query,
            found=found,
            headings=build_table_headings(_COLUMNS, values),
            modes=[one.label for one in reversed(Mode)],
            earlier=earlier,
            later=later,
            titles=RISK_TITLES,
            describe_reason=describe_reason,
        )
        response.background = BackgroundTask(dashboard.summaries.refresh)
        return response

    return routes


def build_query_values(query: WorkloadQuery) -> dict[str, str]:
    """Return the values of the page's URL query, without an offset."""
    return {
        "text": query.text,
        "namespace": query.namespace,
        "mode": query.mode,
        "risk": "true" if query.at_risk else "",
        "sort": query.sort,
        "up": "false" if query.descending else "true",
    }
