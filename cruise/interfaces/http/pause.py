"""Stopping every write, and letting them go on, through the API."""

from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter

from cruise.domain.callers import Deed
from cruise.domain.retention import RETENTION
from cruise.interfaces.http.interventions import carried_out
from cruise.interfaces.http.requests import failures
from cruise.interfaces.http.sight import CallerOf
from cruise.interfaces.http.view import ApiView, in_time


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether every write to the cluster is stopped, since when and by whom, null where that is not on record."""

    paused: bool
    since: datetime | None = None
    by: str | None = None


async def pause_of(view: ApiView) -> Pause:
    """Return whether every write is stopped, and who stopped them. Raises Unavailable."""
    if not await in_time(view.store.paused()):
        return Pause(False)
    began = None
    for one in await in_time(view.store.interventions(view.now() - RETENTION.interventions)):
        if one.deed is Deed.RESUME:
            break
        # A revert of more than one workload pauses first.
        if one.deed is Deed.PAUSE or (one.deed is Deed.REVERT and one.workload is None):
            began = one
    return Pause(True) if began is None else Pause(True, began.at, began.caller)


def pause_routes(view: ApiView) -> APIRouter:
    """Return the routes at /pause."""
    routes = APIRouter(prefix="/pause", tags=["pause"])

    @routes.get("", responses=failures(503))
    async def paused() -> Pause:
        """Tell whether every write to the cluster is stopped, since when and by whom."""
        return await pause_of(view)

    @routes.put("", responses=failures(401, 403, 503))
    async def pause(caller: CallerOf) -> Pause:
        """Stop every write to the cluster, also in the middle of a pass."""
        await carried_out(view, caller, Deed.PAUSE, lambda: in_time(view.store.set_paused(True)))
        return await pause_of(view)

    @routes.delete("", responses=failures(401, 403, 503))
    async def resume(caller: CallerOf) -> Pause:
        """Let writes to the cluster go on, from the next pass on."""
        await carried_out(view, caller, Deed.RESUME, lambda: in_time(view.store.set_paused(False)))
        return Pause(False)

    return routes
