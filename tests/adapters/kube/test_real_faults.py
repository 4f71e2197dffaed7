"""A real control plane that stops, restarts and changes."""

import asyncio
import random
from dataclasses import replace
from functools import partial

import msgspec
import pytest

from cruise.adapters.kube.kinds import ALL_KINDS
from cruise.adapters.kube.watching import WatchTiming
from cruise.domain.cluster import WorkloadRef
from cruise.errors import BadInputError, UnavailableError
from cruise.kube_json.reading.object_collection import ObjectCollection
from cruise.kube_json.wire.object_json import AnyObject
from tests.adapters.kube.followed import NOT_INSTALLED, SHORT, get_snapshot_or_none, run_watch, wait_until_true
from tests.controlplane.api import ApiError
from tests.controlplane.behaviour import SimulatedNodeSpec
from tests.controlplane.manifests import budget, container, pod, pod_template, workload
from tests.e2e.live.custom_kinds import policy_objects
from tests.kube_json.objects.test_rightsizing_policies import policy_json

APP = container("app", {"cpu": "10m", "memory": "16Mi"})
UNBOUND = {"nodeSelector": {"example.com/none": "such"}}


def parked(namespace, name):
    """A pod that no node takes."""
    return pod(namespace, name, APP, **UNBOUND)


async def seen(cluster, namespace):
    """The names of a namespace's pods as a snapshot has them, None without one."""
    snapshot = await get_snapshot_or_none(cluster)
    return None if snapshot is None else {one.name for one in snapshot.pods if one.namespace == namespace}


async def sees(cluster, namespace, *names):
    return await seen(cluster, namespace) == set(names)


async def agrees(cluster, admin, namespace):
    """Return whether the snapshot has exactly the server's pods, each as a fresh reading has it."""
    snapshot = await get_snapshot_or_none(cluster)
    if snapshot is None:
        return False
    mine = {one.name: one for one in snapshot.pods if one.namespace == namespace}
    uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in admin.items("pods", namespace)}
    return uids == {name: one.uid for name, one in mine.items()}


async def test_follows_an_api_server_that_was_killed_and_restarted(control_plane, admin, namespace):
    for name in ("a", "b", "c"):
        admin.create(parked(namespace, name))
    # Long enough for the changes to be made before the watch is back.
    timing = replace(SHORT, first_retry_seconds=3, max_retry_seconds=3)
    async with run_watch(control_plane, timing) as cluster:
        await wait_until_true(lambda: sees(cluster, namespace, "a", "b", "c"), "the pods are seen")
        control_plane.kill_api_server()
        await wait_until_true(cluster.list_problems, "the watches notice")
        await asyncio.to_thread(control_plane.start_api_server)
        admin.delete("pods", namespace, "a", grace=0)
        admin.delete("pods", namespace, "b", grace=0)
        admin.create(parked(namespace, "b"))
        admin.create(parked(namespace, "d"))
        await wait_until_true(lambda: sees(cluster, namespace, "b", "c", "d"), "what changed meanwhile is seen")
        await wait_until_true(lambda: agrees(cluster, admin, namespace), "the new pod of the old name is the one seen")
        await wait_until_true(lambda: not cluster.list_problems(), "all is well again")


async def test_detects_an_api_server_that_hangs_and_catches_up(control_plane, admin, namespace):
    admin.create(parked(namespace, "a"))
    async with run_watch(control_plane, SHORT, max_lag_seconds=4) as cluster:
        await wait_until_true(lambda: sees(cluster, namespace, "a"), "the pod is seen")
        control_plane.pause()
        try:
            await wait_until_true(lambda: cluster.get_lag_seconds() > 4, "it is out of sync")
            with pytest.raises(UnavailableError, match="not in sync"):
                await cluster.snapshot()
        finally:
            control_plane.resume()
        admin.create(parked(namespace, "b"))
        await wait_until_true(lambda: sees(cluster, namespace, "a", "b"), "it is in sync again")


async def test_lists_again_after_compaction(control_plane, admin, namespace):
    admin.create(parked(namespace, "a"))
    async with run_watch(control_plane, SHORT) as cluster:
        await wait_until_true(lambda: sees(cluster, namespace, "a"), "the pod is seen")
        lists = cluster.count_lists_by_kind()["pods"]
        # A restarted server knows no versions from before its start.
        await asyncio.to_thread(control_plane.restart)
        admin.create(parked(namespace, "b"))
        await wait_until_true(lambda: sees(cluster, namespace, "a", "b"), "it is in sync again")
        assert cluster.count_lists_by_kind()["pods"] <= lists + 3


async def test_lists_in_pages_of_two_and_watches_of_a_second(control_plane, admin, namespace):
    for index in range(7):
        admin.create(parked(namespace, f"p{index}"))
    async with run_watch(control_plane, replace(SHORT, page_size=2)) as cluster:
        assert await sees(cluster, namespace, *(f"p{index}" for index in range(7)))
        for index in range(7):
            admin.delete("pods", namespace, f"p{index}", grace=0)
            admin.create(parked(namespace, f"q{index}"))
            await asyncio.sleep(0.5)
        await wait_until_true(
            lambda: sees(cluster, namespace, *(f"q{index}" for index in range(7))), "all changes are seen"
        )
        assert await agrees(cluster, admin, namespace)
        assert cluster.count_lists_by_kind()["pods"] == 1


async def test_a_cluster_without_events_remains_in_sync(control_plane, admin, namespace):
    async with run_watch(control_plane, WatchTiming(watch_seconds=3, grace_period_seconds=3)) as cluster:
        loop = asyncio.get_running_loop()
        ends_at, worst = loop.time() + 10, 0.0
        while loop.time() < ends_at:
            worst = max(worst, cluster.get_lag_seconds())
            await asyncio.sleep(0.1)
        assert worst < 8
        assert cluster.count_lists_by_kind() == {
            kind.plural: int(kind.plural not in NOT_INSTALLED) for kind in ALL_KINDS
        }


@pytest.mark.parametrize("other_version", [False, True])
async def test_policies_that_the_server_stops_serving_are_not_taken_for_deleted(control_plane, admin, other_version):
    definitions = "customresourcedefinitions.apiextensions.k8s.io"
    name = "clusterrightsizingpolicies.cruise.io"

    def serve(*, version: bool) -> None:
        found = admin.read(definitions, None, name)
        first = {**found["spec"]["versions"][0], "served": version}
        others = [{**first, "name": "v1beta1", "storage": False, "served": True}] if other_version else []
        found["spec"]["versions"] = [first, *others]
        admin.request("PUT", admin.path(definitions, None, name), found)

    async def is_refused():
        snapshot = await get_snapshot_or_none(cluster)
        assert snapshot is None or snapshot.rightsizing_policies
        return snapshot is None

    async def has_policies(*names):
        snapshot = await get_snapshot_or_none(cluster)
        return snapshot is not None and tuple(one.name for one in snapshot.rightsizing_policies) == names

    with policy_objects(admin):
        admin.apply(policy_json({"mode": "off"}, "all-off"))
        async with run_watch(control_plane, replace(SHORT, grace_period_seconds=10), max_lag_seconds=10) as cluster:
            await wait_until_true(lambda: has_policies("all-off"), "the policy is seen")
            serve(version=False)
            told = "as v1beta1 only" if other_version else "no longer serves"
            await wait_until_true(lambda: told in str(cluster.list_problems()), "the kind is missed")
            await wait_until_true(is_refused, "there is no snapshot without it")
            serve(version=True)
            await wait_until_true(lambda: has_policies("all-off"), "it is served again")
            admin.delete(definitions, None, name)
            await wait_until_true(has_policies, "a deleted kind has no objects")


async def test_pod_of_the_same_name_is_another(control_plane, admin, kubelet, namespace):
    kubelet.add_node(f"{namespace}-n1")
    async with run_watch(control_plane) as cluster:
        for _ in range(3):
            created = admin.create(
                pod(namespace, "again", APP, nodeSelector={"kubernetes.io/hostname": f"{namespace}-n1"})
            )
            wanted = partial(has, cluster, namespace, "again", created["metadata"]["uid"])
            await wait_until_true(wanted, "the pod runs")
            admin.delete("pods", namespace, "again", grace=0)
        await wait_until_true(lambda: sees(cluster, namespace), "the last one is deleted")


async def has(cluster, namespace, name, uid):
    snapshot = await cluster.snapshot()
    return [
        one
        for one in snapshot.pods
        if (one.namespace, one.name, one.uid, one.phase) == (namespace, name, uid, "Running")
    ]


async def test_a_deleted_namespace_is_removed_with_its_objects(control_plane, admin, kubelet):
    kubelet.add_node("going-n1")
    name = "going"
    annotations = {"cruise.io/mode": "resize"}
    admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}})
    admin.create(workload("Deployment", name, "web", pod_template("web", APP), 3))
    async with run_watch(control_plane) as cluster:
        await wait_until_true(lambda: has_pods(cluster, name, 3), "the pods run")
        assert (await cluster.snapshot()).namespace_annotations[name] == annotations
        admin.delete("namespaces", None, name)
        await wait_until_true(lambda: is_deleted(cluster, name), "nothing of it is left")


async def has_pods(cluster, namespace, count):
    pods = [one for one in (await cluster.snapshot()).pods if one.namespace == namespace and one.phase == "Running"]
    return len(pods) == count and all(one.workload == WorkloadRef("Deployment", "web") for one in pods)


async def is_deleted(cluster, namespace):
    snapshot = await cluster.snapshot()
    return (
        namespace not in snapshot.namespace_annotations
        and not any(one.namespace == namespace for one in snapshot.pods)
        and not any(key[0] == namespace for key in snapshot.workloads)
        and not any(key[0] == namespace for key in cluster.get_owner_index().controllers)
    )


async def test_follows_two_thousand_new_pods(control_plane, admin, namespace):
    async with run_watch(control_plane) as cluster:
        before = cluster.count_lists_by_kind()["pods"]
        template = pod_template("many", APP, **UNBOUND)
        admin.create(workload("Deployment", namespace, "many", template, 2000))

        async def complete():
            names = await seen(cluster, namespace)
            return names is not None and len(names) == 2000

        await wait_until_true(complete, "all pods are seen")
        snapshot = await cluster.snapshot()
        mine = [one for one in snapshot.pods if one.namespace == namespace]
        assert {one.workload for one in mine} == {WorkloadRef("Deployment", "many")}
        assert [one.name for one in mine] == sorted(one.name for one in mine)
        assert cluster.count_lists_by_kind()["pods"] == before
        admin.delete("deployments.apps", namespace, "many")
        admin.delete_all("replicasets.apps", namespace)
        admin.delete_all("pods", namespace, grace=0)
        await wait_until_true(lambda: sees(cluster, namespace), "all pods are deleted")


async def test_after_many_changes_the_snapshot_equals_the_lists(control_plane, admin, kubelet, namespace):
    draw = random.Random(4)
    nodes = [f"{namespace}-n{index}" for index in range(3)]
    kubelet.add_nodes([SimulatedNodeSpec(name) for name in nodes])
    for name in ("a", "b"):
        admin.create(workload("Deployment", namespace, name, pod_template(name, APP), 3))
        admin.create(budget(namespace, name, name, 1))
    admin.create(workload("StatefulSet", namespace, "s", pod_template("s", APP), 2))
    admin.create(workload("DaemonSet", namespace, "d", pod_template("d", APP)))
    admin.create(workload("Job", namespace, "j", pod_template("j", APP)))
    async with run_watch(control_plane, SHORT) as cluster:
        for step in range(40):
            disturb(admin, namespace, draw, nodes, str(step))
            await asyncio.sleep(0.05)
            if step == 20:
                await asyncio.to_thread(control_plane.restart)

        async def equal():
            seen = await get_snapshot_or_none(cluster)
            return seen is not None and seen == listed(admin)

        await wait_until_true(equal, "the snapshot is what lists say")


def disturb(admin, namespace, draw, nodes, turn):
    """Change something, anything."""
    web = draw.choice("ab")
    mode = {"metadata": {"annotations": {"cruise.io/mode": draw.choice(["off", "full"])}}}
    headroom = {"metadata": {"annotations": {"cruise.io/headroom-factor": turn}}}
    labels = {"spec": {"template": {"metadata": {"labels": {"turn": turn}}}}}
    match draw.randrange(6):
        case 0:
            admin.patch("deployments.apps", namespace, web, {"spec": {"replicas": draw.randrange(6)}})
        case 1:
            pods = [one["metadata"]["name"] for one in admin.items("pods", namespace)]
            try:
                admin.delete("pods", namespace, draw.choice(pods))
            except ApiError as error:
                # A controller may have been faster.
                if error.status != 404:
                    raise
        case 2:
            admin.patch("deployments.apps", namespace, web, headroom, kind="merge")
        case 3:
            admin.patch("nodes", None, draw.choice(nodes), {"spec": {"unschedulable": draw.random() < 0.5}})
        case 4:
            admin.patch("deployments.apps", namespace, web, labels)
        case _:
            admin.patch("namespaces", None, namespace, mode, kind="merge")


def listed(admin):
    """The cluster from plain lists, as a snapshot file would have it, and beside it the namespaces that are there."""
    gathering = ObjectCollection()
    for kind in ALL_KINDS:
        if kind.plural in NOT_INSTALLED:
            continue
        for item in admin.get(kind.path)["items"]:
            gathering.add(msgspec.convert({**item, "kind": kind.shape.__struct_config__.tag}, AnyObject))
    try:
        names = frozenset(one["metadata"]["name"] for one in admin.items("namespaces"))
        return replace(gathering.build_snapshot(), namespaces=names)
    except BadInputError:
        # Between two lists a pod may have got a node that the earlier one did not have.
        return None
