"""Problems outside of pages, such as an address that nothing is at: pages for browsers, JSON for programs."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from cruise.errors import CruiseError
from cruise.interfaces.dashboard.frame import Dashboard
from cruise.interfaces.dashboard.front import is_for_programs

Handler = Callable[[Request, Exception], Awaitable[Response]]


def add_problem_pages(api: FastAPI, dashboard: Dashboard) -> None:
    """Let browsers see a page where programs get the API's JSON; the status and the headers are the same."""
    for kind in (StarletteHTTPException, RequestValidationError, CruiseError, Exception):
        api.add_exception_handler(kind, _shown(dashboard, api.exception_handlers[kind]))  # type: ignore[arg-type]


def _shown(dashboard: Dashboard, answer: Handler) -> Handler:
    async def handler(request: Request, error: Exception) -> Response:
        answered = await answer(request, error)
        if is_for_programs(request.scope["path"]) or "text/html" not in request.headers.get("accept", ""):
            return answered
        request.state.pause = await dashboard.pause()
        page = dashboard.problem(request, answered.status_code, _why(answered.status_code, request, error))
        page.raw_headers.extend(header for header in answered.raw_headers if header[0] in (b"allow", b"retry-after"))
        return page

    return handler


def _why(status: int, request: Request, error: Exception) -> str:
    if status == 404:
        return f"there is nothing at {request.url.path}"
    if status == 405:
        return f"{request.url.path} does not answer {request.method}"
    if isinstance(error, StarletteHTTPException):
        return str(error.detail)
    return str(error) if isinstance(error, CruiseError) else "cruise could not answer this request"
