"""Who is signed in: tokens stay in this process, and browsers hold a random name for them."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from cruise.interfaces.http.health import Scope

COOKIE = "cruise_session"
_MOST = 1000
_IDLE_SECONDS = 3600.0
LONGEST_SECONDS = 8 * 3600.0


@dataclass(slots=True)
class Session:
    """A signed-in browser; `form_token` is in every form that this server sent to it."""

    token: str
    name: str
    form_token: str
    began: float
    seen: float


class Sessions:
    """The sessions of this process; they end with it, an hour after their last request, and after eight hours."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def begin(self, token: str, name: str) -> str:
        """Begin a session, and return its key; of too many the oldest ends."""
        now = self._clock()
        self._sessions = {key: one for key, one in self._sessions.items() if _lasts(one, now)}
        while len(self._sessions) >= _MOST:
            del self._sessions[next(iter(self._sessions))]
        key = secrets.token_urlsafe(32)
        self._sessions[key] = Session(token, name, secrets.token_urlsafe(32), now, now)
        return key

    def of(self, scope: Scope) -> Session | None:
        """Return the session of a request."""
        found = self._sessions.get(key_of(scope))
        now = self._clock()
        if found is None or not _lasts(found, now):
            return None
        found.seen = now
        return found

    def end(self, scope: Scope) -> None:
        """End the session of a request."""
        self._sessions.pop(key_of(scope), None)


def key_of(scope: Scope) -> str:
    """Return the session's key that a request holds, empty without."""
    stated = "; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")
    try:
        found = SimpleCookie(stated).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _lasts(session: Session, now: float) -> bool:
    return now - session.seen < _IDLE_SECONDS and now - session.began < LONGEST_SECONDS
