"""The parts that all dashboard pages share: static files, sessions, the page frame, error pages and sortable tables."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from starlette.background import BackgroundTask

from cruise import __version__
from cruise.domain.prices import format_money
from cruise.domain.resources import ResourceName
from cruise.errors import CruiseError
from cruise.interfaces.dashboard.terms import HEADINGS, TERMS
from cruise.interfaces.http.cluster_summary import ClusterSummaryCache
from cruise.interfaces.http.health import Scope
from cruise.interfaces.http.user_actions import PauseStatus, get_pause_status
from cruise.interfaces.http.view import ApiView
from cruise.interfaces.http.workload import PodExplainer
from cruise.interfaces.text import (
    format_age,
    format_cores,
    format_count,
    format_cpu,
    format_gibibytes,
    format_mebibytes,
    format_memory,
    format_share,
    load_template,
)

# Static files. A checkout in which npm has not run has no `vendor` directory.

_CONTENT_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
# The path has a digest of the content, so browsers may cache a file permanently.
_ASSET_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


@cache
def list_assets() -> Mapping[str, str]:
    """Return the path of each static file, relative to the root, by file name."""
    return {name: f"static/{digest}/{name}" for name, (digest, _) in _read_assets().items()}


@cache
def _read_assets() -> Mapping[str, tuple[str, bytes]]:
    directory = Path(__file__).parent
    assets = {}
    for file in sorted([*(directory / "static").glob("*"), *(directory / "vendor").glob("*")]):
        if file.suffix in _CONTENT_TYPES:
            content = file.read_bytes()
            assets[file.name] = (sha256(content).hexdigest()[:12], content)
    return assets


def create_asset_routes() -> APIRouter:
    """Return the routes under /static."""
    routes = APIRouter(prefix="/static", include_in_schema=False)

    @routes.get("/{digest}/{name}")
    async def asset(digest: str, name: str) -> Response:
        """Return the file of this name if its content has this digest."""
        current_digest, content = _read_assets().get(name, ("", b""))
        if not current_digest or current_digest != digest:
            raise HTTPException(404, "there is no such file")
        return Response(content, media_type=_CONTENT_TYPES[Path(name).suffix], headers=_ASSET_HEADERS)

    return routes


# Sessions. A token stays in this process; the browser holds a random session key.

SESSION_COOKIE = "cruise_session"
_MAX_SESSIONS = 1000
_IDLE_SECONDS = 3600.0
MAX_SESSION_SECONDS = 8 * 3600.0


@dataclass(slots=True)
class SignInSession:
    """A signed-in browser; every form that the server sends to it has `form_token`."""

    token: str
    name: str
    form_token: str
    started: float
    last_request: float


class SignInSessions:
    """The sessions of this process; a session ends an hour after its last request, and after eight hours."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: dict[str, SignInSession] = {}

    def begin(self, token: str, name: str) -> str:
        """Start a session and return its key; the oldest session ends if there are too many."""
        now = self._clock()
        self._sessions = {key: one for key, one in self._sessions.items() if _is_valid(one, now)}
        while len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        key = secrets.token_urlsafe(32)
        self._sessions[key] = SignInSession(token, name, secrets.token_urlsafe(32), now, now)
        return key

    def find(self, scope: Scope) -> SignInSession | None:
        """Return the session of a request."""
        session = self._sessions.get(get_session_key(scope))
        now = self._clock()
        if session is None or not _is_valid(session, now):
            return None
        session.last_request = now
        return session

    def end(self, scope: Scope) -> None:
        """End the session of a request."""
        self._sessions.pop(get_session_key(scope), None)


def get_session_key(scope: Scope) -> str:
    """Return the session key in a request's cookie, empty if there is none."""
    return get_cookie("; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie"))


def get_cookie(header: str, name: str = SESSION_COOKIE) -> str:
    """Return the value of a cookie in a Cookie header, empty if it is missing or the header is malformed."""
    try:
        cookie = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""


def _is_valid(session: SignInSession, now: float) -> bool:
    return now - session.last_request < _IDLE_SECONDS and now - session.started < MAX_SESSION_SECONDS


SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
# These two are directly below the root, because the session cookie belongs to the root.
PROVIDER_SIGN_IN, PROVIDER_CALLBACK = "/sign-in-elsewhere", "/signed-in"
UNAUTHENTICATED_PAGES = frozenset({SIGN_IN, SIGN_OUT, PROVIDER_SIGN_IN, PROVIDER_CALLBACK})
# Charts and htmx set styles through the DOM, which `style-src` allows.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, browsers would hide the origin of forms, which the request guard checks.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """An entry of the menu: the first part of its path, its title, and an API path.

    A caller who may get the API path may see the page and all pages below it.
    """

    path: str
    title: str
    api: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """The data and sessions that pages use; `provider` is the host of the identity provider, empty if there is none."""

    view: ApiView
    summaries: ClusterSummaryCache
    sessions: SignInSessions
    explanations: PodExplainer
    menu: Sequence[MenuEntry] = ()
    requires_sign_in: bool = False
    provider: str = ""

    def render_page(self, request: Request, template: str, http_status: int = 200, **values: object) -> HTMLResponse:
        """Render a page; `values` are the template's own variables."""
        now = self.view.now()
        # htmx takes one element out of a page, so the frame around it is not needed.
        is_part = "hx-request" in request.headers and "hx-history-restore-request" not in request.headers
        text = load_template(f"dashboard/{template}").render(
            frame=f"dashboard/{'bare' if is_part else 'frame'}.html.j2",
            root=getattr(request.state, "root", None) or get_relative_root(request.scope["path"]),
            current_path=request.scope["path"].split("/")[1],
            page_path=convert_to_local_path(request.scope["path"][1:]),
            # Set only for pages that require access.
            pause=getattr(request.state, "pause", None),
            menu=self.menu,
            session=self.sessions.find(request.scope),
            requires_sign_in=self.requires_sign_in,
            provider=self.provider,
            figures=self.view.get_figures(),
            assets=list_assets(),
            terms={**TERMS, **HEADINGS},
            resources={one.value: one for one in ResourceName},
            new_id=create_element_id_source(),
            version=__version__,
            now=now,
            age=lambda then, ago=True: format_age(now, then, ago),
            cpu=format_cpu,
            memory=format_memory,
            mebibytes=format_mebibytes,
            cores=format_cores,
            gib=format_gibibytes,
            share=format_share,
            count=format_count,
            money=format_money,
            **values,
        )
        return HTMLResponse(text, http_status, HEADERS)

    async def read_pause_status(self) -> PauseStatus | None:
        """Return whether cruise is paused, None if the database does not answer within two seconds."""
        try:
            async with asyncio.timeout(_PAUSE_SECONDS):
                return await get_pause_status(self.view)
        except (TimeoutError, CruiseError):
            return None

    def render_problem(self, request: Request, status: int, problem: str) -> HTMLResponse:
        """Render an error page: what happened, and what to do next."""
        title, hint = _ADVICE.get(status, ("Something went wrong", "See cruise's log."))
        return self.render_page(
            request, "problem.html.j2", status, title=title, problem=problem, hint=hint, code=status
        )

    def create_route_class(self) -> type[APIRoute]:
        """Return the route class that shows errors as pages."""
        dashboard = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                handle = super().get_route_handler()

                async def handler(request: Request) -> Response:
                    if request.scope["path"] not in UNAUTHENTICATED_PAGES:
                        request.state.pause = await dashboard.read_pause_status()
                    try:
                        return await handle(request)
                    except RequestValidationError as error:
                        first = error.errors()[0]
                        parameter = ".".join(str(part) for part in first["loc"][1:])
                        return dashboard.render_problem(request, 422, f"{parameter}: {first['msg']}")
                    except HTTPException as error:
                        return dashboard.render_problem(request, error.status_code, str(error.detail))
                    except CruiseError as error:
                        response = dashboard.render_problem(request, 503, str(error))
                        response.background = BackgroundTask(dashboard.summaries.refresh)
                        return response

                return handler

        return PageRoute


def create_element_id_source() -> Callable[[], str]:
    """Return a source of element ids that differ within a page, and from those of an earlier rendering of it."""
    rendering, numbers = secrets.token_hex(4), count()
    return lambda: f"tip-{rendering}-{next(numbers)}"


# A page is useful without this answer.
_PAUSE_SECONDS = 2.0
_ADVICE: Mapping[int, tuple[str, str]] = {
    HTTPStatus.FORBIDDEN: (
        "You may not see this",
        "Ask an administrator for the role: kubectl create clusterrolebinding cruise-reader-NAME "
        "--clusterrole=cruise-reader --user=NAME. Pages about pods also require the right to get pods.",
    ),
    HTTPStatus.BAD_REQUEST: ("Malformed request", "Load the page again and repeat the action."),
    HTTPStatus.NOT_FOUND: ("Page not found", "The object may have been deleted, or the address may be misspelt."),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        "This address accepts forms only",
        "Nothing was changed. Open a page from the menu and submit its form.",
    ),
    HTTPStatus.INTERNAL_SERVER_ERROR: ("Something went wrong", "This is an internal error of cruise. See its log."),
    HTTPStatus.UNPROCESSABLE_ENTITY: ("Invalid address", "Open a page from the menu."),
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "Not available yet",
        "This page reloads every few seconds. If the problem persists, run cruise check, which names what is missing "
        "and the fix, and read the log of cruise serve.",
    ),
    HTTPStatus.TOO_MANY_REQUESTS: ("Too many requests", "Wait a second, and load the page again."),
}


def get_relative_root(path: str) -> str:
    """Return a relative link from a page to the root, so that a proxy may serve the dashboard below any path."""
    return "../" * (path.count("/") - 1) or "./"


def convert_to_local_path(to: str) -> str:
    """Return a relative path on this server, or the root for any other address."""
    parts = urlsplit(to)
    is_local = not parts.scheme and not parts.netloc and not to.startswith(("/", "\\")) and to.isprintable()
    return to if is_local else ""


# Tables that the server sorts: each column heading is a link.


@dataclass(frozen=True, slots=True)
class SortableColumn:
    """A column and its sort key; `is_descending` is the direction of the first click."""

    title: str
    key: str
    is_number: bool = True
    is_descending: bool = True


@dataclass(frozen=True, slots=True)
class SortableHeading:
    """A column heading: `link` sorts by the column; `sorted` is its present direction, empty if another one sorts."""

    column: SortableColumn
    link: str
    sorted: str


def build_table_headings(columns: Sequence[SortableColumn], query: Mapping[str, str]) -> Sequence[SortableHeading]:
    """Return the headings of a table; `query` has the present `sort` key, and whether it sorts `up`."""
    headings = []
    for column in columns:
        is_sorted, is_up = column.key == query["sort"], query["up"] == "true"
        up = not is_up if is_sorted else not column.is_descending
        direction = ("ascending" if is_up else "descending") if is_sorted else ""
        link = build_url_query({**query, "sort": column.key, "up": "true" if up else "false"})
        headings.append(SortableHeading(column, link, direction))
    return headings


def build_url_query(query: Mapping[str, str]) -> str:
    """Return a URL query without empty values."""
    return "?" + urlencode({name: value for name, value in query.items() if value})


def get_adjacent_pages(query: Mapping[str, str], offset: int, rows: int, total: int) -> tuple[str | None, str | None]:
    """Return the URL queries of the previous and the next page of a table, None if there is no such page."""
    previous, following = max(0, offset - rows), offset + rows
    return (
        build_url_query({**query, "offset": str(previous)}) if offset else None,
        build_url_query({**query, "offset": str(following)}) if following < total else None,
    )
