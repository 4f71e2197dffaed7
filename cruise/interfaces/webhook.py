"""The admission webhook as raw ASGI: every POST to /mutate gets an answer that allows the pod."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cruise.interfaces.http.figures import WebhookFigures
from cruise.interfaces.http.health import SINGLE_RESPONSE, AsgiApp, Receive, Scope, Send, send_response
from cruise.kube_json.admission_review import ReviewLimits
from cruise.runtime.admission_reviewer import (
    SECONDS_BOUNDS,
    TOO_LARGE,
    UNKNOWN_CALLER,
    AdmissionReviewer,
    ReviewCounts,
)

MUTATE_PATH = "/mutate"
# Larger reviews are answered one at a time, and other requests run between two of them.
_SMALL_REVIEW_BYTES = 16 << 10
_JSON = (b"content-type", b"application/json")
_RESPONSE = b"HTTP/1.1 200 OK\r\n%b: %b\r\ncontent-length: %%d\r\n\r\n%%b" % _JSON
_CLOSE = (b"connection", b"close")


@dataclass(frozen=True, slots=True)
class AllowedCallers:
    """The callers with a verified client certificate, of one of `names` unless that is empty."""

    names: frozenset[str] = frozenset()

    def are_allowed(self, scope: Scope) -> bool:
        """Return whether the caller of a request is allowed."""
        tls = scope.get("extensions", {}).get("tls")
        return tls is not None and (not self.names or tls["client_cert_name"] in self.names)


def create_webhook_app(
    reviews: AdmissionReviewer,
    stopping: Callable[[], bool] = lambda: False,
    *,
    largest_bytes: int = ReviewLimits().review_bytes,
    callers: AllowedCallers | None = None,
) -> AsgiApp:
    """Answer reviews at /mutate, only to `callers` unless that is None.

    While `stopping`, responses close the connection, so that clients connect to another replica.
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
            body = await _read_rest(body, receive, largest_bytes)
        too_large = len(body) > largest_bytes
        if too_large:
            reason = f"the review is larger than {largest_bytes >> 10} KiB"
            answer = reviews.answer_unreadable(body, TOO_LARGE, reason)
        elif len(body) <= _SMALL_REVIEW_BYTES:
            answer = await reviews.answer(body)
        else:
            answer = await _answer_large(body)
        await _send(scope, send, answer, closes=too_large or stopping())

    async def _answer_large(body: bytes) -> bytes:
        received_at = reviews.now()
        async with one_at_a_time:
            answer = reviews.review(body, received_at)
            await asyncio.sleep(0)
        return answer

    return app


async def _send(scope: Scope, send: Send, answer: bytes, *, closes: bool) -> None:
    single_response = scope.get("extensions", {}).get(SINGLE_RESPONSE)
    if single_response is not None and not closes and single_response["write"](_RESPONSE % (len(answer), answer)):
        return
    headers = [_JSON, (b"content-length", b"%d" % len(answer))]
    if closes:
        headers.append(_CLOSE)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def _answer_other(scope: Scope, send: Send) -> None:
    if scope["path"] != MUTATE_PATH:
        await send_response(scope, send, 404, b"reviews are answered at /mutate\n")
    else:
        await send_response(scope, send, 405, b"this path accepts POST only\n", extra=((b"allow", b"POST"),))


async def _read_rest(beginning: bytes, receive: Receive, largest_bytes: int) -> bytes:
    """Read the body to its end, or until it is too large; the listener limits the time."""
    pieces, size = [beginning], len(beginning)
    while size <= largest_bytes:
        message = await receive()
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if not message.get("more_body"):
            break
    return b"".join(pieces)


def summarize_reviews(counts: ReviewCounts) -> WebhookFigures:
    """Return the figures of the counts, for the metrics."""
    buckets, below = [], 0
    for bound, count in zip(SECONDS_BOUNDS, counts.seconds, strict=False):
        below += count
        buckets.append((bound, below))
    return WebhookFigures(dict(counts.answers), tuple(buckets), counts.seconds_sum)
