"""The simulated cluster's usage samples through UsageSourcePort."""

from datetime import timedelta

import numpy as np
import pytest

from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import ContainerKey, SampleBlock
from cruise.runtime.ports import UsageSourcePort
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.demand.demand import ContainerProfile, DiurnalDemand, LeakingDemand
from cruise.simulation.usage_source import SimulatedUsageSource
from tests.simulation.scenes import (
    NAMESPACE,
    START,
    AdjustableDemand,
    amounts,
    cluster,
    container,
    evict,
    node,
    only_pod,
    pods,
    run,
    template,
    workload,
)

NOW = int(START.timestamp())
OLD = START - timedelta(days=8)
SMALL = template(container(100, 100))
BY_MINUTE = SimulationSettings(step_seconds=60)


async def read(world: SimulatedCluster, start: int, end: int) -> SampleBlock:
    """Read from the cluster's usage, seconds counted from the start of the simulation."""
    usage: UsageSourcePort = SimulatedUsageSource(world)
    block, tail = await usage.read(NAMESPACE, NOW + start, NOW + end, None)
    assert tail is None
    return block


async def test_samples_are_on_the_minute_grid_after_start_until_end() -> None:
    world = cluster(workload(pod=SMALL, dial=AdjustableDemand(cpu=70, mebibytes=30)), settings=BY_MINUTE)
    run(world, 300)
    block = await read(world, 60, 240)
    pod = await only_pod(world)
    assert (block.times - NOW).tolist() == [120, 180, 240]
    assert list(block.keys) == [ContainerKey(NAMESPACE, pod.name, "app")]
    assert list(block.nodes) == ["n1"]
    assert block.cpu_demand_millicores.tolist() == [[70] * 3]
    assert block.cpu_demand_millicores.dtype == np.float32
    assert block.memory_bytes.tolist() == [[30 * MEBIBYTE] * 3]
    assert block.psi_known.tolist() == [True]


async def test_nothing_is_known_of_the_future() -> None:
    world = cluster(workload(pod=SMALL, dial=AdjustableDemand()), settings=BY_MINUTE)
    run(world, 120)
    block = await read(world, 0, 240)
    assert np.isfinite(block.memory_bytes[0]).tolist() == [True, True, False, False]


async def test_usage_before_the_start_is_taken_from_the_demand() -> None:
    wave = DiurnalDemand(1, 100, 500, 100 * MEBIBYTE, 200 * MEBIBYTE)
    old = workload(pod=SMALL, profiles={"app": ContainerProfile(wave, (3,))}, created_at=OLD)
    world = cluster(old, settings=BY_MINUTE)
    run(world, 3600)
    block = await read(world, -86400, 3600)
    cpu, memory = wave.compute_demand(np.array([3]), block.times, np.array([10**6]))
    np.testing.assert_array_equal(block.cpu_demand_millicores[0], cpu.astype(np.float32))
    np.testing.assert_array_equal(block.memory_bytes[0], memory)


async def test_past_begins_when_the_process_started_and_ends_at_its_limit() -> None:
    leak = LeakingDemand(1, 10, 100 * MEBIBYTE, 60 * MEBIBYTE)  # a MiB a minute
    limited = template(container(100, 100, amounts(None, 130)))
    young = workload(
        pod=limited, profiles={"app": ContainerProfile(leak, (0,))}, created_at=START - timedelta(minutes=40)
    )
    block = await read(cluster(young, settings=BY_MINUTE), -3600, 0)
    assert np.isnan(block.memory_bytes[0, :19]).all()
    assert (block.memory_bytes[0, 19:] / MEBIBYTE).tolist() == [*range(100, 131), *[130] * 10]


async def test_cpu_contention_shows_in_demand() -> None:
    dial = AdjustableDemand(cpu=3000)
    world = cluster(workload(pod=SMALL, replicas=2, dial=dial), settings=BY_MINUTE)
    run(world, 60)
    block = await read(world, 0, 60)
    # Each gets 2000 of the 3000 that it wants and waits a third of the time: 2000 × (1 + 1/3).
    assert block.cpu_demand_millicores[:, 0] == pytest.approx([2666.67, 2666.67], abs=0.01)
    assert world.counts.starved_container_seconds == 120
    assert world.counts.container_seconds == 120


async def test_cpu_limit_throttles() -> None:
    world = cluster(
        workload(pod=template(container(100, 100, amounts(200))), dial=AdjustableDemand(cpu=400)), settings=BY_MINUTE
    )
    run(world, 60)
    assert (await read(world, 0, 60)).cpu_demand_millicores[0, 0] == pytest.approx(300)
    assert world.get_node_usage()[0].used.cpu_millicores == 200


async def test_short_steps_are_averaged_over_the_minute() -> None:
    dial = AdjustableDemand(cpu=100)
    world = cluster(workload(pod=SMALL, dial=dial), settings=SimulationSettings(step_seconds=15))
    run(world, 45)
    dial.cpu[0] = 500
    run(world, 15)
    block = await read(world, 0, 60)
    assert block.cpu_demand_millicores[0, 0] == pytest.approx((3 * 100 + 500) / 4)


async def test_long_steps_hold_until_the_next() -> None:
    dial = AdjustableDemand(cpu=100)
    world = cluster(workload(pod=SMALL, dial=dial), settings=SimulationSettings(step_seconds=300))
    run(world, 300)
    dial.cpu[0] = 500
    run(world, 420)
    block = await read(world, 0, 720)
    assert np.isnan(block.cpu_demand_millicores[0, :4]).all()
    assert block.cpu_demand_millicores[0, 4:].tolist() == [100] * 5 + [500] * 3


async def test_removed_pod_keeps_its_samples_for_the_retention() -> None:
    world = cluster(
        workload(pod=SMALL, dial=AdjustableDemand(), grace_seconds=1),
        settings=SimulationSettings(retention_seconds=600),
    )
    run(world, 60)
    old = await only_pod(world)
    await world.perform(evict(old))
    run(world, 240)
    new = await only_pod(world)
    assert {key.pod for key in (await read(world, 0, 300)).keys} == {old.name, new.name}
    assert [key.pod for key in (await read(world, 120, 300)).keys] == [new.name]
    run(world, 900)
    assert [key.pod for key in (await read(world, 0, 1200)).keys] == [new.name]
    # Its row is used again, without a trace of it.
    await world.perform(evict(new))
    run(world, 120)
    block = await read(world, 660, 1320)
    (newest,) = [pod.name for pod in await pods(world) if not pod.terminating]
    row = [key.pod for key in block.keys].index(newest)
    assert np.isfinite(block.memory_bytes[row]).sum() == 1


async def test_partitions_are_namespaces() -> None:
    world = cluster([workload(pod=SMALL), workload("db", SMALL, namespace="data")])
    assert await SimulatedUsageSource(world).list_partitions(await world.snapshot()) == ["data", "shop"]
    block, _ = await SimulatedUsageSource(world).read("nowhere", NOW, NOW + 60, None)
    assert list(block.keys) == []
    assert block.memory_bytes.shape == (0, 1)


async def test_node_loads_are_runnable_cores_at_the_last_step() -> None:
    dial = AdjustableDemand(cpu=3000)
    world = cluster(workload(pod=SMALL, replicas=3, dial=dial), [node("n1")], settings=BY_MINUTE)
    usage = SimulatedUsageSource(world)
    assert await usage.read_node_loads(NOW) == {}
    run(world, 60)
    dial.cpu[:] = 100
    run(world, 60)
    assert await usage.read_node_loads(NOW + 60) == {"n1": pytest.approx((9.0, NOW + 60))}
    assert await usage.read_node_loads(NOW + 119) == {"n1": pytest.approx((9.0, NOW + 60))}
    assert await usage.read_node_loads(NOW + 120) == {"n1": pytest.approx((0.3, NOW + 120))}
    assert world.get_node_usage()[0].load == pytest.approx(0.3 / 4)
