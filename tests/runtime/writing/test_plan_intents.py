"""Writes are recorded before they are sent, and open ones are compared with the cluster."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.domain.actions import (
    Action,
    ActionResult,
    EvictPod,
    Outcome,
    ReasonCode,
    TaintNode,
    UntaintNode,
    WriteIntent,
)
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.scheduling import OVERLOADED_TAINT
from cruise.errors import DatabaseRestoredError, UnavailableError
from cruise.runtime.writing.api_answers import WriteTimeouts
from cruise.runtime.writing.audit import RECONCILED_DONE, RECONCILED_NOT_DONE, AuditQueue
from cruise.runtime.writing.evictions import LATE_ARRIVAL, EvictionLock
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.store import InMemoryStore
from tests.runtime.writing.test_action_runner import FULL, many, shrink
from tests.simulation.faults import ClusterFaults, FaultyCluster
from tests.simulation.scenes import (
    START,
    amounts,
    cluster,
    evict,
    node,
    only_pod,
    pods,
    resize,
    resources,
    run,
    workload,
)

WAITS = WriteTimeouts(poll=0.005, response=0.05)


async def applied(world: FaultyCluster, actions: Sequence[Action], store: InMemoryStore, policy=FULL) -> list[Outcome]:
    """Apply a plan as a process that has nothing in memory."""
    return await ClusterWriter(world, store, policy, timeouts=WAITS).apply_plan(
        actions, await world.snapshot(), world.cluster.now
    )


def told(lines: Sequence[Outcome]) -> list[tuple[ActionResult, str, Action]]:
    return [(line.result, line.detail, line.action) for line in lines]


class ReadOnly(InMemoryStore):
    """A store that can be read and not written to, as a standby is and a database on a full disk."""

    async def record_intents(self, intents) -> None:
        raise UnavailableError("cannot execute INSERT in a read-only transaction")

    async def record_outcomes(self, outcomes: Sequence[Outcome], completed: Collection[int] = ()) -> None:
        if outcomes or completed:
            raise UnavailableError("cannot execute INSERT in a read-only transaction")


class Watching(InMemoryStore):
    """A store that keeps how many writes were begun with each statement."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[list[Action]] = []

    async def record_intents(self, intents) -> None:
        self.begun.append([one.action for one in intents])
        await super().record_intents(intents)


# ---- before a write is sent ----


async def test_every_write_is_on_record_when_it_is_sent_and_none_is_open_afterwards():
    class Checking(FaultyCluster):
        async def perform(self, action: Action) -> None:
            assert action in [one.action for one in await store.read_open_intents()]
            await super().perform(action)

    store = InMemoryStore()
    world = Checking(cluster(workload(replicas=4)), ClusterFaults())
    first, second, third, fourth = await pods(world.cluster)
    grown = replace(resize(third, amounts(300, 300)), growth=resources(10, 10))
    actions: list[Action] = [
        shrink(first),
        evict(second),
        grown,
        shrink(fourth),
        TaintNode("n1", ReasonCode.OVERLOADED),
    ]
    outcomes = await applied(world, actions, store)
    assert [one.result for one in outcomes] == [ActionResult.DONE] * 5
    assert len(world.faults.sent) == 5
    assert await store.read_open_intents() == []


async def test_writes_of_a_large_plan_are_recorded_together():
    world, store = many(1200), Watching()
    actions = [shrink(pod) for pod in await pods(world.cluster)]
    await applied(world, actions, store)
    assert [len(batch) for batch in store.begun] == [500, 500, 200]
    assert {one for batch in store.begun for one in batch} == set(actions)


async def test_evictions_are_recorded_one_by_one_since_they_spend_budgets():
    world, store = many(5), Watching()
    actions = [evict(pod) for pod in await pods(world.cluster)]
    outcomes = await applied(world, actions, store, replace(FULL, max_evictions_per_hour=2))
    assert store.begun == [[actions[0]], [actions[1]]]
    assert [one.reason for one in outcomes[2:]] == [ReasonCode.HOURLY_EVICTION_BUDGET_SPENT] * 3


@pytest.mark.parametrize("kind", ["shrink", "evict", "taint"])
async def test_without_a_writable_store_nothing_is_written(kind):
    world, store = many(3), ReadOnly()
    first = (await pods(world.cluster))[0]
    actions: dict[str, Action] = {
        "shrink": shrink(first),
        "evict": evict(first),
        "taint": TaintNode("n1", ReasonCode.OVERLOADED),
    }
    with pytest.raises(UnavailableError, match="read-only"):
        await applied(world, [actions[kind]], store)
    assert world.faults.sent == []


async def test_a_taint_is_taken_off_without_a_store():
    world = many(1)
    await world.cluster.perform(TaintNode("n1", ReasonCode.OVERLOADED))
    with pytest.raises(UnavailableError):
        await applied(world, [UntaintNode("n1", ReasonCode.LOAD_NORMAL)], ReadOnly())
    [one] = (await world.snapshot()).nodes
    assert OVERLOADED_TAINT not in one.taints


async def test_a_plan_given_up_leaves_nothing_open_that_was_not_sent():
    world, store = many(40, write_seconds=0.01), InMemoryStore()
    plan = asyncio.ensure_future(applied(world, [shrink(pod) for pod in await pods(world.cluster)], store))
    while not world.faults.sent:
        await asyncio.sleep(0.001)
    plan.cancel()
    with pytest.raises(asyncio.CancelledError):
        await plan
    assert await store.read_open_intents() == []
    assert {line.action for line in await store.read_outcomes(START)} == set(world.faults.sent)


# ---- what was left open ----


class Killed(InMemoryStore):
    """The store of a process that is killed before it can record an outcome."""

    dead = False

    async def record_outcomes(self, outcomes: Sequence[Outcome], completed: Collection[int] = ()) -> None:
        if not self.dead:
            await super().record_outcomes(outcomes, completed)
        elif outcomes or completed:
            raise UnavailableError("killed")


@pytest.mark.parametrize("all_the_same", [True, False], ids=["done", "not done"])
async def test_an_eviction_whose_process_was_killed_counts_against_the_hour(all_the_same):
    world, store = many(6), Killed()
    policy = replace(FULL, max_evictions_per_hour=2)
    sent: list[Action] = []
    for victim in (await pods(world.cluster))[:5]:
        world.faults = ClusterFaults(answered_writes=0, all_the_same=all_the_same, write_seconds=0.02)
        await killed(world, evict(victim), store, policy)
        sent += world.faults.sent
    assert len(sent) == 2


async def killed(world: FaultyCluster, action: Action, store: Killed, policy) -> None:
    """Apply an action in a process that is killed as soon as it is sent; the store lives on."""
    store.dead = False
    applying = asyncio.ensure_future(applied(world, [action], store, policy))
    while not world.faults.sent and not applying.done():
        await asyncio.sleep(0.001)
    store.dead = not applying.done()
    with suppress(UnavailableError):
        await applying
    store.dead = False


async def test_a_new_leader_looks_at_what_is_open_before_its_first_write():
    world, store = FaultyCluster(cluster(workload(replicas=6)), ClusterFaults()), InMemoryStore()
    resized, untouched, evicted, alive, last, _ = await pods(world.cluster)
    left: list[Action] = [
        shrink(resized),
        shrink(untouched),
        evict(evicted),
        evict(alive),
        TaintNode("n1", ReasonCode.OVERLOADED),
    ]
    at = world.cluster.now - timedelta(minutes=1)
    before = dict(zip(left, map(get_spec_targets, (resized, untouched)), strict=False))
    await store.record_intents([WriteIntent(n, at, one, before.get(one, ())) for n, one in enumerate(left)])
    for one in (left[0], left[2]):
        await world.cluster.perform(one)
    await applied(world, [shrink(last)], store)
    lines = {line.action: line for line in await store.read_outcomes(START - timedelta(hours=1))}
    assert told([lines[one] for one in left]) == [
        (ActionResult.DONE, RECONCILED_DONE, left[0]),
        (ActionResult.FAILED, RECONCILED_NOT_DONE, left[1]),
        (ActionResult.DONE, RECONCILED_DONE, left[2]),
        (ActionResult.FAILED, RECONCILED_NOT_DONE, left[3]),
        (ActionResult.FAILED, RECONCILED_NOT_DONE, left[4]),
    ]
    assert {lines[one].at for one in left} == {at}
    assert await store.read_open_intents() == []
    assert {one.action for one in await store.read_evictions_since(at)} == {left[2], left[3]}


async def test_nothing_is_written_before_what_is_open_could_be_looked_at():
    class Unreadable(FaultyCluster):
        async def read_pod(self, namespace: str, name: str):
            raise UnavailableError("no answer in 10 s")

    world, store = Unreadable(cluster(workload(replicas=2)), ClusterFaults()), InMemoryStore()
    first, second = await pods(world.cluster)
    await store.record_intents([WriteIntent(1, START, evict(first))])
    with pytest.raises(UnavailableError):
        await applied(world, [shrink(second)], store)
    assert world.faults.sent == []


@pytest.mark.parametrize("all_the_same", [True, False], ids=["done", "not done"])
async def test_a_lost_answer_is_looked_up_by_the_next_plan_of_the_same_process(all_the_same):
    world = FaultyCluster(cluster(workload(replicas=2)), ClusterFaults(answered_writes=0, all_the_same=all_the_same))
    store, audit = InMemoryStore(), AuditQueue()
    writer = ClusterWriter(world, store, FULL, audit=audit, evictions=EvictionLock(), timeouts=WAITS)
    first, second = await pods(world.cluster)
    with pytest.raises(UnavailableError):
        await writer.apply_plan([evict(first)], await world.snapshot(), START)
    assert [one.result for one in await store.read_outcomes(START)] == [ActionResult.FAILED]
    assert len(await store.read_open_intents()) == 1
    world.faults.answered_writes = 9
    await writer.apply_plan([shrink(second)], await world.snapshot(), START)
    verdicts = [one.result for one in await store.read_outcomes(START) if isinstance(one.action, EvictPod)]
    assert verdicts == ([ActionResult.DONE] if all_the_same else []) + [ActionResult.FAILED]
    assert await store.read_open_intents() == []


async def test_a_lost_answer_is_looked_up_by_a_plan_that_has_nothing_to_do():
    world = FaultyCluster(cluster(workload()), ClusterFaults(answered_writes=0, all_the_same=True))
    store, audit = InMemoryStore(), AuditQueue()
    writer = ClusterWriter(world, store, FULL, audit=audit, timeouts=WAITS)
    pod = await only_pod(world.cluster)
    with pytest.raises(UnavailableError):
        await writer.apply_plan([shrink(pod)], await world.snapshot(), START)
    world.faults.answered_writes = 9
    assert await writer.apply_plan([], await world.snapshot(), START) == []
    assert (await store.read_open_intents(), audit.open_intents) == ([], 0)
    assert {one.result for one in await store.read_outcomes(START)} == {ActionResult.FAILED, ActionResult.DONE}
    assert len(world.faults.sent) == 1


async def test_what_former_leaders_left_open_is_looked_up_by_the_first_plan_though_it_has_nothing_to_do():
    world, store, audit = FaultyCluster(cluster(workload()), ClusterFaults()), InMemoryStore(), AuditQueue()
    pod = await only_pod(world.cluster)
    await store.record_intents([WriteIntent(1, START, shrink(pod), get_spec_targets(pod))])
    audit.expect_unknown_intents()
    writer = ClusterWriter(world, store, FULL, audit=audit, timeouts=WAITS)
    for _ in range(2):
        assert await writer.apply_plan([], await world.snapshot(), START) == []
        assert (await store.read_open_intents(), audit.has_unresolved) == ([], False)


class LosingAnswer(InMemoryStore):
    """A store whose answer to the first intents is lost after they are stored."""

    is_lost = False

    async def record_intents(self, intents: Sequence[WriteIntent]) -> None:
        await super().record_intents(intents)
        if not self.is_lost:
            self.is_lost = True
            raise UnavailableError("the connection was closed during the commit")


async def test_intents_that_were_stored_without_an_answer_are_closed_by_a_plan_that_has_nothing_to_do():
    world, store = FaultyCluster(cluster(workload(), [node()]), ClusterFaults()), LosingAnswer()
    writer = ClusterWriter(world, store, FULL, timeouts=WAITS)
    pod = await only_pod(world.cluster)
    with pytest.raises(UnavailableError):
        await writer.apply_plan([shrink(pod)], await world.snapshot(), START)
    assert world.faults.sent == []
    assert len(await store.read_open_intents()) == 1
    await writer.apply_plan([], await world.snapshot(), START)
    assert await store.read_open_intents() == []
    assert [one.result for one in await store.read_outcomes(START)] == [ActionResult.FAILED]


async def test_what_another_plan_of_the_process_has_under_way_is_left_to_it():
    world, store, audit = many(3, write_seconds=0.2), InMemoryStore(), AuditQueue()
    writer = ClusterWriter(world, store, FULL, audit=audit, timeouts=WAITS)
    first, second, _ = await pods(world.cluster)
    slow = asyncio.ensure_future(writer.apply_plan([shrink(first)], await world.snapshot(), START))
    while not world.faults.sent:
        await asyncio.sleep(0.001)
    await writer.apply_plan([shrink(second)], await world.snapshot(), START)
    await slow
    assert [(one.result, one.detail) for one in await store.read_outcomes(START)] == [(ActionResult.DONE, "")] * 2


async def test_a_part_of_a_resize_is_found_to_be_done():
    world, store = FaultyCluster(cluster(workload()), ClusterFaults()), InMemoryStore()
    pod = await only_pod(world.cluster)
    whole = resize(pod, amounts(50, 50))
    await store.record_intents([WriteIntent(1, START, whole, get_spec_targets(pod))])
    await world.cluster.perform(resize(pod, amounts(50, None)))
    await applied(world, [TaintNode("n1", ReasonCode.OVERLOADED)], store)
    assert [one.result for one in await store.read_outcomes(START) if one.action == whole] == [ActionResult.DONE]


@pytest.mark.parametrize(
    ("minutes", "verdict"), [(0, ActionResult.SKIPPED), (59, ActionResult.SKIPPED), (60, ActionResult.DONE)]
)
async def test_no_pod_is_evicted_within_an_hour_of_evictions_that_the_database_has_lost(minutes, verdict):
    world = FaultyCluster(cluster(workload()), ClusterFaults())
    [pod] = await pods(world.cluster)
    turns = EvictionLock()
    lost_at = int((world.cluster.now - timedelta(minutes=minutes)).timestamp())
    turns.lost_until = lambda: lost_at
    writer = ClusterWriter(world, InMemoryStore(), FULL, timeouts=WAITS, evictions=turns)
    [outcome] = await writer.apply_plan([evict(pod)], await world.snapshot(), world.cluster.now)
    assert outcome.result is verdict
    assert outcome.reason is (ReasonCode.HISTORY_INCOMPLETE if verdict is ActionResult.SKIPPED else evict(pod).reason)


async def test_a_store_at_an_earlier_state_begins_no_write():
    world = FaultyCluster(cluster(workload(replicas=2)), ClusterFaults())
    first, second = await pods(world.cluster)
    store = InMemoryStore()
    store.expect_epoch(7)
    with pytest.raises(DatabaseRestoredError):
        await applied(world, [shrink(first), evict(second)], store)
    assert world.faults.sent == []


async def test_capacity_of_a_write_that_may_arrive_late_is_not_given_to_another_pod():
    world, store = FaultyCluster(cluster(workload(replicas=2), [node(cpu=1600)]), ClusterFaults()), InMemoryStore()
    first, second = await pods(world.cluster)
    late, other = (replace(resize(pod, amounts(900, 512)), growth=resources(400, 0)) for pod in (first, second))
    # A former leader has sent the first, which arrives when the next has compared it with the cluster.
    await store.record_intents([WriteIntent(1, START, late, get_spec_targets(first))])
    [outcome] = await applied(world, [other], store)
    assert (outcome.result, outcome.reason) == (ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY)
    await world.cluster.perform(late)
    # Once a snapshot shows it, or after a minute and a half, only what it really takes is counted.
    assert [line.result for line in await store.read_outcomes(START) if line.action == late] == [ActionResult.FAILED]


async def test_capacity_of_a_late_write_is_reserved_by_every_later_leader():
    world, store = FaultyCluster(cluster(workload(replicas=2), [node(cpu=1600)]), ClusterFaults()), InMemoryStore()
    first, second = await pods(world.cluster)
    late, other = (replace(resize(pod, amounts(900, 512)), growth=resources(400, 0)) for pod in (first, second))
    await store.record_intents([WriteIntent(1, world.cluster.now, late, get_spec_targets(first))])
    # Each one compares what is open with the cluster and is killed; the last one has nothing to compare.
    for _ in range(3):
        [outcome] = await applied(world, [other], store)
        assert (outcome.result, outcome.reason) == (ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY)
    run(world.cluster, (FULL.max_decision_age + LATE_ARRIVAL).total_seconds() + 1)
    [outcome] = await applied(world, [other], store)
    assert outcome.result is ActionResult.DONE


async def test_capacity_of_a_late_write_is_what_it_needs_now_and_not_when_it_was_decided():
    world, store = FaultyCluster(cluster(workload(replicas=2), [node(cpu=1600)]), ClusterFaults()), InMemoryStore()
    first, second = await pods(world.cluster)
    # Decided while the kubelet still counted more for the pod, so it took nothing.
    late = resize(first, amounts(900, 512))
    await store.record_intents([WriteIntent(1, world.cluster.now, late, get_spec_targets(first))])
    [outcome] = await applied(world, [replace(resize(second, amounts(900, 512)), growth=resources(400, 0))], store)
    assert (outcome.result, outcome.reason) == (ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY)


async def test_no_intent_is_recorded_for_what_was_held_back_before():
    world, store = FaultyCluster(cluster(workload(replicas=3), [node(cpu=1600)]), ClusterFaults()), Watching()
    first, second, third = await pods(world.cluster)
    # The first does not fit, the other two do.
    sizes = ((first, 400), (second, 40), (third, 40))
    actions = [replace(resize(pod, amounts(500 + more, 512)), growth=resources(more, 0)) for pod, more in sizes]
    outcomes = await applied(world, actions, store)
    assert [one.result for one in outcomes] == [ActionResult.SKIPPED, ActionResult.DONE, ActionResult.DONE]
    assert store.begun == [actions[1:]]


async def test_an_eviction_is_held_back_when_a_loss_is_noticed_after_its_budget_was_read():
    class WentBack(InMemoryStore):
        async def record_intents(self, intents) -> None:
            await super().record_intents(intents)
            # A usage pass has found the database at an earlier state, and has put that on record.
            turns.lost_until = lambda: int(world.cluster.now.timestamp())

    world, turns = FaultyCluster(cluster(workload()), ClusterFaults()), EvictionLock()
    [pod] = await pods(world.cluster)
    store = WentBack()
    writer = ClusterWriter(world, store, FULL, timeouts=WAITS, evictions=turns)
    [outcome] = await writer.apply_plan([evict(pod)], await world.snapshot(), world.cluster.now)
    assert (outcome.result, outcome.reason) == (ActionResult.SKIPPED, ReasonCode.HISTORY_INCOMPLETE)
    assert world.faults.sent == []
    assert await store.read_open_intents() == []
