"""The usage source compared with kubelets: matching containers, and a forged one."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from cruise.domain.cluster import Node
from cruise.domain.policy import Policy
from cruise.domain.preflight import CrossCheckCounts, KubeletContainerUsage, MetricMismatch
from cruise.domain.usage import ContainerKey, PartitionCounterTail
from cruise.errors import UnavailableError
from cruise.runtime.usage.usage_pass import CrossCheckedUsageSource, run_usage_pass
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests.builders import make_container, make_node, make_pod, make_snapshot
from tests.recorded_usage import RecordedUsage
from tests.shown_cluster import ReadOnlyCluster

AT = 1_767_268_200
WEB = [ContainerKey("shop", f"web-{number}", "app") for number in range(2)]
SNAPSHOT = make_snapshot(
    [make_pod(f"web-{number}", node=f"n{number}", containers=[make_container("app")]) for number in range(2)],
    [make_node("n0"), make_node("n1")],
)
CORES, MEMORY = 0.2, 2.0**28


class Shown(RecordedUsage):
    """What Prometheus shows: counters of every container, of which `invented` some say another rate."""

    invented: float = CORES

    async def read(self, partition, start, end, tail):
        block, _ = await super().read(partition, start, end, tail)
        rates = [CORES if key == WEB[0] else self.invented for key in block.keys]
        seconds = np.array([rate * (end - AT + 86_400) for rate in rates])
        nothing = np.zeros(len(rates))
        at = np.full(len(rates), end)
        return block, PartitionCounterTail(end, block.keys, ["id"] * len(rates), seconds, nothing, at)


class Scene:
    def __init__(self, memory=MEMORY, invented=CORES):
        self.now = float(AT)
        self.asked: list[str] = []
        self.fails = False
        shown = Shown(
            containers={"all": WEB},
            cpu=lambda key, times: np.full(len(times), 1000 * CORES),
            memory=lambda key, times: np.full(len(times), memory if key == WEB[1] else MEMORY),
        )
        shown.invented = invented
        self.source = CrossCheckedUsageSource(shown, self.ask, 1, 60)
        self.store, self.state = InMemoryStore(), UsageState()
        self.found: dict[ContainerKey, MetricMismatch] = {}

    async def ask(self, node: Node) -> KubeletContainerUsage:
        self.asked.append(node.name)
        if self.fails:
            raise UnavailableError("this account may not `get nodes/metrics`")
        key = ContainerKey("shop", f"web-{node.name[1:]}", "app")
        seconds = CORES * (self.now - AT + 86_400)
        return KubeletContainerUsage(node.name, self.now, [key], ["id"], np.array([seconds]), np.array([MEMORY]))

    async def run(self, passes: int) -> CrossCheckCounts:
        for _ in range(passes):
            self.now += 300
            now = datetime.fromtimestamp(self.now, UTC)
            await run_usage_pass(
                ReadOnlyCluster(SNAPSHOT), self.source, self.store, self.state, Policy(), now, UsageReadingSettings()
            )
            self.found |= self.source.pass_result.disagreements
        await self.source.list_partitions(SNAPSHOT)
        return self.source.counts


async def test_one_node_is_asked_at_each_pass_in_turn_and_the_same_figures_agree():
    scene = Scene()
    checked = await scene.run(6)
    assert scene.asked[:4] == ["n1", "n0", "n1", "n0"]
    assert (checked.nodes, checked.unreadable, checked.disagreeing) == (6, 0, 0)
    assert checked.agreeing >= 6


@pytest.mark.parametrize("invented", [0.1, 0.3])
async def test_counters_that_the_kubelet_does_not_know_are_reported(invented):
    scene = Scene(invented=invented)
    tally = await scene.run(4)
    assert list(scene.found) == [WEB[1]]
    assert scene.found[WEB[1]].resource == "cpu"
    assert tally.disagreeing > 0
    assert tally.agreeing > 0


@pytest.mark.parametrize("memory", [MEMORY / 4, MEMORY * 3])
async def test_memory_that_the_kubelet_does_not_know_is_reported(memory):
    scene = Scene(memory=memory)
    await scene.run(4)
    assert scene.found[WEB[1]].resource == "memory"


async def test_the_pass_continues_without_kubelets_and_retries_seldom():
    scene = Scene()
    scene.fails = True
    tally = await scene.run(13)
    assert tally == CrossCheckCounts(nodes=4, unreadable=4)
    assert len(scene.asked) == 4
    table = await scene.store.read_statistics()
    scene = Scene()
    await scene.run(13)
    same = await scene.store.read_statistics()
    assert table.keys == same.keys
    assert replace(table, revisions=None).cpu_base_millicores.tolist() == same.cpu_base_millicores.tolist()
