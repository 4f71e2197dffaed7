"""In-place resizes: desired, allocated and actual resources, and pending states."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.cluster import Pod
from cruise.domain.resources import MEBIBYTE, ResizePending
from cruise.errors import CruiseError, RefusedError
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.cluster.state import SimulationSettings
from tests.simulation.scenes import (
    BY_SECOND,
    START,
    AdjustableDemand,
    amounts,
    cluster,
    container,
    node,
    only_pod,
    pods,
    resize,
    resources,
    run,
    template,
    workload,
)

LIMITED = container(1000, 1024, amounts(None, 2048))


def sizes(pod: Pod) -> tuple[int | None, int | None, int | None]:
    """Return the first container's desired, allocated and actual CPU."""
    one = pod.containers[0]
    allocated = None if one.allocated is None else one.allocated.cpu_millicores
    return one.requests.cpu_millicores, allocated, None if one.actual is None else one.actual.cpu_millicores


async def test_desired_becomes_allocated_and_then_actual() -> None:
    world = cluster(workload(pod=template(LIMITED)))
    before = await only_pod(world)
    assert sizes(before) == (1000, 1000, 1000)
    await world.perform(resize(before, amounts(2000)))
    assert sizes(await only_pod(world)) == (2000, 1000, 1000)
    run(world, 1)
    taken_up = await only_pod(world)
    assert sizes(taken_up) == (2000, 2000, 1000)
    assert taken_up.resize.in_progress
    run(world, 5)
    done = await only_pod(world)
    assert sizes(done) == (2000, 2000, 2000)
    assert done.resize == before.resize
    assert done.containers[0].restart_count == 0
    assert world.counts.resizes_done == 1


async def test_decrease_frees_capacity_only_when_it_is_actual() -> None:
    world = cluster(workload(pod=template(LIMITED)))
    await world.perform(resize(await only_pod(world), amounts(400)))
    seen = []
    for _ in range(7):
        seen.append(world.get_node_usage()[0].requested.cpu_millicores)
        run(world, 1)
    assert seen == [1000, 1000, 1000, 1000, 1000, 1000, 400]


async def test_increase_that_does_not_fit_is_deferred_until_it_fits() -> None:
    world = cluster([workload("big", template(container(2500, 512))), workload("web", template(LIMITED))])
    web, big = await only_pod(world, "web"), await only_pod(world, "big")
    await world.perform(resize(web, amounts(2000)))
    run(world, 30)
    waiting = await only_pod(world, "web")
    assert sizes(waiting) == (2000, 1000, 1000)
    assert waiting.resize.pending is ResizePending.DEFERRED
    assert waiting.resize.pending_since == START + timedelta(seconds=1)
    assert world.counts.resizes_deferred == 1
    # kube-scheduler already counts a deferred increase.
    assert world.get_node_usage()[0].requested.cpu_millicores == 4500
    await world.perform(resize(big, amounts(1000)))
    run(world, 8)
    assert sizes(await only_pod(world, "web")) == (2000, 2000, 2000)
    assert (await only_pod(world, "web")).resize.pending is None


async def test_withdrawn_increase_is_no_longer_pending() -> None:
    world = cluster([workload("big", template(container(2500, 512))), workload("web", template(LIMITED))])
    await world.perform(resize(await only_pod(world, "web"), amounts(2000)))
    run(world, 3)
    await world.perform(resize(await only_pod(world, "web"), amounts(1000)))
    run(world, 3)
    web = await only_pod(world, "web")
    assert sizes(web) == (1000, 1000, 1000)
    assert web.resize.pending is None


async def test_what_no_node_of_its_size_can_hold_is_infeasible_and_does_not_count() -> None:
    world = cluster(workload(pod=template(LIMITED)))
    await world.perform(resize(await only_pod(world), amounts(4001)))
    run(world, 60)
    stuck = await only_pod(world)
    assert sizes(stuck) == (4001, 1000, 1000)
    assert stuck.resize.pending is ResizePending.INFEASIBLE
    assert world.get_node_usage()[0].requested.cpu_millicores == 1000
    assert world.counts.resizes_infeasible == 1
    await world.perform(resize(stuck, amounts(1500)))
    run(world, 10)
    assert sizes(await only_pod(world)) == (1500, 1500, 1500)


async def test_newer_servers_refuse_what_no_node_can_hold() -> None:
    world = cluster(workload(pod=template(LIMITED)), settings=replace(BY_SECOND, server_version=(1, 36)))
    with pytest.raises(RefusedError) as rejection:
        await world.perform(resize(await only_pod(world), amounts(4001)))
    assert rejection.value.cause == "NodeCapacity"
    assert sizes(await only_pod(world)) == (1000, 1000, 1000)
    assert world.counts.resizes_refused == 1


async def test_infeasible_increase_does_not_delay_allocated_resources() -> None:
    world = cluster(workload(pod=template(LIMITED)))
    await world.perform(resize(await only_pod(world), amounts(2000)))
    run(world, 2)
    await world.perform(resize(await only_pod(world), amounts(5000)))
    run(world, 2)
    both = await only_pod(world)
    assert both.resize.pending is ResizePending.INFEASIBLE
    assert both.resize.in_progress
    run(world, 5)
    assert sizes(await only_pod(world)) == (5000, 2000, 2000)


async def test_free_capacity_is_given_by_shrinks_then_priority_then_waiting_time() -> None:
    big = workload("big", template(container(1000, 512)))
    low = workload("low", template(container(1000, 512)))
    high = workload("high", template(container(1000, 512), priority=10))
    late = workload("late", template(container(1000, 512)))
    world = cluster([big, low, high, late])
    for app in ("low", "late", "high"):
        await world.perform(resize(await only_pod(world, app), amounts(1400)))
        run(world, 1)
    run(world, 2)
    order: list[list[str]] = []
    waiting = ["low", "high", "late"]
    for room in (600, 200):
        await world.perform(resize(await only_pod(world, "big"), amounts(room)))
        run(world, 10)
        order.append([app for app in waiting if sizes(await only_pod(world, app))[1] == 1400])
        waiting = [app for app in waiting if app not in order[-1]]
    assert order == [["high"], ["low"]]


async def test_memory_limit_does_not_decrease_below_usage() -> None:
    dial = AdjustableDemand(mebibytes=1500)
    world = cluster(workload(pod=template(LIMITED), dial=dial))
    run(world, 2)
    await world.perform(resize(await only_pod(world), amounts(500, 512), amounts(None, 1400)))
    run(world, 30)
    stuck = await only_pod(world)
    assert sizes(stuck) == (500, 500, 1000)
    assert stuck.resize.in_progress
    assert stuck.resize.error
    assert stuck.containers[0].actual_limits == amounts(None, 2048)
    assert world.counts.resize_errors == 1
    dial.mebibytes[:] = 1000
    run(world, 3)
    done = await only_pod(world)
    assert done.containers[0].actual_limits == amounts(None, 1400)
    assert not done.resize.error
    assert not done.resize.in_progress
    assert world.counts.oom_kills == 0


async def test_restart_policy_restarts_the_container() -> None:
    touchy = replace(LIMITED, memory_resize_restarts=True)
    world = cluster(workload(pod=template(touchy)))
    await world.perform(resize(await only_pod(world), amounts(1500)))
    run(world, 10)
    assert (await only_pod(world)).containers[0].restart_count == 0
    await world.perform(resize(await only_pod(world), amounts(None, 1200)))
    run(world, 10)
    assert (await only_pod(world)).containers[0].restart_count == 1


async def test_pending_pod_is_resized_immediately_and_then_scheduled() -> None:
    world = cluster([workload("big", template(container(3000, 512))), workload("web", template(container(2000, 512)))])
    run(world, 5)
    pending = await only_pod(world, "web")
    assert pending.node is None
    assert pending.unschedulable_since == START
    await world.perform(resize(pending, amounts(1000)))
    run(world, 1)
    bound = await only_pod(world, "web")
    assert (bound.node, bound.phase, bound.unschedulable_since) == ("n1", "Pending", None)
    run(world, 5)
    assert (await only_pod(world, "web")).phase == "Running"


steps = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3000), st.integers(1, 5000), st.integers(0, 7)), max_size=12
)


@given(steps)
async def test_every_resize_that_fits_becomes_actual_and_no_node_is_overfilled(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    """The allocated sum always stays within the node, and resizes that fit become actual."""
    world = cluster([workload(f"w{i}", template(container(500, 512))) for i in range(4)], [node(cpu=6000)])
    for which, cpu, mebibytes, pause in drawn:
        await world.perform(resize(await only_pod(world, f"w{which}"), amounts(cpu, mebibytes)))
        run(world, pause)
        _check_allocated_within_node(await pods(world))
    run(world, 60)
    await _check_resizes_done(world)


def _check_allocated_within_node(found: list[Pod]) -> None:
    allocated = [one.allocated for pod in found for one in pod.containers if one.allocated is not None]
    assert sum(one.cpu_millicores or 0 for one in allocated) <= 6000
    assert sum(one.memory_bytes or 0 for one in allocated) <= 8192 * MEBIBYTE


async def _check_resizes_done(world: SimulatedCluster) -> None:
    found = await pods(world)
    _check_allocated_within_node(found)
    held = sum((pod.containers[0].actual.resources for pod in found if pod.containers[0].actual), resources(0, 0))
    for pod in found:
        one = pod.containers[0]
        assert not pod.resize.in_progress
        assert one.actual == one.allocated
        if pod.resize.pending is None:
            assert one.allocated == one.requests
        else:
            assert one.actual is not None
            others = held - one.actual.resources
            assert not (others + one.requests.resources).fits_in(resources(6000, 8192))


async def test_coarse_steps_end_where_fine_ones_do() -> None:
    ends = []
    for settings in (BY_SECOND, SimulationSettings(step_seconds=60)):
        world = cluster(workload(pod=template(LIMITED)), settings=settings)
        await world.perform(resize(await only_pod(world), amounts(2000), amounts(None, 1500)))
        run(world, 120)
        ends.append(await only_pod(world))
    assert ends[0] == ends[1]


async def test_refused_resize_changes_nothing() -> None:
    world = cluster(workload(pod=template(LIMITED)))
    before = await world.snapshot()
    with pytest.raises(CruiseError):
        await world.perform(resize(await only_pod(world), amounts(None, 4096)))
    assert await world.snapshot() == before
