"""Server-sent events: pages that are live load themselves anew after a node pass."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from cruise.domain.callers import Caller
from cruise.interfaces.dashboard.frame import HEADERS, Dashboard
from cruise.interfaces.http.sight import CallerOf

_LOOK_SECONDS = 5.0
_LOOKS = 120
# Each takes one of the requests that a caller may have under way.
_MOST_OF_ONE = 4


def event_routes(dashboard: Dashboard) -> APIRouter:
    """Return the route at /events."""
    routes = APIRouter(include_in_schema=False)
    open_streams: Counter[Caller] = Counter()

    @routes.get("/events")
    async def events(request: Request, caller: CallerOf) -> Response:
        """Tell of every new node pass; browsers ask again when the stream ends, save where they have too many."""
        if open_streams[caller] >= _MOST_OF_ONE:
            return Response(status_code=204)

        async def stream() -> AsyncIterator[str]:
            open_streams[caller] += 1
            try:
                async for line in _passes(dashboard):
                    yield line
            finally:
                open_streams[caller] -= 1

        return StreamingResponse(stream(), media_type="text/event-stream", headers=dict(HEADERS))

    return routes


async def _passes(dashboard: Dashboard) -> AsyncIterator[str]:
    known = dashboard.view.last_pass()
    yield "retry: 10000\n\n"
    for _ in range(_LOOKS):
        await asyncio.sleep(_LOOK_SECONDS)
        newest = dashboard.view.last_pass()
        # A comment keeps proxies from ending what is quiet.
        yield ": nothing new\n\n" if newest is known else "event: pass\ndata: new\n\n"
        known = newest
