"""What all pages have: their frame, their headers, and what stands in place of one that cannot be shown."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from starlette.background import BackgroundTask

from cruise import __version__
from cruise.errors import CruiseError
from cruise.interfaces.http.cluster_summary import ClusterSummaries
from cruise.interfaces.http.health import Scope
from cruise.interfaces.http.user_actions import PauseStatus, get_pause_status
from cruise.interfaces.http.view import ApiView
from cruise.interfaces.http.workload import PodExplanations
from cruise.interfaces.text import (
    format_age,
    format_cores,
    format_count,
    format_cpu,
    format_gibibytes,
    format_memory,
    format_share,
    load_template,
)

# Scripts, styles and pictures: cruise's own, and those of packages, which a checkout without npm has not.

_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
# A name holds what is in the file, so that it may be kept for good.
_FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


@cache
def list_assets() -> Mapping[str, str]:
    """Return the path below the top by a file's name, for those that are there."""
    return {name: f"static/{digest}/{name}" for name, (digest, _) in _assets().items()}


@cache
def _assets() -> Mapping[str, tuple[str, bytes]]:
    here = Path(__file__).parent
    found = {}
    for file in sorted([*(here / "static").glob("*"), *(here / "vendor").glob("*")]):
        if file.suffix in _TYPES:
            content = file.read_bytes()
            found[file.name] = (sha256(content).hexdigest()[:12], content)
    return found


def create_asset_routes() -> APIRouter:
    """Return the routes under /static."""
    routes = APIRouter(prefix="/static", include_in_schema=False)

    @routes.get("/{digest}/{name}")
    async def asset(digest: str, name: str) -> Response:
        """Return a file whose content has this digest."""
        known, content = _assets().get(name, ("", b""))
        if known != digest or not known:
            raise HTTPException(404, "there is no such file")
        return Response(content, media_type=_TYPES[Path(name).suffix], headers=_FOR_GOOD)

    return routes


# Who is signed in: tokens stay in this process, and browsers hold a random name for them.

SESSION_COOKIE = "cruise_session"
_MOST = 1000
_IDLE_SECONDS = 3600.0
MAX_SESSION_SECONDS = 8 * 3600.0


@dataclass(slots=True)
class SignInSession:
    """A signed-in browser; `form_token` is in every form that this server sent to it."""

    token: str
    name: str
    form_token: str
    began: float
    seen: float


class SignInSessions:
    """The sessions of this process; they end with it, an hour after their last request, and after eight hours."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: dict[str, SignInSession] = {}

    def begin(self, token: str, name: str) -> str:
        """Begin a session, and return its key; of too many the oldest ends."""
        now = self._clock()
        self._sessions = {key: one for key, one in self._sessions.items() if _lasts(one, now)}
        while len(self._sessions) >= _MOST:
            del self._sessions[next(iter(self._sessions))]
        key = secrets.token_urlsafe(32)
        self._sessions[key] = SignInSession(token, name, secrets.token_urlsafe(32), now, now)
        return key

    def find(self, scope: Scope) -> SignInSession | None:
        """Return the session of a request."""
        found = self._sessions.get(get_session_key(scope))
        now = self._clock()
        if found is None or not _lasts(found, now):
            return None
        found.seen = now
        return found

    def end(self, scope: Scope) -> None:
        """End the session of a request."""
        self._sessions.pop(get_session_key(scope), None)


def get_session_key(scope: Scope) -> str:
    """Return the session's key that a request holds, empty without."""
    stated = "; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")
    try:
        found = SimpleCookie(stated).get(SESSION_COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _lasts(session: SignInSession, now: float) -> bool:
    return now - session.seen < _IDLE_SECONDS and now - session.began < MAX_SESSION_SECONDS


# Pages for whoever can connect.
SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
# To an identity provider, and back from it; at the top, where the session's cookie belongs.
AWAY, BACK = "/sign-in-elsewhere", "/signed-in"
UNAUTHENTICATED_PAGES = frozenset({SIGN_IN, SIGN_OUT, AWAY, BACK})
# Scripts and styles come from here as files, and nothing else comes at all. Charts and htmx set styles through the DOM.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: browsers would hide the origin of forms, by which the gate knows them.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class DashboardPage:
    """An entry of the menu: the first part of its path, its title, and the part of the API that it is a view of.

    Whoever may get that part may see the page, and all pages below its path.
    """

    path: str
    title: str
    api: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """What pages read from. `signs_in`: there are callers to be known; `writes`: some of them may change something.

    `provider` is the host of an identity provider that people may sign in by.
    """

    view: ApiView
    summaries: ClusterSummaries
    sessions: SignInSessions
    explanations: PodExplanations
    menu: Sequence[DashboardPage] = ()
    requires_sign_in: bool = False
    provider: str = ""

    def page(self, request: Request, template: str, http_status: int = 200, **values: object) -> HTMLResponse:
        """Render a page; what it is given beside, its template may use."""
        session = self.sessions.find(request.scope)
        figures = self.view.get_figures()
        stated = request.state
        now = self.view.now()
        # htmx takes what it asks for out of a page; what is around that would only be loaded once more.
        is_part = "hx-request" in request.headers and "hx-history-restore-request" not in request.headers
        text = load_template(f"dashboard/{template}").render(
            frame=f"dashboard/{'bare' if is_part else 'frame'}.html.j2",
            root=getattr(stated, "root", None) or get_relative_root(request.scope["path"]),
            here=request.scope["path"].split("/")[1],
            shown=to_local_path(request.scope["path"][1:]),
            # Not for strangers: only pages behind the gate ask for it.
            pause=getattr(stated, "pause", None),
            menu=self.menu,
            session=session,
            signs_in=self.requires_sign_in,
            provider=self.provider,
            figures=figures,
            assets=list_assets(),
            version=__version__,
            now=now,
            age=lambda then, ago=True: format_age(now, then, ago),
            cpu=format_cpu,
            memory=format_memory,
            cores=format_cores,
            gib=format_gibibytes,
            share=format_share,
            count=format_count,
            **values,
        )
        return HTMLResponse(text, http_status, HEADERS)

    async def pause(self) -> PauseStatus | None:
        """Return whether every write is stopped, None where the store does not say so at once."""
        try:
            async with asyncio.timeout(_PAUSE_SECONDS):
                return await get_pause_status(self.view)
        except (TimeoutError, CruiseError):
            return None

    def render_problem(self, request: Request, status: int, why: str) -> HTMLResponse:
        """Render what stands in place of a page: what is the matter, and what to do next."""
        title, hint = _ADVICE.get(status, ("Something went wrong", "cruise's log has more."))
        return self.page(request, "problem.html.j2", status, title=title, why=why, hint=hint, code=status)

    def route(self) -> type[APIRoute]:
        """Return the kind of route that shows problems as pages."""
        dashboard = self

        class PageRoute(APIRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                inner = super().get_route_handler()

                async def handler(request: Request) -> Response:
                    if request.scope["path"] not in UNAUTHENTICATED_PAGES:
                        request.state.pause = await dashboard.pause()
                    try:
                        return await inner(request)
                    except RequestValidationError as error:
                        first = error.errors()[0]
                        place = ".".join(str(part) for part in first["loc"][1:])
                        return dashboard.render_problem(request, 422, f"{place}: {first['msg']}")
                    except HTTPException as error:
                        return dashboard.render_problem(request, error.status_code, str(error.detail))
                    except CruiseError as error:
                        response = dashboard.render_problem(request, 503, str(error))
                        response.background = BackgroundTask(dashboard.summaries.refresh)
                        return response

                return handler

        return PageRoute


# A page is of use without an answer to this.
_PAUSE_SECONDS = 2.0
_ADVICE: Mapping[int, tuple[str, str]] = {
    HTTPStatus.FORBIDDEN: (
        "You may not see this",
        "Ask an administrator for the role: kubectl create clusterrolebinding cruise-reader-NAME "
        "--clusterrole=cruise-reader --user=NAME. What is about pods also takes the right to get them.",
    ),
    HTTPStatus.BAD_REQUEST: ("This request cannot be read", "Load the page again, and try it from there."),
    HTTPStatus.NOT_FOUND: ("There is no such page", "It may be gone since, or the address may be misspelt."),
    HTTPStatus.METHOD_NOT_ALLOWED: (
        "This address is only for forms",
        "Nothing was changed. Follow a link of the menu, and send the form from its page.",
    ),
    HTTPStatus.INTERNAL_SERVER_ERROR: ("Something went wrong", "This is an error of cruise's own; its log has more."),
    HTTPStatus.UNPROCESSABLE_ENTITY: ("The address says something that it may not", "Follow a link of the menu."),
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "Not yet",
        "This page tries again every few seconds. If it stays so, cruise check names what is missing and its fix, and "
        "the log of cruise serve says what it waits for.",
    ),
    HTTPStatus.TOO_MANY_REQUESTS: ("Too much at a time", "Wait a second, and load the page again."),
}


def get_relative_root(path: str) -> str:
    """Return the way from a page to the top as a relative link, so that a proxy may serve it below any path."""
    return "../" * (path.count("/") - 1) or "./"


def to_local_path(to: str) -> str:
    """Return a relative address of this server's own, the top for any other."""
    parts = urlsplit(to)
    is_own = not parts.scheme and not parts.netloc and not to.startswith(("/", "\\")) and to.isprintable()
    return to if is_own else ""


def set_menu(dashboard: Dashboard, menu: Sequence[DashboardPage]) -> Dashboard:
    """Return the dashboard with its menu."""
    return replace(dashboard, menu=menu)


# Headings of tables that are sorted here: each is a link that sorts by its column.


@dataclass(frozen=True, slots=True)
class SortableColumn:
    """A column, sorted by as `key`; numbers stand right, and begin with the largest where `is_descending`."""

    title: str
    key: str
    is_number: bool = True
    is_descending: bool = True


@dataclass(frozen=True, slots=True)
class SortableHeading:
    """A column's heading: `link` sorts by it, in the other direction where it does already (`sorted` up or down)."""

    column: SortableColumn
    link: str
    sorted: str


def build_headings(columns: Sequence[SortableColumn], stated: Mapping[str, str]) -> Sequence[SortableHeading]:
    """Return the headings of a table whose query says `stated`: by what it is sorted, and whether `up`."""
    found = []
    for column in columns:
        is_sorted, is_up = column.key == stated["sort"], stated["up"] == "true"
        up = not is_up if is_sorted else not column.is_descending
        direction = ("ascending" if is_up else "descending") if is_sorted else ""
        link = build_query({**stated, "sort": column.key, "up": "true" if up else "false"})
        found.append(SortableHeading(column, link, direction))
    return found


def build_query(stated: Mapping[str, str]) -> str:
    """Return a query without what is empty."""
    return "?" + urlencode({name: value for name, value in stated.items() if value})


def get_adjacent_pages(stated: Mapping[str, str], offset: int, rows: int, total: int) -> tuple[str | None, str | None]:
    """Return the queries of the rows before and after those from `offset` on, None where there are none."""
    earlier, later = max(0, offset - rows), offset + rows
    return (
        build_query({**stated, "offset": str(earlier)}) if offset else None,
        build_query({**stated, "offset": str(later)}) if later < total else None,
    )
