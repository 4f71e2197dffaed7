"""The OOM reactor on small simulated clusters."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pytest

from cruise.decisions.oom import OomContext, build_oom_record, decide_oom_reaction
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.usage.oom_records import raise_oom_memory_by_record, summarize_oom_records
from cruise.domain.actions import Action, ActionResult, EvictPod, Outcome, ReasonCode, ResizePod, SkippedPod
from cruise.domain.cluster import ContainerRole, OomKill, Pod
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import OomRecord, Statistic, StatisticKey, StatisticsTable
from cruise.errors import CruiseError, UnavailableError
from cruise.runtime.oom import OomReactionResult, OomReactor, restrict_snapshot_to_kill
from cruise.runtime.writing.evictions import WriteExclusions
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.store import InMemoryStore
from tests.event_loop_time import advance_loop_time
from tests.simulation.faults import ClusterFaults, FaultyCluster
from tests.simulation.scenes import (
    START,
    AdjustableDemand,
    amounts,
    cluster,
    container,
    evict,
    node,
    only_pod,
    pods,
    resize,
    run,
    template,
    workload,
)

FULL = Policy(mode=Mode.FULL)
LONG_AGO = START - timedelta(days=30)


def statistic(
    pod: Pod, at: datetime, of_workload: bool = False, name: str = "app", oom_mebibytes: int = 0
) -> Statistic:
    return Statistic(
        key=StatisticKey(pod.namespace, "" if of_workload else pod.name, str(pod.workload), name, pod.identity),
        updated_at=int(at.timestamp()),
        history_since=int(LONG_AGO.timestamp()),
        cpu_base_millicores=100,
        cpu_peak_millicores=200,
        memory_base_bytes=100 * MEBIBYTE,
        memory_peak_bytes=350 * MEBIBYTE,
        memory_7d_max_bytes=360 * MEBIBYTE,
        oom_memory_bytes=oom_mebibytes * MEBIBYTE,
    )


def leaking(
    mebibytes: int = 600, limit: int | None = 512, request: int = 256, nodes=None, **fields
) -> SimulatedCluster:
    """A Deployment whose single pod uses more than its limit."""
    pod = template(container(100, request, amounts(None, limit)))
    one = workload(pod=pod, dial=AdjustableDemand(mebibytes=mebibytes), created_at=LONG_AGO, **fields)
    return cluster(one, nodes)


async def killed(world: SimulatedCluster) -> OomKill:
    run(world, 5)
    assert world.oom_kills_at
    return world.oom_kills_at[-1]


async def store_for(world: SimulatedCluster) -> InMemoryStore:
    store = InMemoryStore()
    every = await pods(world)
    rows = [statistic(pod, world.now) for pod in every] + [statistic(every[0], world.now, of_workload=True)]
    await store.write_statistics(StatisticsTable.from_rows(rows))
    return store


async def reacted(
    world: SimulatedCluster, store: InMemoryStore, kill: OomKill, reactor: OomReactor | None = None, policy=FULL
) -> OomReactionResult:
    reaction = await (reactor or OomReactor(world, store, policy)).react(kill, world.now)
    assert reaction is not None
    return reaction


async def test_a_kill_is_recorded_taught_and_answered_in_place():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, kill)
    assert isinstance(reaction.decision, ResizePod)
    assert reaction.outcome.result is ActionResult.DONE
    [record] = await store.read_oom_records(START)
    assert (record.container, record.workload, record.node, record.oom_memory_bytes) == (
        "app",
        "Deployment/web",
        "n1",
        512 * MEBIBYTE,
    )
    [here] = (await only_pod(world)).containers
    assert (here.requests, here.limits) == (amounts(100, 512), amounts(None, 1024))
    # What was learnt is known at once, to the pod; its workload waits for a second kill.
    assert (await store.read_statistics()).oom_memory_bytes.tolist() == [512 * MEBIBYTE, 0]


async def test_a_second_kill_raises_the_whole_workload():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    earlier = replace(kill, pod="web-1", pod_uid="uid-1", finished_at=START - timedelta(days=6))
    await store.record_oom_kill(build_oom_record(earlier, None))
    await reacted(world, store, kill)
    assert (await store.read_statistics()).oom_memory_bytes.tolist() == [512 * MEBIBYTE] * 2


async def test_the_new_limit_ends_the_killing():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    await reacted(world, store, kill)
    assert len(world.oom_kills_at) == 1
    run(world, 600)
    assert len(world.oom_kills_at) == 1


async def test_a_replay_changes_nothing():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    reactor = OomReactor(world, store, FULL)
    await reacted(world, store, kill, reactor)
    asked = world.counts.resizes_requested
    assert await reactor.react(kill, world.now) is None
    assert await OomReactor(world, store, FULL).react(kill, world.now) is None
    assert world.counts.resizes_requested == asked
    assert len(await store.read_outcomes(START)) == 1


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_second_kill_within_the_cooldown_is_recorded_and_deferred(restarted):
    world = leaking(mebibytes=3000)
    store, kill = await store_for(world), await killed(world)
    reactor = OomReactor(world, store, FULL)
    first_at = world.now
    await reacted(world, store, kill, reactor)
    run(world, 60)
    again = world.oom_kills_at[-1]
    assert again.finished_at > kill.finished_at
    # After a restart of cruise the audit shows the time of its last reaction.
    reaction = await reacted(world, store, again, OomReactor(world, store, FULL) if restarted else reactor)
    assert isinstance(reaction.decision, SkippedPod)
    assert reaction.decision.reason is ReasonCode.COOLDOWN
    assert reaction.decision.until == first_at + FULL.oom_cooldown
    assert reaction.record.oom_memory_bytes == 768 * MEBIBYTE
    assert len(await store.read_oom_records(START)) == 2
    run(world, 600)
    await store.write_statistics(StatisticsTable.from_rows([statistic(await only_pod(world), world.now)]))
    later = await reacted(world, store, world.oom_kills_at[-1], reactor)
    assert isinstance(later.decision, ResizePod)


@pytest.mark.parametrize("restarted", [False, True])
async def test_node_passes_skip_the_pod_during_the_cooldown(restarted):
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    exclusions = WriteExclusions()
    reactor = OomReactor(world, store, FULL, exclusions=exclusions)
    await reacted(world, store, kill, reactor)
    if restarted:
        exclusions = WriteExclusions()
        assert await OomReactor(world, store, FULL, exclusions=exclusions).react(kill, world.now) is None
    answered = await only_pod(world)
    shrink = resize(answered, amounts(100, 128))

    async def tried(action: Action, seconds: int) -> Outcome:
        now = world.now + timedelta(seconds=seconds)
        [outcome] = await ClusterWriter(world, store, FULL, exclusions=exclusions).apply_plan(
            [action], await world.snapshot(), now
        )
        return outcome

    for action in (shrink, evict(answered)):
        outcome = await tried(action, 60)
        assert (outcome.result, outcome.reason) == (ActionResult.SKIPPED, ReasonCode.COOLDOWN)
    assert (await only_pod(world)).containers == answered.containers
    assert (await tried(shrink, 300)).result is ActionResult.DONE


async def test_a_kill_by_a_clock_ahead_starts_no_longer_cooldown():
    world = leaking()
    store = await store_for(world)
    kill = replace(await killed(world), finished_at=world.now + timedelta(days=365))
    exclusions = WriteExclusions()
    await reacted(world, store, kill, OomReactor(world, store, FULL, exclusions=exclusions))
    assert await OomReactor(world, store, FULL, exclusions=exclusions).react(kill, world.now) is None
    shrink = resize(await only_pod(world), amounts(100, 128))
    assert exclusions.explain_exclusion(shrink, world.now + timedelta(seconds=60)) is ReasonCode.COOLDOWN
    assert exclusions.explain_exclusion(shrink, world.now + FULL.oom_cooldown) is None


async def test_another_container_of_the_pod_has_its_own_cooldown():
    pod = template(*(container(100, 256, amounts(None, 512), name=name) for name in ("app", "b")))
    world = cluster(workload(pod=pod, created_at=LONG_AGO))
    [there] = await pods(world)
    store = InMemoryStore()
    rows = [statistic(there, world.now, name=name) for name in ("app", "b")]
    await store.write_statistics(StatisticsTable.from_rows(rows))
    kill = OomKill(
        "shop", there.name, there.uid, "app", there.workload, "", "n1", START, 512 * MEBIBYTE, 256 * MEBIBYTE
    )
    reactor = OomReactor(world, store, FULL)
    await reacted(world, store, kill, reactor)
    other = await reacted(world, store, replace(kill, container="b"), reactor)
    assert isinstance(other.decision, ResizePod)
    restarted = OomReactor(world, store, FULL)
    third = await reacted(world, store, replace(kill, finished_at=START + timedelta(seconds=9)), restarted)
    assert third.decision.reason is ReasonCode.COOLDOWN


async def test_without_free_capacity_the_pod_is_evicted():
    world = leaking(nodes=[node(mebibytes=300)])
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, kill)
    assert isinstance(reaction.decision, EvictPod)
    assert world.counts.evictions == 1
    assert [o.action for o in await store.read_evictions_since(START)] == [reaction.decision]


async def test_eviction_budgets_hold_here_too():
    world = leaking(nodes=[node(mebibytes=300)])
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, kill, policy=replace(FULL, max_evictions_per_hour=0))
    assert (reaction.outcome.result, reaction.outcome.reason) == (
        ActionResult.SKIPPED,
        ReasonCode.HOURLY_EVICTION_BUDGET_SPENT,
    )
    assert world.counts.evictions == 0


@pytest.mark.parametrize(("mode", "verdict"), [(Mode.OBSERVE, ActionResult.OBSERVED), (Mode.RESIZE, ActionResult.DONE)])
async def test_modes(mode, verdict):
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, kill, policy=Policy(mode=mode))
    assert isinstance(reaction.decision, ResizePod)
    assert reaction.outcome.result is verdict
    assert len(await store.read_oom_records(START)) == 1


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.INITIAL])
async def test_modes_that_may_not_resize_only_record(mode):
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, kill, policy=Policy(mode=mode))
    assert isinstance(reaction.decision, SkippedPod)
    assert len(await store.read_oom_records(START)) == 1
    assert [line.reason for line in await store.read_outcomes(START)] == [reaction.decision.reason]


async def test_a_pause_also_stops_the_oom_reactor():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    await store.set_paused(True)
    reaction = await reacted(world, store, kill)
    assert (reaction.outcome.result, reaction.outcome.reason) == (ActionResult.OBSERVED, ReasonCode.PAUSED)
    assert world.counts.resizes_requested == 0
    # A kill does not come again with the next pass as other work does.
    assert await store.read_outcomes(START) == [reaction.outcome]


async def test_every_kill_is_in_the_audit_also_those_that_nothing_is_done_about():
    world = leaking(mebibytes=4096)
    store, kill = await store_for(world), await killed(world)
    reactor = OomReactor(world, store, FULL)
    for _ in range(10):
        run(world, 600)
        known = await store.read_statistics()
        await store.write_statistics(replace(known, updated_at=known.updated_at + 600))
        await reacted(world, store, replace(kill, finished_at=world.now), reactor)
    lines = await store.read_outcomes(START)
    assert sum(line.count for line in lines) == 10
    assert all(isinstance(line.action, ResizePod) and line.action.reason is ReasonCode.OOM_KILLED for line in lines)
    held = [line for line in lines if line.result is ActionResult.SKIPPED]
    # The limit grew to its ceiling, twice what the template states, and stays there.
    assert [(line.reason, line.detail) for line in held] == [(ReasonCode.AT_MAXIMUM, "limit-at-ceiling: app")] * len(
        held
    )
    assert sum(line.count for line in held) == 9
    assert [line.action.containers for line in held if isinstance(line.action, ResizePod)] == [held[0].before]
    assert held[0].before[0].limits.memory_bytes == 1024 * MEBIBYTE


async def test_a_kill_during_the_cool_down_is_in_the_audit():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    reactor = OomReactor(world, store, FULL)
    await reacted(world, store, kill, reactor)
    for seconds in (1, 2):
        await reacted(world, store, replace(kill, finished_at=kill.finished_at + timedelta(seconds=seconds)), reactor)
    counts = {line.reason: line.count for line in await store.read_outcomes(START)}
    assert counts == {ReasonCode.OOM_KILLED: 1, ReasonCode.COOLDOWN: 2}


async def test_a_killed_init_container_is_for_its_owner_to_size():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    pod = await only_pod(world)
    init = replace(pod.containers[0], name="migrate", role=ContainerRole.INIT)
    record = build_oom_record(replace(kill, container="migrate"), None)
    snapshot = await world.snapshot()
    scene = OomContext(node=snapshot.nodes[0], free_capacity=snapshot.nodes[0].allocatable, statistics={})
    eligibility = Eligibility(snapshot, await store.read_statistics(), {}, FULL, world.now)
    decision = decide_oom_reaction(
        record, replace(pod, containers=(init, *pod.containers)), scene, eligibility, FULL, world.now
    )
    assert decision == SkippedPod("shop", pod.name, ReasonCode.RECORDED_ONLY, "init-container: migrate")


async def test_one_kill_of_a_pod_that_runs_to_completion_raises_the_next_one():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    await reacted(world, store, replace(kill, runs_to_completion=True))
    [record] = await store.read_oom_records(START)
    assert record.applies_to_workload
    # The next usage pass works out from the records what kills taught.
    assert list(summarize_oom_records([record]).by_key.values()) == [512 * MEBIBYTE]
    assert (await store.read_statistics()).oom_memory_bytes.tolist() == [512 * MEBIBYTE] * 2


@pytest.mark.parametrize("gone", [True, False])
async def test_oom_records_of_a_gone_pod_are_kept_for_its_successor(gone):
    world = leaking(nodes=[node(mebibytes=4096 if gone else 300)])
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, replace(kill, pod_uid="gone") if gone else kill)
    assert isinstance(reaction.decision, SkippedPod if gone else EvictPod)
    [record] = await store.read_oom_records(START)
    assert record.applies_to_workload


async def test_oom_records_of_a_gone_pod_apply_to_its_successor():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    gone = replace(kill, pod="web-gone", pod_uid="gone")
    reaction = await reacted(world, store, gone)
    assert reaction.decision.reason is ReasonCode.NOT_FOUND
    table = await store.read_statistics()
    taught_rows = {key.pod: int(oom) for key, oom in zip(table.keys, table.oom_memory_bytes, strict=True)}
    assert taught_rows[""] == 512 * MEBIBYTE


async def test_a_paused_workload_is_not_changed():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    pod = await only_pod(world)
    assert pod.workload is not None
    await store.write_workload_pause("shop", pod.workload, START)
    reaction = await reacted(world, store, kill)
    assert reaction.decision.reason is ReasonCode.MODE_OBSERVE


def test_an_oom_record_applies_to_the_same_workload_container_and_identity():
    def row(pod: str, workload: str, name: str = "app", identity: str = "", namespace: str = "shop") -> Statistic:
        base = statistic(Pod(namespace, pod, "", ()), START, oom_mebibytes=100)
        return replace(base, key=StatisticKey(namespace, pod, workload, name, identity))

    record = OomRecord(
        "shop", "db-0", "uid", "StatefulSet/db", "app", "0", "n1", START, None, None, None, 700 * MEBIBYTE
    )
    rows = [
        (row("db-0", "StatefulSet/db", identity="0"), 700),
        (row("", "StatefulSet/db", identity="0"), 700),
        (row("", "StatefulSet/db", identity="1"), 100),
        (row("db-0", "StatefulSet/db", "proxy", "0"), 100),
        (row("db-0", "StatefulSet/db", identity="0", namespace="other"), 100),
        (row("bare", ""), 100),
    ]
    table = raise_oom_memory_by_record(StatisticsTable.from_rows([one for one, _ in rows]), record, shared=False)
    assert [value // MEBIBYTE for value in table.oom_memory_bytes.tolist()] == [lesson for _, lesson in rows]
    # A pod without a controller teaches itself alone.
    alone = raise_oom_memory_by_record(table, replace(record, pod="bare-2", workload="", identity=""), shared=False)
    assert alone.oom_memory_bytes.tolist() == table.oom_memory_bytes.tolist()
    # A smaller lesson does not undo a larger one.
    smaller = raise_oom_memory_by_record(table, replace(record, oom_memory_bytes=1), shared=False)
    assert smaller.oom_memory_bytes.tolist() == table.oom_memory_bytes.tolist()


# ---- what the world keeps from being answered ----


T = TypeVar("T")


class Unreliable(InMemoryStore):
    """A store that loses the calls named in `lost`."""

    def __init__(self, inner: InMemoryStore, *lost: str) -> None:
        super().__init__()
        self.__dict__.update(inner.__dict__)
        self.lost = set(lost)

    async def record_oom_kill(self, record: OomRecord) -> bool:
        return await self._unless_lost("record_oom", super().record_oom_kill(record))

    async def write_statistics(self, table: StatisticsTable) -> None:
        await self._unless_lost("write_statistics", super().write_statistics(table))

    async def _unless_lost(self, name: str, call: Coroutine[Any, Any, T]) -> T:
        if name in self.lost:
            call.close()
            raise UnavailableError("the database is gone")
        return await call


@pytest.mark.parametrize("lost", ["record_oom", "write_statistics"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_kill_that_the_store_did_not_take_is_met_again_and_acted_on_once(lost, restarted):
    world = leaking()
    store, kill = Unreliable(await store_for(world), lost), await killed(world)
    reactor = OomReactor(world, store, FULL)
    with pytest.raises(UnavailableError):
        await reactor.react(kill, world.now)
    assert await store.read_oom_records(START) == []
    store.lost.clear()
    again = OomReactor(world, store, FULL) if restarted else reactor
    reaction = await reacted(world, store, kill, again)
    # It was grown before the store failed: that it is known now is all that was missing.
    assert reaction.decision.reason is ReasonCode.COOLDOWN
    assert world.counts.resizes_requested == 1
    assert len(await store.read_oom_records(START)) == 1
    assert (await store.read_statistics()).oom_memory_bytes.tolist() == [512 * MEBIBYTE, 0]


async def test_a_kill_that_the_cluster_did_not_take_is_acted_on_when_it_is_back():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    lost = FaultyCluster(world, ClusterFaults(answered_writes=0))
    reactor = OomReactor(lost, store, FULL)
    with pytest.raises(UnavailableError):
        await reactor.react(kill, world.now)
    lost.faults.answered_writes = 9
    reaction = await reacted(world, store, kill, reactor)
    assert reaction.outcome.result is ActionResult.DONE


async def test_kills_do_not_wait_for_one_that_cannot_be_answered():
    world = cluster(
        [
            workload(
                name,
                template(container(100, 256, amounts(None, 512))),
                AdjustableDemand(mebibytes=600),
                created_at=LONG_AGO,
            )
            for name in ("a", "b")
        ]
    )
    store = await store_for(world)
    await store.write_statistics(StatisticsTable.from_rows([statistic(pod, world.now) for pod in await pods(world)]))
    run(world, 5)
    assert len(world.oom_kills_at) == 2
    bad = world.oom_kills_at[0]

    def no_answer(action: Action) -> CruiseError | None:
        return UnavailableError("no answer") if isinstance(action, ResizePod) and action.uid == bad.pod_uid else None

    faulty = FaultyCluster(world, ClusterFaults(refuse=no_answer))
    reactor = OomReactor(faulty, store, FULL, retry_seconds=0.001)
    reactions = reactor.react_to_kills(lambda: world.now)
    first = await anext(reactions)
    assert first.record.pod_uid == world.oom_kills_at[1].pod_uid
    assert reactor.unanswered_count == 1
    # Tried again and again meanwhile.
    waiting = asyncio.ensure_future(anext(reactions))
    while len(faulty.faults.sent) < 5:
        await asyncio.sleep(0.001)
    faulty.faults.refuse = lambda action: None
    assert (await waiting).record.pod_uid == bad.pod_uid
    assert reactor.unanswered_count == 0
    await reactions.aclose()


async def test_a_kill_whose_answer_does_not_end_is_tried_again(monkeypatch):
    class Hanging(InMemoryStore):
        """A store whose first look-up of a kill has no end."""

        asked = 0

        async def has_oom_record(self, pod_uid, container, finished_at) -> bool:
            self.asked += 1
            if self.asked == 1:
                advance_loop_time(monkeypatch, FULL.max_decision_age.total_seconds())
                await asyncio.Event().wait()
            return await super().has_oom_record(pod_uid, container, finished_at)

    world, store = leaking(), Hanging()
    await store.write_statistics(await (await store_for(world)).read_statistics())
    await killed(world)
    reactor = OomReactor(world, store, FULL, retry_seconds=0.001)
    reaction = await anext(reactor.react_to_kills(lambda: world.now))
    assert (reaction.decision.reason, store.asked) == (ReasonCode.OOM_KILLED, 2)


async def test_reactions_end_with_the_stream():
    world = leaking()
    store, _ = await store_for(world), await killed(world)
    world.close()
    reactions = [one async for one in OomReactor(world, store, FULL).react_to_kills(lambda: world.now)]
    assert [one.decision.reason for one in reactions] == [ReasonCode.OOM_KILLED]


@pytest.mark.parametrize(("age", "acts"), [(timedelta(minutes=50), True), (timedelta(hours=2), False)])
async def test_an_old_kill_is_recorded_and_not_acted_on(age, acts):
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, replace(kill, finished_at=world.now - age))
    assert isinstance(reaction.decision, ResizePod if acts else SkippedPod)
    assert (await store.read_statistics()).oom_memory_bytes.tolist() == [512 * MEBIBYTE, 0]
    ancient = replace(kill, finished_at=world.now - timedelta(days=8))
    assert await OomReactor(world, store, FULL).react(ancient, world.now) is None


async def test_a_kill_is_answered_while_a_long_plan_is_under_way():
    # As many pods as a large pass writes to: none is written to again on the same snapshot.
    calm = workload("calm", template(container(20, 64)), replicas=700, created_at=LONG_AGO)
    one = workload("leaking", template(container(100, 256, amounts(None, 512))), AdjustableDemand(mebibytes=600))
    world = cluster([calm, replace(one, created_at=LONG_AGO)], [node(f"n{number}") for number in range(10)])
    store, kill = await store_for(world), await killed(world)
    leaking_pod = await only_pod(world, "leaking")
    await store.write_statistics(StatisticsTable.from_rows([statistic(leaking_pod, world.now)]))
    faulty = FaultyCluster(world, ClusterFaults(read_seconds=0.001, write_seconds=0.001))
    writer = ClusterWriter(faulty, store, FULL)
    snapshot = await world.snapshot()
    plan = [resize(pod, amounts(10)) for pod in await pods(world, "calm")]
    applying = asyncio.ensure_future(writer.apply_plan(plan, snapshot, world.now))
    while len(faulty.faults.sent) < 100:
        await asyncio.sleep(0.001)
    before = len(faulty.faults.sent)
    reaction = await OomReactor(faulty, store, FULL, writer).react(kill, world.now)
    assert reaction is not None
    assert reaction.outcome.result is ActionResult.DONE
    # It waited for a few of the plan's actions, never for the whole plan.
    assert len(faulty.faults.sent) - before < 16 * 20
    assert not applying.done()
    applying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await applying


async def test_only_the_pods_around_a_kill_are_looked_at():
    world = cluster([workload("a", replicas=3), workload("b", replicas=2)], [node("n1"), node("n2")])
    snapshot = await world.snapshot()
    victim = next(pod for pod in snapshot.pods if pod.labels["app"] == "a")
    kill = OomKill("shop", victim.name, victim.uid, "app", victim.workload, "", victim.node, START, None, None)
    near = restrict_snapshot_to_kill(snapshot, kill)
    expected = [pod.name for pod in snapshot.pods if pod.node == victim.node or pod.workload == victim.workload]
    assert [pod.name for pod in near.pods] == expected
    assert len(expected) < len(snapshot.pods)
    assert near.nodes == snapshot.nodes


async def test_an_oom_record_is_kept_if_the_process_is_stopped_meanwhile():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    faulty = FaultyCluster(world, ClusterFaults(read_seconds=0.001, write_seconds=0.05))
    reactions = OomReactor(faulty, store, FULL).react_to_kills(lambda: world.now)
    reacting = asyncio.ensure_future(anext(reactions))
    while not faulty.faults.sent:
        await asyncio.sleep(0.001)
    reacting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reacting
    assert await store.has_oom_record(*kill.key)
    [outcome] = await store.read_outcomes(LONG_AGO)
    assert (outcome.reason, outcome.result) == (ReasonCode.OOM_KILLED, ActionResult.DONE)
