"""Kubelets that reject requests, time out or return invalid data, and a restarted cruise process."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pytest

from cruise.adapters.kubelets.client import KubeletSettings
from cruise.adapters.kubelets.source import PARTITIONS, KubeletUsageSource, poll_kubelets, read_kubelets_twice
from cruise.domain.cluster import Node
from cruise.domain.policy import Policy
from cruise.errors import BadInputError, CruiseError, UnavailableError
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.cadvisor import CadvisorDemand, ContainerLifetime, ContainerLocation, RawSeries, scrape, scrape_times
from tests.cadvisor_text import cadvisor_text
from tests.shown_cluster import ReadOnlyCluster

START = 1_767_268_800
MINUTES = 80
POLICY = Policy()
SNAPSHOT = make_snapshot(
    [make_pod(f"web-{number}", node=f"n{number}", containers=[make_container("app")]) for number in range(2)],
    [make_node("n0"), make_node("n1")],
)


def measured() -> list[RawSeries]:
    series: list[RawSeries] = []
    for number in range(2):
        place = ContainerLocation("shop", f"web-{number}", "app", f"n{number}", 15, 2.5)
        demand = CadvisorDemand(START, np.full(MINUTES, 0.2), np.full(MINUTES, 0.1), np.full(MINUTES, 2.0**28))
        life = ContainerLifetime(START, START + 60 * MINUTES)
        series += scrape(place, life, demand, scrape_times(place, [(START, START + 60 * MINUTES, None)]))
    return series


SERIES = measured()


class Kubelets:
    """Two kubelets, and a process that reads them; `failing` states which requests fail."""

    def __init__(self, store: InMemoryStore | None = None) -> None:
        self.at = float(START)
        self.failing: dict[str, Callable[[], bytes]] = {}
        self.asked: list[tuple[str, float]] = []
        self.store = store or InMemoryStore()
        self.restart()

    def restart(self) -> None:
        """Start with nothing but the store."""
        self.source, self.state = KubeletUsageSource(KubeletSettings(), self.ask), UsageState()

    async def ask(self, node: Node) -> bytes:
        self.asked.append((node.name, self.at))
        if node.name in self.failing:
            return self.failing[node.name]()
        return cadvisor_text(SERIES, node.name, self.at)

    async def run(self, minutes: int, passes: bool = True) -> list[str]:
        """Let time pass; return what passes refused."""
        refused = []
        await self.source.list_partitions(SNAPSHOT)
        for _ in range(60 * minutes):
            await self.source.read_nodes(self.source.get_due_nodes(self.at, 60), lambda: self.at)
            self.at += 1
            if passes and self.at % 300 == 30:
                try:
                    await self.refresh()
                except CruiseError as error:
                    refused.append(str(error))
        return refused

    async def refresh(self) -> None:
        now = datetime.fromtimestamp(self.at, UTC)
        await run_usage_pass(
            ReadOnlyCluster(SNAPSHOT), self.source, self.store, self.state, POLICY, now, UsageReadingSettings()
        )

    async def updated_at(self, pod: str) -> int | None:
        table = await self.store.read_statistics()
        row = table.row_of_container.get(("shop", pod, "app"))  # type: ignore[call-overload]
        return None if row is None else table.get_row(row).updated_at


def raises(error: CruiseError) -> Callable[[], bytes]:
    def fail() -> bytes:
        raise error

    return fail


async def test_reads_each_node_once_a_minute():
    kubelets = Kubelets()
    await kubelets.run(10)
    for node in ("n0", "n1"):
        moments = [at for name, at in kubelets.asked if name == node]
        assert np.diff(moments).tolist() == [60.0] * 9


async def test_changes_nothing_if_no_kubelet_may_be_read():
    kubelets = Kubelets()
    assert await kubelets.run(40) == []
    before = await kubelets.store.read_statistics()
    error = BadInputError(
        "the kubelet of node n0 may not be read by cruise's account (403): grant it get on nodes/metrics"
    )
    kubelets.failing = dict.fromkeys(("n0", "n1"), raises(error))
    refused = await kubelets.run(20)
    assert refused
    assert set(refused) == {f"{error} (2 of 2 nodes cannot be read)"}
    after = await kubelets.store.read_statistics()
    assert after.keys == before.keys
    assert after.updated_at.max() <= before.updated_at.max() + 300


@pytest.mark.parametrize(
    "failure",
    [
        raises(UnavailableError("the kubelet of node n1 did not answer completely within 10 s")),
        lambda: b"<html>sign in</html>",
        lambda: b"",
        lambda: cadvisor_text(SERIES, "n1", START + 60),
    ],
    ids=["silent", "a web page", "nothing", "stuck"],
)
async def test_one_kubelet_that_fails_leaves_its_own_pods_without_samples(failure):
    kubelets = Kubelets()
    await kubelets.run(40)
    kubelets.failing = {"n1": failure}
    assert await kubelets.run(20) == []
    assert isinstance(kubelets.source.failures["n1"], UnavailableError)
    well, ill = await kubelets.updated_at("web-0"), await kubelets.updated_at("web-1")
    assert well is not None
    assert ill is not None
    assert well - ill >= 600
    kubelets.failing = {}
    await kubelets.run(20)
    assert not kubelets.source.failures
    assert await kubelets.updated_at("web-1") == await kubelets.updated_at("web-0")


async def test_a_kubelet_that_hangs_is_not_read_again_and_does_not_block_others():
    asked: list[str] = []
    forever = asyncio.Event()

    async def ask(node: Node) -> bytes:
        asked.append(node.name)
        if node.name == "n1":
            await forever.wait()
        return cadvisor_text(SERIES, node.name, START + 600)

    source = KubeletUsageSource(KubeletSettings(concurrency=2), ask)
    await source.list_partitions(SNAPSHOT)
    async with asyncio.TaskGroup() as looks:
        for _ in range(3):
            healthy = looks.create_task(source.read_nodes(["n0"], lambda: START + 600.0))
            looks.create_task(source.read_nodes(["n1"], lambda: START + 600.0))
            await healthy
        assert asked == ["n0", "n1", "n0", "n0"]
        forever.set()


async def test_it_continues_from_the_store_after_a_restart():
    kubelets = Kubelets()
    await kubelets.run(41)
    earlier = await kubelets.store.read_statistics()
    kubelets.restart()
    await kubelets.run(6)
    table = await kubelets.store.read_statistics()
    row = table.get_row(table.row_of_container[("shop", "web-0", "app")])  # type: ignore[index]
    # The hour before is known, so that the base is its own and the workload is no newer than it was.
    assert row.history_since == earlier.history_since[0]
    assert row.cpu_base_millicores == pytest.approx(220, abs=1)
    # The usage during the gap follows from the earlier counters.
    progress = await kubelets.store.read_usage_progress()
    blocks = [block for block in await kubelets.store.read_recent_blocks(START) if block.keys]
    assert set(progress) == set(PARTITIONS)
    times = {int(at) for block in blocks for at in block.times[~np.isnan(block.cpu_demand_millicores).all(axis=0)]}
    assert times >= set(range(START + 600, START + 44 * 60, 60))


async def test_reads_no_kubelets_without_requests_for_usage():
    kubelets = Kubelets()
    await kubelets.source.list_partitions(SNAPSHOT)
    await kubelets.run(30, passes=False)
    # The time of three passes; after that, usage was not requested for long.
    assert max(at for _, at in kubelets.asked) - START <= 900


async def test_stops_if_none_of_the_first_kubelets_can_be_read():
    asked: list[str] = []

    async def ask(node: Node) -> bytes:
        asked.append(node.name)
        raise UnavailableError(f"the kubelet of node {node.name} did not answer completely within 10 s")

    nodes = [make_node(f"n{number:03d}") for number in range(100)]
    source = KubeletUsageSource(KubeletSettings(), ask)
    await source.list_partitions(make_snapshot([make_pod("web-1", node="n000")], nodes))
    with pytest.raises(UnavailableError, match=r"n000 did not answer.* \(16 of 16 nodes cannot be read\)"):
        await read_kubelets_twice(source, lambda: float(START), 60)
    assert len(asked) == 16


async def test_following_reads_as_time_passes():
    begun, asked = asyncio.get_running_loop().time(), asyncio.Event()

    def clock() -> float:
        return START + 300 * (asyncio.get_running_loop().time() - begun)

    async def ask(node: Node) -> bytes:
        asked.set()
        return cadvisor_text(SERIES, node.name, clock())

    source = KubeletUsageSource(KubeletSettings(), ask)
    await source.list_partitions(SNAPSHOT)
    async with poll_kubelets(source, clock), asyncio.timeout(60):
        await asked.wait()
