"""The Eviction API and its disruption budgets."""

from dataclasses import replace
from typing import Any

import pytest

from cruise.domain.cluster import Pod
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.errors import ConflictError, NotFoundError, RefusedError, ThrottledError
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec, DisruptionBudgetStatus
from tests.simulation.scenes import (
    NAMESPACE,
    AdjustableDemand,
    cluster,
    container,
    evict,
    node,
    pods,
    run,
    template,
    workload,
)

WEB = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("web",)),))
EVERYTHING = LabelSelector()


def budget(selector: LabelSelector = WEB, name: str = "web", **bounds: Any) -> DisruptionBudgetSpec:
    return DisruptionBudgetSpec(NAMESPACE, name, selector, **bounds)


def world_of(replicas: int, *budgets: DisruptionBudgetSpec) -> SimulatedCluster:
    return cluster(workload(replicas=replicas, pod=template(container(100, 100))), [node()], budgets=budgets)


async def first(world: SimulatedCluster) -> Pod:
    return (await pods(world, "web"))[0]


async def test_evicted_pod_counts_for_its_grace_period_and_is_replaced_immediately() -> None:
    world = world_of(2)
    old = await first(world)
    await world.perform(evict(old))
    assert (await first(world)).terminating
    run(world, 10)
    assert len(await pods(world)) == 3
    assert world.get_node_usage()[0].requested.cpu_millicores == 300
    run(world, 25)
    left = await pods(world)
    assert len(left) == 2
    assert old.uid not in {pod.uid for pod in left}
    assert world.counts.evictions == 1


async def test_uid_is_a_precondition() -> None:
    world = world_of(1)
    with pytest.raises(ConflictError):
        await world.perform(replace(evict(await first(world)), uid="another"))
    with pytest.raises(NotFoundError):
        await world.perform(replace(evict(await first(world)), pod="nobody"))
    assert world.counts.evictions == 0


@pytest.mark.parametrize(
    ("replicas", "bounds", "allowed"),
    [
        (3, {"min_available": 2}, 1),
        (3, {"min_available": 3}, 0),
        (3, {"min_available": "50%"}, 1),  # of 3, rounded up: 2
        (4, {"min_available": "50%"}, 2),
        (3, {"max_unavailable": 1}, 1),
        (3, {"max_unavailable": 0}, 0),
        (3, {"max_unavailable": "34%"}, 2),  # of 3, rounded up: 2
        (3, {"max_unavailable": 5}, 3),
    ],
)
async def test_disruptions_allowed(replicas: int, bounds: dict[str, Any], allowed: int) -> None:
    snapshot = await world_of(replicas, budget(**bounds)).snapshot()
    assert [(one.name, one.disruptions_allowed) for one in snapshot.budgets] == [("web", allowed)]


async def test_budget_throttles_and_opens_again_when_the_replacement_is_ready() -> None:
    world = world_of(2, budget(min_available=1))
    await world.perform(evict(await first(world)))
    other = next(pod for pod in await pods(world) if not pod.terminating)
    with pytest.raises(ThrottledError, match=r"violate the pod's disruption budget\..*needs 1 healthy pods and has 1"):
        await world.perform(evict(other))
    assert world.counts.evictions_refused == 1
    assert not (await world.read_pod(NAMESPACE, other.name) or other).terminating
    run(world, 10)
    await world.perform(evict(other))
    assert world.counts.evictions == 2


async def test_more_than_one_budget_is_refused() -> None:
    world = world_of(3, budget(max_unavailable=3), budget(EVERYTHING, "all", max_unavailable=3))
    with pytest.raises(RefusedError, match="more than one PodDisruptionBudget"):
        await world.perform(evict(await first(world)))


async def test_budget_of_another_namespace_or_selector_is_no_concern() -> None:
    other = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("db",)),))
    world = world_of(1, budget(other, max_unavailable=0), replace(budget(max_unavailable=0), namespace="elsewhere"))
    await world.perform(evict(await first(world)))
    assert world.counts.evictions == 1


async def test_pending_pod_is_evicted_immediately_whatever_the_budget() -> None:
    world = cluster(
        workload(replicas=1, pod=template(container(9000, 100))), [node()], budgets=[budget(max_unavailable=0)]
    )
    await world.perform(evict(await first(world)))
    assert await pods(world) == []
    run(world, 1)
    assert len(await pods(world)) == 1


async def test_unready_pod_may_be_evicted_while_enough_others_are_healthy() -> None:
    dial = AdjustableDemand(mebibytes=100)
    limited = template(replace(container(100, 100), limits=replace(container().limits, memory_bytes=200 << 20)))
    world = cluster(workload(replicas=2, pod=limited, dial=dial), budgets=[budget(min_available=1)])
    dial.mebibytes[0] = 300
    run(world, 1)
    killed = next(pod for pod in await pods(world) if pod.containers[0].restart_count == 1)
    (status,) = (await world.snapshot()).budgets
    assert status.disruptions_allowed == 0
    await world.perform(evict(killed))
    assert world.counts.evictions == 1
    with pytest.raises(ThrottledError):
        await world.perform(evict(next(pod for pod in await pods(world) if pod.uid != killed.uid)))


def test_no_expected_pods_allow_no_disruption() -> None:
    assert DisruptionBudgetStatus(healthy=3, desired=0, expected=0).allowed == 0
