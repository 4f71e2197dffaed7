"""A decision is written while it is recent, and a shrink only if pod and usage are unchanged."""

import asyncio
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.domain.actions import Action, ActionResult, ReasonCode, ResizePod, TaintNode, UntaintNode
from cruise.domain.autoscalers import UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import HorizontalPodAutoscaler, Pod
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable
from cruise.errors import UnavailableError
from cruise.runtime.writing.api_answers import WriteTimeouts
from cruise.runtime.writing.evictions import PendingGrowths
from cruise.simulation.store import InMemoryStore
from tests.builders import make_statistic_for, make_table
from tests.runtime.writing.test_writer import applied, sized, told
from tests.simulation.faults import ClusterFaults, FaultyCluster
from tests.simulation.scenes import amounts, cluster, evict, only_pod, pods, resize, resources, workload

FULL = Policy(mode=Mode.FULL, max_evictions_per_node=9, max_evictions_per_workload=9, max_evictions_per_hour=99)
STALE, WRITTEN = (ActionResult.SKIPPED, ReasonCode.STALE_DECISION), (ActionResult.DONE, ReasonCode.RIGHTSIZED)


def grow(pod: Pod) -> ResizePod:
    return replace(resize(pod, amounts(600, 600)), growth=resources(100, 0))


@pytest.mark.parametrize(("age_seconds", "is_written"), [(59, True), (61, False)])
async def test_a_decision_is_written_for_a_minute(age_seconds, is_written):
    world = cluster(workload(replicas=3))
    first, second, third = await pods(world)
    snapshot = replace(await world.snapshot(), taken_at=time.monotonic() - age_seconds)
    outcomes = await applied(world, [sized(first, 100, 100), evict(second), grow(third)], FULL, snapshot=snapshot)
    assert [outcome.result is ActionResult.DONE for outcome in outcomes] == [is_written] * 3
    if not is_written:
        assert told(outcomes) == [STALE] * 3
        assert world.counts.resizes_requested == world.counts.evictions == 0


async def test_a_plan_that_takes_too_long_continues_in_the_next_pass():
    world = FaultyCluster(cluster(workload(replicas=12)), ClusterFaults())
    actions = [sized(pod, 100, 100) for pod in await pods(world.cluster)]
    store = InMemoryStore()
    # Each write takes a quarter of the time that a decision holds.
    growths = PendingGrowths(lambda: time.monotonic() + 15 * len(world.faults.sent))
    outcomes = await applied(world, actions, FULL, store, writing={"concurrent": 1, "growths": growths})
    assert set(told(outcomes)) == {STALE, WRITTEN}
    assert told(outcomes) == sorted(told(outcomes), key=lambda one: one == STALE)
    # What was not tried is no line of the audit: it would be one for each pod that is left.
    assert {one.reason for one in await store.read_outcomes(outcomes[0].at)} == {ReasonCode.RIGHTSIZED}


async def test_a_decision_that_becomes_too_old_while_its_write_waits_for_the_rate_limit_is_not_written():
    world = FaultyCluster(cluster(workload(replicas=3)), ClusterFaults(turn_seconds=0.3))
    first, second, third = await pods(world.cluster)
    policy = replace(FULL, max_decision_age=timedelta(seconds=0.25))
    assert told(await applied(world, [sized(first, 100, 100), evict(second), grow(third)], policy)) == [STALE] * 3
    assert world.faults.sent == []


class LateStore(InMemoryStore):
    """A store whose answers arrive so late that a pause in them is already in effect."""

    async def is_paused(self) -> bool:
        await asyncio.sleep(0.05)
        return await super().is_paused()


async def test_if_all_answers_are_too_late_the_plan_ends():
    world = cluster(workload(replicas=1))
    timeouts = WriteTimeouts(poll=0.01, pause_check=0.3)
    with pytest.raises(UnavailableError, match="does not answer in time"):
        await asyncio.wait_for(
            applied(world, [sized(await only_pod(world), 100, 100)], FULL, LateStore(), writing={"timeouts": timeouts}),
            20,
        )
    assert world.counts.resizes_requested == 0


async def test_a_taint_is_not_decided_on_old_loads_either():
    world = cluster(workload())
    snapshot = replace(await world.snapshot(), taken_at=time.monotonic() - 61)
    actions: list[Action] = [TaintNode("n1", ReasonCode.OVERLOADED), UntaintNode("n1", ReasonCode.LOAD_NORMAL)]
    assert told(await applied(world, actions, FULL, snapshot=snapshot)) == [STALE] * 2


# ---- shrinks ----


async def test_a_shrink_of_a_pod_that_changed_meanwhile_is_not_sent():
    world = FaultyCluster(cluster(workload(replicas=3)), ClusterFaults())
    first, second, third = await pods(world.cluster)
    snapshot = await world.snapshot()
    # Another client resizes one and evicts another; no watch event is waited for.
    await world.cluster.perform(grow(first))
    await world.cluster.perform(evict(second))
    actions = [sized(pod, 100, 100) for pod in (first, second, third)]
    outcomes = await applied(world, actions, FULL, snapshot=snapshot)
    held = [(ActionResult.SKIPPED, ReasonCode.CHANGED), (ActionResult.SKIPPED, ReasonCode.NOT_FOUND)]
    assert told(outcomes) == [*held, WRITTEN]
    # Without a request to the API server.
    assert world.faults.read == []


def table(pod: Pod, cpu: int, mebibytes: int) -> StatisticsTable:
    return make_table(make_statistic_for(pod, cpu_base=cpu, memory_base_mib=mebibytes))


@pytest.mark.parametrize(
    ("cpu", "mebibytes", "is_written"), [(90, 90, True), (100, 100, True), (101, 90, False), (90, 101, False)]
)
async def test_a_shrink_below_the_usage_of_the_latest_usage_pass_is_not_sent(cpu, mebibytes, is_written):
    world = cluster(workload())
    pod = await only_pod(world)
    latest = table(pod, cpu, mebibytes)
    outcomes = await applied(
        world, [sized(pod, 100, 100)], FULL, statistics=table(pod, 90, 90), writing={"latest": lambda: latest}
    )
    assert told(outcomes) == [WRITTEN if is_written else (ActionResult.SKIPPED, ReasonCode.USAGE_INCREASED)]


async def test_a_size_decided_below_usage_is_written_despite_the_same_usage():
    world = cluster(workload())
    pod = await only_pod(world)
    # As by a maximum of the owner's; the usage pass has run once more since, with the same result.
    outcomes = await applied(
        world,
        [sized(pod, 80, 80)],
        FULL,
        statistics=table(pod, 90, 90),
        writing={"latest": lambda: table(pod, 90, 90)},
    )
    assert told(outcomes) == [WRITTEN]


@pytest.mark.parametrize("growth", [False, True])
async def test_a_request_on_which_an_hpa_acts_is_not_written_once_that_hpa_changed(growth):
    world = cluster(workload())
    pod = await only_pod(world)
    assert pod.workload is not None
    scaling = UtilizationScaling((UtilizationMetric(ResourceName.CPU, "", 50, 50),), 1, 6, 1, 1, True)
    hpa = HorizontalPodAutoscaler(pod.namespace, "web", pod.workload, frozenset({ResourceName.CPU}), "", scaling)
    snapshot = replace(await world.snapshot(), autoscalers=(hpa,))
    # The cluster has no such HPA any more.
    action = grow(pod) if growth else sized(pod, 100, 100)
    outcomes = await applied(world, [action], FULL, snapshot=snapshot)
    assert told(outcomes) == [(ActionResult.SKIPPED, ReasonCode.HPA_CHANGED)]
    requested = pod.containers[0].requests.resources.cpu_millicores
    outcomes = await applied(world, [sized(pod, requested, 100)], FULL, snapshot=snapshot)
    assert told(outcomes) == [WRITTEN]
