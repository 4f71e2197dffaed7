"""Forms: each stands for one request to the API, which does it, puts on record who did it, and says what it refuses."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse

from cruise.domain.users import PathAccess
from cruise.interfaces.dashboard.access import FORM_PREFIX
from cruise.interfaces.dashboard.layout import HEADERS, Dashboard, DashboardPage, get_relative_root, to_local_path
from cruise.interfaces.dashboard.sign_in import read_form
from cruise.interfaces.http.api import API_PREFIX
from cruise.interfaces.http.health import Scope
from cruise.interfaces.http.namespace_visibility import get_visibility

# Fields of this name are settings; others are about the form itself.
SETTING_FIELD_PREFIX = "setting."
# Refusals that are about what was written into a form.
_OF_VALUES = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_NO_STATE: Mapping[str, object] = MappingProxyType({})
# By the first part of what a form stands for, the path of the page that it is on.
_PAGES = {"overrides": "policies", "rehearsal": "policies"}


def create_form_routes(dashboard: Dashboard, api: FastAPI) -> APIRouter:
    """Return the route of all forms that change something."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())

    @routes.post(FORM_PREFIX + "{verb}/{rest:path}")
    async def do(request: Request, verb: Annotated[str, InPath(pattern="^(put|delete)$")], rest: str) -> Response:
        sent = await read_form(dashboard, request)
        settings = {
            name.removeprefix(SETTING_FIELD_PREFIX): text.strip()
            for name, text in sent.items()
            if name.startswith(SETTING_FIELD_PREFIX) and text.strip()
        }
        status, answer = await _ask(api, request, verb.upper(), f"{API_PREFIX}/{rest}", settings)
        if status >= 400:
            why = msgspec.json.decode(answer).get("error", "")
            again = await _form_again(dashboard, api, request, rest, settings, why) if status in _OF_VALUES else None
            if again is not None:
                return HTMLResponse(again, status, HEADERS)
            raise HTTPException(status, why)
        return Response(
            status_code=303,
            headers={"Location": get_relative_root(request.url.path) + to_local_path(sent.get("to", ""))},
        )

    return routes


@dataclass(frozen=True, slots=True)
class RejectedForm:
    """What a form said that was refused, and why; `of` is the setting that it is about, empty where it names none."""

    values: Mapping[str, str]
    error: str
    setting: str

    def is_about(self, setting: str) -> str:
        """Return what is wrong with a setting, empty for others."""
        return self.error if setting == self.setting else ""


def get_rejected_form(request: Request) -> RejectedForm | None:
    """Return the form that a page is shown for once more, None where it is shown by itself."""
    found = getattr(request.state, "refused_form", None)
    return found if isinstance(found, RejectedForm) else None


async def _form_again(
    dashboard: Dashboard, api: FastAPI, request: Request, rest: str, settings: Mapping[str, str], why: str
) -> bytes | None:
    """Return the page of a form with what was sent, and what is wrong with it; None where it is of no such page."""
    part, _, workload = rest.partition("/")
    page = next((one for one in dashboard.menu if one.path == _PAGES.get(part)), None)
    if page is None or not await _may_see(request, page):
        return None
    refused = RejectedForm(settings, why, _setting_in(why, settings))
    state = {"refused_form": refused, "root": get_relative_root(request.scope["path"])}
    path = f"/{page.path}/{workload}".rstrip("/")
    status, shown = await _ask(api, request, "GET", path, {}, state)
    return shown if status == 200 else None


def _setting_in(why: str, settings: Iterable[str]) -> str:
    """Return the first setting that a refusal names, empty where it names none."""
    places = {name: re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", why) for name in settings}
    found = {name: place.start() for name, place in places.items() if place is not None}
    return min(found, key=lambda name: found[name], default="")


async def _may_see(request: Request, page: DashboardPage) -> bool:
    sight = get_visibility(request)
    needed = PathAccess("get", f"/cruise{API_PREFIX}{page.api}")
    return sight.authority is None or await sight.authority.authorize(sight.caller, needed)


async def _ask(
    api: FastAPI,
    request: Request,
    method: str,
    path: str,
    settings: Mapping[str, str],
    state: Mapping[str, object] = _NO_STATE,
) -> tuple[int, bytes]:
    """Let the API or a page answer, with the caller that the gate let in."""
    body = msgspec.json.encode(settings) if settings else b""
    # Who is signed in is for pages alone.
    cookies = [header for header in request.scope["headers"] if header[0] == b"cookie"] if state else []
    scope: Scope = {
        **request.scope,
        "state": {**request.scope.get("state", {}), **state},
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *cookies,
        ],
    }
    for key in ("route", "endpoint", "path_params", "app", "router"):
        scope.pop(key, None)
    status, parts = 500, bytearray()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:  # noqa: ANN401  ASGI messages are of many shapes
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            parts.extend(message.get("body", b""))

    await api(scope, receive, send)
    return status, bytes(parts)
