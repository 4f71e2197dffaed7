"""Who paused, resumed and overrode: on record before it holds, in the log and as an Event once it does."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import structlog
from fastapi import APIRouter, Query

from cruise.domain.callers import Caller, Deed, Intervention
from cruise.domain.cluster import WorkloadRef
from cruise.interfaces.http.requests import failures, parse_since
from cruise.interfaces.http.sight import Sight, SightOf
from cruise.interfaces.http.view import ApiView, in_time

log = structlog.get_logger()

_DAY = timedelta(days=1)
_MOST = 1000


@dataclass(frozen=True, slots=True)
class InterventionLine:
    """What somebody did to cruise; `detail` has the settings of an override."""

    at: datetime
    caller: str
    deed: str
    namespace: str | None
    workload: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class InterventionPage:
    """The newest interventions since a time, newest first; `more` tells that there are older ones."""

    items: list[InterventionLine]
    more: bool


async def carried_out(
    view: ApiView,
    caller: Caller,
    deed: Deed,
    change: Callable[[], Awaitable[None]],
    namespace: str | None = None,
    workload: WorkloadRef | None = None,
    detail: str = "",
) -> None:
    """Put on record who does what, do it, and tell. Raises Unavailable."""
    done = Intervention(view.now(), caller.name, deed, namespace, workload, detail)
    await in_time(view.store.record_intervention(done))
    await change()
    of = {"namespace": namespace, "workload": str(workload)} if workload is not None else {}
    log.info("intervention", caller=caller.name, deed=deed.value, **of, detail=detail)
    await view.announce(done)


def intervention_routes(view: ApiView) -> APIRouter:
    """Return the route at /interventions."""
    routes = APIRouter(prefix="/interventions", tags=["interventions"])

    @routes.get("", responses=failures(422, 503))
    async def interventions(
        sight: SightOf,
        since: Annotated[str | None, Query(description="A time with its zone; a day ago without it.")] = None,
        limit: Annotated[int, Query(ge=1, le=_MOST, description="How many at most.")] = 100,
    ) -> InterventionPage:
        """Return who paused, resumed and overrode, of namespaces whose pods the caller may get."""
        earliest = view.now() - _DAY if since is None else parse_since(since)
        return await intervention_page(view, sight, earliest, limit)

    return routes


async def intervention_page(view: ApiView, sight: Sight, since: datetime, limit: int) -> InterventionPage:
    """Return who paused, resumed and overrode, of namespaces whose pods the caller may get."""
    found = await in_time(view.store.interventions(since, _MOST + 1))
    seen = await sight.of(one.namespace for one in found if one.namespace is not None)
    lines = [_line(one) for one in found if seen is None or one.namespace is None or one.namespace in seen]
    return InterventionPage(lines[:limit], more=len(lines) > limit or len(found) > _MOST)


def _line(one: Intervention) -> InterventionLine:
    workload = str(one.workload) if one.workload is not None else None
    return InterventionLine(one.at, one.caller, one.deed.value, one.namespace, workload, one.detail)
