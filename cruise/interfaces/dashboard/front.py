"""What pages ask of callers: the right to what they are a view of, by a session in place of a header."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import quote

from fastapi import Request, Response

from cruise.domain.callers import PathAccess
from cruise.interfaces.dashboard.frame import SIGN_IN, STRANGERS, Dashboard, root_of
from cruise.interfaces.http.api import PREFIX
from cruise.interfaces.http.gate import ApiFront
from cruise.interfaces.http.health import Scope, Send

# A form's path says which request to the API it stands for: /do/put/pause is PUT /api/v1/pause.
DO = "/do/"
_FOR_ANYBODY = STRANGERS | {"/favicon.ico"}


class DashboardFront:
    """Implements `gate.Front`: pages, forms and their files; everything else is the API's."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._rights: Mapping[str, str] = {page.path: page.api for page in dashboard.menu} | {"events": "/status"}
        self._api = ApiFront()

    def access(self, method: str, path: str) -> PathAccess | None:
        """Return the right to what a page shows, or to what a form does."""
        if path in _FOR_ANYBODY or path.startswith("/static/"):
            return None
        if path.startswith(DO):
            verb, _, rest = path.removeprefix(DO).partition("/")
            return PathAccess(verb, f"/cruise{PREFIX}/{rest}")
        api = self._rights.get(path.split("/")[1])
        return self._api.access(method, path) if api is None else PathAccess("get", f"/cruise{PREFIX}{api}")

    def authorization(self, scope: Scope) -> str | None:
        """Return the token of the browser's session; programs send it themselves."""
        session = None if is_for_programs(scope["path"]) else self._dashboard.sessions.of(scope)
        return f"Bearer {session.token}" if session is not None else None

    async def refuse(
        self, scope: Scope, send: Send, status: HTTPStatus, why: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Send browsers to where they can sign in, or show why that would not help."""
        if is_for_programs(scope["path"]):
            await self._api.refuse(scope, send, status, why, headers)
            return
        request = Request(dict(scope))
        if status is HTTPStatus.UNAUTHORIZED:
            response = self._to_sign_in(request)
        else:
            response = self._dashboard.problem(request, status, why)
        response.raw_headers.extend(header for header in headers if header[0] == b"retry-after")
        await response(dict(scope), _nothing, send)

    def _to_sign_in(self, request: Request) -> Response:
        path = request.url.path
        wanted = path[1:] + (f"?{request.url.query}" if request.url.query else "")
        asked = f"?to={quote(wanted)}" if request.method == "GET" and "hx-request" not in request.headers else ""
        address = f"{root_of(path)}{SIGN_IN[1:]}{asked}"
        if "hx-request" in request.headers:
            # A redirect would put the form into the page's middle.
            return Response(status_code=401, headers={"HX-Redirect": address})
        return Response(status_code=303, headers={"Location": address, "Cache-Control": "no-store"})


def is_for_programs(path: str) -> bool:
    """Tell whether what is at a path answers in JSON or text, also where a browser asks."""
    return path.startswith("/api/") or path == "/metrics"


async def _nothing() -> dict[str, object]:
    return {"type": "http.disconnect"}
