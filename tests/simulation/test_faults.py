import asyncio

import pytest

from cruise.errors import ThrottledError, UnavailableError
from tests.simulation.faults import ClusterFaults, FaultyCluster
from tests.simulation.scenes import amounts, cluster, pods, resize, workload


def faulty(**faults) -> FaultyCluster:
    return FaultyCluster(cluster(workload(replicas=3)), ClusterFaults(**faults))


async def test_without_faults_it_is_the_cluster():
    world = faulty()
    [first, *_] = await pods(world.cluster)
    assert await world.snapshot() == await world.cluster.snapshot()
    await world.perform(resize(first, amounts(100, 100)))
    after = await world.read_pod("shop", first.name)
    assert after is not None
    assert after.containers[0].requests == amounts(100, 100)
    assert (len(world.faults.sent), world.faults.read) == (1, [("shop", first.name)])


async def test_a_rejection_changes_nothing():
    world = faulty(refuse=lambda action: ThrottledError("slow down"))
    [first, *_] = await pods(world.cluster)
    with pytest.raises(ThrottledError):
        await world.perform(resize(first, amounts(100, 100)))
    assert await world.cluster.read_pod("shop", first.name) == first


@pytest.mark.parametrize("all_the_same", [False, True])
async def test_a_write_without_an_answer_may_have_been_done(all_the_same):
    world = faulty(answered_writes=1, all_the_same=all_the_same)
    first, second, _ = await pods(world.cluster)
    await world.perform(resize(first, amounts(100, 100)))
    with pytest.raises(UnavailableError):
        await world.perform(resize(second, amounts(100, 100)))
    after = await world.cluster.read_pod("shop", second.name)
    assert (after != second) is all_the_same


async def test_writes_in_progress_are_counted():
    world = faulty(write_seconds=0.001)
    await asyncio.gather(*(world.perform(resize(pod, amounts(100, 100))) for pod in await pods(world.cluster)))
    assert (world.faults.max_in_progress, world.faults.in_progress) == (3, 0)
