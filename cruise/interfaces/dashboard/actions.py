"""What was done: the audit, who changed cruise itself, and the button that stops every write."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from cruise.domain.actions import Reason, Verdict
from cruise.interfaces.dashboard.frame import Dashboard, Page
from cruise.interfaces.dashboard.headings import parts_around
from cruise.interfaces.http.controller import MOST_SIFTED, OutcomeLine, outcome_page
from cruise.interfaces.http.interventions import intervention_page
from cruise.interfaces.http.requests import Offset
from cruise.interfaces.http.sight import SightOf
from cruise.interfaces.http.view import in_time
from cruise.interfaces.reasons import CAUSES, WORDS

PAGE = Page("actions", "Actions", "/outcomes")
_ROWS = 100
_MOST_INTERVENTIONS = 20
_PERIODS = {"1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
_COLOURS = {Verdict.DONE: "green", Verdict.HELD: "", Verdict.REFUSED: "red", Verdict.FAILED: "red"}


def actions_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())
    view = dashboard.view

    @routes.get("/actions")
    async def actions(
        request: Request,
        sight: SightOf,
        text: Annotated[str, Query(max_length=200)] = "",
        verdict: Annotated[str, Query(pattern=f"^({'|'.join(Verdict)})?$")] = "",
        period: Annotated[str, Query(pattern=f"^({'|'.join(_PERIODS)})$")] = "1d",
        offset: Offset = 0,
    ) -> Response:
        since = view.now() - _PERIODS[period]
        found = await outcome_page(view, sight, since, MOST_SIFTED)
        lines = [one for one in found.items if _fits(one, text, verdict)]
        stated = {"text": text, "verdict": verdict, "period": period}
        earlier, later = parts_around(stated, offset, _ROWS, len(lines))
        return dashboard.page(
            request,
            "actions.html.j2",
            page=PAGE,
            lines=lines[offset : offset + _ROWS],
            total=len(lines),
            more=found.more,
            most=MOST_SIFTED,
            text=text,
            verdict=verdict,
            verdicts=list(Verdict),
            period=period,
            periods=list(_PERIODS),
            offset=offset,
            earlier=earlier,
            later=later,
            colours=_COLOURS,
            why=lambda line: WORDS[line.why] if line.cause is None else CAUSES[line.cause],
            reverts=_first_of_workloads(lines[offset : offset + _ROWS]),
            interventions=(await intervention_page(view, sight, since, _MOST_INTERVENTIONS)).items,
            paused=await in_time(view.store.paused()),
        )

    return routes


def _first_of_workloads(lines: Sequence[OutcomeLine]) -> Sequence[int]:
    """Return the places of the lines that say first that a workload was resized by a pass or after a kill."""
    first: dict[tuple[str | None, str], int] = {}
    for place, line in enumerate(lines):
        if line.action == "resize" and line.verdict == Verdict.DONE and line.workload is not None:
            first.setdefault((line.namespace, line.workload), place)
    return [place for place in first.values() if lines[place].why != Reason.REVERTED]


def _fits(line: OutcomeLine, text: str, verdict: str) -> bool:
    if verdict and line.verdict != verdict:
        return False
    named = " ".join(part for part in (line.action, line.namespace, line.pod, line.node, line.workload) if part).lower()
    return all(word in named for word in text.lower().split())
