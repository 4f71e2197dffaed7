"""One workload: its use against its sizes, what was done to it and why, and the patch to commit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import APIRouter, HTTPException, Request, Response

from cruise.decisions.exporting.templates import LeftTemplate, TemplateSizes
from cruise.domain.actions import ContainerTarget, EvictPod, Outcome, ResizePod, Verdict
from cruise.domain.cluster import Container
from cruise.domain.resources import Amounts, ResourceName
from cruise.domain.usage import Statistic
from cruise.errors import NotFound
from cruise.interfaces.amounts import memory_text
from cruise.interfaces.dashboard.charts import Chart, Line, Mark
from cruise.interfaces.dashboard.frame import Dashboard, Page
from cruise.interfaces.dashboard.rich_html import html_of
from cruise.interfaces.explain.text import explanation_text
from cruise.interfaces.export.patches import patch_of, yaml_text
from cruise.interfaces.export.report import why_left
from cruise.interfaces.http.requests import Kind, Name, Namespace
from cruise.interfaces.http.sight import SightOf
from cruise.interfaces.http.workload import WorkloadHistory, template_of, workload_history
from cruise.interfaces.reasons import in_words
from cruise.interfaces.resize_words import changes_text, why_resized
from cruise.interfaces.scan.finding_words import RISK_TITLES, why_at_risk

PAGE = Page("workloads", "Workload", "/workloads")
_MOST_OUTCOMES = 12


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """A container's sizes and statistics in one row, with its charts."""

    container: Container
    statistic: Statistic | None
    charts: Sequence[Chart]


def workload_page(dashboard: Dashboard) -> APIRouter:
    """Return the routes of one workload: the page, and the part of it that explains a pod."""
    routes = APIRouter(prefix="/workloads", include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("/{namespace}/{kind}/{name}")
    async def workload(
        request: Request, sight: SightOf, namespace: Namespace, kind: Kind, name: Name, pod: str = ""
    ) -> Response:
        await sight.require(namespace)
        survey = await dashboard.surveys.at_hand()
        try:
            found = await workload_history(view, survey, namespace, f"{kind}/{name}", pod)
        except NotFound as error:
            raise HTTPException(404, str(error)) from error
        return dashboard.page(
            request,
            "workload.html.j2",
            page=PAGE,
            found=found,
            pass_at=survey.done.at,
            rows=[_row(found, container) for container in found.chosen.sized_containers],
            outcomes=found.outcomes[:_MOST_OUTCOMES],
            in_words=in_words,
            changes=changes_text,
            resized=why_resized,
            is_resize=lambda outcome: isinstance(outcome.action, ResizePod),
            titles=RISK_TITLES,
            why=lambda risk: why_at_risk(risk, view.now()),
        )

    @routes.get("/{namespace}/{kind}/{name}/why/{pod}")
    async def why(
        request: Request, sight: SightOf, namespace: Namespace, kind: Kind, name: Name, pod: Name
    ) -> Response:
        await sight.require("" if not await sight.is_whole() else namespace)
        snapshot = await view.snapshot()
        found = next((one for one in snapshot.pods if (one.namespace, one.name) == (namespace, pod)), None)
        if found is None:
            raise HTTPException(404, f"there is no pod {namespace}/{pod}")
        explanation = await dashboard.explanations.of(found, snapshot)
        words = html_of(explanation_text(explanation, view.policy, view.now()))
        pods = [one for one in snapshot.pods if (one.namespace, one.workload_name) == (namespace, found.workload_name)]
        template = await template_of(view, snapshot, pods)
        return dashboard.page(
            request,
            "why.html.j2",
            page=PAGE,
            pod=found,
            words=words,
            patch=yaml_text(patch_of(template)) if isinstance(template, TemplateSizes) else None,
            left=why_left(template) if isinstance(template, LeftTemplate) else None,
        )

    return routes


def _row(found: WorkloadHistory, container: Container) -> ContainerRow:
    statistic = found.statistics.get(container.name)
    charts = [_chart(found, container, resource) for resource in ResourceName]
    return ContainerRow(container, statistic, [chart for chart in charts if chart is not None])


def _chart(found: WorkloadHistory, container: Container, resource: ResourceName) -> Chart | None:
    """Return use by the hour against request and limit as they were, None before there is an hour of it."""
    peaks, is_cpu = found.peaks, resource is ResourceName.CPU
    values = (peaks.cpu_demand_millicores if is_cpu else peaks.memory_bytes).tolist()
    by_hour: dict[int, float] = {}
    for key, hour, value in zip(peaks.keys, peaks.hours.tolist(), values, strict=True):
        if key.container == container.name and key.identity in (found.chosen.identity, "") and value == value:
            by_hour[hour] = max(value, by_hour.get(hour, 0.0))
    if not by_hour:
        return None
    hours = range(min(by_hour), max(by_hour) + 2)
    times = [datetime.fromtimestamp(hour * 3600, UTC) for hour in hours]
    lines = [
        Line("largest use of the hour", "used", [by_hour.get(hour) for hour in hours], area=True),
        Line("request", "requested", amounts_at(found, container, times, resource, requests_of), step=True),
    ]
    limits = amounts_at(found, container, times, resource, limits_of)
    if any(limits):
        lines.append(Line("limit", "limit", limits, step=True))
    title = f"{'CPU' if is_cpu else 'Memory'} of {container.name}"
    return Chart(title, resource, times, lines, [*_marks(found, container, resource)])


def amounts_at(
    found: WorkloadHistory,
    container: Container,
    times: Sequence[datetime],
    resource: ResourceName,
    stated: Callable[[Container | ContainerTarget], Amounts],
) -> Sequence[float | None]:
    """Return a request or limit of the chosen pod at each time; None before it is known, the last is what it is now."""
    steps: list[tuple[datetime, int | None]] = []
    before = _amount_of(found.original.containers if found.original is not None else (), container, resource, stated)
    for outcome in reversed(found.outcomes):
        action = outcome.action
        if isinstance(action, ResizePod) and outcome.verdict is Verdict.DONE and action.uid == found.chosen.uid:
            if not steps and outcome.before:
                before = _amount_of(outcome.before, container, resource, stated)
            written = _amount_of(action.containers, container, resource, stated)
            if written is not None:
                steps.append((outcome.at, written))
    now = _of(stated(container), resource)
    if not steps:
        # Nothing is on record that changed it.
        before = now
    begun = found.chosen.created_at
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
    stated: Callable[[Container | ContainerTarget], Amounts],
) -> int | None:
    return next((_of(stated(one), resource) for one in containers if one.container == container.name), None)


def requests_of(one: Container | ContainerTarget) -> Amounts:
    """Return the requests of a container, or of what was written for one."""
    return one.requests


def limits_of(one: Container | ContainerTarget) -> Amounts:
    """Return the limits of a container, or of what was written for one."""
    return one.limits


def _marks(found: WorkloadHistory, container: Container, resource: ResourceName) -> Iterable[Mark]:
    if resource is ResourceName.MEMORY:
        for kill in found.kills:
            if kill.container == container.name:
                limit = f" at {memory_text(kill.memory_limit_bytes)}" if kill.memory_limit_bytes else ""
                yield Mark(kill.finished_at, "kill", f"killed for lack of memory{limit}: {kill.pod}")
    for outcome in found.outcomes:
        if outcome.verdict is Verdict.DONE and _is_of(outcome, found, container):
            kind = "evict" if isinstance(outcome.action, EvictPod) else "resize"
            yield Mark(outcome.at, kind, f"{kind}: {_why(outcome)}")


def _why(outcome: Outcome) -> str:
    action = outcome.action
    return why_resized(action) if isinstance(action, ResizePod) else in_words(action.reason)


def _is_of(outcome: Outcome, found: WorkloadHistory, container: Container) -> bool:
    action = outcome.action
    if isinstance(action, ResizePod):
        return action.uid == found.chosen.uid and any(one.container == container.name for one in action.containers)
    return isinstance(action, EvictPod)


def _of(amounts: Amounts, resource: ResourceName) -> int | None:
    return amounts.cpu_millicores if resource is ResourceName.CPU else amounts.memory_bytes
