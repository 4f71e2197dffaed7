"""The cluster's sums over time through the API, an hour each."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from cruise.collection import uncollected
from cruise.domain.cluster_hours import hour_of
from cruise.domain.resources import Resources
from cruise.interfaces.http.controller import Sizes
from cruise.interfaces.http.requests import CAMEL, failures, parse_since
from cruise.interfaces.http.view import ApiView, in_time

SHOWN = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class HourDocument:
    """The cluster at the first pass of an hour; `saved` is against the requests before cruise."""

    __pydantic_config__ = CAMEL
    at: datetime
    allocatable: Sizes
    requested: Sizes
    used: Sizes
    saved: Sizes


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """The hours that are known, oldest first."""

    items: list[HourDocument]


def history_routes(view: ApiView) -> APIRouter:
    """Return the route at /history."""
    routes = APIRouter(prefix="/history", tags=["workloads"])

    @routes.get("", response_model=HistoryPage, responses=failures(422, 503))
    async def history(
        since: Annotated[str | None, Query(description="A time with its zone; thirty days ago without it.")] = None,
    ) -> Response:
        """Return the cluster's sums by the hour, as long as they are kept."""
        earliest = view.now() - SHOWN if since is None else parse_since(since)
        found = await in_time(view.store.cluster_hours(hour_of(earliest)))
        # Thousands of hours, which to check as a model takes a tenth of a second.
        with uncollected():
            items = [
                {
                    "at": one.at,
                    **{name: _sizes(getattr(one, name)) for name in ("allocatable", "requested", "used", "saved")},
                }
                for one in found
            ]
            return Response(msgspec.json.encode({"items": items}), media_type="application/json")

    return routes


def _sizes(amount: Resources) -> dict[str, int]:
    return {"cpuMillicores": amount.cpu_millicores, "memoryBytes": amount.memory_bytes}
