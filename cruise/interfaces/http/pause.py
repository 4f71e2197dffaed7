"""Stopping every write, and letting them go on, through the API."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Depends

from cruise.interfaces.http.requests import failures
from cruise.interfaces.http.view import ApiView, in_time


@dataclass(frozen=True, slots=True)
class Pause:
    """Whether every write to the cluster is stopped."""

    paused: bool


def pause_routes(view: ApiView, may_write: Callable[..., None]) -> APIRouter:
    """Return the routes at /pause."""
    routes = APIRouter(prefix="/pause", tags=["pause"])
    writes = [Depends(may_write)]

    @routes.get("", responses=failures(503))
    async def paused() -> Pause:
        """Tell whether every write to the cluster is stopped."""
        return Pause(await in_time(view.store.paused()))

    @routes.put("", dependencies=writes, responses=failures(401, 403, 503))
    async def pause() -> Pause:
        """Stop every write to the cluster, also in the middle of a pass."""
        await in_time(view.store.set_paused(True))
        return Pause(True)

    @routes.delete("", dependencies=writes, responses=failures(401, 403, 503))
    async def resume() -> Pause:
        """Let writes to the cluster go on, from the next pass on."""
        await in_time(view.store.set_paused(False))
        return Pause(False)

    return routes
