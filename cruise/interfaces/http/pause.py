"""Stopping every write, and letting them go on, through the API."""

from dataclasses import dataclass

from fastapi import APIRouter

from cruise.domain.callers import Deed
from cruise.interfaces.http.interventions import carried_out
from cruise.interfaces.http.requests import failures
from cruise.interfaces.http.sight import CallerOf
from cruise.interfaces.http.view import ApiView, in_time


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether every write to the cluster is stopped."""

    paused: bool


def pause_routes(view: ApiView) -> APIRouter:
    """Return the routes at /pause."""
    routes = APIRouter(prefix="/pause", tags=["pause"])

    @routes.get("", responses=failures(503))
    async def paused() -> Pause:
        """Tell whether every write to the cluster is stopped."""
        return Pause(await in_time(view.store.paused()))

    @routes.put("", responses=failures(401, 403, 503))
    async def pause(caller: CallerOf) -> Pause:
        """Stop every write to the cluster, also in the middle of a pass."""
        await carried_out(view, caller, Deed.PAUSE, lambda: in_time(view.store.set_paused(True)))
        return Pause(True)

    @routes.delete("", responses=failures(401, 403, 503))
    async def resume(caller: CallerOf) -> Pause:
        """Let writes to the cluster go on, from the next pass on."""
        await carried_out(view, caller, Deed.RESUME, lambda: in_time(view.store.set_paused(False)))
        return Pause(False)

    return routes
