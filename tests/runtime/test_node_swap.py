"""Node passes over pods whose kubelet refuses other memory requests, because their memory may be swapped."""

from datetime import timedelta

import pytest

from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import Pod
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from cruise.runtime.node_pass import NodePassResult, run_node_pass
from cruise.runtime.ports import PassContext
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from tests.builders import TRACKING
from tests.simulation.scenes import START, amounts, cluster, container, node, pods, run, template, workload

RESIZE = Policy(mode=Mode.RESIZE, rules=TRACKING)


def statistic(pod: Pod) -> Statistic:
    return Statistic(
        key=StatisticKey(pod.namespace, pod.name, str(pod.workload), "app", pod.identity),
        updated_at=int(START.timestamp()),
        history_since=int((START - timedelta(days=40)).timestamp()),
        cpu_base_millicores=500,
        cpu_peak_millicores=500,
        memory_base_bytes=500 * MEBIBYTE,
        memory_peak_bytes=500 * MEBIBYTE,
        memory_7d_max_bytes=500 * MEBIBYTE,
    )


async def run_pass(world: SimulatedCluster, store: InMemoryStore) -> NodePassResult:
    result = await run_node_pass(PassContext(world, store, RESIZE, START))
    run(world, 20)
    return result


@pytest.mark.parametrize(("memory_swaps", "memory"), [(False, 500), (True, 2048)])
async def test_a_node_that_refuses_other_memory_still_gets_its_cpu_sized(memory_swaps: bool, memory: int) -> None:
    settings = SimulationSettings(step_seconds=1, memory_swaps=memory_swaps)
    two = workload("web", template(container(2000, 2048)), replicas=2, created_at=START - timedelta(days=60))
    world, store = cluster(two, (node(),), settings), InMemoryStore()
    await store.write_statistics(StatisticsTable.from_rows([statistic(one) for one in await pods(world)]))
    for _ in range(6):
        await run_pass(world, store)
    assert [one.containers[0].allocated for one in await pods(world)] == [amounts(500, memory)] * 2
    written = world.counts.resizes_requested
    await run_pass(world, store)
    assert world.counts.resizes_requested == written
    refusals = {one.reason for one in (await store.read_refused_resizes()).values()}
    assert refusals == ({ReasonCode.NODE_SWAP} if memory_swaps else set())
