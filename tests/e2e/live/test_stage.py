"""The stage itself: usage of pods that exist, as cruise's own adapter reads it from a real Prometheus."""

from datetime import UTC, datetime

from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusSource
from cruise.domain.policy import Policy
from cruise.domain.usage import ContainerKey
from cruise.runtime.usage.state import UsageState
from cruise.runtime.usage.usage_pass import usage_pass
from cruise.simulation.store.store import MemoryStore
from tests.builders import make_pod, make_snapshot
from tests.controlplane.api import until
from tests.controlplane.manifests import container, pod_template, workload
from tests.e2e.live.stage import Stage
from tests.e2e.live.usage import MIB, Use
from tests.shown_cluster import ShownCluster

USE = Use(cores=0.2, mebibytes=100, peak_cores=0.5, peak_mebibytes=150, waiting=0.1)


async def test_what_pods_are_said_to_use_is_read_from_prometheus(stage: Stage):
    stage.node()
    stage.create(workload("Deployment", stage.namespace, "web", pod_template("web", container(requests={"cpu": "1"}))))
    [pod] = stage.running(1)
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    address = stage.measure({"web": USE})
    cluster = ShownCluster(make_snapshot([make_pod(name, namespace=stage.namespace, node=node)]))
    source = PrometheusSource(PrometheusSettings(address))
    now = datetime.fromtimestamp(stage.usage.began + 30, UTC)
    table = await usage_pass(cluster, source, MemoryStore(), UsageState(), Policy(), now)
    statistic = table.row(table.row_of_container[ContainerKey(stage.namespace, name, "app")])
    assert (statistic.cpu_base_millicores, statistic.cpu_peak_millicores) == (220, 550)
    assert (statistic.memory_base_bytes, statistic.memory_peak_bytes) == (100 * MIB, 150 * MIB)
    assert statistic.psi_known
    assert statistic.updated_at == stage.usage.began
    source.close()


def test_usage_and_node_load_go_on_being_scraped(stage: Stage):
    node = stage.node()
    stage.create(workload("Deployment", stage.namespace, "web", pod_template("web", container(requests={"cpu": "1"}))))
    [pod] = stage.running(1)
    stage.measure({"web": USE})
    stage.usage.loads[node] = 3.5
    until(lambda: stage.asked("node_load1") == {node: 3.5}, "Prometheus has the node's load")
    grown = Use(cores=0.2, mebibytes=300)
    stage.usage.change(pod["metadata"]["name"], "app", grown)
    memory = "max by (node) (container_memory_working_set_bytes)"
    until(lambda: stage.asked(memory) == {node: 300 * MIB}, "Prometheus has the container's memory")
