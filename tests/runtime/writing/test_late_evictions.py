"""An eviction without a response may happen late: every budget counts it until then."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.domain.actions import Action, ActionResult, EvictPod, ReasonCode, WriteIntent
from cruise.domain.autoscalers import ResourceQuota
from cruise.domain.packing_plan import EvictionAllowance
from cruise.errors import UnavailableError
from cruise.runtime.writing.audit import AuditQueue
from cruise.runtime.writing.evictions import BUDGET_WINDOW, LATE_ARRIVAL, EvictionBudgets, EvictionLock
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.store import InMemoryStore
from tests.runtime.writing.test_action_runner import FULL, WAITS
from tests.simulation.faults import ClusterFaults, FaultyCluster
from tests.simulation.scenes import amounts, cluster, evict, node, pods, resize, run, workload

NODE, WORKLOAD, HOUR, QUOTA = (
    ReasonCode.NODE_EVICTION_BUDGET_SPENT,
    ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT,
    ReasonCode.HOURLY_EVICTION_BUDGET_SPENT,
    ReasonCode.QUOTA_EXCEEDED,
)
# Every other budget is large, so that one alone decides.
BUDGETS = {
    NODE: replace(FULL, max_evictions_per_node=1),
    WORKLOAD: replace(FULL, max_evictions_per_workload=1),
    HOUR: replace(FULL, max_evictions_per_hour=1),
    QUOTA: FULL,
}
LEFT = ["by a former leader", "with its answer lost"]
# How old a decision may be when it is sent, and how late what was sent may be done.
LATEST = FULL.max_decision_age + LATE_ARRIVAL


class Scene:
    """Pods of one workload on one node; the eviction of the first is in transit, and no caller waits for it."""

    def __init__(self, budget: ReasonCode) -> None:
        inner = cluster(workload(replicas=3), [node(cpu=16000, mebibytes=64 * 1024)])
        run(inner, 60)
        self.world = FaultyCluster(inner, ClusterFaults())
        self.policy, self.has_quota = BUDGETS[budget], budget is QUOTA
        self.store = InMemoryStore()
        self.start()

    def start(self) -> None:
        """Begin as another process, which has nothing in memory."""
        self.writer = ClusterWriter(
            self.world, self.store, self.policy, audit=AuditQueue(), evictions=EvictionLock(), timeouts=WAITS
        )

    async def leave(self, how: str, action: EvictPod) -> None:
        """Send an eviction that has not been done yet."""
        if how == "by a former leader":
            await self.store.record_intents([WriteIntent(1, self.world.cluster.now, action)])
            return
        self.world.faults.answered_writes = 0
        with pytest.raises(UnavailableError):
            await self.apply(action)
        self.world.faults.answered_writes = float("inf")

    async def apply(self, *actions: Action) -> list[tuple[ActionResult, ReasonCode]]:
        snapshot = await self.world.snapshot()
        if self.has_quota:
            left = (ResourceQuota(amounts(9000, None)),)
            snapshot = replace(snapshot, quotas={pod.namespace: left for pod in snapshot.pods})
        outcomes = await self.writer.apply_plan(actions, snapshot, self.world.cluster.now)
        return [(one.result, one.reason) for one in outcomes]

    async def get_allowance(self) -> EvictionAllowance:
        """The rest of the budgets for a packing plan."""
        now = self.world.cluster.now
        spent = await self.store.read_evictions_since(now - BUDGET_WINDOW)
        return EvictionBudgets(await self.world.snapshot(), self.policy, now).get_allowance(spent)


@pytest.mark.parametrize("how", LEFT)
@pytest.mark.parametrize("budget", BUDGETS)
async def test_every_budget_counts_an_eviction_until_it_cannot_be_done_any_more(budget, how):
    scene = Scene(budget)
    first, second, _ = await pods(scene.world.cluster)
    await scene.leave(how, evict(first))
    # The next leader compares it with the cluster, where it is not done yet, and dies at once: one more takes over.
    scene.start()
    assert await scene.apply(evict(second)) == [(ActionResult.SKIPPED, budget)]
    scene.start()
    run(scene.world.cluster, LATEST.total_seconds() - 1)
    assert await scene.apply(evict(second)) == [(ActionResult.SKIPPED, budget)]
    run(scene.world.cluster, 2)
    # What was not done until then never will be; only the hour counts it on.
    expected = (ActionResult.SKIPPED, HOUR) if budget is HOUR else (ActionResult.DONE, evict(second).reason)
    assert await scene.apply(evict(second)) == [expected]


@pytest.mark.parametrize("how", LEFT)
async def test_a_workload_is_disrupted_once_at_a_time_whenever_the_eviction_is_done(how):
    for seconds in (0, 1, 20, 89, 149):
        scene = Scene(WORKLOAD)
        first, second, third = await pods(scene.world.cluster)
        await scene.leave(how, evict(first))
        await scene.apply(evict(second))
        run(scene.world.cluster, seconds)
        await scene.apply(evict(third))
        await scene.world.cluster.perform(evict(first))
        assert scene.world.cluster.counts.evictions == 1, (how, seconds)
        # As long as its replacement does not run, the snapshot shows it.
        assert await scene.apply(evict(second)) == [(ActionResult.SKIPPED, WORKLOAD)]


@pytest.mark.parametrize("how", LEFT)
async def test_plans_are_made_with_what_is_left_of_every_budget(how):
    for budget, policy in BUDGETS.items():
        scene = Scene(budget)
        first, second, _ = await pods(scene.world.cluster)
        await scene.leave(how, evict(first))
        scene.start()
        # Any plan compares it first.
        await scene.apply(resize(second, amounts(100, 100)))
        allowance = await scene.get_allowance()
        assert allowance.total == policy.max_evictions_per_hour - 1
        assert allowance.by_node == {"n1": policy.max_evictions_per_node - 1}
        assert set(allowance.by_workload.values()) == {policy.max_evictions_per_workload - 1}
        run(scene.world.cluster, LATEST.total_seconds() + 1)
        allowance = await scene.get_allowance()
        assert (allowance.by_node, allowance.by_workload) == ({}, {})


@pytest.mark.parametrize("budget", [NODE, WORKLOAD, QUOTA])
async def test_the_same_pod_may_be_evicted_again_at_once(budget):
    scene = Scene(budget)
    first, _, _ = await pods(scene.world.cluster)
    await scene.leave("with its answer lost", evict(first))
    assert await scene.apply(evict(first)) == [(ActionResult.DONE, evict(first).reason)]


async def test_a_second_attempt_without_an_answer_counts_from_itself_on():
    scene = Scene(HOUR)
    first, second, _ = await pods(scene.world.cluster)
    scene.policy = replace(scene.policy, max_evictions_per_hour=2)
    scene.start()
    await scene.leave("with its answer lost", evict(first))
    run(scene.world.cluster, 1800)
    await scene.leave("with its answer lost", evict(first))
    await scene.apply(resize(second, amounts(100, 100)))
    scene.start()
    since = scene.world.cluster.now - timedelta(minutes=1)
    assert [one.action for one in await scene.store.read_evictions_since(since)] == [evict(first)]


async def test_no_eviction_where_the_pod_of_a_late_one_came_back_unsized():
    scene = Scene(HOUR)
    scene.policy = FULL
    scene.start()
    first, second, _ = await pods(scene.world.cluster)
    await scene.leave("with its answer lost", evict(first))
    await scene.apply(resize(second, amounts(100, 100)))
    await scene.world.cluster.perform(evict(first))
    run(scene.world.cluster, 120)
    assert await scene.apply(evict(second)) == [(ActionResult.SKIPPED, ReasonCode.REPLACEMENT_NOT_RESIZED)]
