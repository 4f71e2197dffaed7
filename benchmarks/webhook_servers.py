"""The servers that are compared, each a process of its own on one core.

`python -m benchmarks.webhook_servers KIND [WORKLOADS NODES]`

Prints its port once it listens, and serves until its standard input ends.
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

from benchmarks.webhook_world import make_world
from cruise.adapters.webhook_tls.certificates import make_key_pair, put_in_use, server_context
from cruise.app.http_server import serve_http
from cruise.decisions.admission.admission import Mutate
from cruise.interfaces.http.health import AsgiApp, health_app
from cruise.interfaces.webhook import webhook_app
from cruise.kube_json.objects.owners import Owners
from cruise.kube_json.objects.pod import decode_pod
from cruise.kube_json.patches.json_patch import tried_patch
from cruise.runtime.admission.admission import Admitter
from cruise.runtime.admission.reviewing import Reviewer

SERVER_CORE = 0
Kind = Literal["cruise", "fastapi"]


class Request(BaseModel):
    """The part of a review's request that is read."""

    uid: str
    kind: dict[str, str]
    operation: str
    namespace: str
    object: dict[str, Any]


class Review(BaseModel):
    """What is asked."""

    apiVersion: str
    kind: str
    request: Request


class Response(BaseModel):
    """What is answered."""

    uid: str
    allowed: bool = True
    patchType: str | None = None
    patch: str | None = None


class Answer(BaseModel):
    """The review that holds it."""

    apiVersion: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"
    response: Response


def fastapi_app(admitter: Admitter, owners: Owners) -> FastAPI:
    """The same decision, patch and trial, with FastAPI and pydantic around them and nothing remembered."""
    app = FastAPI()

    @app.post("/mutate", response_model_exclude_none=True)
    async def mutate(review: Review) -> Answer:
        request = review.request

        def read(document: dict[str, Any]) -> Any:
            return decode_pod(document, owners)

        document = request.object
        pod = read(document)
        created, decision = admitter.admit(pod)
        if not isinstance(decision, Mutate):
            return Answer(response=Response(uid=request.uid))
        patch = b64encode(tried_patch(document, pod, created, read)).decode()
        return Answer(response=Response(uid=request.uid, patchType="JSONPatch", patch=patch))

    return app


def cruise_app(admitter: Admitter, owners: Owners) -> AsgiApp:
    """The webhook as `cruise webhook` serves it."""
    reviewer = Reviewer()
    reviewer.use(admitter, owners)
    return health_app(lambda: [], lambda: b"", webhook_app(reviewer))


def context() -> ssl.SSLContext:
    """A context with a certificate for the loopback."""
    made = server_context()
    now = datetime.now(UTC)  # noqa: TID251 - certificates are checked by the real time
    put_in_use(made, make_key_pair(["localhost", "127.0.0.1"], now, timedelta(hours=1))[0])
    return made


async def serve(kind: Kind, *size: int) -> None:
    """Serve until standard input ends, in a world of so many workloads and nodes."""
    world = make_world(*size)
    app: Any = cruise_app(*world) if kind == "cruise" else fastapi_app(*world)
    gc.collect()
    gc.freeze()
    async with serve_http(app, "127.0.0.1", 0, tls=context(), stop_seconds=1) as port:
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    os.sched_setaffinity(0, {SERVER_CORE})
    uvloop.run(serve("fastapi" if sys.argv[1] == "fastapi" else "cruise", *map(int, sys.argv[2:])))
