"""Node passes over Guaranteed pods of simulated kubelets, with and without static managers, and OOM kills."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import Node, Pod, QosClass
from cruise.domain.policy import GuaranteedPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from cruise.runtime.node_pass import NodePassResult, run_node_pass
from cruise.runtime.ports import PassContext
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from tests.builders import TRACKING
from tests.simulation.scenes import (
    START,
    amounts,
    cluster,
    container,
    node,
    only_pod,
    resources,
    run,
    template,
    workload,
)

RESIZE = Policy(mode=Mode.FULL, rules=TRACKING, guaranteed=GuaranteedPolicy.RESIZE)
CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY


def statistic(pod: Pod, cpu: int, mebibytes: int) -> Statistic:
    return Statistic(
        key=StatisticKey(pod.namespace, pod.name, str(pod.workload), "app", pod.identity),
        updated_at=int(START.timestamp()),
        history_since=int((START - timedelta(days=40)).timestamp()),
        cpu_base_millicores=cpu,
        cpu_peak_millicores=cpu,
        memory_base_bytes=mebibytes * MEBIBYTE,
        memory_peak_bytes=mebibytes * MEBIBYTE,
        memory_7d_max_bytes=mebibytes * MEBIBYTE,
    )


async def build(managers: frozenset[ResourceName], *nodes: Node) -> tuple[SimulatedCluster, InMemoryStore]:
    """Return a cluster with one Guaranteed pod that uses 500m and 500 Mi of 2 cores and 2 Gi."""
    pod = template(container(2000, 2048, amounts(2000, 2048)))
    settings = SimulationSettings(step_seconds=1, static_managers=managers)
    world = cluster(workload("db", pod, created_at=START - timedelta(days=60)), nodes or None, settings)
    store = InMemoryStore()
    await store.write_statistics(StatisticsTable.from_rows([statistic(await only_pod(world), 500, 500)]))
    return world, store


async def run_pass(world: SimulatedCluster, store: InMemoryStore) -> NodePassResult:
    result = await run_node_pass(PassContext(world, store, RESIZE, START))
    run(world, 20)
    return result


def skip_reasons(result: NodePassResult) -> list[ReasonCode]:
    return [one.reason for plan in result.plans for one in plan.skipped]


async def test_request_and_limit_are_resized_together() -> None:
    world, store = await build(frozenset())
    await run_pass(world, store)
    pod = await only_pod(world)
    [app] = pod.containers
    assert pod.qos is QosClass.GUARANTEED
    assert app.requests == app.limits == app.actual == app.actual_limits == amounts(750, 750)


@pytest.mark.parametrize(
    ("managers", "version", "reason", "final"),
    [
        ({CPU}, (1, 34), None, amounts(2000, 750)),
        ({CPU}, (1, 33), ReasonCode.STATIC_CPU_MANAGER, amounts(2000, 2048)),
        ({MEMORY}, (1, 34), ReasonCode.STATIC_MEMORY_MANAGER, amounts(2000, 2048)),
        ({CPU, MEMORY}, (1, 36), ReasonCode.STATIC_MEMORY_MANAGER, amounts(2000, 2048)),
    ],
)
async def test_a_refusal_by_a_static_manager_is_remembered_beyond_a_restart(managers, version, reason, final) -> None:
    world, store = await build(frozenset(managers), node(kubelet_version=version))
    for _ in range(6):
        await run_pass(world, store)
    refused, requested = world.counts.resizes_infeasible, world.counts.resizes_requested
    assert refused == (2 if managers == {CPU, MEMORY} else 1)
    [app] = (await only_pod(world)).containers
    assert app.requests == app.limits == app.allocated == final
    # Nothing but the database is kept: each pass has a new writer and new state.
    after = await run_pass(world, store)
    assert skip_reasons(after) == ([] if reason is None else [reason])
    assert (world.counts.resizes_infeasible, world.counts.resizes_requested) == (refused, requested)


async def test_a_node_with_other_capacity_is_tried_again() -> None:
    world, store = await build(frozenset({MEMORY}))
    for _ in range(3):
        await run_pass(world, store)
    [refused] = (await store.read_refused_resizes()).values()
    assert (refused.reason, refused.free_capacity) == (ReasonCode.STATIC_MEMORY_MANAGER, node().allocatable)
    await store.record_refused_resizes([replace(refused, free_capacity=resources(8000, 16384))])
    assert not skip_reasons(await run_pass(world, store))
    assert world.counts.resizes_infeasible == 2
