"""Run the quick start on a fresh clone and print the duration of each step; `--here` uses this checkout."""

import argparse
import os
import re
import shlex
import ssl
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.controlplane.api import Api, Json, wait_until
from tests.controlplane.binaries import NotAvailable, programs
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.deploy.installing import NAMESPACE, SERVE, token
from tests.e2e.live.behind_the_api_server import on_address, own_address, serve_by_service
from tests.e2e.live.manifests import app
from tests.e2e.live.usage import ContainerUse, ExposedUsage, expose_usage, scrape_config
from tests.helm.binary import helm
from tests.prometheus_server import free_port, make_blocks, running_prometheus

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/quickstart.md")
SHOP = {
    "web": ContainerUse(cores=0.12, mebibytes=180, peak_cores=0.4, peak_mebibytes=260, waiting=0.05),
    "db": ContainerUse(cores=0.3, mebibytes=900, peak_cores=0.5, peak_mebibytes=980),
    "mailer": ContainerUse(cores=0.02, mebibytes=60),
}
ASKS = {"web": ("500m", "512Mi", 3), "db": ("1", "1Gi", 1), "mailer": ("200m", "64Mi", 1)}
# The certificate is not verified: in the quick start the browser asks.
_UNVERIFIED = ssl._create_unverified_context()


@dataclass
class QuickStartSteps:
    """Runs the steps in one directory, and remembers what each took: seconds, and seconds of processors."""

    directory: Path
    environment: Mapping[str, str]
    written: str
    taken: list[tuple[str, float, float]] = field(default_factory=list)

    def run(self, command: str, like: str | None = None) -> str:
        """Run a command of the pages, or one that is `like` one of them; return its output."""
        assert (like or command) in self.written, f"neither {' nor '.join(PAGES)} says: {like or command}"
        with self.timed(command):
            done = subprocess.run(
                shlex.split(command),
                cwd=self.directory,
                env=dict(self.environment),
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time a step, and print it."""
        began, used = time.perf_counter(), _processor_seconds()
        yield
        self.taken.append((name, time.perf_counter() - began, _processor_seconds() - used))
        print("{1:7.1f} s {2:7.1f} s  {0}".format(*self.taken[-1]), flush=True)


def main() -> None:
    """Print a line a step, and their sum."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--here", action="store_true", help="this checkout, with what is installed in it already")
    here = arguments.parse_args().here
    try:
        programs()
        helm()
        with tempfile.TemporaryDirectory(prefix="cruise-first-") as directory, ExitStack() as stack:
            first_steps(stack, Path(directory), here)
    except NotAvailable as missing:
        print(f"five minutes: not on this machine: {missing}")
    except pytest.skip.Exception as missing:
        print(f"five minutes: not on this machine: {missing.msg}")


def first_steps(stack: ExitStack, directory: Path, here: bool) -> QuickStartSteps:
    """Set the scene, then do what the pages say; what a user has before is not timed."""
    plane = stack.enter_context(ControlPlane())
    admin = plane.api()
    kubelet = stack.enter_context(TestKubelet(plane.api(KUBELET.name)))
    prometheus = _shop(stack, admin, kubelet, directory)
    home = directory / "home"
    home.mkdir()
    path = os.pathsep.join((str(programs()), str(helm().parent), os.environ["PATH"]))
    kept = {name: os.environ[name] for name in ("LANG", "PIP_INDEX_URL", "PIP_CERT") if name in os.environ}
    environment = {**kept, "HOME": str(home), "PATH": path, "KUBECONFIG": str(plane.kubeconfig())}
    if here:
        environment["PYTHONPATH"] = str(ROOT)
    checkout = ROOT if here else directory / "cruise"
    written = " ".join("".join((ROOT / page).read_text() for page in PAGES).replace("\\\n", " ").split())
    steps = QuickStartSteps(checkout, environment, written)
    print("   wall  processor")
    if not here:
        with steps.timed("git clone"):
            subprocess.run(["git", "clone", "--quiet", f"file://{ROOT}", str(checkout)], check=True)
        steps.run("make install")
    assert "reclaimable" in steps.run(".venv/bin/cruise scan")
    [web, *_] = [one["metadata"]["name"] for one in admin.items("pods", "shop", "app=web")]
    assert "request" in steps.run(f".venv/bin/cruise explain shop/{web}", like="cruise explain shop/")
    steps.run(".venv/bin/cruise check --mode observe")
    _install(steps, plane, admin, directory, prometheus)
    seconds, used = (sum(column) for column in list(zip(*steps.taken, strict=True))[1:])
    print(f"{seconds:7.1f} s {used:7.1f} s  in all")
    return steps


def _install(steps: QuickStartSteps, plane: ControlPlane, admin: Api, directory: Path, prometheus: str) -> None:
    found = re.search(r"helm install cruise deploy/chart [^`]*?prometheus\.url=\S+", steps.written)
    assert found is not None
    steps.run(found[0])
    steps.run("kubectl -n cruise rollout status deployment/cruise-serve")
    for line in re.findall(
        r"kubectl (?:-n cruise )?create (?:serviceaccount|clusterrolebinding) [^`]*?(?= kubectl)", steps.written
    ):
        steps.run(line)
    shown = steps.run("kubectl -n cruise create token looking").strip()
    settings = admin.read("configmaps", NAMESPACE, "cruise")["data"]
    address = f"127.0.0.1:{free_port()}"
    # What the image runs: there is nothing here that runs containers.
    environment = {
        **steps.environment,
        **settings,
        "CRUISE_KUBECONFIG": str(plane.kubeconfig(SERVE, token(admin, SERVE))),
        "CRUISE_PROMETHEUS_URL": prometheus,
        "CRUISE_HTTP_ADDRESS": address,
        "CRUISE_HTTP_TLS": "on",
        "CRUISE_API_AUTHENTICATION": "kubernetes",
        "CRUISE_DATA_DIR": str(directory / "data"),
        # The shop was opened a moment ago.
        "CRUISE_NEW_WORKLOAD_AGE": "0s",
    }
    with steps.timed("the first page that shows what to do"), (directory / "serve.log").open("wb") as log:
        command = [str(steps.directory / ".venv/bin/cruise"), "serve"]
        process = subprocess.Popen(command, cwd=steps.directory, env=environment, stdout=log, stderr=log)
        try:
            wait_until(lambda: _shows_the_shop(f"https://{address}", shown), "the overview shows the shop")
        finally:
            process.terminate()
            process.wait(60)


def _shows_the_shop(address: str, shown: str) -> bool:
    """Sign in as a browser does, and look at the first page."""
    tls = urllib.request.HTTPSHandler(context=_UNVERIFIED)
    browser = urllib.request.build_opener(tls, urllib.request.HTTPCookieProcessor())
    try:
        form = urllib.parse.urlencode({"token": shown}).encode()
        page = browser.open(f"{address}/sign-in", form, timeout=10).read().decode()
    except OSError:
        return False
    return "shop/" in page


def _shop(stack: ExitStack, admin: Api, kubelet: TestKubelet, directory: Path) -> str:
    """A cluster with a small shop and a Prometheus that has known it for some hours; returns its address."""
    for number in (1, 2):
        kubelet.add_node(f"n{number}", "4", "16Gi")
    for namespace in ("shop", "monitoring"):
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for name, (cpu, memory, replicas) in ASKS.items():
        admin.create(app("Deployment", "shop", name, cpu, memory, {"memory": memory}, replicas=replicas))
    wait_until(lambda: len(_running(admin)) == sum(replicas for *_, replicas in ASKS.values()), "the shop runs")
    usage = ExposedUsage("shop", {(name, "app"): use for name, use in SHOP.items()}, hours=6)
    usage.run(admin.items("pods", "shop"))
    blocks = directory / "blocks"
    make_blocks(usage.write_history, blocks)
    target = stack.enter_context(expose_usage(usage))
    prometheus = stack.enter_context(running_prometheus(blocks, config=scrape_config(target)))
    port = stack.enter_context(on_address(own_address(), prometheus))
    serve_by_service(admin, "monitoring", port, own_address())
    return prometheus


def _running(admin: Api) -> list[Json]:
    return [one for one in admin.items("pods", "shop") if one["status"].get("phase") == "Running"]


def _processor_seconds() -> float:
    used = os.times()
    return used.children_user + used.children_system


if __name__ == "__main__":
    main()
