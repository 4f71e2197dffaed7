"""The environment itself: usage of existing pods, as cruise reads it from a real Prometheus."""

from datetime import UTC, datetime

from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.domain.policy import Policy
from cruise.domain.usage import ContainerKey
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests.builders import make_pod, make_snapshot
from tests.controlplane.api import wait_until
from tests.controlplane.manifests import container, pod_template, workload
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import MIB, ContainerUse
from tests.shown_cluster import ReadOnlyCluster

USE = ContainerUse(cores=0.2, mebibytes=100, peak_cores=0.5, peak_mebibytes=150, waiting=0.1)


async def test_what_pods_are_said_to_use_is_read_from_prometheus(stage: LiveStage):
    stage.node()
    stage.create(workload("Deployment", stage.namespace, "web", pod_template("web", container(requests={"cpu": "1"}))))
    [pod] = stage.running(1)
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    address = stage.measure({"web": USE})
    cluster = ReadOnlyCluster(make_snapshot([make_pod(name, namespace=stage.namespace, node=node)]))
    source = PrometheusUsageSource(PrometheusSettings(address))
    now = datetime.fromtimestamp(stage.usage.began + 30, UTC)
    table = await run_usage_pass(cluster, source, InMemoryStore(), UsageState(), Policy(), now)
    statistic = table.get_row(table.row_of_container[ContainerKey(stage.namespace, name, "app")])
    assert (statistic.cpu_base_millicores, statistic.cpu_peak_millicores) == (220, 550)
    assert (statistic.memory_base_bytes, statistic.memory_peak_bytes) == (100 * MIB, 150 * MIB)
    assert statistic.psi_known
    assert statistic.updated_at == stage.usage.began
    source.close()


def test_usage_and_node_load_are_still_scraped(stage: LiveStage):
    node = stage.node()
    stage.create(workload("Deployment", stage.namespace, "web", pod_template("web", container(requests={"cpu": "1"}))))
    [pod] = stage.running(1)
    stage.measure({"web": USE})
    stage.usage.loads[node] = 3.5
    wait_until(lambda: stage.asked("node_load1") == {node: 3.5}, "Prometheus has the node's load")
    grown = ContainerUse(cores=0.2, mebibytes=300)
    stage.usage.change(pod["metadata"]["name"], "app", grown)
    memory = "max by (node) (container_memory_working_set_bytes)"
    wait_until(lambda: stage.asked(memory) == {node: 300 * MIB}, "Prometheus has the container's memory")
