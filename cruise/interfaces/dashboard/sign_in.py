"""Signing in by an identity provider: away to it, and back with a code that this browser alone may bring."""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from typing import Protocol
from urllib.parse import parse_qs

import structlog
from fastapi import APIRouter, HTTPException, Request, Response

from cruise.domain.users import Access, Caller, SignInDenied, SignInRequest
from cruise.errors import CruiseError
from cruise.interfaces.dashboard.layout import (
    AWAY,
    BACK,
    MAX_SESSION_SECONDS,
    SESSION_COOKIE,
    SIGN_IN,
    SIGN_OUT,
    Dashboard,
    to_local_path,
)
from cruise.interfaces.http.request_guard import CallerAuthority
from cruise.interfaces.http.view import read_body

# Signing in with a token, signing out, and the forms that only a page of this server can send.


def create_sign_in_routes(dashboard: Dashboard, authority: CallerAuthority | None) -> APIRouter:
    """Return the routes of signing in and out."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())

    @routes.get(SIGN_IN)
    async def form(request: Request, to: str = "") -> Response:
        return dashboard.page(request, "sign_in.html.j2", to=to_local_path(to), wrong="")

    @routes.post(SIGN_IN)
    async def sign_in(request: Request) -> Response:
        sent = await _form(request)
        token, to = sent.get("token", "").strip(), to_local_path(sent.get("to", ""))
        caller = await authority.authenticate(token) if authority is not None and token else None
        if caller is None:
            wrong = "This token is not accepted: it may have expired, or be another cluster's."
            return dashboard.page(request, "sign_in.html.j2", 401, to=to, wrong=wrong)
        dashboard.sessions.end(request.scope)
        key = dashboard.sessions.begin(token, caller.name)
        return Response(
            status_code=303, headers={"Location": f"./{to}", "Set-Cookie": create_session_cookie(request, key)}
        )

    @routes.post(SIGN_OUT)
    async def sign_out(request: Request) -> Response:
        await read_form(dashboard, request)
        dashboard.sessions.end(request.scope)
        headers = {"Location": "./", "Set-Cookie": f"{create_session_cookie(request, '')}; Max-Age=0"}
        return Response(status_code=303, headers=headers)

    return routes


async def read_form(dashboard: Dashboard, request: Request) -> dict[str, str]:
    """Return the fields of a form that a page of this session sent. Raises HTTPException 403 for any other."""
    sent = await _form(request)
    session = dashboard.sessions.find(request.scope)
    stated = sent.get("form_token", "").encode()
    if session is None or not compare_digest(stated, session.form_token.encode()):
        raise HTTPException(403, "this form is of another session: load its page again, and send it from there")
    return sent


async def _form(request: Request) -> dict[str, str]:
    body = await read_body(request)
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


def create_session_cookie(request: Request, key: str) -> str:
    """Return the cookie that names a session."""
    # Without a path it holds for the directory of the page that signs in: the top, wherever a proxy has that.
    tls = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    return f"{SESSION_COOKIE}={key}; HttpOnly; SameSite=Strict{'; Secure' if tls else ''}"


log = structlog.get_logger()

_COOKIE = "cruise_departure"
_MOST, _LASTS_SECONDS = 1000, 600.0


class IdentityProvider(Protocol):
    """An identity provider: `adapters.oidc.OidcProvider`."""

    @property
    def host(self) -> str:
        """The provider's host, by which people know it."""
        ...

    async def start_sign_in(self) -> SignInRequest:
        """Return a new way to the provider. Raises Unavailable."""
        ...

    async def complete_sign_in(self, departure: SignInRequest, code: str) -> Caller:
        """Return who came back with a code. Raises SignInDenied, Unavailable."""
        ...


class ProviderAuthority:
    """Implements `Authority`: knows whom the provider has named, and asks another one about all else.

    Whoever is named gets a ticket in place of a token; it never leaves this process, and lasts as long as a session.
    """

    def __init__(self, provider: IdentityProvider, other: CallerAuthority, clock: Callable[[], float]) -> None:
        self.provider = provider
        self._other = other
        self._clock = clock
        self._tickets: OrderedDict[str, tuple[float, Caller]] = OrderedDict()

    def create_ticket(self, caller: Caller) -> str:
        """Return a new ticket of a caller's."""
        now = self._clock()
        self._tickets = OrderedDict((key, one) for key, one in self._tickets.items() if one[0] > now)
        while len(self._tickets) >= _MOST:
            self._tickets.popitem(last=False)
        key = secrets.token_urlsafe(32)
        self._tickets[key] = now + MAX_SESSION_SECONDS, caller
        return key

    async def authenticate(self, token: str) -> Caller | None:
        """Return who has a ticket or a token, None for one that is not accepted. Raises Throttled, Unavailable."""
        found = self._tickets.get(token)
        if found is None:
            return await self._other.authenticate(token)
        return found[1] if self._clock() < found[0] else None

    async def authorize(self, caller: Caller, access: Access) -> bool:
        """Tell whether a caller may do something. Raises Throttled, Unavailable."""
        return await self._other.authorize(caller, access)


@dataclass(frozen=True, slots=True)
class _PendingSignIn:
    """A browser that left: `key` is in its cookie, `to` the page that it wanted."""

    departure: SignInRequest
    key: str
    to: str
    until: float


def create_provider_routes(dashboard: Dashboard, callers: ProviderAuthority, clock: Callable[[], float]) -> APIRouter:
    """Return the routes away to the provider and back."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())
    pending: OrderedDict[str, _PendingSignIn] = OrderedDict()

    @routes.get(AWAY)
    async def away(request: Request, to: str = "") -> Response:
        departure, now = await callers.provider.start_sign_in(), clock()
        for state in [state for state, one in pending.items() if one.until <= now]:
            del pending[state]
        while len(pending) >= _MOST:
            pending.popitem(last=False)
        key = secrets.token_urlsafe(32)
        pending[departure.state] = _PendingSignIn(departure, key, to_local_path(to), now + _LASTS_SECONDS)
        # Lax, since the provider sends the browser back; it says nothing but who left.
        cookie = f"{_COOKIE}={key}; HttpOnly; Secure; SameSite=Lax; Max-Age={_LASTS_SECONDS:.0f}"
        headers = {"Location": departure.redirect_url, "Set-Cookie": cookie, "Cache-Control": "no-store"}
        return Response(status_code=303, headers=headers)

    @routes.get(BACK)
    async def back(request: Request, state: str = "", code: str = "", error: str = "") -> Response:
        one = pending.pop(state, None)
        try:
            if one is None or clock() >= one.until:
                raise SignInDenied("this sign-in was not begun here, or more than ten minutes ago")
            if not compare_digest(_departed(request).encode(), one.key.encode()):
                raise SignInDenied("this sign-in was begun in another browser")
            if error or not code:
                known = error if error.replace("_", "").isalnum() and error.isascii() and len(error) < 60 else "no code"
                raise SignInDenied(f"the provider did not let you in: {known}")
            caller = await callers.provider.complete_sign_in(one.departure, code)
        except SignInDenied as refusal:
            log.warning("sign-in refused", why=str(refusal))
            return dashboard.page(
                request, "sign_in.html.j2", 403, to="" if one is None else one.to, wrong=f"{refusal}."
            )
        except CruiseError as problem:
            log.warning("sign-in failed", why=str(problem))
            raise
        dashboard.sessions.end(request.scope)
        key = dashboard.sessions.begin(callers.create_ticket(caller), caller.name)
        log.info("signed in", caller=caller.name)
        # A page and no redirect: after one from elsewhere browsers would hold the strict cookie back.
        response = dashboard.page(request, "signed_in.html.j2", to=one.to)
        response.headers.append("Set-Cookie", create_session_cookie(request, key))
        response.headers.append("Set-Cookie", f"{_COOKIE}=; HttpOnly; Secure; SameSite=Lax; Max-Age=0")
        return response

    return routes


def _departed(request: Request) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(_COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""
