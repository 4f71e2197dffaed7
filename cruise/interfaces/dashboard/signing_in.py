"""Signing in with a token, signing out, and the forms that only a page of this server can send."""

from hmac import compare_digest
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException, Request, Response

from cruise.interfaces.dashboard.frame import SIGN_IN, SIGN_OUT, Dashboard, within
from cruise.interfaces.dashboard.sessions import COOKIE
from cruise.interfaces.http.gate import Authority
from cruise.interfaces.http.requests import read_body


def signing_in_routes(dashboard: Dashboard, authority: Authority | None) -> APIRouter:
    """Return the routes of signing in and out."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())

    @routes.get(SIGN_IN)
    async def form(request: Request, to: str = "") -> Response:
        return dashboard.page(request, "sign_in.html.j2", to=within(to), wrong="")

    @routes.post(SIGN_IN)
    async def sign_in(request: Request) -> Response:
        sent = await _form(request)
        token, to = sent.get("token", "").strip(), within(sent.get("to", ""))
        caller = await authority.caller(token) if authority is not None and token else None
        if caller is None:
            wrong = "This token is not accepted: it may have expired, or be another cluster's."
            return dashboard.page(request, "sign_in.html.j2", 401, to=to, wrong=wrong)
        dashboard.sessions.end(request.scope)
        key = dashboard.sessions.begin(token, caller.name)
        return Response(status_code=303, headers={"Location": f"./{to}", "Set-Cookie": session_cookie(request, key)})

    @routes.post(SIGN_OUT)
    async def sign_out(request: Request) -> Response:
        await posted(dashboard, request)
        dashboard.sessions.end(request.scope)
        headers = {"Location": "./", "Set-Cookie": f"{session_cookie(request, '')}; Max-Age=0"}
        return Response(status_code=303, headers=headers)

    return routes


async def posted(dashboard: Dashboard, request: Request) -> dict[str, str]:
    """Return the fields of a form that a page of this session sent. Raises HTTPException 403 for any other."""
    sent = await _form(request)
    session = dashboard.sessions.of(request.scope)
    stated = sent.get("form_token", "").encode()
    if session is None or not compare_digest(stated, session.form_token.encode()):
        raise HTTPException(403, "this form is of another session: load its page again, and send it from there")
    return sent


async def _form(request: Request) -> dict[str, str]:
    body = await read_body(request)
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def session_cookie(request: Request, key: str) -> str:
    """Return the cookie that names a session."""
    # Without a path it holds for the directory of the page that signs in: the top, wherever a proxy has that.
    tls = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    return f"{COOKIE}={key}; HttpOnly; SameSite=Strict{'; Secure' if tls else ''}"
