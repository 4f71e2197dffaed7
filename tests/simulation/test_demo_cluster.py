"""The demo cluster: the events that it must contain, and its copy without cruise."""

import pickle
from datetime import UTC, datetime, timedelta

from cruise.domain.cluster import ContainerRole, Pod, QosClass
from cruise.simulation.demo_cluster import NODES, create_demo_cluster
from tests.simulation.scenes import amounts, resize

START = datetime(2026, 1, 5, 9, tzinfo=UTC)


def requested_cpu(pods: list[Pod]) -> int:
    return sum(one.requests.cpu_millicores or 0 for pod in pods for one in pod.containers)


async def test_it_has_one_of_everything() -> None:
    cluster, _ = create_demo_cluster(START)
    cluster.advance(START + timedelta(minutes=20))
    snapshot = await cluster.snapshot()
    assert len(snapshot.nodes) == NODES
    kinds = {pod.workload.kind for pod in snapshot.pods if pod.workload is not None}
    assert kinds == {"Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"}
    assert {pod.qos for pod in snapshot.pods} >= {QosClass.GUARANTEED, QosClass.BURSTABLE}
    roles = {one.role for pod in snapshot.pods for one in pod.containers}
    # POD is the role of what a pod as a whole gets, and of no container.
    assert roles == set(ContainerRole) - {ContainerRole.POD}
    assert len(snapshot.budgets) == 2
    assert len(snapshot.autoscalers) == 1
    assert [b.disruptions_allowed for b in snapshot.budgets] == [1, 1]


async def test_requests_fill_it_and_use_does_not() -> None:
    cluster, _ = create_demo_cluster(START)
    cluster.advance(START + timedelta(hours=1))
    snapshot = await cluster.snapshot()
    pending = [pod for pod in snapshot.pods if pod.unschedulable_since is not None]
    assert {str(pod.workload) for pod in pending} == {"Deployment/recommender"}
    figures = cluster.get_node_usage()
    allocatable = sum(one.allocatable.cpu_millicores for one in figures)
    assert sum(one.requested.cpu_millicores for one in figures) > 0.8 * allocatable
    assert sum(one.used.cpu_millicores for one in figures) < 0.15 * allocatable
    # Pods that requested at most double their usage would free twice the capacity that the pending pods request.
    replayed = [pod for pod in snapshot.pods if pod.namespace == "train"]
    assert requested_cpu(replayed) > requested_cpu(pending)


async def test_history_reaches_back_before_the_start() -> None:
    cluster, usage = create_demo_cluster(START)
    snapshot = await cluster.snapshot()
    end = int(START.timestamp())
    for namespace in await usage.list_partitions(snapshot):
        block, _ = await usage.read(namespace, end - 7 * 86400, end, None)
        running = {
            (pod.name, one.name)
            for pod in snapshot.pods
            for one in pod.containers
            if pod.namespace == namespace and pod.created_at != START and one.role is not ContainerRole.INIT
        }
        assert running <= {(key.pod, key.container) for key in block.keys}


async def test_twin_has_the_same_bytes_and_kills_only_what_leaks() -> None:
    worlds = [create_demo_cluster(START, seed=3)[0] for _ in range(2)]
    for world in worlds:
        world.advance(START + timedelta(hours=4))
    one, twin = worlds
    assert pickle.dumps(await one.snapshot()) == pickle.dumps(await twin.snapshot())
    assert one.oom_kills_at == twin.oom_kills_at
    assert {str(kill.workload) for kill in one.oom_kills_at} == {"Deployment/thumbnails"}


async def test_decreasing_replayed_workloads_frees_capacity_without_kills() -> None:
    (cluster, _), (twin, _) = create_demo_cluster(START), create_demo_cluster(START)
    for pod in (await cluster.snapshot()).pods:
        if pod.namespace == "train":
            await cluster.perform(resize(pod, amounts(50, 450)))
    for world in (cluster, twin):
        world.advance(START + timedelta(minutes=30))
    waiting = [pod for pod in (await twin.snapshot()).pods if pod.node is None]
    assert len(waiting) == 4
    assert [pod for pod in (await cluster.snapshot()).pods if pod.node is None] == []
    assert cluster.counts.oom_kills_by_container == twin.counts.oom_kills_by_container
    before, after = (sum(one.requested.cpu_millicores for one in world.get_node_usage()) for world in (twin, cluster))
    assert after < before / 2


async def test_other_seeds_give_another_cluster() -> None:
    one, other = create_demo_cluster(START, seed=1)[0], create_demo_cluster(START, seed=2)[0]
    assert (await one.snapshot()).pods != (await other.snapshot()).pods
