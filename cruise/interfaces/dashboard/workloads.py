"""Every workload, sorted, filtered and paged here: the browser gets one page of them."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.background import BackgroundTask

from cruise.domain.policy import Mode
from cruise.interfaces.dashboard.frame import Dashboard, Page
from cruise.interfaces.dashboard.headings import Column, headings_of, parts_around
from cruise.interfaces.http.requests import Offset
from cruise.interfaces.http.sight import SightOf
from cruise.interfaces.http.survey import SORTS, Wanted, find_workloads
from cruise.interfaces.reasons import in_words
from cruise.interfaces.scan.finding_words import RISK_TITLES

PAGE = Page("workloads", "Workloads", "/workloads")
_ROWS = 50


_COLUMNS = (
    Column("Workload", "name", is_number=False, is_descending=False),
    Column("At risk", "risk", is_number=False),
    Column("Pods", "pods"),
    Column("used", "cpu-used"),
    Column("requested", "cpu"),
    Column("reclaimable", "cpu-reclaimable"),
    Column("used", "memory-used"),
    Column("requested", "memory"),
    Column("reclaimable", "memory-reclaimable"),
)


def workloads_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the list."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())

    @routes.get("/workloads")
    async def workloads(
        request: Request,
        sight: SightOf,
        text: Annotated[str, Query(max_length=200)] = "",
        namespace: Annotated[str, Query(max_length=63)] = "",
        mode: Annotated[str, Query(max_length=20)] = "",
        risk: bool = False,
        sort: Annotated[str, Query(pattern=f"^({'|'.join(SORTS)})$")] = "share",
        up: bool = False,
        offset: Offset = 0,
    ) -> Response:
        wanted = Wanted(text, namespace, mode, risk, sort, not up, offset, _ROWS)
        survey = await dashboard.surveys.at_hand()
        found = await find_workloads(survey, wanted, sight)
        stated = stated_of(wanted)
        earlier, later = parts_around(stated, offset, _ROWS, found.total)
        response = dashboard.page(
            request,
            "workloads.html.j2",
            page=PAGE,
            survey=survey,
            wanted=wanted,
            found=found,
            headings=headings_of(_COLUMNS, stated),
            modes=[one.label for one in reversed(Mode)],
            earlier=earlier,
            later=later,
            titles=RISK_TITLES,
            in_words=in_words,
        )
        response.background = BackgroundTask(dashboard.surveys.refresh)
        return response

    return routes


def stated_of(wanted: Wanted) -> dict[str, str]:
    """Return what the query of this says, from the first row on."""
    return {
        "text": wanted.text,
        "namespace": wanted.namespace,
        "mode": wanted.mode,
        "risk": "true" if wanted.at_risk else "",
        "sort": wanted.sort,
        "up": "false" if wanted.descending else "true",
    }
