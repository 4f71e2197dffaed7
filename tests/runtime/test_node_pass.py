"""The node pass on small simulated clusters."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from cruise.decisions.sizing.node_plans import NodePlan
from cruise.domain.actions import ActionResult, EvictPod, ReasonCode, RefusedResize, ResizePod
from cruise.domain.annotations import Overrides
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.policy import SEED_RULES, MemoryLimitPolicy, Mode, Policy
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, ResourceName
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.domain.scheduling import LabelSelector
from cruise.domain.usage import Statistic, StatisticKey, StatisticsTable
from cruise.errors import UnavailableError
from cruise.runtime.node_pass import order_actions, plan_nodes_separately, run_node_pass
from cruise.runtime.ports import PassContext
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
from cruise.simulation.store import InMemoryStore
from tests.builders import TRACKING
from tests.simulation.faults import ClusterFaults, FaultyCluster
from tests.simulation.scenes import START, amounts, cluster, container, node, pods, resize, run, template, workload

FULL = Policy(mode=Mode.FULL, rules=TRACKING)
# By the first design a pod is evicted wherever it can go: what follows an eviction shows on one node.
SEEDS_IN_FULL = Policy(mode=Mode.FULL, rules=SEED_RULES)
NOW = int(START.timestamp())
LONG_AGO = START.replace(day=1)


def statistic(pod: Pod, cpu: int, mebibytes: int) -> Statistic:
    return Statistic(
        key=StatisticKey(pod.namespace, pod.name, str(pod.workload), "app", pod.identity),
        updated_at=NOW,
        history_since=NOW - 86400,
        cpu_base_millicores=cpu,
        cpu_peak_millicores=cpu,
        memory_base_bytes=mebibytes * MEBIBYTE,
        memory_peak_bytes=mebibytes * MEBIBYTE,
        memory_7d_max_bytes=mebibytes * MEBIBYTE,
    )


async def with_statistics(world: SimulatedCluster, cpu: int, mebibytes: int) -> InMemoryStore:
    """Return a store in which every container has the same flat demand."""
    store = InMemoryStore()
    rows = [statistic(pod, cpu, mebibytes) for pod in await pods(world)]
    await store.write_statistics(StatisticsTable.from_rows(rows))
    return store


def old_workload(**fields: Any) -> SimulatedCluster:
    return cluster(workload(created_at=START.replace(day=1), **fields))


async def test_a_pass_resizes_and_a_second_one_finds_nothing_to_do() -> None:
    world = old_workload(replicas=3)
    store = await with_statistics(world, cpu=50, mebibytes=64)
    first = await run_node_pass(PassContext(world, store, FULL, START))
    assert [outcome.result for outcome in first.outcomes] == [ActionResult.DONE] * 3
    run(world, 60)
    second = await run_node_pass(PassContext(world, store, FULL, START))
    assert second.outcomes == []
    assert all(pod.containers[0].requests.cpu_millicores == 50 for pod in await pods(world))


class ClusterWithPolicies(FaultyCluster):
    """A simulated cluster that has policy objects."""

    policies: tuple[RightsizingPolicy, ...] = ()

    async def snapshot(self) -> ClusterSnapshot:
        return replace(await super().snapshot(), rightsizing_policies=self.policies)


async def test_policies_are_kept_between_passes_until_one_changes() -> None:
    world = old_workload(replicas=3)
    store = await with_statistics(world, cpu=50, mebibytes=64)
    policed = ClusterWithPolicies(world, ClusterFaults())
    policed.policies = (RightsizingPolicy("", "all", overrides=Overrides(mode=Mode.OFF)),)
    inputs = PassContext(policed, store, FULL, START)
    first = await run_node_pass(inputs)
    second = await run_node_pass(inputs, policy_index=first.policy_index)
    assert second.policy_index is first.policy_index
    assert first.outcomes == second.outcomes == []
    policed.policies = (RightsizingPolicy("", "all", overrides=Overrides(mode=Mode.FULL)),)
    third = await run_node_pass(inputs, policy_index=second.policy_index)
    assert [outcome.result for outcome in third.outcomes] == [ActionResult.DONE] * 3


async def test_observe_decides_as_full_and_writes_nothing() -> None:
    world = old_workload(replicas=3)
    store = await with_statistics(world, cpu=50, mebibytes=64)
    seen = await run_node_pass(PassContext(world, store, Policy(), START))
    assert {outcome.result for outcome in seen.outcomes} == {ActionResult.OBSERVED}
    assert [resize.reason for plan in seen.plans for resize in plan.resize] == [ReasonCode.RIGHTSIZED] * 3
    assert world.counts.resizes_requested == 0


async def test_what_was_held_back_is_distinguished_from_what_was_skipped() -> None:
    world = old_workload(replicas=3)
    store = await with_statistics(world, cpu=50, mebibytes=3 * 1024)
    structlog.reset_defaults()
    with capture_logs() as logs:
        done = await run_node_pass(PassContext(world, store, replace(SEEDS_IN_FULL, max_evictions_per_hour=0), START))
    assert [(o.result, o.reason) for o in done.outcomes if isinstance(o.action, EvictPod)] == [
        (ActionResult.SKIPPED, ReasonCode.HOURLY_EVICTION_BUDGET_SPENT)
    ]
    (told,) = [line for line in logs if line["event"] == "node pass"]
    assert told["outcomes"]["skipped"] >= 1
    assert told["skipped"] == {}


async def test_a_pod_that_could_not_be_evicted_keeps_its_place_in_the_sums() -> None:
    world = cluster(workload(created_at=START.replace(day=1), replicas=3), [node(mebibytes=8192)])
    store = await with_statistics(world, cpu=50, mebibytes=3 * 1024)
    done = await run_node_pass(PassContext(world, store, replace(SEEDS_IN_FULL, max_evictions_per_hour=0), START))
    grown = [o for o in done.outcomes if isinstance(o.action, ResizePod) and o.result is ActionResult.DONE]
    run(world, 60)
    (figure,) = world.get_node_usage()
    assert len(grown) == 2
    assert figure.requested.fits_in(figure.allocatable)


async def test_the_order_is_shrinks_then_evictions_then_grows_over_all_nodes() -> None:
    both = [node("n1", cpu=2000), node("n2", cpu=2000)]
    world = cluster([workload(name, created_at=LONG_AGO) for name in ("a", "b", "c", "d")], both)
    store = InMemoryStore()
    uses = {"a": 900, "b": 100, "c": 900, "d": 3000}
    await store.write_statistics(
        StatisticsTable.from_rows([statistic(pod, uses[pod.labels["app"]], 512) for pod in await pods(world)])
    )
    actions = order_actions((await run_node_pass(PassContext(world, store, Policy(rules=SEED_RULES), START))).plans)
    kinds = [
        "evict" if isinstance(one, EvictPod) else "grow" if one.growth != NO_RESOURCES else "shrink"
        for one in actions
        if isinstance(one, EvictPod | ResizePod)
    ]
    assert kinds == ["shrink", "evict", "grow", "grow"]


async def test_a_grow_that_waits_for_a_shrink_is_done_by_the_next_pass() -> None:
    world = cluster(
        [
            workload("idle", template(container(3000, 512)), created_at=LONG_AGO),
            workload("busy", template(container(1000, 512)), created_at=LONG_AGO),
        ]
    )
    store = InMemoryStore()
    uses = {"idle": 500, "busy": 2500}
    rows = [statistic(pod, uses[pod.labels["app"]], 512) for pod in await pods(world)]
    await store.write_statistics(StatisticsTable.from_rows(rows))
    always = replace(FULL, memory_limits=MemoryLimitPolicy.ALWAYS)
    first = await run_node_pass(PassContext(world, store, always, world.now))
    assert [(o.result, o.reason) for o in first.outcomes] == [
        (ActionResult.DONE, ReasonCode.RIGHTSIZED),
        # The limit of the memory is written now, the CPU has no room yet.
        (ActionResult.DONE, ReasonCode.RIGHTSIZED),
    ]
    assert first.outcomes[1].detail == ReasonDetailCode.GROWTH_PENDING
    run(world, 300)
    await run_node_pass(PassContext(world, store, FULL, world.now))
    run(world, 60)
    assert {pod.labels["app"]: pod.containers[0].requests.cpu_millicores for pod in await pods(world)} == uses
    assert (await run_node_pass(PassContext(world, store, FULL, world.now))).outcomes == []


async def test_an_infeasible_resize_is_withdrawn_once_and_not_tried_again() -> None:
    world = old_workload()
    store = await with_statistics(world, cpu=50, mebibytes=64)
    [pod] = await pods(world)
    await world.perform(resize(pod, amounts(9000, 512)))
    run(world, 10)
    first = await run_node_pass(PassContext(world, store, FULL, world.now))
    assert [(o.result, o.reason) for o in first.outcomes] == [(ActionResult.DONE, ReasonCode.WITHDRAWN)]
    run(world, 10)
    [back] = await pods(world)
    assert back.containers[0].requests == amounts(500, 512)
    # A smaller resize than the refused one is sent; an equal one is not.
    second = await run_node_pass(PassContext(world, store, FULL, world.now))
    assert [(o.result, o.reason) for o in second.outcomes] == [(ActionResult.DONE, ReasonCode.RIGHTSIZED)]
    run(world, 10)
    [known] = (await store.read_refused_resizes()).values()
    assert known.containers[0].requests.cpu_millicores == 9000


async def test_what_is_known_to_be_refused_is_not_tried_again() -> None:
    world = old_workload()
    store = await with_statistics(world, cpu=900, mebibytes=900)
    observed = await run_node_pass(PassContext(world, store, Policy(), START))
    [wanted] = [one for plan in observed.plans for one in plan.resize]
    await store.record_refused_resizes(
        [RefusedResize(wanted.uid, wanted.containers, ReasonCode.RESIZE_INFEASIBLE, START)]
    )
    done = await run_node_pass(PassContext(world, store, FULL, START))
    assert done.outcomes == []
    assert [hold.reason for plan in done.plans for hold in plan.skipped] == [ReasonCode.RESIZE_REFUSED]


async def test_paused_workloads_and_pods_without_statistics_are_skipped() -> None:
    world = cluster([workload(name, created_at=LONG_AGO) for name in ("a", "b")])
    store = InMemoryStore()
    await store.write_statistics(StatisticsTable.from_rows([statistic(pod, 50, 64) for pod in await pods(world, "a")]))
    [pod] = await pods(world, "a")
    assert pod.workload is not None
    await store.write_workload_pause("shop", pod.workload, START)
    done = await run_node_pass(PassContext(world, store, FULL, START))
    assert {hold.reason for plan in done.plans for hold in plan.skipped} == {
        ReasonCode.NO_STATISTICS,
        ReasonCode.MODE_OBSERVE,
    }
    assert [pod.containers[0].requests.cpu_millicores for pod in await pods(world)] == [500, 500]


async def test_stale_statistics_change_nothing() -> None:
    world = old_workload(replicas=3)
    store = await with_statistics(world, cpu=50, mebibytes=64)
    late = await run_node_pass(PassContext(world, store, FULL, START + FULL.max_age + timedelta(seconds=1)))
    assert late.outcomes == []
    assert {hold.reason for plan in late.plans for hold in plan.skipped} == {ReasonCode.STALE_STATISTICS}


async def test_a_budget_that_refuses_leaves_the_pod_and_the_sums_as_they_are() -> None:
    budget = DisruptionBudgetSpec("shop", "all", LabelSelector(), min_available=3)
    world = cluster(workload(created_at=LONG_AGO, replicas=3), [node(mebibytes=8192)], budgets=[budget])
    store = await with_statistics(world, cpu=50, mebibytes=3 * 1024)
    done = await run_node_pass(PassContext(world, store, SEEDS_IN_FULL, START))
    assert (ActionResult.REFUSED, ReasonCode.POD_DISRUPTION_BUDGET) in [(o.result, o.reason) for o in done.outcomes]
    # The next pass skips the pod, and knows that the node was short.
    refused = {o.action.uid for o in done.outcomes if isinstance(o.action, EvictPod)}
    assert (done.for_next_pass.eviction_pressure, done.for_next_pass.refused_evictions) == (
        frozenset({("n1", ResourceName.MEMORY)}),
        frozenset(refused),
    )
    assert len(refused) == 1
    run(world, 60)
    (figure,) = world.get_node_usage()
    assert len(await pods(world)) == 3
    assert figure.requested.fits_in(figure.allocatable)


async def test_a_cluster_out_of_reach_drops_the_pass() -> None:
    class OutOfReach(SimulatedCluster):
        async def snapshot(self) -> ClusterSnapshot:
            raise UnavailableError("no route to host")

    world = OutOfReach([node()], [workload()], START)
    store = InMemoryStore()
    with pytest.raises(UnavailableError):
        await run_node_pass(PassContext(world, store, FULL, START))
    assert await store.read_outcomes(START) == []


async def test_a_pod_too_large_for_every_node_is_shrunk_where_it_waits_and_bound() -> None:
    world = old_workload(pod=template(container(5000, 512)), replicas=1)
    run(world, 60)
    [waiting] = await pods(world)
    assert waiting.node is None
    store = InMemoryStore()
    await store.write_statistics(
        StatisticsTable.from_rows([statistic(replace(waiting, name="", identity=""), cpu=300, mebibytes=256)])
    )
    done = await run_node_pass(PassContext(world, store, replace(FULL, mode=Mode.RESIZE), START))
    assert [outcome.result for outcome in done.outcomes] == [ActionResult.DONE]
    run(world, 60)
    [bound] = await pods(world)
    assert (bound.name, bound.node) == (waiting.name, "n1")
    assert bound.containers[0].requests == amounts(300, 256)


async def test_an_undecodable_node_is_omitted_and_the_others_are_sized() -> None:
    world = cluster([workload(name, created_at=LONG_AGO) for name in "abcdefgh"], [node(f"n{i}") for i in range(5)])
    store = await with_statistics(world, cpu=50, mebibytes=64)
    sound = await world.snapshot()
    # A value that no decoder accepts.
    odd = replace(sound.nodes[2], allocatable=None)  # type: ignore[arg-type]

    class Odd(FaultyCluster):
        async def snapshot(self) -> ClusterSnapshot:
            seen = await super().snapshot()
            return replace(seen, nodes=(*seen.nodes[:2], odd, *seen.nodes[3:]))

    structlog.reset_defaults()
    with capture_logs() as logs:
        done = await run_node_pass(PassContext(Odd(world, ClusterFaults()), store, FULL, START))
    assert [plan.node for plan in done.plans] == ["n0", "n1", "n3", "n4"]
    left = {pod.name for pod in sound.pods if pod.node == odd.name}
    assert left
    resized = {one.action.pod for one in done.outcomes if isinstance(one.action, ResizePod)}
    assert resized == {pod.name for pod in sound.pods} - left
    assert [line["nodes"] for line in logs if line["event"] == "node skipped"] == [["n2"]]


def test_a_mistake_that_is_no_nodes_fault_is_raised() -> None:
    def decide(nodes: frozenset[str]) -> list[NodePlan]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        plan_nodes_separately(decide, [f"n{number}" for number in range(5000)])
    assert plan_nodes_separately(lambda nodes: [], []) == []


async def test_nothing_is_done_on_a_node_that_is_not_ready() -> None:
    world = cluster(
        [workload("a", created_at=LONG_AGO), workload("b", created_at=LONG_AGO)],
        [node("n1", ready=False), node("n2")],
    )
    store = await with_statistics(world, cpu=50, mebibytes=64)
    there = [pod.name for pod in await pods(world) if pod.node == "n1"]
    done = await run_node_pass(PassContext(world, store, FULL, START))
    assert {(hold.pod, hold.reason) for plan in done.plans for hold in plan.skipped} == {
        (name, ReasonCode.NODE_NOT_READY) for name in there
    }
    assert len(done.outcomes) == 2 - len(there)
