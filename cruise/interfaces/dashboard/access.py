"""What pages ask of callers: the right to what they are a view of, by a session in place of a header."""

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

# A form's path says which request to the API it stands for: /do/put/pause is PUT /api/v1/pause.
FORM_PREFIX = "/do/"
_FOR_ANYBODY = UNAUTHENTICATED_PAGES | {"/favicon.ico"}


class DashboardAccess:
    """Implements `gate.Front`: pages, forms and their files; everything else is the API's."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._rights: Mapping[str, str] = {page.path: page.api for page in dashboard.menu} | {"events": "/status"}
        self._api = ApiAccessRules()

    def get_required_access(self, method: str, path: str) -> PathAccess | None:
        """Return the right to what a page shows, or to what a form does."""
        if path in _FOR_ANYBODY or path.startswith("/static/"):
            return None
        if path.startswith(FORM_PREFIX):
            verb, _, rest = path.removeprefix(FORM_PREFIX).partition("/")
            return PathAccess(verb, f"/cruise{API_PREFIX}/{rest}")
        api = self._rights.get(path.split("/")[1])
        return (
            self._api.get_required_access(method, path)
            if api is None
            else PathAccess("get", f"/cruise{API_PREFIX}{api}")
        )

    def get_credentials(self, scope: Scope) -> str | None:
        """Return the token of the browser's session; programs send it themselves."""
        session = None if is_api_path(scope["path"]) else self._dashboard.sessions.find(scope)
        return f"Bearer {session.token}" if session is not None else None

    async def respond_refusal(
        self, scope: Scope, send: Send, status: HTTPStatus, why: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Send browsers to where they can sign in, or show why that would not help."""
        if is_api_path(scope["path"]):
            await self._api.respond_refusal(scope, send, status, why, headers)
            return
        request = Request(dict(scope))
        if status is HTTPStatus.UNAUTHORIZED:
            response = self._to_sign_in(request)
        else:
            response = self._dashboard.render_problem(request, status, why)
        response.raw_headers.extend(header for header in headers if header[0] == b"retry-after")
        await response(dict(scope), _nothing, send)

    def _to_sign_in(self, request: Request) -> Response:
        path = request.url.path
        wanted = path[1:] + (f"?{request.url.query}" if request.url.query else "")
        asked = f"?to={quote(wanted)}" if request.method == "GET" and "hx-request" not in request.headers else ""
        address = f"{get_relative_root(path)}{SIGN_IN[1:]}{asked}"
        if "hx-request" in request.headers:
            # A redirect would put the form into the page's middle.
            return Response(status_code=401, headers={"HX-Redirect": address})
        return Response(status_code=303, headers={"Location": address, "Cache-Control": "no-store"})


def is_api_path(path: str) -> bool:
    """Tell whether what is at a path answers in JSON or text, also where a browser asks."""
    return path.startswith("/api/") or path == "/metrics"


async def _nothing() -> dict[str, object]:
    return {"type": "http.disconnect"}


# Problems outside of pages, such as an address that nothing is at: pages for browsers, JSON for programs.

ExceptionHandler = Callable[[Request, Exception], Awaitable[Response]]


def add_problem_pages(api: FastAPI, dashboard: Dashboard) -> None:
    """Let browsers see a page where programs get the API's JSON; the status and the headers are the same."""
    for kind in (StarletteHTTPException, RequestValidationError, CruiseError, Exception):
        api.add_exception_handler(kind, _shown(dashboard, api.exception_handlers[kind]))  # type: ignore[arg-type]


def _shown(dashboard: Dashboard, answer: ExceptionHandler) -> ExceptionHandler:
    async def handler(request: Request, error: Exception) -> Response:
        answered = await answer(request, error)
        if is_api_path(request.scope["path"]) or "text/html" not in request.headers.get("accept", ""):
            return answered
        request.state.pause = await dashboard.pause()
        page = dashboard.render_problem(request, answered.status_code, _why(answered.status_code, request, error))
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
