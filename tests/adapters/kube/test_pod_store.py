"""OOM kills are reported once, promptly, and with the memory limit at the kill."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from cruise.adapters.kube.pod_store import OomKillWatch, PodStore
from cruise.domain.cluster import OomKill
from cruise.domain.resources import MEBIBYTE
from cruise.kube_json.objects.owners import OwnerIndex, SharedStringMaps
from cruise.kube_json.wire.pod_json import PodObject
from tests.adapters.kube.followed import run_watch, wait_until_true
from tests.builders import LONG_AGO, Json, make_container_json, make_pod_json, stamp
from tests.controlplane.manifests import container, pod_template, workload

KILLED_AT = datetime(2026, 1, 2, tzinfo=UTC)


def terminated(at: datetime = KILLED_AT, reason: str = "OOMKilled", code: int = 137) -> Json:
    return {"terminated": {"reason": reason, "exitCode": code, "startedAt": stamp(LONG_AGO), "finishedAt": stamp(at)}}


RUNNING: Json = {"running": {"startedAt": stamp(LONG_AGO)}}
WAITING: Json = {"waiting": {"reason": "CrashLoopBackOff"}}


def pod(restarts: int, state: Json, last_state: Json | None = None, limit: str = "128Mi", **more: Any) -> PodObject:
    status = {
        "name": "app",
        "restartCount": restarts,
        "state": state,
        "lastState": last_state or {},
        "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": limit}},
        "allocatedResources": {"memory": "64Mi"},
    }
    containers = [make_container_json(memory="64Mi", memory_limit=limit)]
    document = make_pod_json(containers=containers, container_statuses=[status], **more)
    return msgspec.convert(document, PodObject)


class Ward:
    """Pods, and the kills that they reported."""

    def __init__(self) -> None:
        self.told: list[OomKill] = []
        self.pods = PodStore(OwnerIndex(), SharedStringMaps(), lambda key: None, self.told.append, {})

    def see(self, *documents: PodObject) -> None:
        for document in documents:
            self.pods.put(document)

    @property
    def shown(self) -> list[OomKill]:
        return list(self.pods.list_shown_kills())

    @property
    def limits(self) -> list[int | None]:
        return [None if kill.memory_limit_bytes is None else kill.memory_limit_bytes // MEBIBYTE for kill in self.told]


OOM = terminated()
LATER = terminated(KILLED_AT + timedelta(minutes=5))


@pytest.mark.parametrize(
    ("statuses", "kills"),
    [
        ([pod(0, RUNNING), pod(0, OOM), pod(1, RUNNING, OOM)], 1),
        ([pod(0, RUNNING), pod(1, RUNNING, OOM)], 1),
        ([pod(0, RUNNING), pod(0, OOM), pod(0, WAITING, OOM), pod(1, RUNNING, OOM)], 1),
        ([pod(0, RUNNING), pod(1, WAITING, OOM), pod(1, RUNNING, OOM)], 1),
        ([pod(0, RUNNING), pod(0, OOM), pod(1, LATER, OOM), pod(2, RUNNING, LATER)], 2),
        ([pod(0, RUNNING), pod(0, OOM), pod(2, RUNNING, LATER)], 2),
        ([pod(3, RUNNING, OOM)], 1),
        ([pod(3, RUNNING, OOM), pod(3, RUNNING, OOM, labels={"a": "b"})], 1),
        # Whatever the exit code is: a shell that was killed ends with another.
        ([pod(0, RUNNING), pod(0, terminated(code=143))], 1),
        ([pod(0, RUNNING), pod(0, terminated(reason="Error", code=143))], 0),
        ([pod(0, RUNNING), pod(0, terminated(reason="Error"))], 0),
    ],
)
def test_each_kill_is_reported_once(statuses, kills):
    ward = Ward()
    ward.see(*statuses)
    assert len(ward.told) == kills
    assert len({kill.key for kill in ward.told}) == kills


def test_the_limit_is_the_one_before_the_restart():
    ward = Ward()
    ward.see(pod(0, RUNNING, limit="128Mi"), pod(1, RUNNING, OOM, limit="512Mi"))
    assert ward.limits == [128]
    assert [kill.memory_limit_bytes for kill in ward.shown] == [128 * MEBIBYTE]
    ward.see(pod(2, RUNNING, LATER, limit="1Gi"))
    assert ward.limits == [128, 512]


def test_the_limit_is_the_one_at_the_kill():
    ward = Ward()
    ward.see(pod(0, RUNNING), pod(0, OOM, limit="128Mi"), pod(1, RUNNING, OOM, limit="512Mi"))
    assert ward.limits == [128]
    assert [kill.memory_limit_bytes for kill in ward.shown] == [128 * MEBIBYTE]


def test_another_pod_of_the_same_name_has_its_own_limits():
    ward = Ward()
    ward.see(pod(0, RUNNING, limit="128Mi"), pod(1, RUNNING, OOM, limit="512Mi", metadata={"uid": "another"}))
    assert ward.limits == [512]


def test_a_kill_is_shown_for_as_long_as_the_status_shows_it():
    ward = Ward()
    ward.see(pod(0, RUNNING), pod(1, RUNNING, OOM))
    (kill,) = ward.shown
    assert str(kill.workload) == "Deployment/web"
    ward.see(pod(2, RUNNING, terminated(reason="Error")))
    assert ward.shown == []
    ward.see(pod(3, RUNNING, LATER))
    ward.pods.drop(("shop", "web-7d9f8b6c5d-x2x4z"))
    assert ward.shown == []


# ---- who listens ----


def kill(number: int) -> OomKill:
    return OomKill(
        "shop", f"p{number}", "uid", "app", None, "", "n1", KILLED_AT + timedelta(seconds=number), None, None
    )


async def take(kills, count):
    return [int((await asyncio.wait_for(anext(kills), 60)).pod[1:]) for _ in range(count)]


async def test_a_new_listener_gets_what_pods_still_show():
    watch = OomKillWatch(lambda: [kill(1), kill(2)])
    kills = watch.watch_oom_kills()
    assert await take(kills, 2) == [1, 2]
    watch.report(kill(3))
    assert await take(kills, 1) == [3]
    assert await take(watch.watch_oom_kills(), 2) == [1, 2]
    await kills.aclose()


async def test_a_listener_far_behind_gets_what_pods_still_show():
    watch = OomKillWatch(lambda: [kill(8), kill(9)], max_queued=3)
    kills = watch.watch_oom_kills()
    assert await take(kills, 2) == [8, 9]
    for number in range(100):
        watch.report(kill(number))
    assert await take(kills, 2) == [8, 9]
    watch.report(kill(101))
    assert await take(kills, 1) == [101]
    await kills.aclose()


async def test_removes_a_listener_that_stops():
    watch = OomKillWatch(lambda: [kill(1)])
    kills = watch.watch_oom_kills()
    await take(kills, 1)
    assert len(watch._listeners) == 1
    await kills.aclose()
    assert watch._listeners == []


# ---- on a real control plane ----


async def test_a_kill_arrives_once_with_its_limit_and_again_after_a_restart(control_plane, admin, kubelet, namespace):
    kubelet.add_node(f"{namespace}-n1")
    app = container("app", {"memory": "64Mi"}, {"memory": "128Mi"})
    admin.create(workload("Deployment", namespace, "web", pod_template("web", app), 2))
    async with run_watch(control_plane) as cluster:

        async def all_run():
            pods = [one for one in (await cluster.snapshot()).pods if one.namespace == namespace]
            return pods if len(pods) == 2 and all(one.phase == "Running" for one in pods) else None

        pods = await wait_until_true(all_run, "both pods run")
        heard: list[OomKill] = []

        async def listen():
            async for one in cluster.watch_oom_kills():
                if one.namespace == namespace:
                    heard.append(one)

        listening = asyncio.ensure_future(listen())
        await asyncio.sleep(0)
        await asyncio.to_thread(kubelet.oom_kill, namespace, pods[0].name, "app", 0.5)
        await wait_until_true(lambda: heard, "the kill is heard of")
        (one,) = heard
        assert (one.pod, one.pod_uid, one.container, str(one.workload)) == (
            pods[0].name,
            pods[0].uid,
            "app",
            "Deployment/web",
        )
        assert (one.memory_limit_bytes, one.memory_request_bytes) == (128 * MEBIBYTE, 64 * MEBIBYTE)

        async def restarted():
            pod = await cluster.read_pod(namespace, pods[0].name)
            return pod is not None and pod.containers[0].restart_count == 1

        await wait_until_true(restarted, "the container runs again")
        await asyncio.sleep(0.3)
        assert heard == [one]
        listening.cancel()
    async with run_watch(control_plane) as cluster:
        kills = cluster.watch_oom_kills()
        assert (await asyncio.wait_for(anext(kills), 60)).key == one.key
        await kills.aclose()


def test_deleted_pods_that_ran_to_completion_are_remembered_with_their_workload():
    ward = Ward()
    labels = {"workflows.argoproj.io/cron-workflow": "nightly"}
    node = {"workflows.argoproj.io/node-name": "nightly-1764300000.train"}
    run = pod(0, RUNNING, name="train", owner="Workflow/nightly-1764300000", labels=labels, annotations=node)
    ward.see(run, pod(0, RUNNING, name="web-1"), pod(0, RUNNING, name="early", owner="Workflow/w", node=None))
    for name in ("train", "web-1", "early"):
        ward.pods.drop(("shop", name))
    assert [(one.name, one.workload) for one in ward.pods.list_ended_pods()] == [
        ("train", "CronWorkflow/nightly:train")
    ]
