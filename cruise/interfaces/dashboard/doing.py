"""Forms: each stands for one request to the API, which does it, puts on record who did it, and says what it refuses."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi import Path as InPath

from cruise.interfaces.dashboard.frame import Dashboard, root_of
from cruise.interfaces.dashboard.front import DO
from cruise.interfaces.dashboard.signing_in import posted, within
from cruise.interfaces.http.api import PREFIX
from cruise.interfaces.http.health import Scope

# Fields of this name are settings; others are about the form itself.
SETTING = "setting."


def doing_routes(dashboard: Dashboard, api: FastAPI) -> APIRouter:
    """Return the route of all forms that change something."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())

    @routes.post(DO + "{verb}/{rest:path}")
    async def do(request: Request, verb: Annotated[str, InPath(pattern="^(put|delete)$")], rest: str) -> Response:
        sent = await posted(dashboard, request)
        settings = {
            name.removeprefix(SETTING): text.strip()
            for name, text in sent.items()
            if name.startswith(SETTING) and text.strip()
        }
        status, answer = await _ask(api, request, verb.upper(), f"{PREFIX}/{rest}", settings)
        if status >= 400:
            raise HTTPException(status, msgspec.json.decode(answer).get("error", ""))
        return Response(status_code=303, headers={"Location": root_of(request.url.path) + within(sent.get("to", ""))})

    return routes


async def _ask(
    api: FastAPI, request: Request, method: str, path: str, settings: Mapping[str, str]
) -> tuple[int, bytes]:
    """Let the API answer what the form stands for, with the caller that the gate let in."""
    body = msgspec.json.encode(settings) if settings else b""
    scope: Scope = {
        **request.scope,
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
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
