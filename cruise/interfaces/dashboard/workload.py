"""One workload: its use against its sizes, what was done to it and why, and the patch to commit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fastapi import APIRouter, HTTPException, Request, Response

from cruise.decisions.exporting.templates import LeftTemplate, TemplateSizes
from cruise.domain.actions import EvictPod, Outcome, ResizePod, Verdict
from cruise.domain.cluster import Container
from cruise.domain.resources import Amounts, ResourceName
from cruise.domain.usage import Statistic
from cruise.errors import NotFound
from cruise.interfaces.amounts import cpu_text, memory_text
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
            rows=[_row(found, container) for container in found.chosen.sized_containers],
            outcomes=found.outcomes[:_MOST_OUTCOMES],
            in_words=in_words,
            sizes=_sizes,
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
    charts = [_chart(found, container, statistic, resource) for resource in ResourceName]
    return ContainerRow(container, statistic, [chart for chart in charts if chart is not None])


def _chart(
    found: WorkloadHistory, container: Container, statistic: Statistic | None, resource: ResourceName
) -> Chart | None:
    """Return use by the hour against request and limit, None before there is an hour of it."""
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
    requests = _requests_at(found, container, times, resource)
    lines = [
        Line("largest use of the hour", "used", [by_hour.get(hour) for hour in hours], area=True),
        Line("request", "requested", requests, step=True),
    ]
    if statistic is not None:
        base = statistic.cpu_base_millicores if is_cpu else statistic.memory_base_bytes
        peak = statistic.cpu_peak_millicores if is_cpu else statistic.memory_peak_bytes
        lines.append(Line("base now (P75)", "base", [float(base)] * len(times)))
        lines.append(Line("peak now", "peak", [float(peak)] * len(times)))
    limit = _of(container.limits, resource)
    if limit:
        lines.append(Line("limit", "limit", [float(limit)] * len(times)))
    title = f"{'CPU' if is_cpu else 'Memory'} of {container.name}"
    return Chart(title, resource, times, lines, [*_marks(found, container, resource)])


def _requests_at(
    found: WorkloadHistory, container: Container, times: Sequence[datetime], resource: ResourceName
) -> Sequence[float | None]:
    """Return what the chosen pod requested at each time, as far as resizes tell; the last is what it requests now."""
    steps: list[tuple[datetime, int]] = []
    for outcome in reversed(found.outcomes):
        action = outcome.action
        if isinstance(action, ResizePod) and outcome.verdict is Verdict.DONE and action.uid == found.chosen.uid:
            written = [_of(one.requests, resource) for one in action.containers if one.container == container.name]
            steps += [(outcome.at, amount) for amount in written if amount]
    first = [
        _of(one.requests, resource)
        for one in (found.original.containers if found.original is not None else ())
        if one.container == container.name
    ]
    now = _of(container.requests, resource)
    before = first[0] if first else now if not steps else None
    begun = found.chosen.created_at
    found_amounts: list[float | None] = []
    for at in times:
        amount = before
        for when, written_then in steps:
            amount = written_then if when <= at else amount
        found_amounts.append(float(amount) if amount and (begun is None or at >= begun) else None)
    if now:
        found_amounts[-1] = float(now)
    return found_amounts


def _marks(found: WorkloadHistory, container: Container, resource: ResourceName) -> Iterable[Mark]:
    if resource is ResourceName.MEMORY:
        for kill in found.kills:
            if kill.container == container.name:
                limit = f" at {memory_text(kill.memory_limit_bytes)}" if kill.memory_limit_bytes else ""
                yield Mark(kill.finished_at, "kill", f"killed for lack of memory{limit}: {kill.pod}")
    for outcome in found.outcomes:
        if outcome.verdict is Verdict.DONE and _is_of(outcome, found, container):
            kind = "evict" if isinstance(outcome.action, EvictPod) else "resize"
            yield Mark(outcome.at, kind, f"{kind}: {in_words(outcome.action.reason)}")


def _is_of(outcome: Outcome, found: WorkloadHistory, container: Container) -> bool:
    action = outcome.action
    if isinstance(action, ResizePod):
        return action.uid == found.chosen.uid and any(one.container == container.name for one in action.containers)
    return isinstance(action, EvictPod)


def _sizes(outcome: Outcome) -> str:
    """Write the requests that a resize was to write, container by container."""
    if not isinstance(outcome.action, ResizePod):
        return ""
    named = len(outcome.action.containers) > 1
    return "; ".join(
        f"{f'{one.container} ' if named else ''}{cpu_text(one.requests.cpu_millicores or 0)}, "
        f"{memory_text(one.requests.memory_bytes or 0)}"
        for one in outcome.action.containers
    )


def _of(amounts: Amounts, resource: ResourceName) -> int | None:
    return amounts.cpu_millicores if resource is ResourceName.CPU else amounts.memory_bytes
