"""Guaranteed pods and pods with a GPU: resized in place, and sized at admission."""

from typing import Any

from tests.controlplane.api import Json, conditions, wait_until
from tests.controlplane.behaviour import KubeletBehaviour, ResizeBehaviour
from tests.controlplane.manifests import container, pod_template, workload
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import ObservedSize, containers_of, limits, requests, statuses_of
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.25, peak_mebibytes=150)
SMALL = ContainerUse(cores=0.02, mebibytes=20, peak_cores=0.05, peak_mebibytes=40)
# 1.5 x the peak, in whole 10m.
SIZED, SMALL_SIZED = ObservedSize(380, 225), ObservedSize(80, 60)
EQUAL = {"cpu": "1500m", "memory": "1Gi"}
PROXY = {"cpu": "200m", "memory": "256Mi"}
RESIZE = {"guaranteed": "resize"}
SETUP = {"cpu": "100m", "memory": "64Mi"}


def database(namespace: str) -> Json:
    """A StatefulSet whose pod is Guaranteed by all of its containers: one, a sidecar and an init container."""
    proxy = container("proxy", requests=PROXY, limits=PROXY, restartPolicy="Always")
    setup = container("setup", requests=SETUP, limits=SETUP)
    return app("StatefulSet", namespace, "db", EQUAL["cpu"], EQUAL["memory"], EQUAL, initContainers=[proxy, setup])


def known(stage: LiveStage) -> Json:
    stage.node(cpu="8", memory="16Gi")
    stage.create(database(stage.namespace))
    [pod] = stage.running(1)
    assert pod["status"]["qosClass"] == "Guaranteed"
    stage.measure({("db", "app"): USE, ("db", "proxy"): SMALL})
    stage.mark()
    return pod


def sizes(pod: Json, name: str = "app") -> ObservedSize:
    """The size of a container, which its spec and its kubelet state as request and limit."""
    assert pod["status"]["qosClass"] == "Guaranteed"
    assert requests(pod, name) == limits(pod, name)
    told = statuses_of(pod)[name].get("resources")
    assert told is None or told["requests"] == told["limits"]
    return requests(pod, name)


def patched(stage: LiveStage) -> list[list[Json]]:
    """The containers of each resize that the API server answered."""
    events = [one for one in stage.events() if (one.verb, one.resource) == ("patch", "pods/resize")]
    assert {one.code for one in events} <= {200}
    specs = [one.request_object["spec"] for one in events]
    return [[*spec.get("containers", ()), *spec.get("initContainers", ())] for spec in specs]


def test_by_default_it_is_skipped(stage: LiveStage):
    pod = known(stage)
    said = stage.once("full")
    assert list_skipped(said) == {"db-0": "guaranteed"}
    assert not stage.deeds()
    assert stage.pod("db")["spec"] == pod["spec"]


def test_it_is_resized_in_place_and_remains_guaranteed(stage: LiveStage):
    before = known(stage)
    stage.once("resize", **RESIZE)
    after = stage.resized("db-0")
    assert (sizes(after), sizes(after, "proxy")) == (SIZED, SMALL_SIZED)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert {one["restartCount"] for one in statuses_of(after).values()} == {0}
    [containers] = patched(stage)
    for one in containers:
        assert one["resources"]["requests"] == one["resources"]["limits"]
        assert set(one["resources"]["limits"]) == {"cpu", "memory"}
    stage.mark()
    stage.once("resize", **RESIZE)
    assert not stage.deeds()
    # Taken back as it was, with equal limits again.
    stage.command("revert", "--yes", mode="resize")
    restored = stage.resized("db-0")
    assert sizes(restored) == ObservedSize(1500, 1024)


def test_an_annotation_is_enough_and_a_short_history_decreases_nothing(stage: LiveStage):
    known(stage)
    stage.admin.patch(
        "statefulsets.apps", stage.namespace, "db", {"metadata": {"annotations": {"cruise.io/guaranteed": "resize"}}}
    )
    said = stage.once("resize", memory_limit_history="28d")
    assert not list_skipped(said)
    assert not stage.deeds()
    stage.once("resize")
    assert sizes(stage.resized("db-0")) == SIZED


def test_new_pods_are_created_at_their_sizes(stage: LiveStage):
    known(stage)
    stage.once("initial", **RESIZE)
    with stage.reviewing("initial", **RESIZE):

        def look() -> Json | None:
            one = next(iter(stage.pods("db")), None)
            return one if one is not None and requests(one) == SIZED else None

        stage.admin.delete("pods", stage.namespace, "db-0", grace=0)
        wait_until(look, "the new pod is sized")
    [created] = stage.running(1)
    assert (sizes(created), sizes(created, "proxy")) == (SIZED, SMALL_SIZED)
    setup = created["spec"]["initContainers"][1]["resources"]
    assert setup["requests"] == setup["limits"] == SETUP


def test_a_static_cpu_manager_refuses_once(stage: LiveStage):
    stage.kubelet.behave(KubeletBehaviour(ResizeBehaviour.STATIC_CPU_MANAGER), stage.namespace)
    known(stage)
    stage.once("resize", **RESIZE)

    def refused() -> Json | None:
        pod = stage.pod("db")
        return pod if conditions(pod).get("PodResizePending", {}).get("reason") == "Infeasible" else None

    wait_until(refused, "the kubelet refuses")
    # Each command is a separate process: only the database keeps state.
    stage.once("resize", **RESIZE)
    withdrawn = stage.resized("db-0")
    assert sizes(withdrawn) == ObservedSize(1500, 1024)
    stage.once("resize", **RESIZE)
    after = stage.resized("db-0")
    assert (sizes(after), sizes(after, "proxy")) == (ObservedSize(1500, 225), ObservedSize(200, 60))
    assert len(patched(stage)) == 3
    stage.mark()
    stage.once("resize", **RESIZE)
    assert not stage.deeds()


def test_cpu_and_memory_of_a_pod_with_a_gpu_are_sized(stage: LiveStage):
    stage.node(cpu="8", memory="16Gi", extended={"nvidia.com/gpu": "1"})
    device = {"nvidia.com/gpu": "1"}
    one = container(requests={"cpu": "4", "memory": "8Gi", **device}, limits={"memory": "8Gi", **device})
    template = pod_template("trainer", one, terminationGracePeriodSeconds=1)
    stage.create(workload("Deployment", stage.namespace, "trainer", template))
    [before] = stage.running(1)
    stage.measure({"trainer": USE})
    stage.mark()
    said = stage.once("full")
    assert not list_skipped(said)
    after = stage.resized(before["metadata"]["name"])
    assert 100 <= requests(after).cpu <= 275
    assert 100 <= requests(after).memory <= 165
    stated: dict[str, Any] = containers_of(after)["app"]["resources"]
    assert stated["requests"]["nvidia.com/gpu"] == stated["limits"]["nvidia.com/gpu"] == "1"
    [[changed]] = patched(stage)
    assert {*changed["resources"]["requests"], *changed["resources"].get("limits", ())} <= {"cpu", "memory"}
    stage.admin.delete("pods", stage.namespace, before["metadata"]["name"], grace=0)
    with stage.reviewing("initial"):

        def look() -> Json | None:
            for one in stage.pods("trainer"):
                if requests(one) == ObservedSize(250, 150):
                    return one
                stage.admin.delete("pods", stage.namespace, one["metadata"]["name"], grace=0)
            return None

        created = wait_until(look, "a new pod is sized", longest_pause=3)
    stated = containers_of(created)["app"]["resources"]
    assert stated["requests"]["nvidia.com/gpu"] == stated["limits"]["nvidia.com/gpu"] == "1"
