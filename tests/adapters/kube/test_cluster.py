"""The in-memory cluster state, compared with a real control plane."""

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web

from cruise.adapters.kube.kinds import ADMISSION_KINDS
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import MEBIBYTE, StatedResources
from cruise.errors import UnavailableError
from tests.adapters.kube.followed import SHORT, list_pods, run_watch, wait_until_true
from tests.adapters.kube.loopback import NODES, PODS, LoopbackServer, watch_loopback
from tests.builders import make_container_json, make_node_json, make_pod_json
from tests.controlplane.manifests import container, pod_template, workload
from tests.simulation.scenes import amounts, resize

APP = container("app", {"cpu": "200m", "memory": "128Mi"}, {"memory": "256Mi"})


async def test_the_snapshot_has_existing_and_new_objects(control_plane, admin, kubelet, namespace):
    kubelet.add_node(f"{namespace}-n1", cpu="4")
    admin.create(workload("Deployment", namespace, "web", pod_template("web", APP), 3))
    async with run_watch(control_plane) as cluster:
        pods = await wait_until_true(lambda: running(cluster, namespace, 3), "three pods run")
        assert {pod.workload for pod in pods} == {WorkloadRef("Deployment", "web")}
        (one,) = pods[0].containers
        assert one.requests == one.allocated == one.actual == StatedResources(200, 128 * MEBIBYTE)
        snapshot = await cluster.snapshot()
        assert snapshot.workloads[(namespace, WorkloadRef("Deployment", "web"))].replicas == 3
        node = next(node for node in snapshot.nodes if node.name == f"{namespace}-n1")
        assert node.allocatable.cpu_millicores == node.cpu_capacity_millicores == 4000
        version = cluster.version
        admin.patch("deployments.apps", namespace, "web", {"spec": {"replicas": 1}})
        await wait_until_true(lambda: running(cluster, namespace, 1), "one pod is left")
        assert cluster.version > version
        assert cluster.get_lag_seconds() < 60


async def running(cluster, namespace, count):
    pods = await list_pods(cluster, namespace)
    return pods if len(pods) == count and all(pod.phase == "Running" and pod.node for pod in pods) else None


async def test_nothing_is_decided_on_the_state_before_a_write(control_plane, admin, kubelet, namespace):
    kubelet.add_node(f"{namespace}-n1")
    admin.create(workload("Deployment", namespace, "web", pod_template("web", APP), 5))
    async with run_watch(control_plane) as cluster:
        pods = await wait_until_true(lambda: running(cluster, namespace, 5), "five pods run")
        for millicores in (300, 210, 260):
            await asyncio.gather(*(cluster.perform(resize(pod, amounts(millicores))) for pod in pods))
            seen = await list_pods(cluster, namespace)
            assert [pod.containers[0].requests.cpu_millicores for pod in seen] == [millicores] * 5


async def test_sends_no_write_without_permission(control_plane, admin, kubelet, namespace):
    kubelet.add_node(f"{namespace}-n1")
    admin.create(workload("Deployment", namespace, "web", pod_template("web", APP), 1))
    async with run_watch(control_plane, may_write=lambda action: False) as cluster:
        (pod,) = await wait_until_true(lambda: running(cluster, namespace, 1), "the pod runs")
        with pytest.raises(UnavailableError, match="no longer the leader"):
            await cluster.perform(resize(pod, amounts(300)))
        again = await cluster.read_pod(namespace, pod.name)
        assert again is not None
        assert again.containers == pod.containers


async def test_admission_follows_owners_without_pods(control_plane, admin, kubelet, namespace):
    kubelet.add_node(f"{namespace}-n1")
    admin.create(workload("Deployment", namespace, "web", pod_template("web", APP), 1))
    async with run_watch(control_plane, kinds=ADMISSION_KINDS) as cluster:
        owned = await wait_until_true(
            lambda: [key for key in cluster.get_owner_index().controllers if key[0] == namespace],
            "the ReplicaSet is known",
        )
        assert cluster.get_owner_index().controllers[owned[0]] == WorkloadRef("Deployment", "web")
        snapshot = await cluster.snapshot()
        assert (snapshot.pods, snapshot.budgets) == ((), ())
        assert (namespace, WorkloadRef("Deployment", "web")) in snapshot.workloads


async def test_before_the_first_list_there_is_no_snapshot(control_plane):
    async with run_watch(control_plane) as cluster:
        pass
    fresh = type(cluster)(cluster._client)
    with pytest.raises(UnavailableError, match="not listed yet"):
        await fresh.snapshot()
    assert fresh.get_lag_seconds() == float("inf")


async def test_reads_a_write_without_an_answer(control_plane, admin, kubelet, namespace):
    kubelet.add_node(f"{namespace}-n1")
    admin.create(workload("Deployment", namespace, "web", pod_template("web", APP), 1))
    async with run_watch(control_plane, timeout_seconds=1) as cluster:
        (pod,) = await wait_until_true(lambda: running(cluster, namespace, 1), "the pod runs")
        control_plane.pause()
        try:
            with pytest.raises(UnavailableError, match="did not answer"):
                await cluster.perform(resize(pod, amounts(300)))
        finally:
            control_plane.resume()

        async def agreed():
            try:
                (seen,) = await list_pods(cluster, namespace)
            except UnavailableError:
                return False
            return seen == await cluster.read_pod(namespace, pod.name)

        await wait_until_true(agreed, "the snapshot has the pod as it is")


@pytest.mark.parametrize("gone", [False, True])
async def test_reads_a_write_that_the_watch_does_not_show(tmp_path, gone):
    server, path = LoopbackServer(), "/api/v1/namespaces/shop/pods/p/resize"
    await server.put(NODES, make_node_json("n1"))
    await server.put(PODS, make_pod_json("p", owner=None))

    async def resized(server, request):
        """Do it, and let no watch hear of it."""
        server.version += 1
        document = make_pod_json("p", owner=None, containers=[make_container_json(cpu="300m")])
        document["metadata"]["resourceVersion"] = str(server.version)
        server.objects[PODS]["shop/p"] = document
        if gone:
            await server.remove(PODS, document, silently=True)
        return web.json_response(document)

    server.faults[path, "get"] += [resized]
    # No bookmark arrives meanwhile that would confirm that all changes were sent.
    async with watch_loopback(server, tmp_path, replace(SHORT, watch_seconds=30)) as cluster:
        (pod,) = (await cluster.snapshot()).pods
        await cluster.perform(resize(pod, amounts(300)))
        seen = [one.containers[0].requests.cpu_millicores for one in (await cluster.snapshot()).pods]
        assert seen == ([] if gone else [300])
        # Nor does older news undo it.
        await server.say(PODS, {"type": "MODIFIED", "object": older(pod.name)})
        await server.put(PODS, make_pod_json("q", owner=None))
        await wait_until_true(lambda: has_pod(cluster, "q"), "the news has come")
        if not gone:
            (p, _) = (await cluster.snapshot()).pods
            assert p.containers[0].requests.cpu_millicores == 300


def older(name):
    document = make_pod_json(name, owner=None)
    document["metadata"]["resourceVersion"] = "101"
    return document


async def has_pod(cluster, name):
    return any(pod.name == name for pod in (await cluster.snapshot()).pods)
