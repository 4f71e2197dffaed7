"""An hour of kubelet metrics and an hour of Prometheus samples of the same containers lead to the same decision."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from cruise.adapters.kubelets.client import KubeletMetricsPath, KubeletSettings
from cruise.adapters.kubelets.source import KubeletUsageSource
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.policy import Mode, Policy
from cruise.runtime.ports import UsageSourcePort
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import SETTLE_SECONDS, UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests import cadvisor
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.cadvisor import CadvisorDemand, ContainerLifetime, ContainerLocation, RawSeries
from tests.cadvisor_text import cadvisor_text, resource_text
from tests.prometheus_server import make_blocks, running_prometheus
from tests.shown_cluster import ReadOnlyCluster

START = 1_767_225_600 + 10 * 3600
MINUTES = 75
END = START + 60 * MINUTES
PASS_SECONDS = 300
MINUTE = 60
# How often cAdvisor looks at its containers.
MEASURED_SECONDS = 15
# Within a minute, those who look at other moments see other parts of it.
STEADY_MINUTES = 5
POLICY = replace(Policy(), mode=Mode.FULL)
NODES, PODS_EACH = 6, 12


def cluster() -> ClusterSnapshot:
    nodes = [make_node(f"n{number}", cpu=16_000, memory_mib=65_536) for number in range(NODES)]
    pods = [
        make_pod(
            f"web-{number % 9}-7d9f8b6c5d-{number:05d}",
            node=f"n{number % NODES}",
            workload=f"Deployment/web-{number % 9}",
            containers=[make_container("app"), make_container("proxy")],
        )
        for number in range(NODES * PODS_EACH)
    ]
    return make_snapshot(pods, nodes)


def demands(steady_minutes: int) -> Iterator[CadvisorDemand]:
    """Use as recorded, and by 30 % more or less, that changes once in so many minutes."""
    for one in cadvisor.demands(2 * NODES * PODS_EACH, START, MINUTES, seed=7):
        levels = np.arange(MINUTES) // steady_minutes * steady_minutes
        yield CadvisorDemand(START, one.cores[levels], one.waiting[levels], one.memory[levels])


def measured(every_seconds: int, offset: float, steady_minutes: int = STEADY_MINUTES) -> list[RawSeries]:
    """All containers and nodes, measured each so often."""
    series: list[RawSeries] = []
    containers = [(pod, container) for pod in cluster().pods for container in pod.containers]
    for number, ((pod, container), demand) in enumerate(zip(containers, demands(steady_minutes), strict=True)):
        node = pod.node or ""
        place = ContainerLocation(pod.namespace, pod.name, container.name, node, every_seconds, offset + int(node[1:]))
        restarts = (START + 1800,) if number == 5 else ()
        life = ContainerLifetime(START, END + 1, restarts, pressure="absent" if node == "n1" else "present")
        series += cadvisor.scrape(place, life, demand, cadvisor.scrape_times(place, [(START, END + 1, None)]))
    return series


async def hour(source: UsageSourcePort, tick: Callable[[float], Awaitable[None]] | None = None) -> list[NodePlan]:
    """Let an hour pass: refresh the statistics every five minutes, and decide at the end."""
    shown, store, state = ReadOnlyCluster(cluster()), InMemoryStore(), UsageState()
    await source.list_partitions(shown.shown)
    for at in range(START, END):
        if tick is not None:
            await tick(at)
        if at % PASS_SECONDS == SETTLE_SECONDS:
            now = datetime.fromtimestamp(at, UTC)
            table = await run_usage_pass(
                shown, source, store, state, POLICY, now, UsageReadingSettings(measures_scrape_delay=True)
            )
            assert not state.failures
    return decide_node_plans(shown.shown, table, POLICY, now)


async def hour_of_kubelets(endpoint: KubeletMetricsPath, steady_minutes: int = STEADY_MINUTES) -> list[NodePlan]:
    series, moment = measured(MEASURED_SECONDS, 4.5, steady_minutes), float(START)
    text = cadvisor_text if endpoint is KubeletMetricsPath.CADVISOR else resource_text

    async def ask(node: Node) -> bytes:
        return text([one for one in series if one.node == node.name], node.name, moment)

    async def tick(at: float) -> None:
        nonlocal moment
        moment = at
        await source.read_nodes(source.get_due_nodes(at, MINUTE), lambda: at)

    source = KubeletUsageSource(KubeletSettings(endpoint=endpoint), ask)
    return await hour(source, tick)


async def hour_of_prometheus(series: list[RawSeries], directory: Path) -> list[NodePlan]:
    blocks = directory / "blocks"
    make_blocks(lambda path: cadvisor.write_openmetrics(series, path), blocks)
    with running_prometheus(blocks) as address, closing(PrometheusUsageSource(PrometheusSettings(address))) as source:
        return await hour(source)


def seen_once_a_minute(series: Iterable[RawSeries]) -> Iterator[RawSeries]:
    """The samples of a scraper that scrapes each node once a minute, when cruise would query its kubelet."""
    for one in series:
        moments = np.arange(START + crc32(one.node.encode()) % MINUTE, END + 1, MINUTE)
        newest = np.searchsorted(one.times, moments, side="right") - 1
        fresh = (newest >= 0) & (moments - one.times[newest] < MEASURED_SECONDS)
        seen = np.unique(newest[fresh])
        if len(seen):
            waiting = None if one.waiting is None else one.waiting[seen]
            yield replace(one, times=one.times[seen], cpu=one.cpu[seen], waiting=waiting, memory=one.memory[seen])


def sizes(plans: list[NodePlan]) -> dict[tuple[str, str, str], NDArray[np.float64]]:
    """What each container is to request of CPU and of memory."""
    return {
        (one.namespace, one.pod, one.container): np.array([one.cpu_millicores, one.memory_bytes], dtype=np.float64)
        for plan in plans
        for one in plan.targets
    }


def compare(expected: list[NodePlan], found: list[NodePlan]) -> NDArray[np.float64]:
    """Return the relative differences of sizes; the evicted and the skipped pods must be equal."""
    wanted, given = sizes(expected), sizes(found)
    assert len(wanted) == 2 * NODES * PODS_EACH
    assert len({tuple(one) for one in wanted.values()}) > NODES * PODS_EACH
    assert given.keys() == wanted.keys()
    assert [plan.evict for plan in found] == [plan.evict for plan in expected]
    assert [plan.skipped for plan in found] == [plan.skipped for plan in expected]
    return np.array([np.abs(given[key] / wanted[key] - 1) for key in wanted])


async def test_kubelets_lead_to_the_same_decisions_as_prometheus(tmp_path: Path):
    expected = await hour_of_prometheus(measured(30, 11.25), tmp_path)
    assert compare(expected, await hour_of_kubelets(KubeletMetricsPath.CADVISOR)).max() < 0.01


async def test_equal_sample_times_give_equal_sizes(tmp_path: Path):
    series = list(seen_once_a_minute(measured(MEASURED_SECONDS, 4.5, steady_minutes=1)))
    expected = await hour_of_prometheus(series, tmp_path)
    assert compare(expected, await hour_of_kubelets(KubeletMetricsPath.CADVISOR, steady_minutes=1)).max() == 0
