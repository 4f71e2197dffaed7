"""One scene's surroundings: a namespace and nodes of a real control plane, real usage, a store, and cruise on them."""

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
# Asking who somebody is and what one may do is a POST, and changes nothing.
ASKING = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews", "tokenreviews")

_TAKEN_UP_SECONDS = 4


# A scene shows what becomes of a size, and waits for no band and no rest before it is written.
AT_ONCE = {
    "cpu_tolerance": "0.000001",
    "memory_tolerance": "0.000001",
    "over_requested_stabilization": "0s",
    "under_requested_stabilization": "0s",
    "shrink_cooldown": "0s",
}


class LiveStage:
    """What a scene plays on. Cruise's token is bound to deploy/rbac's roles of its mode, and never that of an admin."""

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
        """Nothing runs yet, and no Lease tells of another scene's database."""
        with suppress(ApiError):
            self.admin.delete("leases.coordination.k8s.io", NAMESPACE, LEASE_NAME)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop Prometheus."""
        self._stack.close()

    # What is there.

    def node(self, suffix: str = "n", cpu: str = "4", memory: str = "8Gi", **more: Any) -> str:
        """Add a node, which only this scene's pods are sent to; returns its name."""
        name = f"{self.namespace}-{suffix}"
        labels = {"scene": self.namespace, **more.pop("labels", {})}
        return self.kubelet.add_node(name, cpu, memory, labels=labels, **more).name

    def create(self, *manifests: Json) -> None:
        """Create objects."""
        for manifest in manifests:
            self.admin.create(manifest)

    def pods(self, app: str | None = None) -> list[Json]:
        """The scene's pods, or those of one app, by name."""
        return self.admin.items("pods", self.namespace, f"app={app}" if app else "")

    def pod(self, app: str) -> Json:
        """The only pod of an app."""
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
        """Let the pods that exist use something, for some hours by now, and give Prometheus' address.

        `uses` is by app, or by (app, container) where that is not called app; `former` are pods that ran before these,
        as arguments for `Usage.add`. `impostors` has what somebody else says that the pods of an app use. `elsewhere`
        are other namespaces whose pods use something as well.
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
        """Give the address of a Prometheus that knows what the pods have used until now."""
        blocks = self._directory / secrets.token_hex(4)
        make_blocks(self.usage.write_history, blocks)
        target = self._stack.enter_context(expose_usage(self.usage))
        self._prometheus = self._stack.enter_context(running_prometheus(blocks, config=scrape_config(target)))
        return self._prometheus

    def asked(self, query: str) -> dict[str, float]:
        """What Prometheus answers now, by node."""
        url = f"{self._prometheus}/api/v1/query?{urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return {one["metric"]["node"]: float(one["value"][1]) for one in found}

    # Cruise.

    def settings(self, mode: str, account: str = SERVE, **more: str) -> dict[str, str]:
        """The settings of a cruise that has exactly the rights of one of its accounts in `mode`."""
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
            # The next leader waits as long for one that was killed.
            "lease_duration": "6s",
            # The scene's workloads were made a moment ago.
            "new_workload_age": "0s",
            "memory_limit_history": "0s",
            **AT_ONCE,
            **more,
        }

    def forget_rights(self) -> None:
        """Grant a mode's rights anew before the next command, since others may have changed them."""
        self._granted = ""

    def once(self, mode: str = "resize", **more: str) -> Json:
        """What `cruise serve --once --format json` says."""
        return self.command("serve", "--once", "--format", "json", mode=mode, **more).json

    def command(self, *arguments: str, mode: str = "resize", **more: str) -> EndedProgram:
        """Run a command of cruise to its end."""
        return programs.run(arguments, self.settings(mode, **more), self._directory)

    @contextmanager
    def serving(self, mode: str = "resize", **more: str) -> Iterator[RunningProgram]:
        """`cruise serve`, once it is ready."""
        with programs.run_serve(self.settings(mode, **more), self._directory) as running:
            yield running

    @contextmanager
    def reviewing(self, mode: str = "initial", **more: str) -> Iterator[RunningProgram]:
        """`cruise webhook`, once it is ready, with the configuration of deploy/ for the scene's namespace.

        Its certificate comes from `cruise certificates`, which has an account of its own.
        """
        # There are no rights for it below mode initial; in mode observe it answers and changes nothing.
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
                # The API server takes up a new configuration a moment after it is stored, and asks nobody until then.
                time.sleep(_TAKEN_UP_SECONDS)
                yield running
        finally:
            remove(self.admin, configuration)

    # What came of it.

    def mark(self) -> None:
        """Forget what was written until now."""
        self._audit = self.plane.audit.follow(ACCOUNTS)

    def events(self) -> list[AuditEvent]:
        """All that cruise has asked the API server for since the scene began, or the last mark."""
        return self._audit.events()

    def writes(self) -> list[tuple[str, str, str, int]]:
        """What cruise has tried to change: verb, resource, target and the answer's status."""
        verbs = ("create", "update", "patch", "delete", "deletecollection")
        return [
            (one.verb, one.resource, one.target, one.code)
            for one in self.events()
            if one.verb in verbs and one.object_ref.resource not in ASKING
        ]

    def deeds(self) -> list[tuple[str, str, str, int]]:
        """What cruise has tried to change about pods and nodes: its writes without Events and its own Lease."""
        return [one for one in self.writes() if one[1] not in ("events", "leases")]

    def resized(self, name: str) -> Json:
        """Wait until a pod's latest resize is in force, and return the pod."""

        def look() -> Json | None:
            found = self.admin.read("pods", self.namespace, name)
            return found if in_force(found) else None

        return wait_until(look, f"the resize of {name} is in force")


def list_skipped(said: Json) -> dict[str, str]:
    """Why a pass held pods, by name."""
    return {hold["pod"]: hold["reason"] for plan in said["nodes"] for hold in plan["hold"]}


def database_of(server: Path, copied_from: str = "template1") -> str:
    """Make a database on the embedded server of a data directory, a copy of another one if named; returns its URL."""
    name = f"scene_{secrets.token_hex(4)}"

    async def create() -> None:
        connection = await asyncpg.connect(f"postgresql://postgres@/postgres?host={server}/postgres")
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {copied_from}")
        await connection.close()

    assert re.fullmatch(r"\w+", name)
    asyncio.run(create())
    return f"postgresql://postgres@/{name}?host={server}/postgres"
