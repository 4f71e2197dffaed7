"""How cruise itself does: its statistics, its passes, what it costs Prometheus, who leads, and the webhook."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from cruise.decisions.sizing.headroom.risk_level import KeptRisk
from cruise.domain.annotations import ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import Snapshot
from cruise.domain.resources import ResourceName
from cruise.errors import Unavailable
from cruise.interfaces.dashboard.frame import Dashboard, Page
from cruise.interfaces.http.controller import status_of
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.reasons import REFUSALS, WORDS

PAGE = Page("health", "Health", "/status")


@dataclass(frozen=True, slots=True)
class WebhookTraces:
    """What pods tell of the webhook: how many pods on nodes bear its signature."""

    pods: int
    signed: int


def health_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("/health")
    async def health(request: Request) -> Response:
        figures = view.figures()
        try:
            traces = traces_of(await view.snapshot())
        except Unavailable:
            traces = None
        return dashboard.page(
            request,
            "health.html.j2",
            page=PAGE,
            status=await status_of(view),
            policy=view.policy,
            reading=next((job for job in figures.jobs if job.name == "statistics"), None),
            traces=traces,
            risks=_risks(figures),
            held=sorted(figures.last_pass.held.items(), key=lambda item: -item[1]) if figures.last_pass else (),
            reasons=WORDS,
            refused=sum(figures.refused.values()),
            refusals=[(REFUSALS[why], number) for why, number in figures.refused.items() if number],
        )

    return routes


def _risks(figures: ControllerFigures) -> Sequence[tuple[str, KeptRisk]]:
    """Return how stated risks were kept, by the names of the resources as people write them."""
    names = {ResourceName.CPU: "CPU", ResourceName.MEMORY: "Memory"}
    found = figures.last_pass.kept_risks if figures.last_pass is not None else {}
    return [(names[resource], risk) for resource, risk in found.items()]


def traces_of(snapshot: Snapshot) -> WebhookTraces:
    """Count the pods on nodes, and those that the webhook sized when they were created."""
    running = [pod for pod in snapshot.pods if pod.node is not None and not pod.terminal]
    return WebhookTraces(len(running), sum(ORIGINAL_RESOURCES_SIGNATURE in pod.annotations for pod in running))
