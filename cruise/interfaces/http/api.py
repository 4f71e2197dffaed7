"""The HTTP API under /api/v1: what cruise knows may be read, what steers it written, each by whom the gate let in."""

from http import HTTPStatus

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException

from cruise import __version__
from cruise.errors import CruiseError, ThrottledError
from cruise.interfaces.http.cluster_summary import ClusterSummaries, create_summary_routes
from cruise.interfaces.http.controller import create_controller_routes
from cruise.interfaces.http.overrides import create_override_routes
from cruise.interfaces.http.packing import create_consolidation_routes, create_history_routes, create_packing_routes
from cruise.interfaces.http.user_actions import create_pause_routes, create_revert_routes, create_user_action_routes
from cruise.interfaces.http.view import ApiView
from cruise.interfaces.http.what_if import create_what_if_routes
from cruise.interfaces.http.workload import PodExplanations, create_pod_routes

API_PREFIX = "/api/v1"


def create_api(
    view: ApiView, surveys: ClusterSummaries | None = None, explanations: PodExplanations | None = None
) -> FastAPI:
    """Return the API of one controller, which looks at `view` anew at each request; it stands behind a gate.

    `surveys` and `explanations` are shared with who else reads them.
    """
    api = FastAPI(
        title="cruise",
        version=__version__,
        openapi_url=f"{API_PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Judged by the gate; here it is described.
        dependencies=[Depends(HTTPBearer(auto_error=False, description="A token that the gate accepts."))],
    )
    api.include_router(create_controller_routes(view), prefix=API_PREFIX)
    api.include_router(create_summary_routes(surveys or ClusterSummaries(view)), prefix=API_PREFIX)
    api.include_router(create_history_routes(view), prefix=API_PREFIX)
    api.include_router(create_pod_routes(view, explanations or PodExplanations(view)), prefix=API_PREFIX)
    api.include_router(create_override_routes(view), prefix=API_PREFIX)
    api.include_router(create_pause_routes(view), prefix=API_PREFIX)
    api.include_router(create_packing_routes(view), prefix=API_PREFIX)
    api.include_router(create_consolidation_routes(view), prefix=API_PREFIX)
    api.include_router(create_user_action_routes(view), prefix=API_PREFIX)
    api.include_router(create_what_if_routes(view), prefix=API_PREFIX)
    api.include_router(create_revert_routes(view), prefix=API_PREFIX)
    api.add_exception_handler(StarletteHTTPException, _refused)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(CruiseError, _unavailable)
    api.add_exception_handler(Exception, _broken)
    return api


def _failure(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": " ".join(message.split())}, status, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND and error.detail == HTTPStatus.NOT_FOUND.phrase:
        return _failure(404, f"there is nothing at {request.url.path}; see {API_PREFIX}/openapi.json")
    headers = dict(error.headers) if error.headers is not None else None
    return _failure(error.status_code, str(error.detail), headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    return _failure(422, f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}")


async def _unavailable(request: Request, error: Exception) -> Response:
    if isinstance(error, ThrottledError):
        return _failure(429, str(error), {"Retry-After": "1"})
    return _failure(503, str(error))


async def _broken(request: Request, error: Exception) -> Response:
    # The server logs the error itself; what it says is no business of the caller's.
    return _failure(500, "an error of cruise's own; its log has more")
