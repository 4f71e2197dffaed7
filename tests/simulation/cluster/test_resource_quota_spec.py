"""ResourceQuotas: enforced when pods are created and resized, and shown as the remaining amounts."""

import pytest

from cruise.domain.autoscalers import ResourceQuota
from cruise.domain.resources import NOTHING_STATED, StatedResources
from cruise.errors import RefusedError
from cruise.simulation.cluster.api_server import ResourceQuotaSpec
from cruise.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.scenes import (
    NAMESPACE,
    amounts,
    cluster,
    container,
    evict,
    only_pod,
    pods,
    resize,
    run,
    template,
    workload,
)


def quota(
    requests: StatedResources = NOTHING_STATED, limits: StatedResources = NOTHING_STATED, namespace: str = NAMESPACE
) -> ResourceQuotaSpec:
    return ResourceQuotaSpec(namespace, "compute", requests, limits)


def world_of(replicas: int, *quotas: ResourceQuotaSpec, limits: StatedResources = NOTHING_STATED) -> SimulatedCluster:
    return cluster(workload(replicas=replicas, pod=template(container(500, 100, limits))), quotas=quotas)


async def test_remaining_quota_is_shown() -> None:
    world = world_of(2, quota(amounts(1500, 1024), amounts(None, 500)), limits=amounts(None, 200))
    assert (await world.snapshot()).quotas == {NAMESPACE: (ResourceQuota(amounts(500, 824), amounts(None, 100)),)}
    assert (await world_of(2).snapshot()).quotas == {}


async def test_no_more_pods_are_created_than_the_quota_grants() -> None:
    world = world_of(3, quota(amounts(1200)))
    assert len(await pods(world)) == 2
    assert world.counts.creations_refused == 1
    run(world, 2)
    assert world.counts.creations_refused == 3


async def test_pod_without_a_counted_resource_is_not_created() -> None:
    assert await pods(world_of(1, quota(limits=amounts(2000)))) == []


async def test_replacement_waits_until_the_evicted_pod_is_removed() -> None:
    world = world_of(1, quota(amounts(600)))
    old = await only_pod(world)
    await world.perform(evict(old))
    run(world, 29)
    assert [pod.uid for pod in await pods(world)] == [old.uid]
    run(world, 5)
    assert [pod.uid == old.uid for pod in await pods(world)] == [False]


async def test_increase_beyond_the_quota_is_rejected_and_a_decrease_is_not() -> None:
    world = world_of(1, quota(amounts(600)))
    pod = await only_pod(world)
    with pytest.raises(RefusedError, match=r"exceeded quota: compute, requested: requests\.cpu=101, used") as refused:
        await world.perform(resize(pod, amounts(601)))
    assert refused.value.cause == "QuotaExceeded"
    assert world.counts.resizes_refused == 1
    await world.perform(resize(pod, amounts(600)))
    await world.perform(resize(pod, amounts(100)))


async def test_limit_increase_with_lower_requests_is_rejected() -> None:
    world = world_of(1, quota(limits=amounts(2000)), limits=amounts(1000))
    pod = await only_pod(world)
    with pytest.raises(RefusedError, match=r"limits\.cpu"):
        await world.perform(resize(pod, amounts(100), amounts(4000)))


async def test_a_resize_without_an_increase_may_exceed_the_quota() -> None:
    world = world_of(1, quota(amounts(None, 150)))
    await world.perform(resize(await only_pod(world), amounts(3000)))
    assert world.counts.resizes_refused == 0


async def test_decrease_frees_the_quota_once_it_is_actual() -> None:
    world = world_of(2, quota(amounts(1000)))
    first, second = await pods(world)
    await world.perform(resize(first, amounts(100)))
    with pytest.raises(RefusedError):
        await world.perform(resize(second, amounts(900)))
    run(world, 10)
    await world.perform(resize(second, amounts(900)))


async def test_quota_of_another_namespace_is_no_concern() -> None:
    world = world_of(2, quota(amounts(1), namespace="elsewhere"))
    assert len(await pods(world)) == 2
