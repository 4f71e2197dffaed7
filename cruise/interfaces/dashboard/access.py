"""Access to pages: a page requires the right to the API path that it shows, and a session replaces the header."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from cruise.domain.users import PathAccess
from cruise.errors import CruiseError
from cruise.interfaces.dashboard.layout import SIGN_IN, UNAUTHENTICATED_PAGES, Dashboard, get_relative_root
from cruise.interfaces.http.api import API_PREFIX
from cruise.interfaces.http.health import Scope, Send
from cruise.interfaces.http.request_guard import ApiAccessRules

# The path of a form names a request to the API: /forms/put/pause is PUT /api/v1/pause.
FORM_PREFIX = "/forms/"
_PUBLIC_PATHS = UNAUTHENTICATED_PAGES | {"/favicon.ico"}


class DashboardAccess:
    """Implements `PathAccessRules` for pages, forms and static files, and delegates everything else to the API."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._api_paths: Mapping[str, str] = {page.path: page.api for page in dashboard.menu} | {"events": "/status"}
        self._api = ApiAccessRules()

    def get_required_access(self, method: str, path: str) -> PathAccess | None:
        """Return the right that a page or form requires, None for public paths."""
        if path in _PUBLIC_PATHS or path.startswith("/static/"):
            return None
        if path.startswith(FORM_PREFIX):
            verb, _, api_path = path.removeprefix(FORM_PREFIX).partition("/")
            return PathAccess(verb, f"/cruise{API_PREFIX}/{api_path}")
        page_api_path = self._api_paths.get(path.split("/")[1])
        if page_api_path is None:
            return self._api.get_required_access(method, path)
        return PathAccess("get", f"/cruise{API_PREFIX}{page_api_path}")

    def get_credentials(self, scope: Scope) -> str | None:
        """Return the token of the browser's session; API clients send their own header."""
        session = None if is_api_path(scope["path"]) else self._dashboard.sessions.find(scope)
        return f"Bearer {session.token}" if session is not None else None

    async def respond_rejection(
        self, scope: Scope, send: Send, status: HTTPStatus, reason: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Redirect browsers to the sign-in page, or show an error page if they are signed in."""
        if is_api_path(scope["path"]):
            await self._api.respond_rejection(scope, send, status, reason, headers)
            return
        request = Request(dict(scope))
        if status is HTTPStatus.UNAUTHORIZED:
            response = self._redirect_to_sign_in(request)
        else:
            response = self._dashboard.render_problem(request, status, reason)
        response.raw_headers.extend(header for header in headers if header[0] == b"retry-after")
        await response(dict(scope), _receive_nothing, send)

    def _redirect_to_sign_in(self, request: Request) -> Response:
        path = request.url.path
        page = path[1:] + (f"?{request.url.query}" if request.url.query else "")
        query = f"?to={quote(page)}" if request.method == "GET" and "hx-request" not in request.headers else ""
        address = f"{get_relative_root(path)}{SIGN_IN[1:]}{query}"
        if "hx-request" in request.headers:
            # htmx would insert the target of a redirect into the page.
            return Response(status_code=401, headers={"HX-Redirect": address})
        return Response(status_code=303, headers={"Location": address, "Cache-Control": "no-store"})


def is_api_path(path: str) -> bool:
    """Tell whether a path answers in JSON or plain text, for browsers too."""
    return path.startswith("/api/") or path == "/metrics"


async def _receive_nothing() -> dict[str, object]:
    return {"type": "http.disconnect"}


ExceptionHandler = Callable[[Request, Exception], Awaitable[Response]]


def add_problem_pages(api: FastAPI, dashboard: Dashboard) -> None:
    """Answer browsers with an error page where API clients get JSON, with the same status and headers."""
    for kind in (StarletteHTTPException, RequestValidationError, CruiseError, Exception):
        api.add_exception_handler(kind, _answer_browsers(dashboard, api.exception_handlers[kind]))  # type: ignore[arg-type]


def _answer_browsers(dashboard: Dashboard, api_handler: ExceptionHandler) -> ExceptionHandler:
    async def handler(request: Request, error: Exception) -> Response:
        response = await api_handler(request, error)
        if is_api_path(request.scope["path"]) or "text/html" not in request.headers.get("accept", ""):
            return response
        request.state.pause = await dashboard.read_pause_status()
        page = dashboard.render_problem(request, response.status_code, _describe(response.status_code, request, error))
        page.raw_headers.extend(header for header in response.raw_headers if header[0] in (b"allow", b"retry-after"))
        return page

    return handler


def _describe(status: int, request: Request, error: Exception) -> str:
    if status == 404:
        return f"{request.url.path} does not exist"
    if status == 405:
        return f"{request.url.path} does not accept {request.method}"
    if isinstance(error, StarletteHTTPException):
        return str(error.detail)
    return str(error) if isinstance(error, CruiseError) else "an internal error occurred"
