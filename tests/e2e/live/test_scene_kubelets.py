"""A cluster without Prometheus: usage is read from kubelets, which authorize the caller."""

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.cluster import read_cluster_once
from cruise.adapters.kubelets.client import KubeletAccessMode, KubeletClient, KubeletMetricsPath, KubeletSettings
from cruise.adapters.kubelets.source import KubeletUsageSource
from cruise.domain.cluster import ClusterSnapshot
from cruise.errors import BadInputError, RefusedError
from tests.cadvisor_text import cadvisor_text, resource_text
from tests.client_certificates import ClientAuthority
from tests.controlplane.api import wait_until
from tests.controlplane.kubelet_endpoint import kubelet_endpoint
from tests.deploy.installing import SERVE, check_permission, documents, remove
from tests.e2e.live.behind_the_api_server import own_address
from tests.e2e.live.manifests import app
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse, ExposedUsage

RIGHTS = [one for one in documents("rbac/kubelets.yaml") if one["kind"] in ("ClusterRole", "ClusterRoleBinding")]
WEB, DB = ContainerUse(cores=0.3, mebibytes=200, waiting=0.2), ContainerUse(cores=1.5, mebibytes=900)
MINUTE = 60


@dataclass
class Kubelets:
    """The CA of two kubelets' certificates, the time of their samples, 0 for now, and the usage in them."""

    ca_file: Path
    usage: ExposedUsage
    now: float = 0.0


@contextmanager
def kubelets_at(stage: LiveStage, directory: Path, *addresses: str) -> Iterator[Kubelets]:
    """A node at each address, and four pods that use something."""
    authority = ClientAuthority(directory, "kubelets")
    names = {address: f"{stage.namespace}-n{number}" for number, address in enumerate(addresses, start=1)}
    files = {address: authority.server(name, address) for address, name in names.items()}
    kubelets = Kubelets(authority.file, stage.usage)

    def tell(address: str, path: str) -> bytes | None:
        node, at = names[address], kubelets.now or stage.usage.now()
        text = {"/metrics/cadvisor": cadvisor_text, "/metrics/resource": resource_text}.get(path)
        return None if text is None else text(kubelets.usage.until(at), node, at)

    with kubelet_endpoint(stage.admin, names, files, stage.plane.webhook_client_ca_file, tell) as port:
        for address, name in names.items():
            stage.node(name.rpartition("-")[2], address=address, port=port)
        stage.create(
            app("Deployment", stage.namespace, "web", "500m", "512Mi", replicas=3),
            app("StatefulSet", stage.namespace, "db", "1", "1Gi"),
        )
        stage.running(4)
        stage.usage.uses = {("web", "app"): WEB, ("db", "app"): DB}
        stage.usage.run(stage.pods())
        try:
            yield kubelets
        finally:
            for one in RIGHTS:
                remove(stage.admin, one)


@pytest.fixture
def endpoint(stage: LiveStage, tmp_path: Path) -> Iterator[Kubelets]:
    """Two nodes at addresses of their own."""
    with kubelets_at(stage, tmp_path, "127.0.7.1", "127.0.7.2") as kubelets:
        yield kubelets


async def test_cruise_reads_kubelets_with_no_more_than_the_right_to_their_metrics(stage: LiveStage, endpoint: Kubelets):
    kubeconfig = stage.settings("observe")["kubeconfig"]
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect_to_kubernetes(KubernetesSettings(Path(kubeconfig))))
        seen = await read_cluster_once(client, lambda kind, count: None)
        nodes = [node for node in seen.snapshot.nodes if node.name.startswith(stage.namespace)]
        assert [node.address for node in nodes] == ["127.0.7.1", "127.0.7.2"]
        known = KubeletSettings(ca_file=endpoint.ca_file)
        kubelets = await stack.enter_async_context(aclosing(KubeletClient(known, client)))
        with pytest.raises(BadInputError, match="grant it get on nodes/metrics"):
            await kubelets.read_metrics(nodes[0])
        # The cluster's CA has not signed what these kubelets show.
        strangers = await stack.enter_async_context(aclosing(KubeletClient(KubeletSettings(), client)))
        with pytest.raises(BadInputError, match="nothing was sent"):
            await strangers.read_metrics(nodes[0])

        for one in RIGHTS:
            stage.admin.apply(one)
        wait_until(
            lambda: check_permission(stage.admin, SERVE, "get", "", "nodes", "metrics"), "serve may read kubelets"
        )
        assert not check_permission(stage.admin, SERVE, "get", "", "nodes", "proxy")
        for path in (KubeletMetricsPath.CADVISOR, KubeletMetricsPath.RESOURCE):
            told = KubeletSettings(endpoint=path, ca_file=endpoint.ca_file)
            asking = await stack.enter_async_context(aclosing(KubeletClient(told, client)))
            source = KubeletUsageSource(told, asking.read_metrics)
            await _reads_what_pods_use(
                stage, source, seen.snapshot, endpoint, pressure=path is KubeletMetricsPath.CADVISOR
            )
    # The requests to the API server were discovery and access reviews, none about a node.
    assert not [one for one in stage.events() if one.object_ref.subresource in ("proxy", "metrics", "stats", "log")]
    assert stage.deeds() == []


async def test_behind_the_api_server_it_takes_the_right_to_node_proxies_and_reads_metrics_alone(
    stage: LiveStage, tmp_path: Path
):
    proxied = deepcopy(RIGHTS)
    for one in proxied:
        for rule in one.get("rules", ()):
            rule["resources"] = ["nodes/proxy"]
    kubeconfig = stage.settings("observe")["kubeconfig"]
    async with AsyncExitStack() as stack:
        endpoint = stack.enter_context(kubelets_at(stage, tmp_path, own_address()))
        client = await stack.enter_async_context(connect_to_kubernetes(KubernetesSettings(Path(kubeconfig))))
        seen = await read_cluster_once(client, lambda kind, count: None)
        told = KubeletSettings(KubeletAccessMode.NODE_PROXY)
        kubelets = await stack.enter_async_context(aclosing(KubeletClient(told, client)))
        [node] = [node for node in seen.snapshot.nodes if node.name.startswith(stage.namespace)]
        for rights in ((), RIGHTS):
            for one in rights:
                stage.admin.apply(one)
            with pytest.raises(BadInputError, match=r"grant it get on nodes/proxy; the API server says: .+ cannot get"):
                await kubelets.read_metrics(node)
        for one in proxied:
            stage.admin.apply(one)
        wait_until(
            lambda: check_permission(stage.admin, SERVE, "get", "", "nodes", "proxy"),
            "serve may go through the API server",
        )
        stage.mark()
        source = KubeletUsageSource(told, kubelets.read_metrics)
        await _reads_what_pods_use(stage, source, seen.snapshot, endpoint, pressure=True)
        found = {(one.verb, one.resource, one.request_uri.partition("/proxy")[2], one.code) for one in stage.events()}
        assert found == {("get", "nodes/proxy", "/metrics/cadvisor", 200)}
        # The token alone gives no further access.
        for path in ("pods", "exec/a/b/c", "metrics/cadvisor/../../pods", "metrics", ""):
            with pytest.raises(RefusedError, match="cruise may read only /metrics/cadvisor and /metrics/resource"):
                await client.get(f"/api/v1/nodes/{node.name}/proxy/{path}")


def test_kubelets_that_contradict_prometheus_are_found(stage: LiveStage, endpoint: Kubelets):
    stage.told()
    # Prometheus has series that another pod exposes: the kubelet counted a tenth of it.
    endpoint.usage = ExposedUsage(
        stage.namespace, {("web", "app"): ContainerUse(0.03, 20), ("db", "app"): DB}, began=stage.usage.began
    )
    endpoint.usage.run(stage.pods())
    for one in RIGHTS:
        stage.admin.apply(one)
    wait_until(lambda: check_permission(stage.admin, SERVE, "get", "", "nodes", "metrics"), "serve may read kubelets")
    more = {"kubelet_ca_file": str(endpoint.ca_file)}
    looked = stage.command("check", "--format", "json", mode="observe", **more)
    [found] = [item for item in json.loads(looked.out)["items"] if item["name"] == "kubelets" and "contra" in str(item)]
    assert (found["level"], found["area"]) == ("warn", "metrics")
    assert found["finding"].startswith("the kubelets of 2 of 2 nodes contradict the figures of 3 containers: ")
    assert f"{stage.namespace}/web-" in found["finding"]
    assert "/db-0/" not in found["finding"]
    with stage.serving("observe", pass_interval="2s", **more) as serving:
        wait_until(lambda: compared(serving, "disagree") >= 3, "serve has compared")
        assert compared(serving, "agree") >= 1
        assert "a kubelet contradicts the usage source" in serving.log


def compared(serving: RunningProgram, result: str) -> float:
    """How many comparisons of containers came out so."""
    name = f'cruise_cross_checked_containers_total{{result="{result}"}} '
    lines = serving.get("/metrics")[1].splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


async def _reads_what_pods_use(
    stage: LiveStage, source: KubeletUsageSource, snapshot: ClusterSnapshot, told: Kubelets, *, pressure: bool
) -> None:
    start = stage.usage.start + 2 * MINUTE
    partitions = await source.list_partitions(snapshot)
    for minute in range(6):
        told.now = start + MINUTE * minute + 0.5
        await source.read_nodes([node.name for node in snapshot.nodes], lambda: told.now)
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
def test_scan_and_one_pass_do_without_prometheus(stage: LiveStage, endpoint: Kubelets):
    without = {"prometheus_url": "", "kubelet_ca_file": str(endpoint.ca_file)}
    said = stage.command("serve", "--once", mode="observe", **without)
    assert said.code == 2
    assert "set prometheus_url" in said.err
    assert "get nodes/metrics" in said.err
    for one in RIGHTS:
        stage.admin.apply(one)
    wait_until(lambda: check_permission(stage.admin, SERVE, "get", "", "nodes", "metrics"), "serve may read kubelets")
    looked = stage.command("check", "--format", "json", mode="observe", **without)
    found = {item["name"]: item for item in json.loads(looked.out)["items"] if item["area"] == "metrics"}
    assert found["kubelets"]["level"] == "ok"
    assert "2 of 2 kubelets" in found["kubelets"]["finding"]
    table = stage.command("scan", mode="observe", **without)
    assert table.code == 0
    assert "a short sample: two readings of the kubelets" in table.out
    once = stage.once("observe", **without)
    assert once["mode"] == "observe"
    with stage.serving("observe", usage_source="kubelets", pass_interval="20s", **without) as serving:
        wait_until(lambda: runs(serving, "statistics") >= 4, "passes go on")
        assert "cannot read a kubelet" not in serving.log


def runs(serving: RunningProgram, job: str) -> float:
    """How many runs of a job ended."""
    lines = serving.get("/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("cruise_job_runs_total") and job in line)
