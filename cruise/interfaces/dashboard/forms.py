"""The page Actions, and the forms of the dashboard: each form is forwarded as one request to the API."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, HTTPException, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse

from cruise.domain.actions import ActionResult, ReasonCode
from cruise.domain.users import PathAccess
from cruise.interfaces.dashboard.layout import (
    HEADERS,
    Dashboard,
    MenuEntry,
    convert_to_local_path,
    get_adjacent_pages,
    get_relative_root,
)
from cruise.interfaces.dashboard.sign_in import FORM_PREFIX, read_session_form
from cruise.interfaces.http.api import API_PREFIX
from cruise.interfaces.http.audit import AuditEntry, describe_audit_cause, read_audit_page
from cruise.interfaces.http.health import Scope
from cruise.interfaces.http.user_actions import read_user_action_page
from cruise.interfaces.http.view import OffsetParameter, VisibilityDependency, get_namespace_visibility, wait_for_store

# Fields with this prefix are settings.
SETTING_FIELD_PREFIX = "setting."
# A policy that is not written is shown with its YAML, so that it can be applied in another way.
_SHOWN_IN_FORM = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT}
)
_NO_STATE: Mapping[str, object] = MappingProxyType({})
# The page of a form, by the first part of the API path.
_PAGES = {"policies": "policies", "what-if": "policies"}


def create_form_routes(dashboard: Dashboard, api: FastAPI) -> APIRouter:
    """Return the route of all forms that change something."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.create_route_class())

    @routes.post(FORM_PREFIX + "{verb}/{api_path:path}")
    async def submit(
        request: Request, verb: Annotated[str, InPath(pattern="^(put|delete)$")], api_path: str
    ) -> Response:
        fields = await read_session_form(dashboard, request)
        settings = {
            name.removeprefix(SETTING_FIELD_PREFIX): text.strip()
            for name, text in fields.items()
            if name.startswith(SETTING_FIELD_PREFIX) and text.strip()
        }
        status, body = await _call(api, request, verb.upper(), f"{API_PREFIX}/{api_path}", settings)
        if status >= 400:
            error = msgspec.json.decode(body).get("error", "")
            if status in _SHOWN_IN_FORM:
                page = await _render_rejected(dashboard, api, request, api_path, settings, error)
                if page is not None:
                    return HTMLResponse(page, status, HEADERS)
            raise HTTPException(status, error)
        return Response(
            status_code=303,
            headers={"Location": get_relative_root(request.url.path) + convert_to_local_path(fields.get("to", ""))},
        )

    return routes


@dataclass(frozen=True, slots=True)
class RejectedForm:
    """The values of a form that the API rejected; `setting` is the one that the error names, empty if none."""

    values: Mapping[str, str]
    error: str
    setting: str

    def is_about(self, setting: str) -> bool:
        """Tell whether the error is about this setting."""
        return setting == self.setting


def get_rejected_form(request: Request) -> RejectedForm | None:
    """Return the rejected form that a page shows again, None for an ordinary request."""
    form = getattr(request.state, "rejected_form", None)
    return form if isinstance(form, RejectedForm) else None


async def _render_rejected(
    dashboard: Dashboard, api: FastAPI, request: Request, api_path: str, settings: Mapping[str, str], error: str
) -> bytes | None:
    """Return the page of a form with the sent values and the error, None if the form has no page for that."""
    resource, _, workload = api_path.partition("/")
    page = next((one for one in dashboard.menu if one.path == _PAGES.get(resource)), None)
    if page is None or not await _may_see(request, page):
        return None
    rejected = RejectedForm(settings, error, _find_setting(error, settings))
    state = {"rejected_form": rejected, "root": get_relative_root(request.scope["path"])}
    path = f"/{page.path}/{workload}".rstrip("/")
    status, body = await _call(api, request, "GET", path, {}, state)
    return body if status == 200 else None


def _find_setting(error: str, settings: Iterable[str]) -> str:
    """Return the first setting that an error names, empty if it names none."""
    matches = {name: re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", error) for name in settings}
    positions = {name: match.start() for name, match in matches.items() if match is not None}
    return min(positions, key=lambda name: positions[name], default="")


async def _may_see(request: Request, page: MenuEntry) -> bool:
    visibility = get_namespace_visibility(request)
    needed = PathAccess("get", f"/cruise{API_PREFIX}{page.api}")
    return visibility.authority is None or await visibility.authority.authorize(visibility.caller, needed)


async def _call(
    api: FastAPI,
    request: Request,
    method: str,
    path: str,
    settings: Mapping[str, str],
    state: Mapping[str, object] = _NO_STATE,
) -> tuple[int, bytes]:
    """Send a request to the API or a page, as the caller of this request."""
    body = msgspec.json.encode(settings) if settings else b""
    # Only pages use the session.
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


ACTIONS_PAGE = MenuEntry("actions", "Actions", "/audit")
_ROWS = 50
# The number of the newest audit lines that the page's form searches; the page says so where there are more.
_MAX_SEARCHED = 5000
_ACTIONS = ("resize", "evict", "taint", "untaint")
_MAX_USER_ACTIONS = 20
_PERIODS = {"1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
_COLOURS = {
    ActionResult.DONE: "green",
    ActionResult.SKIPPED: "",
    ActionResult.REFUSED: "red",
    ActionResult.FAILED: "red",
}


def create_actions_page(dashboard: Dashboard) -> APIRouter:
    """Return the route of the Actions page."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.create_route_class())
    view = dashboard.view

    @routes.get("/actions")
    async def actions(
        request: Request,
        visibility: VisibilityDependency,
        text: Annotated[str, Query(max_length=200)] = "",
        action: Annotated[str, Query(pattern=f"^({'|'.join(_ACTIONS)})?$")] = "",
        cause: Annotated[str, Query(pattern="^[a-z-]{0,40}$")] = "",
        result: Annotated[str, Query(pattern=f"^({'|'.join(ActionResult)})?$")] = "",
        period: Annotated[str, Query(pattern=f"^({'|'.join(_PERIODS)})$")] = "1d",
        offset: OffsetParameter = 0,
    ) -> Response:
        since = view.now() - _PERIODS[period]
        audit = await read_audit_page(view, visibility, since, _MAX_SEARCHED)
        entries = [one for one in audit.items if _matches(one, text, action, cause, result)]
        shown = entries[offset : offset + _ROWS]
        query = {"text": text, "action": action, "cause": cause, "result": result, "period": period}
        earlier, later = get_adjacent_pages(query, offset, _ROWS, len(entries))
        return dashboard.render_page(
            request,
            "actions.html.j2",
            page=ACTIONS_PAGE,
            lines=shown,
            total=len(entries),
            more=audit.more,
            most=_MAX_SEARCHED,
            text=text,
            action=action,
            actions=_ACTIONS,
            cause=cause,
            causes=sorted({_get_cause(one) for one in audit.items} | ({cause} if cause else set())),
            result=result,
            results=list(ActionResult),
            period=period,
            periods=list(_PERIODS),
            offset=offset,
            earlier=earlier,
            later=later,
            colours=_COLOURS,
            describe_cause=describe_audit_cause,
            reverts=_find_revertible(shown),
            user_actions=(await read_user_action_page(view, visibility, since, _MAX_USER_ACTIONS)).items,
            paused=await wait_for_store(view.store.is_paused()),
        )

    return routes


def _find_revertible(entries: Sequence[AuditEntry]) -> Sequence[int]:
    """Return the index of each workload's newest resize, unless that was a revert."""
    newest: dict[tuple[str | None, str], int] = {}
    for index, entry in enumerate(entries):
        if entry.action == "resize" and entry.result == ActionResult.DONE and entry.workload is not None:
            newest.setdefault((entry.namespace, entry.workload), index)
    return [index for index in newest.values() if entries[index].purpose != ReasonCode.REVERTED]


def _get_cause(entry: AuditEntry) -> str:
    """Return the cause of a resize, or the reason for any other action."""
    return entry.cause or entry.purpose


def _matches(entry: AuditEntry, text: str, action: str, cause: str, result: str) -> bool:
    if (
        (result and entry.result != result)
        or (action and entry.action != action)
        or (cause and _get_cause(entry) != cause)
    ):
        return False
    names = (entry.action, entry.namespace, entry.pod, entry.node, entry.workload)
    searched = " ".join(name for name in names if name).lower()
    return all(word in searched for word in text.lower().split())
