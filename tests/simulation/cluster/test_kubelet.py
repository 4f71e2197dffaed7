"""Pods on their nodes: start, kills at the limit and on exhausted nodes, restarts, termination."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.domain.cluster import Container, ContainerRole, QosClass
from cruise.domain.resources import MEBIBYTE
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.demand.demand import ContainerProfile, LeakingDemand
from tests.simulation.scenes import (
    NAMESPACE,
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

LIMITED = container(100, 256, amounts(None, 512))


async def test_pods_that_fit_run_from_the_start() -> None:
    pod = await only_pod(cluster(workload(pod=template(LIMITED))))
    assert (pod.phase, pod.node) == ("Running", "n1")
    (one,) = pod.containers
    assert one.allocated == one.actual == amounts(100, 256)
    assert one.actual_limits == amounts(None, 512)


async def test_new_pod_is_bound_then_starts() -> None:
    world = cluster(workload(pod=template(LIMITED), grace_seconds=3))
    await world.perform(evict(await only_pod(world)))
    run(world, 1)
    new = next(pod for pod in await pods(world) if not pod.terminating)
    assert (new.phase, new.node, new.containers[0].actual) == ("Pending", "n1", None)
    assert new.created_at == START + timedelta(seconds=1)
    run(world, 5)
    started = await only_pod(world)
    assert (started.phase, started.containers[0].actual) == ("Running", amounts(100, 256))


async def test_pod_is_ready_once_it_has_run_for_long_enough() -> None:
    world = cluster(workload(pod=template(LIMITED), grace_seconds=3, ready_seconds=20))
    assert not (await only_pod(world)).ready
    run(world, 20)
    ready = await only_pod(world)
    assert ready.ready
    await world.perform(evict(ready))
    run(world, 25)
    assert not (await only_pod(world)).ready
    run(world, 1)
    assert (await only_pod(world)).ready


async def test_pods_that_ran_before_the_start_are_ready_except_never_ready_ones() -> None:
    old = workload(pod=template(LIMITED), created_at=START - timedelta(hours=1), replicas=2, ready_seconds=60)
    assert [pod.ready for pod in await pods(cluster(old))] == [True, True]
    world = cluster(replace(old, never_ready=frozenset({1})))
    run(world, 100)
    assert sorted(pod.ready for pod in await pods(world)) == [False, True]


async def test_killed_container_makes_its_pod_unready_until_it_has_run_again_for_long_enough() -> None:
    dial = AdjustableDemand(mebibytes=400)
    world = cluster(workload(pod=template(LIMITED), dial=dial, ready_seconds=5, created_at=START - timedelta(hours=1)))
    dial.mebibytes[0] = 513
    run(world, 1)
    dial.mebibytes[0] = 400
    assert not (await only_pod(world)).ready
    run(world, 14)
    assert not (await only_pod(world)).ready
    run(world, 1)
    assert (await only_pod(world)).ready


async def test_use_above_the_limit_kills() -> None:
    dial = AdjustableDemand(mebibytes=400)
    world = cluster(workload(pod=template(LIMITED), dial=dial))
    run(world, 5)
    assert world.oom_kills_at == []
    dial.mebibytes[0] = 513
    run(world, 1)
    (kill,) = world.oom_kills_at
    pod = await only_pod(world)
    assert (kill.namespace, kill.pod, kill.pod_uid, kill.container) == (NAMESPACE, pod.name, pod.uid, "app")
    assert (kill.workload, kill.identity, kill.node) == (pod.workload, "", "n1")
    assert kill.finished_at == START + timedelta(seconds=6)
    assert kill.memory_limit_bytes == 512 * MEBIBYTE
    assert kill.memory_request_bytes == 256 * MEBIBYTE
    assert kill.last_working_set_bytes == 400 * MEBIBYTE
    assert pod.containers[0].restart_count == 1
    assert pod.phase == "Running"


async def test_limit_at_the_kill_is_the_actual_one_not_the_requested_one() -> None:
    dial = AdjustableDemand(mebibytes=400)
    world = cluster(workload(pod=template(LIMITED), dial=dial))
    await world.perform(resize(await only_pod(world), limits=amounts(None, 2048)))
    dial.mebibytes[0] = 600
    run(world, 2)
    assert [kill.memory_limit_bytes for kill in world.oom_kills_at] == [512 * MEBIBYTE]
    run(world, 30)
    assert len(world.oom_kills_at) == 1


async def test_restarts_back_off() -> None:
    dial = AdjustableDemand(mebibytes=600)
    world = cluster(workload(pod=template(LIMITED), dial=dial))
    run(world, 200)
    times = [int((kill.finished_at - START).total_seconds()) for kill in world.oom_kills_at]
    # Pauses of 10, 20, 40 and 80 seconds, each followed by a kill as soon as the process runs.
    assert times == [1, 11, 31, 71, 151]
    assert (await only_pod(world)).containers[0].restart_count == 5
    assert world.counts.oom_kills_by_container == {(NAMESPACE, "Deployment/web", 0, "app"): 5}


async def test_killed_container_uses_nothing_until_it_runs_again() -> None:
    dial = AdjustableDemand(cpu=300, mebibytes=600)
    world = cluster(workload(pod=template(LIMITED), dial=dial))
    run(world, 1)
    dial.mebibytes[0] = 100
    run(world, 5)
    assert world.get_node_usage()[0].used.cpu_millicores == 0
    run(world, 5)
    assert world.get_node_usage()[0].used.cpu_millicores == 300


async def test_fresh_process_starts_low() -> None:
    leak = LeakingDemand(1, 10, 100 * MEBIBYTE, 3600 * MEBIBYTE)  # one MiB a second
    web = workload(pod=template(LIMITED), profiles={"app": ContainerProfile(leak, (0,))})
    world = cluster(web)
    run(world, 1000)
    # 413 s from 100 to 513 MiB, a pause of 10 s, and the same again.
    times = [int((kill.finished_at - START).total_seconds()) for kill in world.oom_kills_at]
    assert times == [413, 413 + 10 + 413]


async def test_node_without_memory_left_kills_best_effort_first() -> None:
    dial = AdjustableDemand(mebibytes=600)
    guaranteed = container(100, 1000, amounts(100, 1000))
    small = node(mebibytes=1500)
    world = cluster(
        [
            workload("sure", template(guaranteed), dial),
            workload("loose", template(container(None, None)), dial, first_member=1),
        ],
        [small],
    )
    assert {pod.qos for pod in await pods(world)} == {QosClass.GUARANTEED, QosClass.BEST_EFFORT}
    run(world, 1)
    assert world.oom_kills_at == []
    dial.mebibytes[:] = [800] * len(dial.mebibytes)
    run(world, 1)
    assert [kill.workload for kill in world.oom_kills_at] == [(await only_pod(world, "loose")).workload]
    (kill,) = world.oom_kills_at
    assert kill.memory_limit_bytes is None
    assert kill.last_working_set_bytes == 600 * MEBIBYTE


async def test_terminating_pod_uses_its_node_until_it_is_removed() -> None:
    dial = AdjustableDemand(cpu=200)
    world = cluster(workload(pod=template(LIMITED), dial=dial, grace_seconds=20))
    await world.perform(evict(await only_pod(world)))
    run(world, 10)
    assert world.get_node_usage()[0].used.cpu_millicores == 400
    run(world, 15)
    assert world.get_node_usage()[0].used.cpu_millicores == 200


async def test_sidecars_run_and_init_containers_do_not() -> None:
    dial = AdjustableDemand(cpu=50)
    pod = template(
        Container("init", ContainerRole.INIT, amounts(800, 100)),
        Container("proxy", ContainerRole.SIDECAR, amounts(100, 100)),
        LIMITED,
    )
    world = cluster(workload(pod=pod, dial=dial))
    run(world, 1)
    init, proxy, app = (await only_pod(world)).containers
    assert (init.allocated, init.actual) == (None, None)
    assert proxy.actual == amounts(100, 100)
    assert app.actual == amounts(100, 256)
    figure = world.get_node_usage()[0]
    assert (figure.used.cpu_millicores, figure.requested.cpu_millicores) == (100, 800)


async def test_pods_of_jobs_end_and_release_their_capacity() -> None:
    world = cluster(workload("import", kind="Job", pod=template(LIMITED), duration_seconds=30))
    assert world.get_node_usage()[0].requested.cpu_millicores == 100
    run(world, 31)
    assert (await only_pod(world)).phase == "Succeeded"
    assert world.get_node_usage()[0].requested.cpu_millicores == 0
    run(world, 60)
    assert len(await pods(world)) == 1


@pytest.mark.parametrize("calm", [5, 600])
async def test_a_long_running_process_resets_the_doubling(calm: int) -> None:
    leak = LeakingDemand(1, 10, 500 * MEBIBYTE, 3600 * MEBIBYTE)  # 13 s to 513 MiB
    web = workload(pod=template(LIMITED), profiles={"app": ContainerProfile(leak, (0,))})
    world = cluster(web, settings=SimulationSettings(step_seconds=1, quiet_seconds=calm))
    run(world, 120)
    times = [int((kill.finished_at - START).total_seconds()) for kill in world.oom_kills_at]
    assert times == ([13, 36, 59, 82, 105] if calm == 5 else [13, 36, 69])
