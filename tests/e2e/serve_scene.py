"""Several `cruise serve` replicas on one real control plane, distinguished in its audit log by their tokens."""

import asyncio
import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from tests.adapters.kube.relay import Network, Relay
from tests.controlplane.api import SHORTEST_PAUSE, Json, by_name, wait_until
from tests.controlplane.audit import AuditEvent
from tests.controlplane.manifests import container, pod_template, workload
from tests.e2e.live import programs
from tests.e2e.live.forking import ROOT
from tests.e2e.live.programs import RunningProgram, environment
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse
from tests.prometheus_server import free_port

# The usage of a scene's pods: base and peak are equal, so the target of each request is the usage.
USE = ContainerUse(cores=0.1, mebibytes=100)
ASKED = {"cpu": "400m", "memory": "512Mi"}
# Without a limit a kill would be caused by the node, and would not raise the container's OOM memory.
LIMITS = {"memory": "512Mi"}
# A pod's usage, in millicores and MiB: a node keeps a third of its tolerance above it, a pod up to a tenth.
USED, KEPT = 100, 10


@dataclass(frozen=True, slots=True)
class Server:
    """One process, its settings, and the id of its token in the audit log."""

    running: RunningProgram
    settings: Mapping[str, str]
    credential: str

    def leads(self) -> bool:
        """Return whether its status reports it as the leader."""
        code, body = self.running.get("/api/v1/status")
        return code == 200 and bool(json.loads(body)["leader"])

    def status(self) -> Json:
        """Return its status."""
        code, body = self.running.get("/api/v1/status")
        assert code == 200, body
        said: Json = json.loads(body)
        return said


def deployment(stage: LiveStage, name: str, replicas: int) -> Json:
    """Return a Deployment whose pods request four times what they use."""
    template = pod_template(name, container(requests=ASKED, limits=LIMITS), nodeSelector={"scene": stage.namespace})
    return workload("Deployment", stage.namespace, name, template, replicas=replicas)


def create_scene(stage: LiveStage, replicas: int, cpu: str = "8", nodes: int = 1) -> list[Json]:
    """Create nodes, a Deployment `web` that runs on them, and its usage; return the pods."""
    for number in range(nodes):
        stage.node(f"n{number}", cpu=cpu, memory="64Gi")
    stage.create(deployment(stage, "web", replicas))
    pods = stage.running(replicas)
    stage.measure({"web": USE})
    return pods


@contextmanager
def serving(stage: LiveStage, directory: Path, name: str, mode: str = "resize", **more: str) -> Iterator[Server]:
    """Run one more `cruise serve`, once it is ready, with short pass intervals and no stabilization."""
    fast = {"pass_interval": "2s", "over_requested_stabilization": "0s", "under_requested_stabilization": "0s"}
    with serving_with(stage.settings(mode, **{**fast, **more}), directory, name) as server:
        yield server


@contextmanager
def serving_with(settings: Mapping[str, str], directory: Path, name: str) -> Iterator[Server]:
    """Run one more `cruise serve`, once it is ready."""
    credential = credential_of(Path(settings["kubeconfig"]))
    with programs.run_serve(settings, directory, name) as running:
        yield Server(running, settings, credential)


@contextmanager
def started(
    settings: Mapping[str, str], directory: Path, program: Sequence[str] = ("cruise", "serve")
) -> Iterator[RunningProgram]:
    """Run a `cruise serve` without waiting for it; `program` is a module with its arguments."""
    port = free_port()
    log = directory / f"started-{port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *program],
            env=environment({**settings, "http_address": f"127.0.0.1:{port}"}, directory),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    running = RunningProgram(process, f"http://127.0.0.1:{port}", log)
    try:
        yield running
    finally:
        running.kill()


def credential_of(kubeconfig: Path) -> str:
    """Return the id of the ServiceAccount token in a kubeconfig."""
    found = re.search(r"[\w-]+\.([\w-]{20,})\.[\w-]{20,}", kubeconfig.read_text())
    assert found is not None
    payload = found.group(1)
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    credential: str = claims["jti"]
    return credential


def has_single_leader(servers: Sequence[Server]) -> tuple[Server, Server]:
    """Wait until one of two leads; return it and the other."""

    def look() -> tuple[Server, Server] | None:
        leading = [server for server in servers if server.leads()]
        if len(leading) == 2:
            # Between the two questions the first one may have lost the lead.
            assert not leading[0].leads(), "two lead at once"
        if len(leading) != 1:
            return None
        [other] = [server for server in servers if server is not leading[0]]
        return leading[0], other

    return wait_until(look, "one of the two leads", longest_pause=SHORTEST_PAUSE)


def requests_of(pod: Json) -> dict[str, str]:
    """Return the requests of a pod's container `app`."""
    requests: dict[str, str] = by_name(pod["spec"]["containers"])["app"]["resources"]["requests"]
    return requests


def list_resized(stage: LiveStage, app: str = "web") -> int:
    """Count the pods that request their usage, or a little more."""
    return sum(is_sized(pod) for pod in stage.pods(app))


def is_sized(pod: Json) -> bool:
    """Return whether a pod requests what it uses, or a little more."""
    requests = requests_of(pod)
    amounts = int(requests["cpu"].removesuffix("m")), int(requests["memory"].removesuffix("Mi"))
    return all(USED <= amount <= USED + KEPT for amount in amounts)


def all_sized(stage: LiveStage, count: int) -> None:
    """Wait until every pod requests what it uses."""
    wait_until(lambda: list_resized(stage) == count, f"{count} pods are sized")


def list_user_actions(stage: LiveStage, server: Server) -> list[AuditEvent]:
    """Return the attempts of one process to change pods and nodes."""
    return [event for event in writes_of(stage, server) if event.object_ref.resource in ("pods", "nodes")]


def writes_of(stage: LiveStage, server: Server) -> list[AuditEvent]:
    """Return all attempts of one process to write, including its Lease and Events."""
    verbs = ("create", "update", "patch", "delete", "deletecollection")
    asking = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
    return [
        event
        for event in stage.events()
        if event.credential == server.credential and event.verb in verbs and event.object_ref.resource not in asking
    ]


def resizes(stage: LiveStage) -> list[AuditEvent]:
    """Return the successful resizes of all users."""
    return [event for event in stage.events() if event.resource == "pods/resize" and event.code == 200]


def wait_until_true(check: Callable[[], Any], what: str, longest_pause: float = 0.25) -> None:
    """Wait until `check` holds."""
    wait_until(lambda: bool(check()), what, longest_pause=longest_pause)


@contextmanager
def disconnect(
    stage: LiveStage, settings: Mapping[str, str]
) -> Iterator[tuple[Callable[[Network], None], dict[str, str]]]:
    """Yield settings whose API server is behind a relay, and a function that changes the relay's state."""
    parts = urlsplit(stage.plane.address)
    assert parts.hostname is not None
    assert parts.port is not None
    relay = Relay(parts.hostname, parts.port)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(relay.serve, "127.0.0.1", 0))
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def become(state: Network) -> None:
        loop.call_soon_threadsafe(relay.become, state)

    kubeconfig = Path(settings["kubeconfig"])
    port = server.sockets[0].getsockname()[1]
    kubeconfig.write_text(kubeconfig.read_text().replace(stage.plane.address, f"https://127.0.0.1:{port}"))
    try:
        yield become, dict(settings)
    finally:
        become(Network.DOWN)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
