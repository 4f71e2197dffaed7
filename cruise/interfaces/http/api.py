"""The HTTP API under /api/v1: what cruise knows may be read, what steers it written, each by whom the gate let in."""

from http import HTTPStatus

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException as StarletteHTTPException

from cruise import __version__
from cruise.errors import CruiseError, Throttled
from cruise.interfaces.http.consolidation import consolidation_routes
from cruise.interfaces.http.controller import controller_routes
from cruise.interfaces.http.history import history_routes
from cruise.interfaces.http.interventions import intervention_routes
from cruise.interfaces.http.overrides import override_routes
from cruise.interfaces.http.packing import packing_routes
from cruise.interfaces.http.pause import pause_routes
from cruise.interfaces.http.pods import Explanations, pod_routes
from cruise.interfaces.http.rehearsals import rehearsal_routes
from cruise.interfaces.http.reverts import revert_routes
from cruise.interfaces.http.survey import Surveys, survey_routes
from cruise.interfaces.http.view import ApiView

PREFIX = "/api/v1"


def create_api(view: ApiView, surveys: Surveys | None = None, explanations: Explanations | None = None) -> FastAPI:
    """Return the API of one controller, which looks at `view` anew at each request; it stands behind a gate.

    `surveys` and `explanations` are shared with who else reads them.
    """
    api = FastAPI(
        title="cruise",
        version=__version__,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # Judged by the gate; here it is described.
        dependencies=[Depends(HTTPBearer(auto_error=False, description="A token that the gate accepts."))],
    )
    api.include_router(controller_routes(view), prefix=PREFIX)
    api.include_router(survey_routes(surveys or Surveys(view)), prefix=PREFIX)
    api.include_router(history_routes(view), prefix=PREFIX)
    api.include_router(pod_routes(view, explanations or Explanations(view)), prefix=PREFIX)
    api.include_router(override_routes(view), prefix=PREFIX)
    api.include_router(pause_routes(view), prefix=PREFIX)
    api.include_router(packing_routes(view), prefix=PREFIX)
    api.include_router(consolidation_routes(view), prefix=PREFIX)
    api.include_router(intervention_routes(view), prefix=PREFIX)
    api.include_router(rehearsal_routes(view), prefix=PREFIX)
    api.include_router(revert_routes(view), prefix=PREFIX)
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
        return _failure(404, f"there is nothing at {request.url.path}; see {PREFIX}/openapi.json")
    headers = dict(error.headers) if error.headers is not None else None
    return _failure(error.status_code, str(error.detail), headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    return _failure(422, f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}")


async def _unavailable(request: Request, error: Exception) -> Response:
    if isinstance(error, Throttled):
        return _failure(429, str(error), {"Retry-After": "1"})
    return _failure(503, str(error))


async def _broken(request: Request, error: Exception) -> Response:
    # The server logs the error itself; what it says is no business of the caller's.
    return _failure(500, "an error of cruise's own; its log has more")
