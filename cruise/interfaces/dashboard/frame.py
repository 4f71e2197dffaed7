"""What all pages have: their frame, their headers, and what stands in place of one that cannot be shown."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from starlette.background import BackgroundTask

from cruise import __version__
from cruise.errors import CruiseError
from cruise.interfaces.amounts import (
    age_text,
    cores_text,
    count_text,
    cpu_text,
    gibibytes_text,
    memory_text,
    share_text,
)
from cruise.interfaces.dashboard.assets import asset_names
from cruise.interfaces.dashboard.sessions import Sessions
from cruise.interfaces.http.pause import Pause, pause_of
from cruise.interfaces.http.pods import Explanations
from cruise.interfaces.http.survey import Surveys
from cruise.interfaces.http.view import ApiView
from cruise.interfaces.page_template import page_template

# Pages for whoever can connect.
SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
# To an identity provider, and back from it; at the top, where the session's cookie belongs.
AWAY, BACK = "/sign-in-elsewhere", "/signed-in"
STRANGERS = frozenset({SIGN_IN, SIGN_OUT, AWAY, BACK})
# Scripts and styles come from here as files, and nothing else comes at all. Charts and htmx set styles through the DOM.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: browsers would hide the origin of forms, by which the gate knows them.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Page:
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
    surveys: Surveys
    sessions: Sessions
    explanations: Explanations
    menu: Sequence[Page] = ()
    signs_in: bool = False
    provider: str = ""

    def page(self, request: Request, template: str, http_status: int = 200, **values: object) -> HTMLResponse:
        """Render a page; what it is given beside, its template may use."""
        session = self.sessions.of(request.scope)
        figures = self.view.figures()
        stated = request.state
        now = self.view.now()
        # htmx takes what it asks for out of a page; what is around that would only be loaded once more.
        is_part = "hx-request" in request.headers and "hx-history-restore-request" not in request.headers
        text = page_template(f"dashboard/{template}").render(
            frame=f"dashboard/{'bare' if is_part else 'frame'}.html.j2",
            root=getattr(stated, "root", None) or root_of(request.scope["path"]),
            here=request.scope["path"].split("/")[1],
            shown=within(request.scope["path"][1:]),
            # Not for strangers: only pages behind the gate ask for it.
            pause=getattr(stated, "pause", None),
            menu=self.menu,
            session=session,
            signs_in=self.signs_in,
            provider=self.provider,
            figures=figures,
            assets=asset_names(),
            version=__version__,
            now=now,
            age=lambda then, ago=True: age_text(now, then, ago),
            cpu=cpu_text,
            memory=memory_text,
            cores=cores_text,
            gib=gibibytes_text,
            share=share_text,
            count=count_text,
            **values,
        )
        return HTMLResponse(text, http_status, HEADERS)

    async def pause(self) -> Pause | None:
        """Return whether every write is stopped, None where the store does not say so at once."""
        try:
            async with asyncio.timeout(_PAUSE_SECONDS):
                return await pause_of(self.view)
        except (TimeoutError, CruiseError):
            return None

    def problem(self, request: Request, status: int, why: str) -> HTMLResponse:
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
                    if request.scope["path"] not in STRANGERS:
                        request.state.pause = await dashboard.pause()
                    try:
                        return await inner(request)
                    except RequestValidationError as error:
                        first = error.errors()[0]
                        place = ".".join(str(part) for part in first["loc"][1:])
                        return dashboard.problem(request, 422, f"{place}: {first['msg']}")
                    except HTTPException as error:
                        return dashboard.problem(request, error.status_code, str(error.detail))
                    except CruiseError as error:
                        response = dashboard.problem(request, 503, str(error))
                        response.background = BackgroundTask(dashboard.surveys.refresh)
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


def root_of(path: str) -> str:
    """Return the way from a page to the top as a relative link, so that a proxy may serve it below any path."""
    return "../" * (path.count("/") - 1) or "./"


def within(to: str) -> str:
    """Return a relative address of this server's own, the top for any other."""
    parts = urlsplit(to)
    is_own = not parts.scheme and not parts.netloc and not to.startswith(("/", "\\")) and to.isprintable()
    return to if is_own else ""


def with_menu(dashboard: Dashboard, menu: Sequence[Page]) -> Dashboard:
    """Return the dashboard with its menu."""
    return replace(dashboard, menu=menu)
