"""The first page: what is at risk, what was saved, what is left to save, and how far cruise may go where."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from starlette.background import BackgroundTask

from cruise.domain.cluster_hours import ClusterHour, hour_of
from cruise.domain.policy import Mode
from cruise.domain.resources import ResourceName
from cruise.interfaces.dashboard.charts import Chart, Line
from cruise.interfaces.dashboard.frame import Dashboard, Page
from cruise.interfaces.http.figures import ClusterMoment
from cruise.interfaces.http.history import SHOWN
from cruise.interfaces.http.sight import SightOf
from cruise.interfaces.http.survey import UNREADABLE
from cruise.interfaces.http.view import in_time
from cruise.interfaces.scan.finding_words import RISK_TITLES, why_at_risk
from cruise.interfaces.scan.html import rooms_of

PAGE = Page("", "Overview", "/overview")
_MOST_RISKS = 8
_MODES: Mapping[str, str] = {
    Mode.FULL.label: "resized, and evicted where a node does not hold its pods",
    Mode.RESIZE.label: "resized in place",
    Mode.INITIAL.label: "sized when they are created",
    Mode.OBSERVE.label: "watched; nothing is written",
    Mode.OFF.label: "left alone",
    UNREADABLE: "left alone until an annotation of theirs can be read",
}


@dataclass(frozen=True, slots=True)
class Adoption:
    """How many pods a mode holds for; `width` is their share in percent."""

    mode: str
    words: str
    pods: int
    width: str


def overview_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the overview."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())

    @routes.get("/")
    async def overview(request: Request, sight: SightOf) -> Response:
        found = await dashboard.surveys.at_hand()
        seen = await sight.of(risk.namespace for risk in found.risks)
        risks = [risk for risk in found.risks if seen is None or risk.namespace in seen]
        hours = await in_time(dashboard.view.store.cluster_hours(hour_of(dashboard.view.now() - SHOWN)))
        refreshed_at = dashboard.view.figures().statistics_at
        response = dashboard.page(
            request,
            "overview.html.j2",
            is_old=refreshed_at is None or found.done.at - refreshed_at > dashboard.view.policy.max_age,
            page=PAGE,
            survey=found,
            risks=risks[:_MOST_RISKS],
            risk_count=len(risks),
            risk_kinds=Counter(risk.kind for risk in risks),
            titles=RISK_TITLES,
            why=lambda risk: why_at_risk(risk, dashboard.view.now()),
            rooms=rooms_of(found.totals),
            adoption=adoption_of(found.modes),
            hours=hours,
            charts=charts_of(hours, dashboard.view.figures().history),
        )
        response.background = BackgroundTask(dashboard.surveys.refresh)
        return response

    return routes


def adoption_of(pods: Mapping[str, int]) -> Sequence[Adoption]:
    """Return how many pods each mode holds for, the furthest mode first."""
    whole = max(1, sum(pods.values()))
    return [
        Adoption(mode, words, pods.get(mode, 0), f"{100 * pods.get(mode, 0) / whole:.2f}")
        for mode, words in _MODES.items()
        if pods.get(mode) or mode != UNREADABLE
    ]


def charts_of(hours: Sequence[ClusterHour], history: Sequence[ClusterMoment]) -> Sequence[Chart]:
    """Return CPU and memory by the hour, before there are two by the passes of this process; none of fewer than two."""
    moments: Sequence[ClusterHour | ClusterMoment] = hours if len(hours) > 1 else history
    if len(moments) < 2:
        return ()
    return [
        Chart(title, resource, [one.at for one in moments], _lines(moments, resource))
        for title, resource in (("CPU", ResourceName.CPU), ("Memory", ResourceName.MEMORY))
    ]


def _lines(moments: Sequence[ClusterHour | ClusterMoment], resource: ResourceName) -> Sequence[Line]:
    used = [None if one.used is None else one.used.of(resource) for one in moments]
    saved = [one.saved.of(resource) for one in moments if isinstance(one, ClusterHour)]
    return [
        Line("allocatable", "allocatable", [one.allocatable.of(resource) for one in moments]),
        Line("requested", "requested", [one.requested.of(resource) for one in moments]),
        Line("used", "used", used, area=True),
        *([Line("saved", "saved", saved)] if saved else ()),
    ]
