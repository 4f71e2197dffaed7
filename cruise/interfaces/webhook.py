"""The admission webhook over HTTP, as raw ASGI: POST /mutate is always answered, and always allows."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cruise.interfaces.http.figures import WebhookFigures
from cruise.interfaces.http.health import SINGLE_RESPONSE, AsgiApp, Receive, Scope, Send, send_response
from cruise.kube_json.admission_review import ReviewLimits
from cruise.runtime.admission_reviewer import SECONDS_BOUNDS, TOO_LARGE, UNKNOWN_CALLER, ReviewAnswer, ReviewCounts

MUTATE_PATH = "/mutate"
# Larger reviews are answered one after the other, with a turn for all others between two of them.
_LIGHT_BYTES = 16 << 10
_JSON = (b"content-type", b"application/json")
_WHOLE = b"HTTP/1.1 200 OK\r\n%b: %b\r\ncontent-length: %%d\r\n\r\n%%b" % _JSON
_CLOSE = (b"connection", b"close")


class ReviewHandler(Protocol):
    """What turns the body of a request into the body of its answer."""

    def now(self) -> float:
        """Return the time now, as `review` counts it."""
        ...

    async def answer(self, body: bytes) -> bytes:
        """Return the answer to a review that came now; it may wait for what decides about the pod."""
        ...

    def review(self, body: bytes, came_at: float | None = None) -> bytes:
        """Return the answer to a review, or to whatever came in its place, at some time."""
        ...

    def answer_unreadable(self, beginning: bytes, verdict: ReviewAnswer, why: str) -> bytes:
        """Return the answer to what is not read to its end."""
        ...

    def answer_without_patch(self, verdict: ReviewAnswer) -> None:
        """Count what is not answered at all."""
        ...


@dataclass(frozen=True, slots=True)
class AllowedCallers:
    """Who may ask: those with a client certificate that was verified, of one of `names` where there are any."""

    names: frozenset[str] = frozenset()

    def are_allowed(self, scope: Scope) -> bool:
        """Tell whether a request is of one of them."""
        tls = scope.get("extensions", {}).get("tls")
        return tls is not None and (not self.names or tls["client_cert_name"] in self.names)


def create_webhook_app(
    reviews: ReviewHandler,
    stopping: Callable[[], bool] = lambda: False,
    *,
    largest_bytes: int = ReviewLimits().review_bytes,
    callers: AllowedCallers | None = None,
) -> AsgiApp:
    """Answer reviews at /mutate, to `callers` alone where they are known.

    Once `stopping`, clients are asked to connect anew, which takes them elsewhere.
    """
    one_at_a_time = asyncio.Lock()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] != MUTATE_PATH or scope["method"] != "POST":
            await _answer_other(scope, send)
            return
        if callers is not None and not callers.are_allowed(scope):
            reviews.answer_without_patch(UNKNOWN_CALLER)
            await send_response(scope, send, 403, b"reviews are answered to the API server's client certificate\n")
            return
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            body = await _rest(body, receive, largest_bytes)
        too_large = len(body) > largest_bytes
        if too_large:
            why = f"the review is larger than {largest_bytes >> 10} KiB"
            reviewed = reviews.answer_unreadable(body, TOO_LARGE, why)
        elif len(body) <= _LIGHT_BYTES:
            reviewed = await reviews.answer(body)
        else:
            reviewed = await _in_turn(body)
        await _send(scope, send, reviewed, closes=too_large or stopping())

    async def _in_turn(body: bytes) -> bytes:
        came_at = reviews.now()
        async with one_at_a_time:
            reviewed = reviews.review(body, came_at)
            await asyncio.sleep(0)
        return reviewed

    return app


async def _send(scope: Scope, send: Send, reviewed: bytes, *, closes: bool) -> None:
    whole = scope.get("extensions", {}).get(SINGLE_RESPONSE)
    if whole is not None and not closes and whole["write"](_WHOLE % (len(reviewed), reviewed)):
        return
    headers = [_JSON, (b"content-length", b"%d" % len(reviewed))]
    if closes:
        headers.append(_CLOSE)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reviewed})


async def _answer_other(scope: Scope, send: Send) -> None:
    if scope["path"] != MUTATE_PATH:
        await send_response(scope, send, 404, b"reviews are answered at /mutate\n")
    else:
        await send_response(scope, send, 405, b"only POST is answered here\n", extra=((b"allow", b"POST"),))


async def _rest(beginning: bytes, receive: Receive, largest_bytes: int) -> bytes:
    """Read on to the end, or to more than is wanted; how long that may take is the listener's to say."""
    pieces, size = [beginning], len(beginning)
    while size <= largest_bytes:
        message = await receive()
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if not message.get("more_body"):
            break
    return b"".join(pieces)


def summarize_reviews(counts: ReviewCounts) -> WebhookFigures:
    """Return the counts as the metrics page shows them."""
    buckets, below = [], 0
    for bound, count in zip(SECONDS_BOUNDS, counts.seconds, strict=False):
        below += count
        buckets.append((bound, below))
    return WebhookFigures(dict(counts.answers), tuple(buckets), counts.seconds_sum)
