"""The OOM reactor on small simulated clusters."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from cruise.domain.actions import EvictPod, Hold, Reason, ResizePod, Verdict
from cruise.domain.cluster import OomKill, Pod
from cruise.domain.policy import Mode, Overrides, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import OomRecord, Statistic, StatisticKey, StatisticsTable
from cruise.runtime.oom import OomReactor, Reaction, taught
from cruise.simulation.cluster import SimulatedCluster
from cruise.simulation.store import MemoryStore
from tests.simulation.scenes import (
    START,
    Dial,
    amounts,
    cluster,
    container,
    node,
    only_pod,
    pods,
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
        memory_peak_bytes=150 * MEBIBYTE,
        memory_7d_max_bytes=160 * MEBIBYTE,
        oom_memory_bytes=oom_mebibytes * MEBIBYTE,
    )


def leaking(
    mebibytes: int = 600, limit: int | None = 512, request: int = 256, nodes=None, **fields
) -> SimulatedCluster:
    """A Deployment whose single pod uses more than its limit."""
    pod = template(container(100, request, amounts(None, limit)))
    one = workload(pod=pod, dial=Dial(mebibytes=mebibytes), created_at=LONG_AGO, **fields)
    return cluster(one, nodes)


async def killed(world: SimulatedCluster) -> OomKill:
    run(world, 5)
    assert world.kills
    return world.kills[-1]


async def store_for(world: SimulatedCluster) -> MemoryStore:
    store = MemoryStore()
    every = await pods(world)
    rows = [statistic(pod, world.now) for pod in every] + [statistic(every[0], world.now, of_workload=True)]
    await store.write_statistics(StatisticsTable.of_rows(rows))
    return store


async def reacted(
    world: SimulatedCluster, store: MemoryStore, kill: OomKill, reactor: OomReactor | None = None, policy=FULL
) -> Reaction:
    reaction = await (reactor or OomReactor(world, store, policy)).react(kill, world.now)
    assert reaction is not None
    return reaction


async def test_a_kill_is_recorded_taught_and_answered_in_place():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, kill)
    assert isinstance(reaction.decision, ResizePod)
    assert reaction.outcome is not None
    assert reaction.outcome.verdict is Verdict.DONE
    [record] = await store.oom_records(START)
    assert (record.container, record.workload, record.node, record.oom_memory_bytes) == (
        "app",
        "Deployment/web",
        "n1",
        512 * MEBIBYTE,
    )
    [here] = (await only_pod(world)).containers
    assert (here.requests, here.limits) == (amounts(100, 512), amounts(None, 1024))
    # What was learnt is known at once, to the pod and to all that its workload starts.
    assert (await store.read_statistics()).oom_memory_bytes.tolist() == [512 * MEBIBYTE] * 2


async def test_the_new_limit_ends_the_killing():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    await reacted(world, store, kill)
    assert len(world.kills) == 1
    run(world, 600)
    assert len(world.kills) == 1


async def test_a_replay_changes_nothing():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    reactor = OomReactor(world, store, FULL)
    await reacted(world, store, kill, reactor)
    asked = world.tally.resizes_asked
    assert await reactor.react(kill, world.now) is None
    assert await OomReactor(world, store, FULL).react(kill, world.now) is None
    assert world.tally.resizes_asked == asked
    assert len(await store.outcomes(START)) == 1


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_second_kill_inside_the_cool_down_teaches_and_waits(restarted):
    world = leaking(mebibytes=3000)
    store, kill = await store_for(world), await killed(world)
    reactor = OomReactor(world, store, FULL)
    first_at = world.now
    await reacted(world, store, kill, reactor)
    run(world, 60)
    again = world.kills[-1]
    assert again.finished_at > kill.finished_at
    # After a restart of cruise the audit tells when it reacted last.
    reaction = await reacted(world, store, again, OomReactor(world, store, FULL) if restarted else reactor)
    assert isinstance(reaction.decision, Hold)
    assert reaction.decision.reason is Reason.COOLING_DOWN
    assert reaction.decision.until == first_at + FULL.oom_cooldown
    assert reaction.record.oom_memory_bytes == 1024 * MEBIBYTE
    assert len(await store.oom_records(START)) == 2
    run(world, 600)
    await store.write_statistics(StatisticsTable.of_rows([statistic(await only_pod(world), world.now)]))
    later = await reacted(world, store, world.kills[-1], reactor)
    assert isinstance(later.decision, ResizePod)


async def test_another_container_of_the_pod_has_a_cool_down_of_its_own():
    pod = template(*(container(100, 256, amounts(None, 512), name=name) for name in ("app", "b")))
    world = cluster(workload(pod=pod, created_at=LONG_AGO))
    [there] = await pods(world)
    store = MemoryStore()
    rows = [statistic(there, world.now, name=name) for name in ("app", "b")]
    await store.write_statistics(StatisticsTable.of_rows(rows))
    kill = OomKill(
        "shop", there.name, there.uid, "app", there.workload, "", "n1", START, 512 * MEBIBYTE, 256 * MEBIBYTE
    )
    reactor = OomReactor(world, store, FULL)
    await reacted(world, store, kill, reactor)
    other = await reacted(world, store, replace(kill, container="b"), reactor)
    assert isinstance(other.decision, ResizePod)
    restarted = OomReactor(world, store, FULL)
    third = await reacted(world, store, replace(kill, finished_at=START + timedelta(seconds=9)), restarted)
    assert third.decision.reason is Reason.COOLING_DOWN


async def test_without_room_the_pod_is_evicted():
    world = leaking(nodes=[node(mebibytes=300)])
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, kill)
    assert isinstance(reaction.decision, EvictPod)
    assert world.tally.evictions == 1
    assert [o.action for o in await store.evictions_since(START)] == [reaction.decision]


async def test_eviction_budgets_hold_here_too():
    world = leaking(nodes=[node(mebibytes=300)])
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, kill, policy=replace(FULL, max_evictions_per_hour=0))
    assert reaction.outcome is not None
    assert (reaction.outcome.verdict, reaction.outcome.reason) == (Verdict.HELD, Reason.BUDGET_HOUR)
    assert world.tally.evictions == 0


@pytest.mark.parametrize(("mode", "verdict"), [(Mode.OBSERVE, Verdict.OBSERVED), (Mode.RESIZE, Verdict.DONE)])
async def test_modes(mode, verdict):
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, kill, policy=Policy(mode=mode))
    assert isinstance(reaction.decision, ResizePod)
    assert reaction.outcome is not None
    assert reaction.outcome.verdict is verdict
    assert len(await store.oom_records(START)) == 1


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.INITIAL])
async def test_modes_that_may_not_resize_only_record(mode):
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    reaction = await reacted(world, store, kill, policy=Policy(mode=mode))
    assert isinstance(reaction.decision, Hold)
    assert reaction.outcome is None
    assert len(await store.oom_records(START)) == 1


async def test_a_pause_holds_the_reactor_too():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    await store.set_paused(True)
    reaction = await reacted(world, store, kill)
    assert reaction.outcome is not None
    assert (reaction.outcome.verdict, reaction.outcome.reason) == (Verdict.OBSERVED, Reason.PAUSED)
    assert world.tally.resizes_asked == 0


async def test_a_pod_that_is_gone_still_teaches_its_successor():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    gone = replace(kill, pod="web-gone", pod_uid="gone")
    reaction = await reacted(world, store, gone)
    assert reaction.decision.reason is Reason.GONE
    table = await store.read_statistics()
    taught_rows = {key.pod: int(oom) for key, oom in zip(table.keys, table.oom_memory_bytes, strict=True)}
    assert taught_rows[""] == 512 * MEBIBYTE


async def test_stored_overrides_count():
    world = leaking()
    store, kill = await store_for(world), await killed(world)
    pod = await only_pod(world)
    assert pod.workload is not None
    await store.put_override("shop", pod.workload, Overrides(mode=Mode.OBSERVE))
    reaction = await reacted(world, store, kill)
    assert reaction.decision.reason is Reason.MODE_OBSERVE


def test_a_lesson_is_for_the_same_workload_container_and_identity():
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
    table = taught(StatisticsTable.of_rows([one for one, _ in rows]), record)
    assert [value // MEBIBYTE for value in table.oom_memory_bytes.tolist()] == [lesson for _, lesson in rows]
    # A pod without a controller teaches itself alone.
    alone = taught(table, replace(record, pod="bare-2", workload="", identity=""))
    assert alone.oom_memory_bytes.tolist() == table.oom_memory_bytes.tolist()
    # A smaller lesson does not undo a larger one.
    smaller = taught(table, replace(record, oom_memory_bytes=1))
    assert smaller.oom_memory_bytes.tolist() == table.oom_memory_bytes.tolist()
