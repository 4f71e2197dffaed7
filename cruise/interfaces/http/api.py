"""The HTTP API under /api/v1."""

from http import HTTPStatus

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException

from cruise import __version__
from cruise.errors import CruiseError, ThrottledError
from cruise.interfaces.http.attention import create_attention_routes
from cruise.interfaces.http.audit import create_audit_routes
from cruise.interfaces.http.cluster_summary import ClusterSummaryCache, create_summary_routes
from cruise.interfaces.http.controller import create_controller_routes
from cruise.interfaces.http.coverage import create_coverage_routes
from cruise.interfaces.http.namespaces import create_namespace_routes
from cruise.interfaces.http.packing import create_consolidation_routes, create_history_routes, create_packing_routes
from cruise.interfaces.http.policies import create_policy_routes
from cruise.interfaces.http.user_actions import create_pause_routes, create_revert_routes, create_user_action_routes
from cruise.interfaces.http.view import ApiView
from cruise.interfaces.http.what_if import create_what_if_routes
from cruise.interfaces.http.workload import PodExplainer, create_pod_routes

API_PREFIX = "/api/v1"


def create_api(
    view: ApiView, summaries: ClusterSummaryCache | None = None, explanations: PodExplainer | None = None
) -> FastAPI:
    """Return the API of one controller; the request guard authenticates and authorizes its callers.

    The dashboard shares `summaries` and `explanations`.
    """
    api = FastAPI(
        title="cruise",
        version=__version__,
        openapi_url=f"{API_PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # The request guard checks the token. This describes it in the OpenAPI document.
        dependencies=[Depends(HTTPBearer(auto_error=False, description="A token that this server accepts."))],
    )
    summaries = summaries or ClusterSummaryCache(view)
    api.include_router(create_controller_routes(view), prefix=API_PREFIX)
    api.include_router(create_audit_routes(view), prefix=API_PREFIX)
    api.include_router(create_summary_routes(summaries), prefix=API_PREFIX)
    api.include_router(create_attention_routes(view, summaries), prefix=API_PREFIX)
    api.include_router(create_namespace_routes(summaries), prefix=API_PREFIX)
    api.include_router(create_coverage_routes(view), prefix=API_PREFIX)
    api.include_router(create_history_routes(view), prefix=API_PREFIX)
    api.include_router(create_pod_routes(view, explanations or PodExplainer(view)), prefix=API_PREFIX)
    api.include_router(create_policy_routes(view), prefix=API_PREFIX)
    api.include_router(create_pause_routes(view), prefix=API_PREFIX)
    api.include_router(create_packing_routes(view), prefix=API_PREFIX)
    api.include_router(create_consolidation_routes(view), prefix=API_PREFIX)
    api.include_router(create_user_action_routes(view), prefix=API_PREFIX)
    api.include_router(create_what_if_routes(view), prefix=API_PREFIX)
    api.include_router(create_revert_routes(view), prefix=API_PREFIX)
    api.add_exception_handler(StarletteHTTPException, _answer_http_exception)
    api.add_exception_handler(RequestValidationError, _answer_invalid_request)
    api.add_exception_handler(CruiseError, _answer_cruise_error)
    api.add_exception_handler(Exception, _answer_internal_error)
    return api


def _error_response(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": " ".join(message.split())}, status, headers)


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND and error.detail == HTTPStatus.NOT_FOUND.phrase:
        return _error_response(404, f"{request.url.path} does not exist; see {API_PREFIX}/openapi.json")
    headers = dict(error.headers) if error.headers is not None else None
    return _error_response(error.status_code, str(error.detail), headers)


async def _answer_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    parameter = ".".join(str(part) for part in first["loc"][1:])
    return _error_response(422, f"{parameter}: {first['msg'][:1].lower()}{first['msg'][1:]}")


async def _answer_cruise_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ThrottledError):
        return _error_response(429, str(error), {"Retry-After": "1"})
    return _error_response(503, str(error))


async def _answer_internal_error(request: Request, error: Exception) -> Response:
    # The server logs the error; its message could disclose internals to the caller.
    return _error_response(500, "an internal error of cruise; see its log")
