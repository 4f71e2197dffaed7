"""Signing in by an identity provider: away to it, and back with a code that this browser alone may bring."""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from typing import Protocol

import structlog
from fastapi import APIRouter, Request, Response

from cruise.domain.callers import Access, Caller
from cruise.domain.sign_in import Departure, SignInRefused
from cruise.errors import CruiseError
from cruise.interfaces.dashboard.frame import AWAY, BACK, Dashboard, within
from cruise.interfaces.dashboard.sessions import LONGEST_SECONDS
from cruise.interfaces.dashboard.signing_in import session_cookie
from cruise.interfaces.http.gate import Authority

log = structlog.get_logger()

_COOKIE = "cruise_departure"
_MOST, _LASTS_SECONDS = 1000, 600.0


class Provider(Protocol):
    """An identity provider: `adapters.oidc.provider.OidcProvider`."""

    @property
    def host(self) -> str:
        """The provider's host, by which people know it."""
        ...

    async def departure(self) -> Departure:
        """Return a new way to the provider. Raises Unavailable."""
        ...

    async def arrival(self, departure: Departure, code: str) -> Caller:
        """Return who came back with a code. Raises SignInRefused, Unavailable."""
        ...


class ProvidedCallers:
    """Implements `Authority`: knows whom the provider has named, and asks another one about all else.

    Whoever is named gets a ticket in place of a token; it never leaves this process, and lasts as long as a session.
    """

    def __init__(self, provider: Provider, other: Authority, clock: Callable[[], float]) -> None:
        self.provider = provider
        self._other = other
        self._clock = clock
        self._tickets: OrderedDict[str, tuple[float, Caller]] = OrderedDict()

    def ticket(self, caller: Caller) -> str:
        """Return a new ticket of a caller's."""
        now = self._clock()
        self._tickets = OrderedDict((key, one) for key, one in self._tickets.items() if one[0] > now)
        while len(self._tickets) >= _MOST:
            self._tickets.popitem(last=False)
        key = secrets.token_urlsafe(32)
        self._tickets[key] = now + LONGEST_SECONDS, caller
        return key

    async def caller(self, token: str) -> Caller | None:
        """Return who has a ticket or a token, None for one that is not accepted. Raises Throttled, Unavailable."""
        found = self._tickets.get(token)
        if found is None:
            return await self._other.caller(token)
        return found[1] if self._clock() < found[0] else None

    async def allows(self, caller: Caller, access: Access) -> bool:
        """Tell whether a caller may do something. Raises Throttled, Unavailable."""
        return await self._other.allows(caller, access)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A browser that left: `key` is in its cookie, `to` the page that it wanted."""

    departure: Departure
    key: str
    to: str
    until: float


def provider_routes(dashboard: Dashboard, callers: ProvidedCallers, clock: Callable[[], float]) -> APIRouter:
    """Return the routes away to the provider and back."""
    routes = APIRouter(include_in_schema=False, route_class=dashboard.route())
    pending: OrderedDict[str, _Pending] = OrderedDict()

    @routes.get(AWAY)
    async def away(request: Request, to: str = "") -> Response:
        departure, now = await callers.provider.departure(), clock()
        for state in [state for state, one in pending.items() if one.until <= now]:
            del pending[state]
        while len(pending) >= _MOST:
            pending.popitem(last=False)
        key = secrets.token_urlsafe(32)
        pending[departure.state] = _Pending(departure, key, within(to), now + _LASTS_SECONDS)
        # Lax, since the provider sends the browser back; it says nothing but who left.
        cookie = f"{_COOKIE}={key}; HttpOnly; Secure; SameSite=Lax; Max-Age={_LASTS_SECONDS:.0f}"
        headers = {"Location": departure.address, "Set-Cookie": cookie, "Cache-Control": "no-store"}
        return Response(status_code=303, headers=headers)

    @routes.get(BACK)
    async def back(request: Request, state: str = "", code: str = "", error: str = "") -> Response:
        one = pending.pop(state, None)
        try:
            if one is None or clock() >= one.until:
                raise SignInRefused("this sign-in was not begun here, or more than ten minutes ago")
            if not compare_digest(_departed(request).encode(), one.key.encode()):
                raise SignInRefused("this sign-in was begun in another browser")
            if error or not code:
                known = error if error.replace("_", "").isalnum() and error.isascii() and len(error) < 60 else "no code"
                raise SignInRefused(f"the provider did not let you in: {known}")
            caller = await callers.provider.arrival(one.departure, code)
        except SignInRefused as refusal:
            log.warning("sign-in refused", why=str(refusal))
            return dashboard.page(
                request, "sign_in.html.j2", 403, to="" if one is None else one.to, wrong=f"{refusal}."
            )
        except CruiseError as problem:
            log.warning("sign-in failed", why=str(problem))
            raise
        dashboard.sessions.end(request.scope)
        key = dashboard.sessions.begin(callers.ticket(caller), caller.name)
        log.info("signed in", caller=caller.name)
        # A page and no redirect: after one from elsewhere browsers would hold the strict cookie back.
        response = dashboard.page(request, "signed_in.html.j2", to=one.to)
        response.headers.append("Set-Cookie", session_cookie(request, key))
        response.headers.append("Set-Cookie", f"{_COOKIE}=; HttpOnly; Secure; SameSite=Lax; Max-Age=0")
        return response

    return routes


def _departed(request: Request) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(_COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""
