"""The environment of one scene: a namespace and nodes of a real control plane, real usage, a database, and cruise."""

import asyncio
import json
import re
import secrets
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

import asyncpg

from cruise.app.serve.leadership import LEASE_NAME
from tests.controlplane.api import Api, ApiError, Json, conditions, wait_until
from tests.controlplane.audit import AuditEvent
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.deploy.installing import CERTIFICATES, NAMESPACE, SERVE, WEBHOOK, grant, remove, token, webhook_at
from tests.e2e.live import programs
from tests.e2e.live.programs import EndedProgram, RunningProgram
from tests.e2e.live.sizes import in_force
from tests.e2e.live.usage import ContainerUse, ExposedUsage, expose_usage, scrape_config
from tests.prometheus_server import free_port, make_blocks, running_prometheus

ACCOUNTS = f"system:serviceaccount:{NAMESPACE}:"
# Authentication and access reviews are POST requests that change nothing.
ASKING = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews", "tokenreviews")

_TAKEN_UP_SECONDS = 4


# Scenes check resizes, so tolerance, stabilization and shrink cooldown are switched off.
AT_ONCE = {
    "cpu_tolerance": "0.000001",
    "memory_tolerance": "0.000001",
    "over_requested_stabilization": "0s",
    "under_requested_stabilization": "0s",
    "shrink_cooldown": "0s",
}


class LiveStage:
    """The environment of a scene.

    Cruise's token is bound to the roles of its mode in deploy/rbac, never to those of an admin.
    """

    def __init__(
        self, plane: ControlPlane, kubelet: TestKubelet, namespace: str, database_url: str, directory: Path
    ) -> None:
        self.plane = plane
        self.admin: Api = plane.api()
        self.kubelet = kubelet
        self.namespace = namespace
        self.usage = ExposedUsage(namespace, {})
        self._database_url = database_url
        self._directory = directory
        self._prometheus = ""
        self._granted = ""
        self._stack = ExitStack()
        self._audit = plane.audit.follow(ACCOUNTS)

    def __enter__(self) -> "LiveStage":
        """Start without programs, and without the Lease of another scene."""
        with suppress(ApiError):
            self.admin.delete("leases.coordination.k8s.io", NAMESPACE, LEASE_NAME)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop Prometheus."""
        self._stack.close()

    # Objects in the cluster.

    def node(self, suffix: str = "n", cpu: str = "4", memory: str = "8Gi", **more: Any) -> str:
        """Add a node for this scene's pods only; return its name."""
        name = f"{self.namespace}-{suffix}"
        labels = {"scene": self.namespace, **more.pop("labels", {})}
        return self.kubelet.add_node(name, cpu, memory, labels=labels, **more).name

    def create(self, *manifests: Json) -> None:
        """Create objects."""
        for manifest in manifests:
            self.admin.create(manifest)

    def pods(self, app: str | None = None) -> list[Json]:
        """Return the scene's pods, or those of one app, by name."""
        return self.admin.items("pods", self.namespace, f"app={app}" if app else "")

    def pod(self, app: str) -> Json:
        """Return the only pod of an app."""
        [only] = self.pods(app)
        return only

    def running(self, count: int, app: str | None = None) -> list[Json]:
        """Wait until that many pods are ready."""

        def look() -> list[Json] | None:
            found = self.pods(app)
            ready = [one for one in found if conditions(one).get("Ready", {}).get("status") == "True"]
            return ready if len(ready) == count else None

        return wait_until(look, f"{count} pods run")

    def pending(self, app: str) -> Json:
        """Wait until the only pod of an app cannot be scheduled."""

        def look() -> Json | None:
            found = self.pods(app)
            told = conditions(found[0]).get("PodScheduled", {}) if len(found) == 1 else {}
            return found[0] if told.get("reason") == "Unschedulable" else None

        return wait_until(look, f"{app} cannot be scheduled")

    def measure(
        self,
        uses: Mapping[str, ContainerUse]
        | Mapping[tuple[str, str], ContainerUse]
        | Mapping[str | tuple[str, str], ContainerUse],
        hours: int = 2,
        former: Sequence[tuple[Any, ...]] = (),
        impostors: Mapping[str, ContainerUse] = MappingProxyType({}),
        elsewhere: Sequence[str] = (),
    ) -> str:
        """Let the present pods use resources for some past hours, and return Prometheus' address.

        `uses` is by app, or by (app, container) if the container is not called app; `former` are deleted pods, as
        arguments of `Usage.add`. `impostors` has forged usage of the pods of an app. `elsewhere` are other namespaces
        whose pods use resources as well.
        """
        spelt = {key if isinstance(key, tuple) else (key, "app"): use for key, use in uses.items()}
        self.usage = ExposedUsage(self.namespace, spelt, hours)
        self.usage.run(self.pods())
        for namespace in elsewhere:
            self.usage.run(self.admin.items("pods", namespace))
        for one in former:
            self.usage.add(*one)
        for name, use in impostors.items():
            for pod in self.pods(name):
                self.usage.impersonate(pod["metadata"]["name"], "app", use)
        return self.told()

    def told(self) -> str:
        """Return the address of a Prometheus with the usage of the pods until now."""
        blocks = self._directory / secrets.token_hex(4)
        make_blocks(self.usage.write_history, blocks)
        target = self._stack.enter_context(expose_usage(self.usage))
        self._prometheus = self._stack.enter_context(running_prometheus(blocks, config=scrape_config(target)))
        return self._prometheus

    def asked(self, query: str) -> dict[str, float]:
        """Return Prometheus' present answer to a query, by node."""
        url = f"{self._prometheus}/api/v1/query?{urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return {one["metric"]["node"]: float(one["value"][1]) for one in found}

    # Cruise.

    def settings(self, mode: str, account: str = SERVE, **more: str) -> dict[str, str]:
        """Return the settings of a cruise with exactly the permissions of one of its accounts in `mode`."""
        if mode != self._granted:
            grant(self.admin, mode)
            self._granted = mode
        kubeconfig = self.plane.kubeconfig(f"{account}-{secrets.token_hex(4)}", token(self.admin, account))
        return {
            "kubeconfig": str(kubeconfig),
            "prometheus_url": self._prometheus,
            "database_url": self._database_url,
            "mode": mode,
            "namespace": NAMESPACE,
            # After a kill the next leader waits for the Lease to expire.
            "lease_duration": "6s",
            # The scene's workloads are new.
            "new_workload_age": "0s",
            "memory_limit_history": "0s",
            **AT_ONCE,
            **more,
        }

    def forget_rights(self) -> None:
        """Bind a mode's roles again before the next command, because others may have changed them."""
        self._granted = ""

    def once(self, mode: str = "resize", **more: str) -> Json:
        """Return the JSON of `cruise serve --once`."""
        return self.command("serve", "--once", "--format", "json", mode=mode, **more).json

    def command(self, *arguments: str, mode: str = "resize", **more: str) -> EndedProgram:
        """Run a command of cruise."""
        return programs.run(arguments, self.settings(mode, **more), self._directory)

    @contextmanager
    def serving(self, mode: str = "resize", **more: str) -> Iterator[RunningProgram]:
        """Run `cruise serve`, once it is ready."""
        with programs.run_serve(self.settings(mode, **more), self._directory) as running:
            yield running

    @contextmanager
    def reviewing(self, mode: str = "initial", **more: str) -> Iterator[RunningProgram]:
        """Run `cruise webhook`, once it is ready, with the configuration of deploy/ for the scene's namespace.

        Its certificate comes from `cruise certificates`, with its own account.
        """
        # There are no roles for it below mode initial; in mode observe it answers and changes nothing.
        rights = "initial" if mode == "observe" else mode
        more |= {"data_dir": str(self._directory / "webhook"), "tls_dir": str(self._directory / "tls")}
        keeping = self.settings(rights, CERTIFICATES, **more)
        settings = self.settings(rights, WEBHOOK, **more) | {"mode": mode}
        address = f"127.0.0.1:{free_port()}"
        configuration = webhook_at(f"https://{address}/mutate", self.namespace)
        self.admin.create(configuration)
        try:
            with (
                programs.run_certificates(keeping, self._directory),
                programs.run_webhook(settings, self._directory, address) as running,
            ):
                # The API server uses a new configuration a moment after it is stored, and calls no webhook until then.
                time.sleep(_TAKEN_UP_SECONDS)
                yield running
        finally:
            remove(self.admin, configuration)

    # Results.

    def mark(self) -> None:
        """Ignore earlier writes."""
        self._audit = self.plane.audit.follow(ACCOUNTS)

    def events(self) -> list[AuditEvent]:
        """Return all requests of cruise since the scene's start, or the last mark."""
        return self._audit.events()

    def writes(self) -> list[tuple[str, str, str, int]]:
        """Return cruise's attempts to write: verb, resource, target and the response's status."""
        verbs = ("create", "update", "patch", "delete", "deletecollection")
        return [
            (one.verb, one.resource, one.target, one.code)
            for one in self.events()
            if one.verb in verbs and one.object_ref.resource not in ASKING
        ]

    def deeds(self) -> list[tuple[str, str, str, int]]:
        """Return cruise's attempts to change pods and nodes: its writes without Events and its own Lease."""
        return [one for one in self.writes() if one[1] not in ("events", "leases")]

    def resized(self, name: str) -> Json:
        """Wait until a pod's latest resize is in effect, and return the pod."""

        def look() -> Json | None:
            found = self.admin.read("pods", self.namespace, name)
            return found if in_force(found) else None

        return wait_until(look, f"the resize of {name} is in force")


def list_skipped(said: Json) -> dict[str, str]:
    """Return the skip reasons of a pass, by pod name."""
    return {hold["pod"]: hold["reason"] for plan in said["nodes"] for hold in plan["hold"]}


def database_of(server: Path, copied_from: str = "template1") -> str:
    """Create a database on the embedded server of a data directory, a copy of another one if named; return its URL."""
    name = f"scene_{secrets.token_hex(4)}"

    async def create() -> None:
        connection = await asyncpg.connect(f"postgresql://postgres@/postgres?host={server}/postgres")
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {copied_from}")
        await connection.close()

    assert re.fullmatch(r"\w+", name)
    asyncio.run(create())
    return f"postgresql://postgres@/{name}?host={server}/postgres"
