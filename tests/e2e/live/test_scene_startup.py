"""A pod that starts with twice its CPU on a real control plane, and goes back to its size."""

import asyncio
import time
from datetime import datetime
from pathlib import Path

import numpy as np

from cruise.adapters.store.postgres import open_store
from cruise.domain.annotations import STARTUP_BOOST
from cruise.domain.startup_boosts import READY_TIME
from cruise.domain.usage import ContainerStart, HourlyPeaks, PartitionProgress, UsageUpdate
from tests.controlplane.api import Json, conditions, wait_until
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import ObservedSize, requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.2, mebibytes=150, peak_cores=0.2, peak_mebibytes=150)
SIZED, BOOSTED, AS_SENT = ObservedSize(200, 150), ObservedSize(400, 150), ObservedSize(700, 1024)
# A scale of the pass's interval, the watch's delay and a busy machine.


def known(stage: LiveStage, startup_cpu: str = "2x") -> None:
    """A workload whose usage cruise knows, and that asks for more CPU while it starts."""
    stage.node(cpu="8", memory="32Gi")
    told = {"cruise.io/startup-cpu.app": startup_cpu}
    stage.create(app("Deployment", stage.namespace, "web", "700m", "1Gi", {"memory": "1Gi"}, annotations=told))
    stage.running(1)
    stage.measure({"web": USE})
    stage.once("initial")
    stage.mark()


def successor(stage: LiveStage) -> Json:
    """Delete the pod, and wait until the one that its ReplicaSet makes is ready."""
    gone = {one["metadata"]["uid"] for one in stage.pods("web")}
    for one in stage.pods("web"):
        stage.admin.delete("pods", stage.namespace, one["metadata"]["name"], grace=0)

    def look() -> Json | None:
        found = [one for one in stage.pods("web") if one["metadata"]["uid"] not in gone]
        ready = found and conditions(found[0]).get("Ready", {}).get("status") == "True"
        return found[0] if ready else None

    return wait_until(look, "another pod is ready")


def boosted(stage: LiveStage) -> Json | None:
    pod = successor(stage)
    return pod if requests(pod) == BOOSTED else None


def settled(stage: LiveStage) -> Json | None:
    """The pod, if it has its size, and the kubelet has given it."""
    pod = stage.pod("web")
    actual = pod["status"]["containerStatuses"][0].get("resources", {}).get("requests", {}).get("cpu")
    return pod if requests(pod) == SIZED and actual == "200m" else None


def taken_back(stage: LiveStage) -> list[Json]:
    """The resizes in the audit log."""
    return [one.request_object for one in stage.events() if (one.verb, one.resource) == ("patch", "pods/resize")]


def test_a_pod_starts_with_twice_its_cpu_until_30_seconds_after_it_is_ready(stage: LiveStage):
    known(stage)
    with stage.reviewing("resize"):
        wait_until(lambda: boosted(stage), "a new pod is boosted")
        # Cooldowns and tolerances hold up other decreases for days.
        calm = {
            "shrink_cooldown": "7d",
            "cpu_tolerance": "1",
            "over_requested_stabilization": "1d",
            "pass_interval": "10m",
        }
        with stage.serving("resize", **calm) as serve:
            pod = wait_until(lambda: boosted(stage), "a new pod is boosted")
            assert pod["metadata"]["annotations"][STARTUP_BOOST] == '{"app":{"boosted":"400m","request":"200m"}}'
            after = wait_until(lambda: settled(stage), "its CPU is taken back")
            assert after["metadata"]["uid"] == pod["metadata"]["uid"]
            assert after["status"]["containerStatuses"][0]["restartCount"] == 0
            ready = datetime.fromisoformat(conditions(pod)["Ready"]["lastTransitionTime"])
            [written] = [one for one in stage.events() if (one.verb, one.resource) == ("patch", "pods/resize")]
            waited = datetime.fromisoformat(written.request_received_timestamp) - ready
            print(f"taken back {waited.total_seconds():.1f} s after ready")
            assert waited >= READY_TIME
            # A leader that dies leaves nothing that another one needs.
            pod = wait_until(lambda: boosted(stage), "a new pod is boosted")
            serve.kill()
        assert requests(stage.pod("web")) == BOOSTED
        with stage.serving("resize", **calm):
            after = wait_until(lambda: settled(stage), "another leader takes it back")
            assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert len(taken_back(stage)) == 2


async def remember_starts(stage: LiveStage) -> None:
    """Let earlier usage passes have seen three starts of the workload, yesterday."""
    begin = int(time.time()) - 26 * 3600  # noqa: TID251 - the database is that of real servers
    starts = [
        ContainerStart(stage.namespace, "Deployment/web", "app", f"uid-{number}", begin, begin + 90, begin + 120, 400.0)
        for number in range(3)
    ]
    nothing = HourlyPeaks((), np.empty(0, np.int64), np.empty(0), np.empty(0))
    async with open_store(stage.settings("initial")["database_url"], Path(), print) as store:
        await store.record_usage(UsageUpdate("yesterday", PartitionProgress(0, 1), nothing, None, starts=starts))


def test_a_pod_starts_with_what_earlier_starts_used(stage: LiveStage):
    asyncio.run(remember_starts(stage))
    known(stage, "learn")
    with stage.reviewing("resize"):
        wait_until(lambda: boosted(stage), "a new pod is boosted")
        with stage.serving("resize", shrink_cooldown="7d"):
            pod = wait_until(lambda: boosted(stage), "a new pod is boosted")
            after = wait_until(lambda: settled(stage), "its CPU is taken back")
            assert after["metadata"]["uid"] == pod["metadata"]["uid"]


def test_without_the_right_to_resize_no_pod_starts_with_more(stage: LiveStage):
    known(stage)
    with stage.reviewing("initial"):
        pod = wait_until(lambda: pod if requests(pod := successor(stage)) != AS_SENT else None, "it is sized")
        assert requests(pod) == SIZED
        assert STARTUP_BOOST not in pod["metadata"]["annotations"]
