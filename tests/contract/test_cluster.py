"""The contract of ClusterPort: one suite for each implementation.

A scene is described once, in the simulation's terms; an implementation builds it and says how to let time pass until
its controllers and kubelets have come to rest.
"""

import asyncio
from dataclasses import replace

import pytest

from cruise.domain.actions import ReasonCode, TaintNode, UntaintNode
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import POD_LEVEL, Pod, PodDisruptionBudget
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.resources import NO_RESOURCES, ResizePending, StatedResources
from cruise.domain.scheduling import (
    OVERLOADED_TAINT,
    LabelRequirement,
    LabelSelector,
    SelectorOperator,
    Taint,
    TaintEffect,
)
from cruise.errors import ConflictError, NotFoundError, RefusedError, ThrottledError
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
from cruise.simulation.cluster.workloads import SimulatedWorkload
from tests.builders import make_pod_level
from tests.contract.scenes import Build, ContractCluster, ContractEnvironment, real, simulated
from tests.simulation.scenes import (
    NAMESPACE,
    AdjustableDemand,
    amounts,
    container,
    evict,
    node,
    resize,
    template,
    workload,
)

WEB = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("web",)),))
FOREIGN = Taint("example.com/odd", "yes", TaintEffect.PREFER_NO_SCHEDULE)
LIMITED = container(200, 128, StatedResources(None, amounts(0, 256).memory_bytes))


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.server)])
def build(request: pytest.FixtureRequest) -> Build:
    if request.param == "simulated":
        return simulated
    return real(*(request.getfixturevalue(name) for name in ("control_plane", "admin", "kubelet")))


def web(replicas: int = 1, kind: str = "Deployment") -> SimulatedWorkload:
    return workload(pod=template(LIMITED), replicas=replicas, kind=kind, grace_seconds=1)


async def pods_of(world: ContractEnvironment) -> list[Pod]:
    return [pod for pod in (await world.port.snapshot()).pods if pod.namespace == world.namespace]


async def budgets_of(world: ContractEnvironment) -> list[PodDisruptionBudget]:
    return [one for one in (await world.port.snapshot()).budgets if one.namespace == world.namespace]


async def first_pod(world: ContractEnvironment) -> Pod:
    return next(pod for pod in await pods_of(world) if not pod.terminating)


async def again(world: ContractEnvironment, pod: Pod) -> Pod:
    found = await world.port.read_pod(pod.namespace, pod.name)
    assert found is not None
    return found


async def test_snapshot_is_sorted_and_resolves_owners(build: Build) -> None:
    async with build(ContractCluster([web(3), workload("db", template(LIMITED), kind="StatefulSet")])) as world:
        await world.wait_until_stable()
        snapshot = await world.port.snapshot()
        names = [one.name for one in snapshot.nodes]
        assert names == sorted(names)
        keys = [(pod.namespace, pod.name) for pod in snapshot.pods]
        assert keys == sorted(keys)
        found = await pods_of(world)
        assert len(found) == 4
        for pod in found:
            assert pod.node in names
            assert pod.workload is not None
            assert (pod.namespace, pod.workload) in snapshot.workloads
        assert {str(pod.workload) for pod in found} == {"Deployment/web", "StatefulSet/db"}
        assert {(pod.name, pod.identity) for pod in found if pod.owner_kind == "StatefulSet"} == {("db-0", "0")}


async def test_single_pod_is_the_snapshots_pod(build: Build) -> None:
    async with build(ContractCluster([web()])) as world:
        await world.wait_until_stable()
        pod = await first_pod(world)
        assert await world.port.read_pod(pod.namespace, pod.name) == pod
        assert await world.port.read_pod(pod.namespace, "nobody") is None
        assert await world.port.read_pod("nowhere", pod.name) is None


async def test_a_resize_is_in_the_spec_immediately_and_in_effect_soon(build: Build) -> None:
    async with build(ContractCluster([web()])) as world:
        await world.wait_until_stable()
        before = await first_pod(world)
        await world.port.perform(resize(before, amounts(400), amounts(None, 512)))
        asked = await again(world, before)
        assert asked.containers[0].requests == amounts(400, 128)
        assert asked.containers[0].limits == amounts(None, 512)
        assert asked.uid == before.uid
        await world.wait_until_stable()
        (one,) = (await again(world, before)).containers
        assert one.allocated == one.actual == amounts(400, 128)
        assert one.actual_limits == amounts(None, 512)
        assert one.restart_count == 0


def web_with_pod_level() -> SimulatedWorkload:
    whole = make_pod_level(amounts(400, 512), amounts(None, 1024))
    return workload(pod=template(LIMITED, pod_level=whole), grace_seconds=1)


@pytest.mark.parametrize(("cpu", "memory", "limit"), [(600, 600, 1200), (300, 256, 512)])
async def test_pod_level_resources_are_resized_both_ways(build: Build, cpu: int, memory: int, limit: int) -> None:
    async with build(ContractCluster([web_with_pod_level()])) as world:
        await world.wait_until_stable()
        before = await first_pod(world)
        assert count_pod_requests(before) == amounts(400, 512).resources
        await world.port.perform(resize(before, amounts(cpu, memory), amounts(None, limit), name=POD_LEVEL))
        after = await world.port.read_pod(before.namespace, before.name)
        assert after is not None
        assert after.pod_level is not None
        assert (after.pod_level.requests, after.pod_level.limits) == (amounts(cpu, memory), amounts(None, limit))
        await world.wait_until_stable()
        done = await first_pod(world)
        assert count_pod_requests(done) == amounts(cpu, memory).resources
        assert done.containers == before.containers
        assert done.pod_level is not None
        assert done.pod_level.actual_limits == amounts(None, limit)


@pytest.mark.parametrize(
    ("name", "requests", "limits"),
    [
        (POD_LEVEL, amounts(100), amounts()),
        (POD_LEVEL, amounts(), amounts(None, 200)),
        ("app", amounts(500), amounts()),
        ("app", amounts(), amounts(None, 2048)),
    ],
)
async def test_containers_beyond_the_pods_own_resources_are_refused(
    build: Build, name: str, requests: StatedResources, limits: StatedResources
) -> None:
    async with build(ContractCluster([web_with_pod_level()])) as world:
        await world.wait_until_stable()
        before = await first_pod(world)
        with pytest.raises(RefusedError):
            await world.port.perform(resize(before, requests, limits, name=name))
        assert await world.port.read_pod(before.namespace, before.name) == before


async def test_pending_pod_can_be_resized_so_that_it_schedules(build: Build) -> None:
    huge = workload(pod=template(container(9000, 128)))
    async with build(ContractCluster([huge])) as world:
        await world.wait_until_stable()
        pending = await first_pod(world)
        assert (pending.node, pending.phase) == (None, "Pending")
        assert pending.unschedulable_since is not None
        await world.port.perform(resize(pending, amounts(300)))
        await world.wait_until_stable()
        bound = await again(world, pending)
        assert bound.node is not None
        assert bound.unschedulable_since is None


async def test_a_resize_beyond_any_node_never_takes_effect(build: Build) -> None:
    async with build(ContractCluster([web()])) as world:
        await world.wait_until_stable()
        pod = await first_pod(world)
        try:
            await world.port.perform(resize(pod, amounts(100_000)))
        except RefusedError as refused:
            assert refused.cause == "NodeCapacity"
            assert (await again(world, pod)).containers[0].requests == amounts(200, 128)
        else:
            await world.wait_until_stable()
            stuck = await again(world, pod)
            assert stuck.resize.pending is ResizePending.INFEASIBLE
            assert stuck.containers[0].actual == amounts(200, 128)


@pytest.mark.parametrize(
    ("requests", "limits"),
    [
        (amounts(None, 512), StatedResources()),  # above the memory limit
        (amounts(200, 256), amounts(200, 256)),  # would make it Guaranteed
    ],
)
async def test_invalid_resize_is_refused_and_changes_nothing(
    build: Build, requests: StatedResources, limits: StatedResources
) -> None:
    async with build(ContractCluster([web()])) as world:
        await world.wait_until_stable()
        pod = await first_pod(world)
        with pytest.raises(RefusedError) as refused:
            await world.port.perform(resize(pod, requests, limits))
        assert refused.value.cause
        assert str(refused.value)
        assert (await again(world, pod)).containers == pod.containers


async def test_resize_beyond_a_limit_range_is_refused(build: Build) -> None:
    ranges = {
        NAMESPACE: (LimitRangeItem(is_for_pod=False, maximum=StatedResources(None, amounts(0, 512).memory_bytes)),)
    }
    async with build(ContractCluster([web()], limit_ranges=ranges)) as world:
        await world.wait_until_stable()
        pod = await first_pod(world)
        with pytest.raises(RefusedError):
            await world.port.perform(resize(pod, limits=amounts(None, 1024)))
        assert (await again(world, pod)).containers[0].limits == amounts(None, 256)


async def test_unknown_container_is_refused(build: Build) -> None:
    async with build(ContractCluster([web()])) as world:
        await world.wait_until_stable()
        with pytest.raises(RefusedError):
            await world.port.perform(resize(await first_pod(world), amounts(300), name="nobody"))


async def test_actions_have_the_uid_as_precondition(build: Build) -> None:
    stale = "00000000-0000-0000-0000-000000000000"
    async with build(ContractCluster([web()])) as world:
        await world.wait_until_stable()
        pod = await first_pod(world)
        for action in (replace(resize(pod, amounts(300)), uid=stale), replace(evict(pod), uid=stale)):
            with pytest.raises(ConflictError):
                await world.port.perform(action)
        assert (await again(world, pod)).containers == pod.containers
        assert not (await again(world, pod)).terminating


async def test_actions_have_the_version_as_precondition(build: Build) -> None:
    async with build(ContractCluster([web(2)])) as world:
        await world.wait_until_stable()
        first, second = await pods_of(world)
        await world.port.perform(replace(resize(first, amounts(300)), resource_version=first.resource_version))
        for late in (
            replace(resize(first, amounts(400)), resource_version=first.resource_version),
            replace(evict(first), resource_version=first.resource_version),
        ):
            with pytest.raises(ConflictError):
                await world.port.perform(late)
        await world.wait_until_stable()
        left = await again(world, first)
        assert left.containers[0].actual == amounts(300, 128)
        assert not left.terminating
        await world.port.perform(replace(evict(second), resource_version=second.resource_version))


async def test_actions_on_deleted_objects_are_not_found(build: Build) -> None:
    async with build(ContractCluster([web()])) as world:
        await world.wait_until_stable()
        gone = replace(await first_pod(world), name="nobody")
        for action in (
            resize(gone, amounts(300)),
            evict(gone),
            TaintNode("nowhere", ReasonCode.OVERLOADED),
            UntaintNode("nowhere", ReasonCode.LOAD_NORMAL),
        ):
            with pytest.raises(NotFoundError):
                await world.port.perform(action)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
async def test_evicted_pod_is_replaced(build: Build, kind: str) -> None:
    async with build(ContractCluster([web(2, kind)])) as world:
        await world.wait_until_stable()
        old = await pods_of(world)
        await world.port.perform(evict(old[0]))
        await world.wait_until_stable()
        new = await pods_of(world)
        assert len(new) == 2
        assert old[0].uid not in {pod.uid for pod in new}
        assert old[1].uid in {pod.uid for pod in new}
        assert all(pod.phase == "Running" for pod in new)
        assert (old[0].name in {pod.name for pod in new}) == (kind == "StatefulSet")


async def test_spent_disruption_budget_throttles(build: Build) -> None:
    budget = DisruptionBudgetSpec(NAMESPACE, "web", WEB, min_available=2)
    async with build(ContractCluster([web(2)], budgets=[budget])) as world:
        await world.wait_until_stable()
        (shown,) = await budgets_of(world)
        assert (shown.namespace, shown.name, shown.disruptions_allowed) == (world.namespace, "web", 0)
        pod = await first_pod(world)
        with pytest.raises(ThrottledError, match="disruption budget"):
            await world.port.perform(evict(pod))
        assert not (await again(world, pod)).terminating


async def test_budget_allows_what_it_says(build: Build) -> None:
    budget = DisruptionBudgetSpec(NAMESPACE, "web", WEB, min_available=1)
    async with build(ContractCluster([web(2)], budgets=[budget])) as world:
        await world.wait_until_stable()
        (shown,) = await budgets_of(world)
        assert shown.disruptions_allowed == 1
        first, second = await pods_of(world)
        await world.port.perform(evict(first))
        with pytest.raises(ThrottledError):
            await world.port.perform(evict(second))
        await world.wait_until_stable()
        await world.port.perform(evict(second))


async def test_pod_under_two_budgets_is_never_evicted(build: Build) -> None:
    budgets = [DisruptionBudgetSpec(NAMESPACE, name, WEB, max_unavailable=2) for name in ("one", "two")]
    async with build(ContractCluster([web(2)], budgets=budgets)) as world:
        await world.wait_until_stable()
        pod = await first_pod(world)
        with pytest.raises(RefusedError):
            await world.port.perform(evict(pod))
        assert not (await again(world, pod)).terminating


async def test_only_the_overload_taint_is_touched(build: Build) -> None:
    async with build(ContractCluster([web()], [node("n1", taints=(FOREIGN,)), node("n2")])) as world:

        async def taints() -> dict[str, set[Taint]]:
            return {one.name: set(one.taints) for one in (await world.port.snapshot()).nodes}

        n1, n2 = world.node("n1"), world.node("n2")
        for _ in range(2):  # requested twice, done once
            await world.port.perform(TaintNode(n1, ReasonCode.OVERLOADED))
            assert await taints() == {n1: {FOREIGN, OVERLOADED_TAINT}, n2: set()}
        for _ in range(2):
            await world.port.perform(UntaintNode(n1, ReasonCode.LOAD_NORMAL))
            assert await taints() == {n1: {FOREIGN}, n2: set()}


async def test_overloaded_node_gets_no_new_pods(build: Build) -> None:
    async with build(ContractCluster([web()])) as world:
        await world.wait_until_stable()
        pod = await first_pod(world)
        assert pod.node is not None
        await world.port.perform(TaintNode(pod.node, ReasonCode.OVERLOADED))
        await world.wait_until_stable()
        assert (await again(world, pod)).uid == pod.uid
        await world.port.perform(evict(pod))
        await world.wait_until_stable()
        assert (await first_pod(world)).node not in (None, pod.node)


async def test_the_cluster_ignores_the_growth_of_an_action(build: Build) -> None:
    async with build(ContractCluster([web()])) as world:
        await world.wait_until_stable()
        pod = await first_pod(world)
        await world.port.perform(replace(resize(pod, amounts(300)), growth=NO_RESOURCES, reason=ReasonCode.REVERTED))
        assert (await again(world, pod)).containers[0].requests == amounts(300, 128)


async def test_reports_a_kill_with_its_limit_and_again_to_a_new_listener(build: Build) -> None:
    demand = AdjustableDemand()
    one = workload(pod=template(LIMITED), dial=demand, grace_seconds=1)
    async with build(ContractCluster([one], compute_demand=demand)) as world:
        await world.wait_until_stable()
        pod = await first_pod(world)
        await world.exhaust_memory(pod)
        for _ in range(2):
            kill = await asyncio.wait_for(anext(aiter(world.port.watch_oom_kills())), 60)
            assert (kill.namespace, kill.pod, kill.pod_uid, kill.container) == (*key_of(pod), pod.uid, "app")
            assert (kill.workload, kill.node) == (pod.workload, pod.node)
            assert (kill.memory_request_bytes, kill.memory_limit_bytes) == (
                amounts(None, 128).memory_bytes,
                amounts(None, 256).memory_bytes,
            )
        await world.wait_until_stable()
        (killed,) = (await again(world, pod)).containers
        assert killed.restart_count == 1


def key_of(pod: Pod) -> tuple[str, str]:
    return pod.namespace, pod.name
