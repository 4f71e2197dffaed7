"""Replacement pods: for which pods, when, under which name, and with which admission."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.domain.actions import ReasonCode, TaintNode, UntaintNode
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Pod
from cruise.domain.scheduling import OVERLOADED_TAINT, SchedulingConstraints, Toleration
from cruise.simulation.cluster.state import SimulationSettings
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
    run,
    template,
    workload,
)

SMALL = template(container(100, 100))


async def test_deployment_pods_have_anonymous_replacements_of_the_same_replica_set() -> None:
    world = cluster(workload(pod=SMALL, replicas=2))
    old = (await pods(world))[0]
    assert (old.owner_kind, str(old.workload)) == ("ReplicaSet", "Deployment/web")
    assert old.name.startswith(f"{old.owner_name}-")
    await world.perform(evict(old))
    run(world, 1)
    new = next(pod for pod in await pods(world) if pod.phase == "Pending")
    assert new.owner_name == old.owner_name
    assert new.name != old.name
    assert new.uid != old.uid
    assert new.identity == ""


async def test_stateful_pod_is_created_under_its_name_after_the_old_one_is_removed() -> None:
    world = cluster(workload("db", kind="StatefulSet", pod=SMALL, replicas=2, grace_seconds=10))
    old = (await pods(world))[1]
    assert (old.name, old.identity, old.owner_kind) == ("db-1", "1", "StatefulSet")
    await world.perform(evict(old))
    run(world, 9)
    assert [pod.uid for pod in await pods(world) if pod.name == "db-1"] == [old.uid]
    run(world, 2)
    (new,) = (pod for pod in await pods(world) if pod.name == "db-1")
    assert new.uid != old.uid
    assert new.identity == "1"


async def test_replacement_uses_what_its_predecessor_used() -> None:
    dial = AdjustableDemand(members=2)
    dial.cpu[:] = (100, 300)
    world = cluster(workload(pod=SMALL, replicas=2, dial=dial, grace_seconds=1))
    for _ in range(4):
        for pod in await pods(world):
            await world.perform(evict(pod))
        run(world, 20)
    assert len(await pods(world)) == 2
    assert world.get_node_usage()[0].used.cpu_millicores == 400


async def test_a_daemon_pod_runs_on_every_node_that_it_tolerates() -> None:
    nodes = [node("a"), node("b", labels={"os": "windows"}), node("c", unschedulable=True)]
    linux = workload("agent", kind="DaemonSet", pod=SMALL)
    windows = workload(
        "win", kind="DaemonSet", pod=template(container(1, 1), placement=SchedulingConstraints((("os", "windows"),)))
    )
    world = cluster([linux, windows], nodes)
    found = {(pod.node, pod.identity) for pod in await pods(world, "agent")}
    assert found == {("a", "a"), ("b", "b"), ("c", "c")}
    assert [pod.node for pod in await pods(world, "win")] == ["b"]


async def test_evicted_daemon_is_created_again_on_its_node() -> None:
    world = cluster(workload("agent", kind="DaemonSet", pod=SMALL, grace_seconds=5), [node("a"), node("b")])
    old = next(pod for pod in await pods(world) if pod.node == "b")
    await world.perform(evict(old))
    run(world, 4)
    assert len(await pods(world)) == 2
    run(world, 10)
    new = next(pod for pod in await pods(world) if pod.node == "b")
    assert new.uid != old.uid
    assert new.phase == "Running"


async def test_overload_taint_keeps_new_daemons_away_and_leaves_running_ones() -> None:
    world = cluster(workload("agent", kind="DaemonSet", pod=SMALL, grace_seconds=1), [node("a"), node("b")])
    await world.perform(TaintNode("a", ReasonCode.OVERLOADED))
    run(world, 5)
    assert len(await pods(world)) == 2
    await world.perform(evict(next(pod for pod in await pods(world) if pod.node == "a")))
    run(world, 10)
    assert [pod.node for pod in await pods(world)] == ["b"]
    await world.perform(UntaintNode("a", ReasonCode.LOAD_NORMAL))
    run(world, 10)
    assert {pod.node for pod in await pods(world)} == {"a", "b"}


async def test_tolerating_daemon_is_not_kept_away() -> None:
    tolerant = replace(SMALL, placement=SchedulingConstraints(tolerations=(Toleration(exists=True),)))
    tainted = node("a", taints=(OVERLOADED_TAINT,))
    world = cluster(workload("agent", kind="DaemonSet", pod=tolerant), [tainted])
    assert (await only_pod(world)).node == "a"


async def test_job_pod_that_is_evicted_is_replaced_and_a_finished_one_is_not() -> None:
    world = cluster(workload("import", kind="Job", pod=SMALL, duration_seconds=60, grace_seconds=1))
    await world.perform(evict(await only_pod(world)))
    run(world, 5)
    new = await only_pod(world)
    assert (new.owner_kind, str(new.workload)) == ("Job", "Job/import")
    run(world, 120)
    assert (await only_pod(world)).phase == "Succeeded"
    assert (await only_pod(world)).uid == new.uid


async def test_cron_job_runs_at_every_period_and_keeps_its_last_runs() -> None:
    world = cluster(workload("report", kind="CronJob", pod=SMALL, period_seconds=300, duration_seconds=60))
    assert await pods(world) == []
    run(world, 310)
    first = await only_pod(world)
    assert (first.owner_kind, str(first.workload)) == ("Job", "CronJob/report")
    assert first.phase == "Running"
    assert first.created_at == START + timedelta(seconds=300)
    run(world, 5 * 300)
    found = await pods(world)
    assert [pod.phase for pod in found] == ["Succeeded"] * 3 + ["Running"]
    assert len({pod.owner_name for pod in found}) == 4
    assert world.counts.pods_created == 6


async def test_a_bare_pod_is_not_replaced() -> None:
    bare = replace(workload(pod=replace(SMALL, name="alone"), grace_seconds=1), ref=None)
    world = cluster(bare)
    pod = await only_pod(world)
    assert (pod.name, pod.workload, pod.owner_kind) == ("alone", None, None)
    await world.perform(evict(pod))
    run(world, 30)
    assert await pods(world) == []


async def test_admission_sees_new_pods_only_and_its_changes_hold() -> None:
    seen: list[Pod] = []

    def admit(pod: Pod) -> Pod:
        seen.append(pod)
        return replace(pod, containers=(container(300, 100, amounts(300, 100)),), annotations={"cruise.io/x": "y"})

    world = cluster(workload(pod=SMALL, grace_seconds=1), admit=admit)
    assert seen == []
    await world.perform(evict(await only_pod(world)))
    run(world, 10)
    (asked,) = seen
    assert (asked.node, asked.phase, asked.containers[0].requests) == (None, "Pending", amounts(100, 100))
    new = await only_pod(world)
    assert new.containers[0].actual == amounts(300, 100)
    assert new.annotations == {"cruise.io/x": "y"}
    assert new.qos.value == "Guaranteed"


async def test_admission_that_breaks_a_limit_range_keeps_the_pod_from_being_created() -> None:
    ranges = {NAMESPACE: (LimitRangeItem(is_for_pod=False, maximum=amounts(200, None)),)}
    world = cluster(workload(pod=SMALL, grace_seconds=1), limit_ranges=ranges)
    assert (await only_pod(world)).containers[0].limits == amounts(200, None)
    world.admit = lambda pod: replace(pod, containers=(container(300, 100, amounts(300)),))
    await world.perform(evict(await only_pod(world)))
    run(world, 10)
    assert await pods(world) == []
    assert world.counts.creations_refused == 10
    world.admit = lambda pod: pod
    run(world, 10)
    assert (await only_pod(world)).phase == "Running"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job"])
async def test_controllers_are_shown(kind: str) -> None:
    created = START - timedelta(days=3)
    one = workload(kind=kind, pod=SMALL, replicas=2, created_at=created, annotations={"cruise.io/mode": "full"})
    snapshot = await cluster(one).snapshot()
    (shown,) = snapshot.workloads.values()
    assert snapshot.workloads == {(NAMESPACE, shown.ref): shown}
    assert (str(shown.ref), shown.created_at) == (f"{kind}/web", created)
    assert shown.replicas == (2 if kind in ("Deployment", "StatefulSet") else None)
    assert shown.annotations == {"cruise.io/mode": "full"}
    assert all(pod.created_at == created for pod in snapshot.pods)


async def test_names_follow_from_the_seed() -> None:
    async def names(seed: int) -> list[str]:
        world = cluster(workload(pod=SMALL, replicas=3), settings=SimulationSettings(seed=seed))
        return [pod.name for pod in await pods(world)]

    one, same, other = await names(1), await names(1), await names(2)
    assert one == same
    assert one != other
    assert len(set(one)) == 3
