"""The packer's last plan and its progress, through the API."""

import msgspec
from fastapi import APIRouter, Response

from cruise.interfaces.http.requests import failures
from cruise.interfaces.http.sight import SightOf
from cruise.interfaces.http.view import ApiView, in_time
from cruise.interfaces.packing.progress_document import PackingPage, packing_document
from cruise.interfaces.shapes import shape


def packing_routes(view: ApiView) -> APIRouter:
    """Return the route at /packing."""
    routes = APIRouter(prefix="/packing", tags=["packing"])

    @routes.get("", response_model=PackingPage, responses=failures(403, 503))
    async def packing(sight: SightOf) -> Response:
        """Return the last plan for pods that no node could hold, and how far it is carried out.

        It is of one piece, so it is for callers who may get the pods of all namespaces.
        """
        await sight.require("")
        plan = await in_time(view.store.packing())
        page = PackingPage(None if plan is None else packing_document(plan))
        return Response(msgspec.json.encode(shape(page)), media_type="application/json")

    return routes
