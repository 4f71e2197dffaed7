"""The contract of UsageSourcePort: one suite for each implementation."""

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cruise.adapters.kubelets.client import KubeletMetricsPath, KubeletSettings
from cruise.adapters.kubelets.source import KubeletUsageSource, read_container_usage_of_kubelet
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.preflight import KubeletContainerUsage
from cruise.domain.usage import ContainerKey, SampleBlock
from cruise.runtime.ports import UsageSourcePort
from cruise.runtime.usage.usage_pass import CrossCheckedUsageSource
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.usage_source import SimulatedUsageSource
from tests import cadvisor
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.cadvisor import ContainerLifetime, ContainerLocation
from tests.cadvisor_text import cadvisor_text, resource_text
from tests.prometheus_server import make_blocks, running_prometheus
from tests.simulation import scenes

START = int(scenes.START.timestamp()) // 60 * 60
MINUTES = 40
END = START + 60 * MINUTES


@dataclass(frozen=True)
class Subject:
    """A source, its cluster with usage between START and END, and the containers that ran all the time."""

    source: UsageSourcePort
    snapshot: ClusterSnapshot
    containers: frozenset[ContainerKey]


async def simulated() -> Subject:
    one, two = scenes.container(100, 100), scenes.container(50, 64, name="proxy")
    workloads = [
        scenes.workload("web", scenes.template(one, two), scenes.AdjustableDemand(), replicas=3),
        scenes.workload("db", scenes.template(one), scenes.AdjustableDemand(), replicas=2),
    ]
    world = scenes.cluster(workloads, settings=SimulationSettings(step_seconds=60))
    scenes.run(world, END - START)
    snapshot = await world.snapshot()
    return Subject(SimulatedUsageSource(world), snapshot, containers_of(snapshot))


def containers_of(snapshot: ClusterSnapshot) -> frozenset[ContainerKey]:
    return frozenset(
        ContainerKey(pod.namespace, pod.name, container.name) for pod in snapshot.pods for container in pod.containers
    )


@pytest.fixture(scope="module")
def prometheus_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    series = measured_series()
    blocks = tmp_path_factory.mktemp("usage") / "blocks"
    make_blocks(lambda path: cadvisor.write_openmetrics(series, path), blocks)
    with running_prometheus(blocks) as address:
        yield address


def measured_series() -> list[cadvisor.RawSeries]:
    series: list[cadvisor.RawSeries] = []
    demands = cadvisor.demands(12, START - 600, MINUTES + 20, seed=5)
    running = [(pod, container) for pod in monitored().pods for container in pod.containers]
    whole: dict[str, list[cadvisor.CadvisorDemand]] = {}
    for number, (pod, container) in enumerate(running):
        place = ContainerLocation(pod.namespace, pod.name, container.name, pod.node or "", 15, 2.5 + number)
        life = ContainerLifetime(START - 600, END + 1, restarts=(START + 900,) if number == 2 else ())
        times = cadvisor.scrape_times(place, [(START - 600, END + 1, None)])
        demand = next(demands)
        whole.setdefault(pod.node or "", []).append(demand)
        series += cadvisor.scrape(place, life, demand, times)
    for node, demand_of_all in whole.items():
        series.append(root_group(node, demand_of_all))
    return series


async def from_kubelets(endpoint: KubeletMetricsPath) -> Subject:
    """Kubelets that were read once a minute, each at its own second."""
    series, at = measured_series(), float(START - 600)
    text = cadvisor_text if endpoint is KubeletMetricsPath.CADVISOR else resource_text

    async def ask(node: Node) -> bytes:
        return text(series, node.name, at)

    def clock() -> float:
        return at

    source = KubeletUsageSource(KubeletSettings(endpoint=endpoint, retention_seconds=2 * (END - START)), ask)
    await source.list_partitions(monitored())
    while at < END:
        await source.read_nodes(source.get_due_nodes(at, 60), clock)
        at += 1
    assert not source.failures
    return Subject(source, monitored(), containers_of(monitored()))


def root_group(node: str, demands: list[cadvisor.CadvisorDemand]) -> cadvisor.RawSeries:
    """The root control group of a node: its containers, plus a millicore and a megabyte."""
    first = demands[0]
    cores = sum((one.cores for one in demands), np.full(len(first.cores), 0.001))
    memory = sum((one.memory for one in demands), np.full(len(first.memory), 1e6))
    times = cadvisor.scrape_times(ContainerLocation("", "", "", node, 15, 1.5), [(START - 600, END + 1, None)])
    one = cadvisor.CadvisorDemand(first.start, cores, np.zeros(len(cores)), memory)
    [found] = cadvisor.scrape(
        ContainerLocation("", "", "", node, 15, 1.5), ContainerLifetime(START - 600, END + 1), one, times
    )
    return replace(found, id="/")


def monitored() -> ClusterSnapshot:
    names = ["web-7d9f8b6c5d-x2x4z", "web-7d9f8b6c5d-bcdfg", "db-0", "db-1", "agent-k9wtq"]
    pods = [
        make_pod(name, node=f"n{number % 2}", containers=[make_container("app"), make_container("proxy")])
        for number, name in enumerate(names)
    ]
    return make_snapshot(pods, [make_node("n0"), make_node("n1")])


def cross_checked(source: UsageSourcePort) -> CrossCheckedUsageSource:
    """Prometheus, and kubelets that are queried a quarter of an hour before the end."""
    series, at = measured_series(), END - 900.0

    async def answer(node: Node) -> bytes:
        return cadvisor_text(series, node.name, at)

    async def ask(node: Node) -> KubeletContainerUsage:
        return await read_container_usage_of_kubelet(answer, node, lambda: at)

    return CrossCheckedUsageSource(source, ask, 2, 60)


@pytest.fixture(
    params=["simulated", "cadvisor", "resource", "prometheus", "prometheus in small queries", "cross-checked"]
)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    if request.param == "simulated":
        yield await simulated()
        return
    if request.param in (KubeletMetricsPath.CADVISOR, KubeletMetricsPath.RESOURCE):
        yield await from_kubelets(KubeletMetricsPath(request.param))
        return
    limit = 1 if request.param == "prometheus in small queries" else 20_000
    settings = PrometheusSettings(request.getfixturevalue("prometheus_address"), max_series_per_query=limit)
    with closing(PrometheusUsageSource(settings)) as source:
        checked = cross_checked(source) if request.param == "cross-checked" else source
        yield Subject(checked, monitored(), containers_of(monitored()))


async def test_kubelets_agree_with_the_prometheus_that_scrapes_them(prometheus_address: str) -> None:
    with closing(PrometheusUsageSource(PrometheusSettings(prometheus_address))) as source:
        checked = cross_checked(source)
        subject = Subject(checked, monitored(), containers_of(monitored()))
        # Before and after they were queried.
        for end in (END - 960, END):
            for partition in await checked.list_partitions(monitored()):
                await checked.read(partition, START, end, None)
            assert checked.pass_result.compared == subject.containers
            assert not checked.pass_result.disagreements


async def read_all(subject: Subject, start: int = START, end: int = END) -> list[SampleBlock]:
    partitions = await subject.source.list_partitions(subject.snapshot)
    return [(await subject.source.read(partition, start, end, None))[0] for partition in partitions]


async def test_partitions_are_the_same_from_call_to_call(subject: Subject) -> None:
    partitions = await subject.source.list_partitions(subject.snapshot)
    assert len(set(partitions)) == len(partitions) > 0
    assert await subject.source.list_partitions(subject.snapshot) == partitions


async def test_every_container_belongs_to_one_partition(subject: Subject) -> None:
    found = [key for block in await read_all(subject) for key in block.keys]
    assert len(set(found)) == len(found)
    assert set(found) == subject.containers


async def test_a_block_has_every_grid_time_after_the_start_up_to_the_end(subject: Subject) -> None:
    for block in await read_all(subject, START + 300, START + 900):
        rows = len(block.keys)
        assert block.times.tolist() == list(range(START + 360, START + 901, 60))
        assert block.cpu_demand_millicores.shape == block.memory_bytes.shape == (rows, 10)
        assert block.cpu_demand_millicores.dtype == np.float32
        assert block.memory_bytes.dtype == np.float64
        assert block.psi_known.shape == (rows,)
        assert len(block.nodes) in (0, rows)


async def test_samples_are_numbers_that_make_sense(subject: Subject) -> None:
    for block in await read_all(subject):
        cpu, memory = block.cpu_demand_millicores[:, 5:], block.memory_bytes[:, 5:]
        assert not np.isnan(memory).any()
        assert (memory == np.floor(memory)).all()
        assert (memory > 0).all()
        assert np.isnan(cpu).sum() <= len(block.keys)
        assert np.nanmin(cpu, initial=0) >= 0


async def test_reading_in_parts_gives_the_same_as_one_read(subject: Subject) -> None:
    for partition in await subject.source.list_partitions(subject.snapshot):
        whole, _ = await subject.source.read(partition, START, END, None)
        parts, tail, at = [], None, START
        for end in (START + 60, START + 540, START + 900, START + 960, END):
            block, tail = await subject.source.read(partition, at, end, tail)
            at = end
            parts.append(block)
        assert all(list(part.keys) == list(whole.keys) for part in parts)
        np.testing.assert_array_equal(
            np.concatenate([part.cpu_demand_millicores for part in parts], axis=1), whole.cpu_demand_millicores
        )
        np.testing.assert_array_equal(np.concatenate([part.memory_bytes for part in parts], axis=1), whole.memory_bytes)


async def test_sends_no_query_for_an_empty_time_range(subject: Subject) -> None:
    for block in await read_all(subject, END, END):
        assert (len(block.times), block.memory_bytes.shape[1]) == (0, 0)


async def test_node_loads_are_samples_by_node(subject: Subject) -> None:
    await subject.source.list_partitions(subject.snapshot)
    loads = await subject.source.read_node_loads(END)
    assert set(loads) <= {node.name for node in subject.snapshot.nodes}
    assert all(sample.load1 >= 0 and sample.at <= END for sample in loads.values())
    # The same sample has the same time.
    assert await subject.source.read_node_loads(END) == loads


async def test_a_node_uses_what_its_containers_use_and_a_little_more(subject: Subject) -> None:
    await subject.source.list_partitions(subject.snapshot)
    names = [node.name for node in subject.snapshot.nodes]
    found = await subject.source.read_node_usage([*names, "unheard-of"], START + 300, END)
    running = [node for node, use in zip(found.nodes, found.cpu_use_millicores, strict=True) if np.nansum(use) > 0]
    assert sorted(running) == sorted(names)
    assert found.times.tolist() == list(range(START + 360, END + 1, 60))
    assert found.cpu_use_millicores.shape == found.memory_bytes.shape == (len(found.nodes), len(found.times))
    cpu, memory = dict.fromkeys(found.nodes, 0.0), dict.fromkeys(found.nodes, 0.0)
    for block in await read_all(subject, START + 300):
        used = block.cpu_demand_millicores if block.cpu_use_millicores is None else block.cpu_use_millicores
        for node, of_cpu, of_memory in zip(block.nodes, used, block.memory_bytes, strict=True):
            cpu[node] += float(np.nansum(of_cpu))
            memory[node] += float(np.nansum(of_memory))
    for node, of_cpu, of_memory in zip(
        found.nodes, found.cpu_use_millicores.sum(1), found.memory_bytes.sum(1), strict=True
    ):
        if node in running:
            # A read without a tail does not know the first steps of a counter.
            assert 0.7 * of_cpu < cpu[node] < 1.05 * of_cpu
            assert 0.7 * of_memory < memory[node] < 1.05 * of_memory


async def test_an_empty_time_range_or_no_node_has_no_usage(subject: Subject) -> None:
    await subject.source.list_partitions(subject.snapshot)
    assert not (await subject.source.read_node_usage([], START, END)).nodes
    assert (await subject.source.read_node_usage(["n0"], END, END)).cpu_use_millicores.size == 0
