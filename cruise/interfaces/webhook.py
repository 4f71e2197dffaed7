"""The admission webhook over HTTP, as raw ASGI: POST /mutate is always answered, and always allows."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from cruise.interfaces.http.figures import WebhookFigures
from cruise.interfaces.http.health import AsgiApp, Receive, Scope, Send, answer
from cruise.runtime.admission.reviewing import SECONDS_BOUNDS, AdmissionCounts

PATH = "/mutate"
LARGEST_BODY = 8 << 20
# The longest that kube-apiserver waits for a webhook.
_SLOWEST_BODY_SECONDS = 30.0
_JSON = (b"content-type", b"application/json")
_CLOSE = (b"connection", b"close")


class Reviews(Protocol):
    """What turns the body of a request into the body of its answer."""

    def review(self, body: bytes) -> bytes:
        """Return the answer to a review, or to whatever came in its place."""
        ...

    def refuse_to_read(self, beginning: bytes, why: str) -> bytes:
        """Return the answer to what is not read to its end."""
        ...


def webhook_app(reviews: Reviews, stopping: Callable[[], bool] = lambda: False) -> AsgiApp:
    """Answer reviews at /mutate; once `stopping`, ask clients to connect anew, which takes them elsewhere."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] != PATH:
            await answer(scope, send, 404, b"reviews are answered at /mutate\n")
            return
        if scope["method"] != "POST":
            await answer(scope, send, 405, b"only POST is answered here\n", extra=((b"allow", b"POST"),))
            return
        message = await receive()
        body: bytes = message.get("body", b"")
        why_cut = ""
        if message.get("more_body"):
            body, why_cut = await _rest(body, receive)
        reviewed = reviews.refuse_to_read(body, why_cut) if why_cut else reviews.review(body)
        headers = [_JSON, (b"content-length", b"%d" % len(reviewed))]
        if why_cut or stopping():
            headers.append(_CLOSE)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reviewed})

    return app


async def _rest(beginning: bytes, receive: Receive) -> tuple[bytes, str]:
    """Read on to the end; return what was read, and why no more was, empty if that is all."""
    pieces, size = [beginning], len(beginning)
    why_cut = ""
    try:
        async with asyncio.timeout(_SLOWEST_BODY_SECONDS):
            while not why_cut:
                message = await receive()
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if not message.get("more_body"):
                    break
                if size > LARGEST_BODY:
                    why_cut = f"the review is larger than {LARGEST_BODY >> 20} MiB"
    except TimeoutError:
        why_cut = "the review came too slowly"
    return b"".join(pieces), why_cut


def answers_and_durations(counts: AdmissionCounts) -> WebhookFigures:
    """Return the counts as the metrics page shows them."""
    buckets, below = [], 0
    for bound, count in zip(SECONDS_BOUNDS, counts.seconds, strict=False):
        below += count
        buckets.append((bound, below))
    return WebhookFigures(dict(counts.verdicts), tuple(buckets), counts.seconds_sum)
