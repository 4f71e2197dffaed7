"""The page Health."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.annotations import ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.resources import ResourceName
from cruise.errors import UnavailableError
from cruise.interfaces.dashboard.layout import Dashboard, DashboardPage
from cruise.interfaces.http.controller import build_controller_status
from cruise.interfaces.http.figures import ControllerFigures
from cruise.interfaces.reasons import REASON_DESCRIPTIONS, REJECTION_DESCRIPTIONS

HEALTH_PAGE = DashboardPage("health", "Health", "/status")


@dataclass(frozen=True, slots=True)
class WebhookActivity:
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
            activity = count_webhook_activity(await view.snapshot())
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


def count_webhook_activity(snapshot: ClusterSnapshot) -> WebhookActivity:
    """Count the pods on nodes, and those that the webhook sized at creation."""
    running = [pod for pod in snapshot.pods if pod.node is not None and not pod.is_finished]
    return WebhookActivity(len(running), sum(ORIGINAL_RESOURCES_SIGNATURE in pod.annotations for pod in running))
