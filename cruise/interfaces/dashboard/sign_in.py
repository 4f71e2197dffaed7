"""Sign-in with a token or through an identity provider, sign-out, and which pages a caller may open."""

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qs, quote

import structlog
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException

from cruise.domain.users import Access, Caller, PathAccess, SignInDeniedError, SignInRequest
from cruise.errors import CruiseError
from cruise.interfaces.dashboard.layout import (
    MAX_SESSION_SECONDS,
    PROVIDER_CALLBACK,
    PROVIDER_SIGN_IN,
    SESSION_COOKIE,
    SIGN_IN,
    SIGN_OUT,
    UNAUTHENTICATED_PAGES,
    Dashboard,
    convert_to_local_path,
    get_cookie,
    get_relative_root,
)
from cruise.interfaces.http.api import API_PREFIX
from cruise.interfaces.http.health import Scope, Send
from cruise.interfaces.http.request_guard import ApiAccessRules, CallerAuthority
from cruise.interfaces.http.view import read_body

log = structlog.get_logger()

_COOKIE = "cruise_departure"
_MAX_PENDING, _PENDING_SECONDS = 1000, 600.0


def create_sign_in_routes(dashboard: Dashboard, authority: CallerAuthority | None) -> APIRouter:
    """Return the routes of sign-in with a token and of sign-out."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.create_route_class())

    @routes.get(SIGN_IN)
    async def form(request: Request, to: str = "") -> Response:
        return dashboard.render_page(request, "sign_in.html.j2", to=convert_to_local_path(to), error="")

    @routes.post(SIGN_IN)
    async def sign_in(request: Request) -> Response:
        fields = await _parse_form(request)
        token, to = fields.get("token", "").strip(), convert_to_local_path(fields.get("to", ""))
        caller = await authority.authenticate(token) if authority is not None and token else None
        if caller is None:
            error = "This token is not accepted: it may have expired, or belong to another cluster."
            return dashboard.render_page(request, "sign_in.html.j2", 401, to=to, error=error)
        dashboard.sessions.end(request.scope)
        key = dashboard.sessions.begin(token, caller.name)
        return Response(
            status_code=303, headers={"Location": f"./{to}", "Set-Cookie": create_session_cookie(request, key)}
        )

    @routes.post(SIGN_OUT)
    async def sign_out(request: Request) -> Response:
        await read_session_form(dashboard, request)
        dashboard.sessions.end(request.scope)
        headers = {"Location": "./", "Set-Cookie": f"{create_session_cookie(request, '')}; Max-Age=0"}
        return Response(status_code=303, headers=headers)

    return routes


async def read_session_form(dashboard: Dashboard, request: Request) -> dict[str, str]:
    """Return the fields of a form of this session. Raises HTTPException 403 for any other form."""
    fields = await _parse_form(request)
    session = dashboard.sessions.find(request.scope)
    token = fields.get("form_token", "").encode()
    if session is None or not compare_digest(token, session.form_token.encode()):
        raise HTTPException(403, "this form belongs to another session: load its page again and submit it there")
    return fields


async def _parse_form(request: Request) -> dict[str, str]:
    body = await read_body(request)
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def create_session_cookie(request: Request, key: str) -> str:
    """Return the Set-Cookie value of a session."""
    # Without a path, the cookie applies to the directory of the sign-in page, which is the root behind any proxy.
    tls = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    return f"{SESSION_COOKIE}={key}; HttpOnly; SameSite=Strict{'; Secure' if tls else ''}"


class IdentityProvider(Protocol):
    """An identity provider: `adapters.oidc.OidcProvider`."""

    @property
    def host(self) -> str:
        """The provider's host name."""

    async def start_sign_in(self) -> SignInRequest:
        """Return a new sign-in request with the provider's address. Raises UnavailableError."""

    async def complete_sign_in(self, sign_in: SignInRequest, code: str) -> Caller:
        """Exchange the provider's code for the caller. Raises SignInDeniedError, UnavailableError."""


class IdentityProviderAuthority:
    """Implements `CallerAuthority` for callers of an identity provider, and delegates everything else.

    A caller gets a ticket in place of a token. The ticket never leaves this process and expires with the session.
    """

    def __init__(self, provider: IdentityProvider, other: CallerAuthority, clock: Callable[[], float]) -> None:
        self.provider = provider
        self._other = other
        self._clock = clock
        self._tickets: OrderedDict[str, tuple[float, Caller]] = OrderedDict()

    def create_ticket(self, caller: Caller) -> str:
        """Return a new ticket for a caller."""
        now = self._clock()
        self._tickets = OrderedDict((key, one) for key, one in self._tickets.items() if one[0] > now)
        while len(self._tickets) >= _MAX_PENDING:
            self._tickets.popitem(last=False)
        key = secrets.token_urlsafe(32)
        self._tickets[key] = now + MAX_SESSION_SECONDS, caller
        return key

    async def authenticate(self, token: str) -> Caller | None:
        """Return the caller of a ticket or token, None if it is not accepted.

        Raises ThrottledError, UnavailableError.
        """
        ticket = self._tickets.get(token)
        if ticket is None:
            return await self._other.authenticate(token)
        return ticket[1] if self._clock() < ticket[0] else None

    async def authorize(self, caller: Caller, access: Access) -> bool:
        """Tell whether a caller has an access right. Raises ThrottledError, UnavailableError."""
        return await self._other.authorize(caller, access)


@dataclass(frozen=True, slots=True)
class _PendingSignIn:
    """A browser that is at the provider: `key` is in its cookie, `to` is the page to return to."""

    sign_in: SignInRequest
    key: str
    to: str
    expires_at: float


def create_provider_routes(
    dashboard: Dashboard, callers: IdentityProviderAuthority, clock: Callable[[], float]
) -> APIRouter:
    """Return the routes to the provider and back."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.create_route_class())
    pending: OrderedDict[str, _PendingSignIn] = OrderedDict()

    @routes.get(PROVIDER_SIGN_IN)
    async def redirect_to_provider(request: Request, to: str = "") -> Response:
        sign_in, now = await callers.provider.start_sign_in(), clock()
        for state in [state for state, one in pending.items() if one.expires_at <= now]:
            del pending[state]
        while len(pending) >= _MAX_PENDING:
            pending.popitem(last=False)
        key = secrets.token_urlsafe(32)
        pending[sign_in.state] = _PendingSignIn(sign_in, key, convert_to_local_path(to), now + _PENDING_SECONDS)
        # Lax, because the provider redirects the browser back here.
        cookie = f"{_COOKIE}={key}; HttpOnly; Secure; SameSite=Lax; Max-Age={_PENDING_SECONDS:.0f}"
        headers = {"Location": sign_in.redirect_url, "Set-Cookie": cookie, "Cache-Control": "no-store"}
        return Response(status_code=303, headers=headers)

    @routes.get(PROVIDER_CALLBACK)
    async def return_from_provider(request: Request, state: str = "", code: str = "", error: str = "") -> Response:
        one = pending.pop(state, None)
        try:
            if one is None or clock() >= one.expires_at:
                raise SignInDeniedError("this sign-in was not started here, or more than ten minutes ago")
            if not compare_digest(get_cookie(request.headers.get("cookie", ""), _COOKIE).encode(), one.key.encode()):
                raise SignInDeniedError("this sign-in was started in another browser")
            if error or not code:
                shown = error if error.replace("_", "").isalnum() and error.isascii() and len(error) < 60 else "no code"
                raise SignInDeniedError(f"the provider denied the sign-in: {shown}")
            caller = await callers.provider.complete_sign_in(one.sign_in, code)
        except SignInDeniedError as denial:
            log.warning("sign-in denied", why=str(denial))
            return dashboard.render_page(
                request, "sign_in.html.j2", 403, to="" if one is None else one.to, error=f"{denial}."
            )
        except CruiseError as failure:
            log.warning("sign-in failed", why=str(failure))
            raise
        dashboard.sessions.end(request.scope)
        key = dashboard.sessions.begin(callers.create_ticket(caller), caller.name)
        log.info("signed in", caller=caller.name)
        # A page, not a redirect: after a redirect from another site, browsers would not send the strict cookie.
        response = dashboard.render_page(request, "signed_in.html.j2", to=one.to)
        response.headers.append("Set-Cookie", create_session_cookie(request, key))
        response.headers.append("Set-Cookie", f"{_COOKIE}=; HttpOnly; Secure; SameSite=Lax; Max-Age=0")
        return response

    return routes


# The path of a form names a request to the API: /forms/put/pause is PUT /api/v1/pause.
FORM_PREFIX = "/forms/"
_PUBLIC_PATHS = UNAUTHENTICATED_PAGES | {"/favicon.ico"}


class DashboardAccess(ApiAccessRules):
    """Access to pages, forms and static files, and to the API as its own rules state it."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._api_paths: Mapping[str, str] = {page.path: page.api for page in dashboard.menu} | {"events": "/status"}

    def get_required_access(self, method: str, path: str) -> PathAccess | None:
        """Return the right that a page or form requires, None for public paths."""
        if path in _PUBLIC_PATHS or path.startswith("/static/"):
            return None
        if path.startswith(FORM_PREFIX):
            verb, _, api_path = path.removeprefix(FORM_PREFIX).partition("/")
            return PathAccess(verb, f"/cruise{API_PREFIX}/{api_path}")
        page_api_path = self._api_paths.get(path.split("/")[1])
        if page_api_path is None:
            return super().get_required_access(method, path)
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
            await super().respond_rejection(scope, send, status, reason, headers)
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
