"""The simulated cluster as a whole: time, kill events, figures, and reproducible output for a seed."""

import asyncio
import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.cluster import OomKill
from cruise.domain.scheduling import LabelSelector
from cruise.errors import CruiseError
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.demand.demand import BurstyDemand, ContainerProfile, LeakingDemand
from tests.simulation.scenes import (
    NAMESPACE,
    START,
    AdjustableDemand,
    amounts,
    cluster,
    container,
    evict,
    node,
    pods,
    resize,
    resources,
    run,
    template,
    workload,
)
from tests.tiers import examples

MIB = float(1 << 20)


def busy(seed: int) -> SimulatedCluster:
    """Return a small cluster in which something happens every few minutes."""
    leak = LeakingDemand(seed, 20, 100 * MIB, 900 * MIB)
    bursts = BurstyDemand(seed, 50, 2500, 50 * MIB, 150 * MIB, period_seconds=600, burst_seconds=120)
    limited = template(container(300, 128, amounts(None, 256)))
    return cluster(
        [
            workload("leak", limited, profiles={"app": ContainerProfile(leak, (0, 1, 2))}, replicas=3),
            workload(
                "bursts", limited, profiles={"app": ContainerProfile(bursts, (0, 1))}, replicas=2, kind="StatefulSet"
            ),
            workload("report", limited, kind="CronJob", period_seconds=300, duration_seconds=120),
            workload("too-big", template(container(3700, 512), priority=-1)),
        ],
        [node("a"), node("b")],
        SimulationSettings(seed=seed),
        budgets=[DisruptionBudgetSpec(NAMESPACE, "all", LabelSelector(), max_unavailable=1)],
    )


commands = st.lists(
    st.tuples(st.sampled_from(["resize", "evict"]), st.integers(0, 20), st.integers(1, 4000), st.integers(1, 400)),
    max_size=8,
)


async def played(seed: int, script: list[tuple[str, int, int, int]]) -> bytes:
    world, rejections = busy(seed), []
    for verb, which, cpu, pause in script:
        found = await pods(world)
        pod = found[which % len(found)]
        try:
            await world.perform(evict(pod) if verb == "evict" else resize(pod, amounts(cpu)))
        except CruiseError as rejection:
            rejections.append(str(rejection))
        run(world, pause)
    run(world, 1800)
    return pickle.dumps((await world.snapshot(), world.oom_kills_at, world.counts, world.get_node_usage(), rejections))


@examples(25)
@given(st.integers(0, 5), commands)
async def test_same_seed_and_calls_give_the_same_bytes(seed: int, script: list[tuple[str, int, int, int]]) -> None:
    assert await played(seed, script) == await played(seed, script)


async def test_it_makes_no_difference_in_how_many_calls_time_passes() -> None:
    whole, pieces = busy(3), busy(3)
    run(whole, 3600)
    for seconds in (1, 59, 7, 100, 433, 3000):
        run(pieces, seconds)
    assert pickle.dumps(await whole.snapshot()) == pickle.dumps(await pieces.snapshot())
    assert whole.oom_kills_at == pieces.oom_kills_at
    assert whole.oom_kills_at


async def test_snapshot_is_sorted_and_frozen() -> None:
    world = busy(1)
    before = await world.snapshot()
    kept = pickle.dumps(before)
    run(world, 1200)
    after = await world.snapshot()
    assert pickle.dumps(before) == kept
    assert after != before
    for snapshot in (before, after):
        assert [one.name for one in snapshot.nodes] == ["a", "b"]
        names = [(pod.namespace, pod.name) for pod in snapshot.pods]
        assert names == sorted(names)
    # The pod that did not fit is unchanged: it is the same object.
    (first,) = (pod for pod in before.pods if pod.node is None)
    assert any(pod is first for pod in after.pods)


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        busy(1).advance(START - timedelta(seconds=1))


@pytest.mark.parametrize(("twice", "times"), [(False, 1), (True, 2)])
async def test_the_stream_of_kills_yields_past_and_future_ones(twice: bool, times: int) -> None:
    dial = AdjustableDemand(mebibytes=100)
    limited = template(container(100, 100, amounts(None, 200)))
    world = cluster(
        workload(pod=limited, dial=dial, replicas=2),
        settings=SimulationSettings(step_seconds=1, duplicates_kill_events=twice),
    )
    seen: list[OomKill] = []

    async def listen() -> None:
        async for kill in world.watch_oom_kills():
            seen.append(kill)

    dial.mebibytes[0] = 300
    run(world, 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(listen())
        await asyncio.sleep(0)
        assert len(seen) == times
        dial.mebibytes[:] = (100, *[300] * 15)
        run(world, 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(seen) == 2 * times
        world.close()
    assert list(dict.fromkeys(kill.key for kill in seen)) == [kill.key for kill in world.oom_kills_at]


async def test_figures_of_a_node() -> None:
    world = cluster(
        workload(pod=template(container(300, 128)), replicas=3, dial=AdjustableDemand(cpu=2000, mebibytes=50))
    )
    (before,) = world.get_node_usage()
    assert (before.requested, before.used, before.pods) == (resources(900, 384), resources(0, 0), 3)
    run(world, 1)
    (figure,) = world.get_node_usage()
    assert figure.used == resources(4000, 150)
    assert figure.load == pytest.approx(1.5)
    assert figure.allocatable == resources(4000, 8192)


async def test_stream_can_be_followed_by_several() -> None:
    dial = AdjustableDemand(mebibytes=300)
    world = cluster(workload(pod=template(container(100, 100, amounts(None, 200))), dial=dial))
    run(world, 30)
    world.close()
    first = [kill async for kill in world.watch_oom_kills()]
    second = [kill async for kill in world.watch_oom_kills()]
    assert first == second == world.oom_kills_at
    assert len(first) == 2
