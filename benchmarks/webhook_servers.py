"""The compared servers, each in a separate process on one core.

`python -m benchmarks.webhook_servers KIND [WORKLOADS NODES]`

It prints its port once it listens, and serves until its standard input ends.
"""

import asyncio
import gc
import os
import ssl
import sys
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import uvloop
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.webhook_world import make_webhook_cluster
from cruise.adapters.webhook_tls.certificates import (
    create_server_context_without_certificate,
    make_key_pair,
    set_served_certificate,
)
from cruise.app.http_server import serve_http
from cruise.decisions.admission.admission import MutatePod
from cruise.interfaces.http.health import AsgiApp, create_health_app
from cruise.interfaces.webhook import create_webhook_app
from cruise.kube_json.objects.owners import OwnerIndex
from cruise.kube_json.objects.pod import decode_pod
from cruise.kube_json.patches import build_verified_patch
from cruise.runtime.admission import PodAdmitter
from cruise.runtime.admission_reviewer import AdmissionReviewer

SERVER_CORE = 0
Kind = Literal["cruise", "fastapi"]


class RecordedRequest(BaseModel):
    """The part of a review's request that the server reads."""

    uid: str
    kind: dict[str, str]
    operation: str
    namespace: str
    object: dict[str, Any]


class RecordedReview(BaseModel):
    """The request."""

    apiVersion: str
    kind: str
    request: RecordedRequest


class RecordedResponse(BaseModel):
    """The response."""

    uid: str
    allowed: bool = True
    patchType: str | None = None
    patch: str | None = None


class RecordedAnswer(BaseModel):
    """The review of a request."""

    apiVersion: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"
    response: RecordedResponse


def fastapi_app(admitter: PodAdmitter, owners: OwnerIndex) -> FastAPI:
    """The same decision and patch with FastAPI and pydantic, without a cache."""
    app = FastAPI()

    @app.post("/mutate", response_model_exclude_none=True)
    async def mutate(review: RecordedReview) -> RecordedAnswer:
        request = review.request

        def read(document: dict[str, Any]) -> Any:
            return decode_pod(document, owners)

        document = request.object
        pod = read(document)
        created, decision = admitter.admit(pod)
        if not isinstance(decision, MutatePod):
            return RecordedAnswer(response=RecordedResponse(uid=request.uid))
        patch = b64encode(build_verified_patch(document, pod, created, read)).decode()
        return RecordedAnswer(response=RecordedResponse(uid=request.uid, patchType="JSONPatch", patch=patch))

    return app


def cruise_app(admitter: PodAdmitter, owners: OwnerIndex) -> AsgiApp:
    """The webhook of `cruise webhook`."""
    reviewer = AdmissionReviewer()
    reviewer.set_state(admitter, owners)
    return create_health_app(lambda: [], lambda: b"", create_webhook_app(reviewer))


def context() -> ssl.SSLContext:
    """Return a context with a certificate for the loopback address."""
    made = create_server_context_without_certificate()
    now = datetime.now(UTC)  # noqa: TID251 - certificates are checked by the real time
    set_served_certificate(made, make_key_pair(["localhost", "127.0.0.1"], now, timedelta(hours=1))[0])
    return made


async def serve(kind: Kind, *size: int) -> None:
    """Serve until standard input ends, for a cluster of so many workloads and nodes."""
    world = make_webhook_cluster(*size)
    app: Any = cruise_app(*world) if kind == "cruise" else fastapi_app(*world)
    gc.collect()
    gc.freeze()
    async with serve_http(app, "127.0.0.1", 0, tls=context(), stop_seconds=1) as port:
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    os.sched_setaffinity(0, {SERVER_CORE})
    uvloop.run(serve("fastapi" if sys.argv[1] == "fastapi" else "cruise", *map(int, sys.argv[2:])))
