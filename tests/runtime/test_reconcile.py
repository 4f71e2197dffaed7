"""The node pass on small simulated clusters."""

from dataclasses import replace
from typing import Any

import structlog
from structlog.testing import capture_logs

from cruise.domain.actions import EvictPod, Reason, ResizePod, Verdict
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from cruise.runtime.reconcile import node_pass
from cruise.simulation.cluster import SimulatedCluster
from cruise.simulation.store import MemoryStore
from tests.simulation.scenes import START, cluster, node, pods, run, workload

FULL = Policy(mode=Mode.FULL)
NOW = int(START.timestamp())


async def with_statistics(world: SimulatedCluster, cpu: int, mebibytes: int) -> MemoryStore:
    """Return a store in which every container has the same flat demand."""
    store = MemoryStore()
    rows = [
        Statistic(
            key=StatisticKey(pod.namespace, pod.name, str(pod.workload), container.name, pod.identity),
            updated_at=NOW,
            history_since=NOW - 86400,
            cpu_base_millicores=cpu,
            cpu_peak_millicores=cpu,
            memory_base_bytes=mebibytes * MEBIBYTE,
            memory_peak_bytes=mebibytes * MEBIBYTE,
            memory_7d_max_bytes=mebibytes * MEBIBYTE,
        )
        for pod in await pods(world)
        for container in pod.containers
    ]
    await store.write_statistics(StatisticsTable.of_rows(rows))
    return store


def old_workload(**fields: Any) -> SimulatedCluster:
    return cluster(workload(created_at=START.replace(day=1), **fields))


async def test_a_pass_resizes_and_a_second_one_finds_nothing_to_do() -> None:
    world = old_workload(replicas=3)
    store = await with_statistics(world, cpu=50, mebibytes=64)
    first = await node_pass(world, store, FULL, START)
    assert [outcome.verdict for outcome in first.outcomes] == [Verdict.DONE] * 3
    run(world, 60)
    second = await node_pass(world, store, FULL, START)
    assert second.outcomes == []
    assert all(pod.containers[0].requests.cpu_millicores == 50 for pod in await pods(world))


async def test_observe_decides_as_full_and_writes_nothing() -> None:
    world = old_workload(replicas=3)
    store = await with_statistics(world, cpu=50, mebibytes=64)
    seen = await node_pass(world, store, Policy(), START)
    assert {outcome.verdict for outcome in seen.outcomes} == {Verdict.OBSERVED}
    assert [resize.reason for plan in seen.plans for resize in plan.resize] == [Reason.RIGHTSIZED] * 3
    assert world.tally.resizes_asked == 0


async def test_what_was_held_back_is_told_apart_from_what_was_left_alone() -> None:
    world = old_workload(replicas=3)
    store = await with_statistics(world, cpu=50, mebibytes=3 * 1024)
    structlog.reset_defaults()
    with capture_logs() as logs:
        done = await node_pass(world, store, replace(FULL, max_evictions_per_hour=0), START)
    assert [(o.verdict, o.reason) for o in done.outcomes if isinstance(o.action, EvictPod)] == [
        (Verdict.HELD, Reason.BUDGET_HOUR)
    ]
    (told,) = [line for line in logs if line["event"] == "node pass"]
    assert told["outcomes"]["held"] >= 1
    assert told["left_alone"] == {}


async def test_a_pod_that_could_not_be_evicted_keeps_its_place_in_the_sums() -> None:
    world = cluster(workload(created_at=START.replace(day=1), replicas=3), [node(mebibytes=8192)])
    store = await with_statistics(world, cpu=50, mebibytes=3 * 1024)
    done = await node_pass(world, store, replace(FULL, max_evictions_per_hour=0), START)
    grown = [o for o in done.outcomes if isinstance(o.action, ResizePod) and o.verdict is Verdict.DONE]
    run(world, 60)
    (figure,) = world.node_figures()
    assert len(grown) == 2
    assert figure.requested.fits_in(figure.allocatable)
