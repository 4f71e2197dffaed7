"""The CPU of starts, as a real Prometheus shows it that scrapes every 15 seconds."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Policy
from cruise.domain.usage import HourlyPeaks, PartitionProgress, PeakKey, UsageUpdate
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests import cadvisor
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.cadvisor import CadvisorDemand, ContainerLifetime, ContainerLocation
from tests.prometheus_server import make_blocks, running_prometheus
from tests.shown_cluster import ReadOnlyCluster

BEGIN = 1_767_261_600  # 10:00
END = BEGIN + 3600
SETTLE = 30
NO_PEAKS = HourlyPeaks((), np.empty(0, np.int64), np.empty(0), np.empty(0))
# By workload: how long the start takes in seconds, and its CPU in millicores; then a tenth of it.
WORKLOADS = {"slow": (180, 1500), "quick": (35, 1200)}
STARTS = [BEGIN + 610, BEGIN + 1225, BEGIN + 1807]


def pods_of(workload: str) -> list[tuple[str, int]]:
    return [(f"{workload}-{number}", begin) for number, begin in enumerate(STARTS)]


def write(path: Path) -> None:
    series = []
    for workload, (seconds, millicores) in WORKLOADS.items():
        for pod, begin in pods_of(workload):
            place = ContainerLocation("shop", pod, "app", "n1", 15, 3.0)
            # The demand is by the minute: it begins with the container.
            minutes = (END - begin) // 60 + 2
            cores = np.where(60 * np.arange(minutes) < seconds, millicores / 1000, millicores / 10_000)
            demand = CadvisorDemand(begin, cores, np.zeros(minutes), np.full(minutes, 1e8))
            times = cadvisor.scrape_times(place, [(BEGIN, END, None)])
            series += cadvisor.scrape(place, ContainerLifetime(begin, END + 1), demand, times)
    cadvisor.write_openmetrics(series, path)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    blocks = tmp_path_factory.mktemp("starts") / "blocks"
    make_blocks(write, blocks)
    with running_prometheus(blocks) as address:
        yield address


def snapshot(at: int) -> ClusterSnapshot:
    pods = []
    for workload, (seconds, _) in WORKLOADS.items():
        for name, begin in pods_of(workload):
            if begin < at:
                ready = datetime.fromtimestamp(begin + seconds, UTC)
                pod = make_pod(
                    name, node="n1", workload=f"Deployment/{workload}", containers=(make_container(cpu=500),)
                )
                started_at = datetime.fromtimestamp(begin, UTC)
                pods.append(replace(pod, started_at=started_at, ready_since=ready if begin + seconds <= at else None))
    return make_snapshot(pods, nodes=(make_node("n1"),))


async def learn(prometheus: str, times: range) -> dict[str, int]:
    source, store, state = PrometheusUsageSource(PrometheusSettings(prometheus)), InMemoryStore(), UsageState()
    start = BEGIN - 3600
    for partition in await source.list_partitions(snapshot(END)):
        await store.record_usage(UsageUpdate(partition, PartitionProgress(start, start), NO_PEAKS, None))
    for at in times:
        now = datetime.fromtimestamp(at + SETTLE, UTC)
        table = await run_usage_pass(ReadOnlyCluster(snapshot(at + SETTLE)), source, store, state, Policy(), now)
        assert state.failures == []
    found = {name: table.row_of_workload[PeakKey("shop", f"Deployment/{name}", "app", "")] for name in WORKLOADS}
    return {name: table.cpu_start_millicores.item(row) for name, row in found.items()}


async def test_starts_are_learned_while_they_happen(prometheus: str):
    """The first counter of a container tells the mean of the time without a sample, which is a lower bound."""
    found = await learn(prometheus, range(BEGIN, END + 1, 60))
    assert 1450 <= found["slow"] <= 1500
    assert 900 <= found["quick"] <= 1200


async def test_starts_of_pods_that_still_run_are_learned_from_the_history(prometheus: str):
    """Of a quick start, samples show only the end."""
    found = await learn(prometheus, range(END, END + 1))
    assert 1450 <= found["slow"] <= 1500
    assert 700 <= found["quick"] <= 1200
