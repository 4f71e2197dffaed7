"""One workload: its use against its sizes, what was done to it and why, and the patch to commit."""

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
from cruise.domain.resources import ResourceName, StatedResources
from cruise.domain.usage import Statistic
from cruise.errors import NotFoundError
from cruise.interfaces.dashboard.charts import ChartEvent, ChartLine, TimeChart, render_html
from cruise.interfaces.dashboard.layout import (
    Dashboard,
    DashboardPage,
    SortableColumn,
    build_headings,
    get_adjacent_pages,
)
from cruise.interfaces.explain.text import render_explanation_text
from cruise.interfaces.export_patches import build_patch, render_yaml
from cruise.interfaces.export_report import describe_skipped_template
from cruise.interfaces.http.cluster_summary import WORKLOAD_SORT_KEYS, WorkloadQuery, find_workloads
from cruise.interfaces.http.namespace_visibility import VisibilityDependency
from cruise.interfaces.http.view import KindParameter, NameParameter, NamespaceParameter, OffsetParameter
from cruise.interfaces.http.workload import WorkloadHistory, compute_template_sizes, read_workload_history
from cruise.interfaces.reasons import describe_reason
from cruise.interfaces.scan.finding_text import RISK_TITLES, describe_risk
from cruise.interfaces.size_changes import describe_resize_cause, format_resize
from cruise.interfaces.text import format_memory

WORKLOAD_PAGE = DashboardPage("workloads", "Workload", "/workloads")
_MOST_OUTCOMES = 12


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """A container's sizes and statistics in one row, with its charts."""

    container: Container
    statistic: Statistic | None
    charts: Sequence[TimeChart]


def create_workload_pages(dashboard: Dashboard) -> APIRouter:
    """Return the routes of one workload: the page, and the part of it that explains a pod."""
    routes = APIRouter(prefix="/workloads", include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("/{namespace}/{kind}/{name}")
    async def workload(
        request: Request,
        sight: VisibilityDependency,
        namespace: NamespaceParameter,
        kind: KindParameter,
        name: NameParameter,
        pod: str = "",
    ) -> Response:
        await sight.require_access(namespace)
        survey = await dashboard.summaries.get_available()
        try:
            found = await read_workload_history(view, survey, namespace, f"{kind}/{name}", pod)
        except NotFoundError as error:
            raise HTTPException(404, str(error)) from error
        return dashboard.page(
            request,
            "workload.html.j2",
            page=WORKLOAD_PAGE,
            found=found,
            pass_at=survey.node_pass.at,
            rows=[_row(found, container) for container in found.selected.sized_containers],
            outcomes=found.outcomes[:_MOST_OUTCOMES],
            in_words=describe_reason,
            changes=format_resize,
            resized=describe_resize_cause,
            is_resize=lambda outcome: isinstance(outcome.action, ResizePod),
            titles=RISK_TITLES,
            why=lambda risk: describe_risk(risk, view.now()),
        )

    @routes.get("/{namespace}/{kind}/{name}/why/{pod}")
    async def why(
        request: Request,
        sight: VisibilityDependency,
        namespace: NamespaceParameter,
        kind: KindParameter,
        name: NameParameter,
        pod: NameParameter,
    ) -> Response:
        await sight.require_access("" if not await sight.sees_all() else namespace)
        snapshot = await view.snapshot()
        found = next((one for one in snapshot.pods if (one.namespace, one.name) == (namespace, pod)), None)
        if found is None:
            raise HTTPException(404, f"there is no pod {namespace}/{pod}")
        explanation = await dashboard.explanations.explain(found, snapshot)
        words = render_html(render_explanation_text(explanation, view.policy, view.now()))
        pods = [one for one in snapshot.pods if (one.namespace, one.workload_name) == (namespace, found.workload_name)]
        template = await compute_template_sizes(view, snapshot, pods)
        return dashboard.page(
            request,
            "why.html.j2",
            page=WORKLOAD_PAGE,
            pod=found,
            words=words,
            patch=render_yaml(build_patch(template)) if isinstance(template, TemplateSizes) else None,
            left=describe_skipped_template(template) if isinstance(template, SkippedTemplate) else None,
        )

    return routes


def _row(found: WorkloadHistory, container: Container) -> ContainerRow:
    statistic = found.statistics.get(container.name)
    charts = [_chart(found, container, resource) for resource in ResourceName]
    return ContainerRow(container, statistic, [chart for chart in charts if chart is not None])


def _chart(found: WorkloadHistory, container: Container, resource: ResourceName) -> TimeChart | None:
    """Return use by the hour against request and limit as they were, None before there is an hour of it."""
    peaks, is_cpu = found.peaks, resource is ResourceName.CPU
    values = (peaks.cpu_demand_millicores if is_cpu else peaks.memory_bytes).tolist()
    by_hour: dict[int, float] = {}
    for key, hour, value in zip(peaks.keys, peaks.hours.tolist(), values, strict=True):
        if key.container == container.name and key.identity in (found.selected.identity, "") and value == value:
            by_hour[hour] = max(value, by_hour.get(hour, 0.0))
    if not by_hour:
        return None
    hours = range(min(by_hour), max(by_hour) + 2)
    times = [datetime.fromtimestamp(hour * 3600, UTC) for hour in hours]
    lines = [
        ChartLine("largest use of the hour", "used", [by_hour.get(hour) for hour in hours], area=True),
        ChartLine(
            "request", "requested", get_amounts_over_time(found, container, times, resource, get_requests), step=True
        ),
    ]
    limits = get_amounts_over_time(found, container, times, resource, get_limits)
    if any(limits):
        lines.append(ChartLine("limit", "limit", limits, step=True))
    title = f"{'CPU' if is_cpu else 'Memory'} of {container.name}"
    return TimeChart(title, resource, times, lines, [*_marks(found, container, resource)])


def get_amounts_over_time(
    found: WorkloadHistory,
    container: Container,
    times: Sequence[datetime],
    resource: ResourceName,
    stated: Callable[[Container | ContainerTarget], StatedResources],
) -> Sequence[float | None]:
    """Return a request or limit of the chosen pod at each time; None before it is known, the last is what it is now."""
    steps: list[tuple[datetime, int | None]] = []
    before = _amount_of(found.original.containers if found.original is not None else (), container, resource, stated)
    for outcome in reversed(found.outcomes):
        action = outcome.action
        if isinstance(action, ResizePod) and outcome.result is ActionResult.DONE and action.uid == found.selected.uid:
            if not steps and outcome.before:
                before = _amount_of(outcome.before, container, resource, stated)
            written = _amount_of(action.containers, container, resource, stated)
            if written is not None:
                steps.append((outcome.at, written))
    now = _of(stated(container), resource)
    if not steps:
        # Nothing is on record that changed it.
        before = now
    begun = found.selected.created_at
    amounts: list[float | None] = []
    for at in times:
        amount = next((written for when, written in reversed(steps) if when <= at), before)
        amounts.append(float(amount) if amount and (begun is None or at >= begun) else None)
    amounts[-1] = float(now) if now else None
    return amounts


def _amount_of(
    containers: Iterable[ContainerTarget],
    container: Container,
    resource: ResourceName,
    stated: Callable[[Container | ContainerTarget], StatedResources],
) -> int | None:
    return next((_of(stated(one), resource) for one in containers if one.container == container.name), None)


def get_requests(one: Container | ContainerTarget) -> StatedResources:
    """Return the requests of a container, or of what was written for one."""
    return one.requests


def get_limits(one: Container | ContainerTarget) -> StatedResources:
    """Return the limits of a container, or of what was written for one."""
    return one.limits


def _marks(found: WorkloadHistory, container: Container, resource: ResourceName) -> Iterable[ChartEvent]:
    if resource is ResourceName.MEMORY:
        for kill in found.oom_kills:
            if kill.container == container.name:
                limit = f" at {format_memory(kill.memory_limit_bytes)}" if kill.memory_limit_bytes else ""
                yield ChartEvent(kill.finished_at, "kill", f"killed for lack of memory{limit}: {kill.pod}")
    for outcome in found.outcomes:
        if outcome.result is ActionResult.DONE and _is_of(outcome, found, container):
            kind = "evict" if isinstance(outcome.action, EvictPod) else "resize"
            yield ChartEvent(outcome.at, kind, f"{kind}: {_why(outcome)}")


def _why(outcome: Outcome) -> str:
    action = outcome.action
    return describe_resize_cause(action) if isinstance(action, ResizePod) else describe_reason(action.reason)


def _is_of(outcome: Outcome, found: WorkloadHistory, container: Container) -> bool:
    action = outcome.action
    if isinstance(action, ResizePod):
        return action.uid == found.selected.uid and any(one.container == container.name for one in action.containers)
    return isinstance(action, EvictPod)


def _of(amounts: StatedResources, resource: ResourceName) -> int | None:
    return amounts.cpu_millicores if resource is ResourceName.CPU else amounts.memory_bytes


# Every workload, sorted, filtered and paged here: the browser gets one page of them.

WORKLOADS_PAGE = DashboardPage("workloads", "Workloads", "/workloads")
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
    """Return the route of the list."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())

    @routes.get("/workloads")
    async def workloads(
        request: Request,
        sight: VisibilityDependency,
        text: Annotated[str, Query(max_length=200)] = "",
        namespace: Annotated[str, Query(max_length=63)] = "",
        mode: Annotated[str, Query(max_length=20)] = "",
        risk: bool = False,
        sort: Annotated[str, Query(pattern=f"^({'|'.join(WORKLOAD_SORT_KEYS)})$")] = "share",
        up: bool = False,
        offset: OffsetParameter = 0,
    ) -> Response:
        wanted = WorkloadQuery(text, namespace, mode, risk, sort, not up, offset, _ROWS)
        survey = await dashboard.summaries.get_available()
        found = await find_workloads(survey, wanted, sight)
        stated = build_query_values(wanted)
        earlier, later = get_adjacent_pages(stated, offset, _ROWS, found.total)
        response = dashboard.page(
            request,
            "workloads.html.j2",
            page=WORKLOADS_PAGE,
            survey=survey,
            wanted=wanted,
            found=found,
            headings=build_headings(_COLUMNS, stated),
            modes=[one.label for one in reversed(Mode)],
            earlier=earlier,
            later=later,
            titles=RISK_TITLES,
            in_words=describe_reason,
        )
        response.background = BackgroundTask(dashboard.summaries.refresh)
        return response

    return routes


def build_query_values(wanted: WorkloadQuery) -> dict[str, str]:
    """Return what the query of this says, from the first row on."""
    return {
        "text": wanted.text,
        "namespace": wanted.namespace,
        "mode": wanted.mode,
        "risk": "true" if wanted.at_risk else "",
        "sort": wanted.sort,
        "up": "false" if wanted.descending else "true",
    }
