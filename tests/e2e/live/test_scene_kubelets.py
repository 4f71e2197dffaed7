"""A cluster without Prometheus: kubelets that ask the API server who calls, and tell what the scene's pods use."""

import json
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import numpy as np
import pytest

from cruise.adapters.kube.following.one_time_list import look
from cruise.adapters.kube.http.connecting import KubeSettings, connect
from cruise.adapters.kubelets.client import KubeletClient
from cruise.adapters.kubelets.settings import Endpoint, KubeletSettings
from cruise.adapters.kubelets.source import KubeletSource
from cruise.errors import BadInput
from tests.cadvisor_text import cadvisor_text, resource_text
from tests.client_certificates import ClientAuthority
from tests.controlplane.api import until
from tests.controlplane.kubelet_endpoint import kubelet_endpoint
from tests.deploy.installing import SERVE, documents, may, remove
from tests.e2e.live.manifests import app
from tests.e2e.live.programs import Running
from tests.e2e.live.stage import Stage
from tests.e2e.live.usage import Use

RIGHTS = [one for one in documents("rbac/kubelets.yaml") if one["kind"] in ("ClusterRole", "ClusterRoleBinding")]
WEB, DB = Use(cores=0.3, mebibytes=200, waiting=0.2), Use(cores=1.5, mebibytes=900)
MINUTE = 60


@pytest.fixture
def endpoint(stage: Stage, tmp_path: Path):
    """Two nodes at addresses of their own; gives the CA of their certificates, and lets time be set."""
    authority = ClientAuthority(tmp_path, "kubelets")
    addresses = {f"127.0.7.{number}": f"{stage.namespace}-n{number}" for number in (1, 2)}
    files = {address: authority.server(name, address) for address, name in addresses.items()}
    time = {"now": 0.0}

    def tell(address: str, path: str) -> bytes | None:
        node, at = addresses[address], time["now"] or stage.usage.now()
        text = {"/metrics/cadvisor": cadvisor_text, "/metrics/resource": resource_text}.get(path)
        return None if text is None else text(stage.usage.until(at), node, at)

    with kubelet_endpoint(stage.admin, addresses, files, tell) as port:
        for address, name in addresses.items():
            stage.node(name.rpartition("-")[2], address=address, port=port)
        stage.create(
            app("Deployment", stage.namespace, "web", "500m", "512Mi", replicas=3),
            app("StatefulSet", stage.namespace, "db", "1", "1Gi"),
        )
        stage.running(4)
        stage.usage.uses = {("web", "app"): WEB, ("db", "app"): DB}
        stage.usage.run(stage.pods())
        yield authority.file, time
        for one in RIGHTS:
            remove(stage.admin, one)


async def test_cruise_reads_kubelets_with_no_more_than_the_right_to_their_metrics(stage: Stage, endpoint):
    ca_file, time = endpoint
    kubeconfig = stage.settings("observe")["kubeconfig"]
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(KubeSettings(Path(kubeconfig))))
        seen = await look(client, lambda kind, count: None)
        nodes = [node for node in seen.snapshot.nodes if node.name.startswith(stage.namespace)]
        assert [node.address for node in nodes] == ["127.0.7.1", "127.0.7.2"]
        known = KubeletSettings(ca_file=ca_file)
        kubelets = await stack.enter_async_context(aclosing(KubeletClient(known, client)))
        with pytest.raises(BadInput, match="grant it get on nodes/metrics"):
            await kubelets.metrics(nodes[0])
        # The cluster's CA has not signed what these kubelets show.
        strangers = await stack.enter_async_context(aclosing(KubeletClient(KubeletSettings(), client)))
        with pytest.raises(BadInput, match="nothing was sent"):
            await strangers.metrics(nodes[0])

        for one in RIGHTS:
            stage.admin.apply(one)
        until(lambda: may(stage.admin, SERVE, "get", "", "nodes", "metrics"), "serve may read kubelets")
        assert not may(stage.admin, SERVE, "get", "", "nodes", "proxy")
        for path in (Endpoint.CADVISOR, Endpoint.RESOURCE):
            told = KubeletSettings(endpoint=path, ca_file=ca_file)
            asking = await stack.enter_async_context(aclosing(KubeletClient(told, client)))
            source = KubeletSource(told, asking.metrics)
            await _reads_what_pods_use(stage, source, seen.snapshot, time, pressure=path is Endpoint.CADVISOR)


async def _reads_what_pods_use(stage: Stage, source: KubeletSource, snapshot, time, *, pressure: bool) -> None:
    start = stage.usage.start + 2 * MINUTE
    partitions = await source.partitions(snapshot)
    for minute in range(6):
        time["now"] = start + MINUTE * minute + 0.5
        await source.look([node.name for node in snapshot.nodes], lambda: time["now"])
    assert not {name for name in source.failures if name.startswith(stage.namespace)}
    cpu, memory = {}, {}
    for partition in partitions:
        block, _ = await source.read(partition, start, start + 5 * MINUTE, None)
        for row, key in enumerate(block.keys):
            cpu[key.pod] = block.cpu_demand_millicores[row, -1]
            memory[key.pod] = block.memory_bytes[row, -1]
    for name, use in (("web", WEB), ("db", DB)):
        for pod in stage.pods(name):
            demand = 1000 * use.cores * (1 + use.waiting * pressure)
            np.testing.assert_allclose(cpu[pod["metadata"]["name"]], demand, rtol=0.01)
            assert memory[pod["metadata"]["name"]] == use.mebibytes * 2**20


@pytest.mark.long
def test_scan_and_one_pass_do_without_prometheus(stage: Stage, endpoint):
    ca_file, _ = endpoint
    without = {"prometheus_url": "", "kubelet_ca_file": str(ca_file)}
    said = stage.command("serve", "--once", mode="observe", **without)
    assert said.code == 2
    assert "set prometheus_url" in said.err
    assert "get nodes/metrics" in said.err
    for one in RIGHTS:
        stage.admin.apply(one)
    until(lambda: may(stage.admin, SERVE, "get", "", "nodes", "metrics"), "serve may read kubelets")
    looked = stage.command("check", "--format", "json", mode="observe", **without)
    found = {item["name"]: item for item in json.loads(looked.out)["items"] if item["area"] == "metrics"}
    assert found["kubelets"]["level"] == "ok"
    assert "2 of 2 kubelets" in found["kubelets"]["finding"]
    table = stage.command("scan", mode="observe", **without)
    assert table.code == 0
    assert "a glimpse: two readings of the kubelets" in table.out
    once = stage.once("observe", **without)
    assert once["mode"] == "observe"
    with stage.serving("observe", usage_source="kubelets", pass_interval="20s", **without) as serving:
        until(lambda: runs(serving, "statistics") >= 4, "passes go on", seconds=120)
        assert "kubelet not read" not in serving.log


def runs(serving: Running, job: str) -> float:
    """How many runs of a job ended."""
    lines = serving.get("/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("cruise_job_runs_total") and job in line)
