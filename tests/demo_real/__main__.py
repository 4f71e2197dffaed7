"""Run the demo until Ctrl-C, or for DEMO_SECONDS."""

import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from tests.controlplane.api import Api, wait_until
from tests.controlplane.binaries import NotAvailable, build, programs
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.demo_real.cast import (
    CORES,
    CROWDED,
    KILLED,
    NAMESPACE,
    NODES,
    TOO_LARGE,
    USES,
    create_late_workloads,
    workloads,
)
from tests.demo_real.picture import Watcher
from tests.deploy.installing import CERTIFICATES, SERVE, WEBHOOK, grant, token, webhook_at
from tests.deploy.installing import NAMESPACE as OWN
from tests.e2e.live import programs as cruise
from tests.e2e.live.stage import database_of
from tests.e2e.live.usage import ExposedUsage, expose_usage, scrape_config
from tests.postgres_servers import embedded_server
from tests.prometheus_server import free_port, make_blocks, running_prometheus

MODE = "full"
OFTEN = {"pass_interval": "10s", "node_load_interval": "5s", "new_workload_age": "0s"}
# A demo of minutes shows nothing that waits for half an hour, or rests for hours.
AT_ONCE = {"over_requested_stabilization": "0s", "under_requested_stabilization": "0s", "shrink_cooldown": "0s"}
PLAIN_LINE_SECONDS = 5


def main() -> None:
    """Set the scene, let cruise play, and show it."""
    seconds = float(os.environ.get("DEMO_SECONDS") or 0)
    try:
        build()
        programs()
    except NotAvailable as missing:
        print(f"demo-real: there is no Kubernetes control plane on this machine: {missing}")
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        with tempfile.TemporaryDirectory(prefix="cruise-demo-") as directory, ExitStack() as stack:
            Demo(stack, Path(directory), stop).run(seconds)
    except pytest.skip.Exception as missing:
        print(f"demo-real: {missing.msg}")


class Demo:
    """The control plane with all that runs on it, for as long as its `stack` lasts."""

    def __init__(self, stack: ExitStack, directory: Path, stop: threading.Event) -> None:
        self._enter = stack.enter_context
        self._directory = directory
        self._stop = stop
        self._console = Console(highlight=False)

    def run(self, seconds: float) -> None:
        """Play until stopped, or for so many seconds."""
        self._say("starting etcd, kube-apiserver, kube-scheduler and kube-controller-manager")
        plane = self._enter(ControlPlane(audit_level="RequestResponse"))
        admin = plane.api()
        kubelet = self._enter(TestKubelet(plane.api(KUBELET.name)))
        self._furnish(admin, kubelet)
        usage = self._measure(admin)
        watcher = Watcher(admin, plane.audit, f"system:serviceaccount:{OWN}:{SERVE}")
        watcher.begin()
        hints = [*self._cruise(plane, admin), *_hints(plane)]
        self._in_background("usage", lambda: _follow(admin, usage, self._stop))
        self._in_background("incidents", lambda: _incidents(admin, kubelet, usage, self._stop))
        self._show(watcher, hints, seconds)
        self._say(f"in the end: {watcher.look().line()}")
        self._stop.set()

    def _furnish(self, admin: Api, kubelet: TestKubelet) -> None:
        self._say(f"{len(NODES)} nodes of {CORES} cores, and what people have asked for")
        kubelet.add_nodes(list(NODES))
        for name in (NAMESPACE, OWN):
            admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for one in workloads():
            admin.create(one)
        wait_until(lambda: _settled(admin, 40), "the pods run")
        for one in create_late_workloads():
            admin.create(one)
        wait_until(lambda: [one for one in admin.items("pods", NAMESPACE, f"app={TOO_LARGE}")], "the latecomers wait")

    def _measure(self, admin: Api) -> ExposedUsage:
        usage = ExposedUsage(NAMESPACE, USES)
        usage.run(admin.items("pods", NAMESPACE))
        usage.loads = {node.name: 3.0 for node in NODES}
        [waiting] = admin.items("pods", NAMESPACE, f"app={TOO_LARGE}")
        former = f"{waiting['metadata']['ownerReferences'][0]['name']}-bcdfg"
        usage.add(former, "app", USES[TOO_LARGE, "app"], CROWDED, until=usage.began)
        self._say("two hours of usage into Prometheus")
        blocks = self._directory / "blocks"
        make_blocks(usage.write_history, blocks)
        address = self._enter(expose_usage(usage))
        self._prometheus = self._enter(running_prometheus(blocks, config=scrape_config(address, seconds=5)))
        return usage

    def _cruise(self, plane: ControlPlane, admin: Api) -> list[str]:
        grant(admin, MODE)
        database = database_of(self._enter(embedded_server()))
        common = {"mode": MODE, "namespace": OWN, "database_url": database, **OFTEN, **AT_ONCE}
        self._say(f"cruise serve and cruise webhook in mode {MODE}, each with its own least rights")
        address = f"127.0.0.1:{free_port()}"
        admin.create(webhook_at(f"https://{address}/mutate", NAMESPACE))
        kept = {"data_dir": str(self._directory / "webhook"), "tls_dir": str(self._directory / "tls")}
        keeper = {"kubeconfig": str(plane.kubeconfig(CERTIFICATES, token(admin, CERTIFICATES)))}
        self._enter(cruise.run_certificates(common | kept | keeper, self._directory))
        hook = {"kubeconfig": str(plane.kubeconfig(WEBHOOK, token(admin, WEBHOOK)))}
        self._enter(cruise.run_webhook(common | kept | hook, self._directory, address))
        key = self._directory / "token"
        key.write_text(secrets.token_urlsafe(32))
        serve = {
            "kubeconfig": str(plane.kubeconfig(SERVE, token(admin, SERVE))),
            "prometheus_url": self._prometheus,
            "api_token_file": str(key),
        }
        running = self._enter(cruise.run_serve(common | serve, self._directory))
        return [
            f"dashboard:  {running.address}/",
            f"sign in:    with the token in {key}",
            f"cruise:     {running.address}/metrics, {running.address}/api/v1/status",
            f"prometheus: {self._prometheus}",
            f"logs:       {self._directory}",
        ]

    def _show(self, watcher: Watcher, hints: Sequence[str], seconds: float) -> None:
        left = int(seconds) or sys.maxsize
        if not self._console.is_terminal:
            for hint in hints:
                self._say(hint)
            while left > 0 and not self._stop.wait(min(left, PLAIN_LINE_SECONDS)):
                left -= PLAIN_LINE_SECONDS
                self._say(watcher.look().line())
            return
        with Live(console=self._console, auto_refresh=False) as live:
            while left > 0 and not self._stop.is_set():
                live.update(watcher.look().render(hints), refresh=True)
                self._stop.wait(1)
                left -= 1

    def _in_background(self, name: str, work: Callable[[], None]) -> None:
        @contextmanager
        def running() -> Iterator[None]:
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            yield
            self._stop.set()
            thread.join(10)

        self._enter(running())

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)


def _hints(plane: ControlPlane) -> list[str]:
    kubectl = programs() / "kubectl"
    return [
        f"export KUBECONFIG={plane.kubeconfig()}",
        f"{kubectl} -n {NAMESPACE} get pods -o wide",
        f"{kubectl} -n {NAMESPACE} get events --sort-by=.lastTimestamp",
        f"{kubectl} describe node {CROWDED}",
    ]


def _settled(admin: Api, at_least: int) -> bool:
    """Return whether enough pods run, and those that do not are known to have no room."""
    pods = admin.items("pods", NAMESPACE)
    running = sum(one["status"].get("phase") == "Running" for one in pods)
    waiting = [one for one in pods if not one["spec"].get("nodeName")]
    return bool(running >= at_least and running + len(waiting) == len(pods))


def _follow(admin: Api, usage: ExposedUsage, stop: threading.Event) -> None:
    """Let pods that come meanwhile use what their workload does."""
    while not stop.wait(2):
        usage.run(admin.items("pods", NAMESPACE), since=usage.now())


def _incidents(admin: Api, kubelet: TestKubelet, usage: ExposedUsage, stop: threading.Event) -> None:
    """An out-of-memory kill, and a node that is overloaded for a while."""
    if stop.wait(20):
        return
    pod = admin.items("pods", NAMESPACE, f"app={KILLED}")[0]["metadata"]["name"]
    kubelet.oom_kill(NAMESPACE, pod, "app")
    if stop.wait(10):
        return
    usage.loads[NODES[0].name] = CORES * 1.5
    stop.wait(30)
    usage.loads[NODES[0].name] = 3.0


if __name__ == "__main__":
    main()
