"""Every workload, sorted, filtered and paged here: the browser gets one page of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.background import BackgroundTask

from cruise.domain.policy import Mode
from cruise.interfaces.dashboard.frame import Dashboard, Page
from cruise.interfaces.http.requests import Offset
from cruise.interfaces.http.sight import SightOf
from cruise.interfaces.http.survey import SORTS, Wanted, find_workloads
from cruise.interfaces.reasons import in_words
from cruise.interfaces.scan.finding_words import RISK_TITLES

PAGE = Page("workloads", "Workloads", "/workloads")
_ROWS = 50


@dataclass(frozen=True, slots=True)
class Heading:
    """A column's heading: `link` sorts by it, in the other direction where it does already (`sorted` up or down)."""

    title: str
    key: str
    number: bool
    link: str
    sorted: str


_COLUMNS = (
    ("Workload", "name"),
    ("At risk", "risk"),
    ("Pods", "pods"),
    ("used", "cpu-used"),
    ("requested", "cpu"),
    ("to free", "cpu-freed"),
    ("used", "memory-used"),
    ("requested", "memory"),
    ("to free", "memory-freed"),
)
_TEXTS = ("name", "risk")


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
        response = dashboard.page(
            request,
            "workloads.html.j2",
            page=PAGE,
            survey=survey,
            wanted=wanted,
            found=found,
            headings=headings_of(wanted),
            modes=[one.label for one in reversed(Mode)],
            earlier=link_of(replace(wanted, offset=max(0, offset - _ROWS))) if offset else None,
            later=link_of(replace(wanted, offset=offset + _ROWS)) if offset + _ROWS < found.total else None,
            titles=RISK_TITLES,
            in_words=in_words,
        )
        response.background = BackgroundTask(dashboard.surveys.refresh)
        return response

    return routes


def headings_of(wanted: Wanted) -> Sequence[Heading]:
    """Return the headings; a click sorts numbers from the largest and names from the first."""
    found = []
    for title, key in _COLUMNS:
        is_sorted = key == wanted.sort
        descending = not wanted.descending if is_sorted else key != "name"
        link = link_of(replace(wanted, sort=key, descending=descending, offset=0))
        direction = ("descending" if wanted.descending else "ascending") if is_sorted else ""
        found.append(Heading(title, key, key not in _TEXTS, link, direction))
    return found


def link_of(wanted: Wanted) -> str:
    """Return the query that asks for this, without what goes without saying."""
    parts = {
        "text": wanted.text,
        "namespace": wanted.namespace,
        "mode": wanted.mode,
        "risk": "true" if wanted.at_risk else "",
        "sort": wanted.sort if wanted.sort != "share" else "",
        "up": "" if wanted.descending else "true",
        "offset": str(wanted.offset) if wanted.offset else "",
    }
    return "?" + urlencode({name: value for name, value in parts.items() if value})
