"""The startup pass on small simulated clusters."""

from dataclasses import replace
from datetime import timedelta

from cruise.domain.actions import ActionResult, ReasonCode
from cruise.domain.annotations import STARTUP_BOOST
from cruise.domain.policy import Mode, Policy
from cruise.domain.startup_boosts import LONGEST_START, StartupBoost, format_startup_boosts
from cruise.errors import RefusedError
from cruise.runtime.ports import PassContext
from cruise.runtime.startup import STARTUP_INTERVAL, StartupPass
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.store import InMemoryStore
from tests.simulation.faults import ClusterFaults, FaultyCluster
from tests.simulation.scenes import amounts, cluster, container, pods, resize, run, template, workload

RESIZE = Policy(mode=Mode.RESIZE)
RECORD = {STARTUP_BOOST: format_startup_boosts([StartupBoost("app", 1000, None, 400, None)])}


def boosted(**fields):
    """A cluster with one pod that has the CPU of its start, and a database."""
    one = workload("a", template(container(1000, 128), annotations=RECORD), **fields)
    world = cluster(one)
    run(world, 40)
    return world, InMemoryStore()


async def cpus(world):
    return [pod.containers[0].requests.cpu_millicores for pod in await pods(world)]


async def run_pass(world, store, one=None, policy=RESIZE):
    return await (one or StartupPass()).run(PassContext(world, store, policy, world.now))


async def test_the_cpu_of_the_start_is_taken_back_once_and_audited():
    world, store = boosted()
    [outcome] = await run_pass(world, store)
    assert (outcome.result, outcome.reason) == (ActionResult.DONE, ReasonCode.START_COMPLETED)
    assert await cpus(world) == [400]
    [audited] = [
        one for one in await store.read_outcomes(world.now - timedelta(days=1)) if one.result is ActionResult.DONE
    ]
    assert audited.action.reason is ReasonCode.START_COMPLETED
    run(world, 30)
    assert await run_pass(world, store) == ()


async def test_a_pod_that_needs_the_same_cpu_later_keeps_it_under_any_leader():
    world, store = boosted()
    first = StartupPass()
    await run_pass(world, store, first)
    run(world, 30)
    snapshot = await world.snapshot()
    [outcome] = await ClusterWriter(world, store, RESIZE).apply_plan(
        [resize(snapshot.pods[0], amounts(1000, 128))], snapshot, world.now
    )
    assert outcome.result is ActionResult.DONE
    run(world, 30)
    for one in (first, StartupPass()):
        for _ in range(2):
            assert await run_pass(world, store, one) == ()
    assert await cpus(world) == [1000]


async def test_nothing_is_taken_back_while_paused_or_below_mode_resize_but_afterwards():
    world, store = boosted()
    await store.set_paused(True)
    assert await run_pass(world, store) == ()
    await store.set_paused(False)
    assert await run_pass(world, store, policy=replace(RESIZE, mode=Mode.INITIAL)) == ()
    assert await cpus(world) == [1000]
    # Whatever was missed meanwhile is in the pod.
    await run_pass(world, store)
    assert await cpus(world) == [400]


async def test_a_pod_that_never_gets_ready_keeps_it_for_ten_minutes():
    world, store = boosted(ready_seconds=86_400)
    run(world, 60)
    [pod] = await pods(world)
    world_start = pod.started_at
    assert not pod.ready
    assert world_start is not None
    assert await run_pass(world, store) == ()
    run(world, int((world_start + LONGEST_START - world.now).total_seconds()) + 1)
    await run_pass(world, store)
    assert await cpus(world) == [400]


async def test_what_the_server_refuses_is_not_tried_and_audited_every_few_seconds():
    world, store = boosted()
    faults = ClusterFaults(refuse=lambda action: RefusedError("pods/resize is forbidden", cause="Forbidden"))
    faulty, one = FaultyCluster(world, faults), StartupPass()
    for _ in range(24):
        await one.run(PassContext(faulty, store, RESIZE, world.now))
        run(world, int(STARTUP_INTERVAL.total_seconds()))
    assert len(faults.sent) == 2
    faults.refuse = lambda action: None
    run(world, 60)
    await one.run(PassContext(faulty, store, RESIZE, world.now))
    assert await cpus(world) == [400]
