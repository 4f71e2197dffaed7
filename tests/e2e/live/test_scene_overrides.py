"""Override annotations, and the behavior if they are unreadable."""

from collections.abc import Mapping

from tests.controlplane.api import Json, wait_until
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import ObservedSize, requests
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.4, mebibytes=300, peak_cores=0.5, peak_mebibytes=400)
ASKED = ObservedSize(1000, 1024)
LEFT_ALONE = {
    "off": ({"cruise.io/mode": "off"}, "mode-off"),
    "observe": ({"cruise.io/mode": "observe"}, "mode-observe"),
    "initial": ({"cruise.io/mode": "initial"}, "mode-initial"),
    "foreign": ({"cruisekube.truefoundry.com/excluded": "true"}, "mode-off"),
}
# What CPU and memory may be asked for then, in millicores and MiB: from the base on where nothing else is said; to the
# peak, and what the node needs beside those whose sizes others have stated.
CPU, MEMORY = range(400, 551), range(300, 441)
ASKED_FOR = {
    "none": ({}, CPU, MEMORY),
    "at-most": ({"cruise.io/cpu-max": "350m"}, range(350, 351), MEMORY),
    "at-least": ({"cruise.io/memory-min": "700Mi"}, CPU, range(700, 701)),
    "one-container": ({"cruise.io/cpu-min.app": "800m"}, range(800, 801), MEMORY),
    "memory": ({"cruise.io/resources": "memory"}, range(1000, 1001), MEMORY),
    "cpu": ({"cruise.io/resources": "cpu"}, CPU, range(1024, 1025)),
    "no-headroom": ({"cruise.io/headroom-factor": "0"}, range(400, 402), range(300, 301)),
}
GARBAGE = {
    "quantity": {"cruise.io/cpu-max": "lots"},
    "mode": {"cruise.io/mode": "sometimes"},
    "two-lines": {"cruise.io/memory-max": "1Gi\n2Gi"},
    "no-number": {"cruise.io/headroom-factor": "NaN"},
    "resource": {"cruise.io/resources": "disk"},
    "key": {"cruise.io/cpu-mix": "1"},
}


def annotated(stage: LiveStage, annotations: Mapping[str, Mapping[str, str]]) -> dict[str, Json]:
    """Pods of workloads whose templates have annotations, by name of the workload."""
    stage.node(cpu="16", memory="64Gi")
    for name, told in annotations.items():
        stage.create(app("Deployment", stage.namespace, name, "1", "1Gi", annotations=told))
    stage.running(len(annotations))
    stage.measure(dict.fromkeys(annotations, USE))
    stage.mark()
    return {one["metadata"]["labels"]["app"]: one for one in stage.pods()}


def test_a_pod_that_requests_to_be_skipped_is_skipped(stage: LiveStage):
    pods = annotated(stage, {name: told for name, (told, _) in LEFT_ALONE.items()} | {"workload": {}})
    off = {"metadata": {"annotations": {"cruise.io/mode": "off"}}}
    stage.admin.patch("deployments.apps", stage.namespace, "workload", off, kind="merge")
    said = stage.once()
    assert stage.deeds() == []
    expected = {name: reason for name, (_, reason) in LEFT_ALONE.items()} | {"workload": "mode-off"}
    assert list_skipped(said) == {pods[name]["metadata"]["name"]: reason for name, reason in expected.items()}


def test_a_namespace_caps_its_workloads(stage: LiveStage):
    pods = annotated(stage, {"silent": {}, "bold": {"cruise.io/mode": "full"}})
    off = {"metadata": {"annotations": {"cruise.io/mode": "off"}}}
    stage.admin.patch("namespaces", None, stage.namespace, off, kind="merge")
    said = stage.once()
    assert stage.deeds() == []
    assert list_skipped(said) == {one["metadata"]["name"]: "mode-off" for one in pods.values()}


def test_sizes_respect_overrides_and_events_report_them(stage: LiveStage):
    pods = annotated(stage, {name: told for name, (told, *_) in ASKED_FOR.items()})
    stage.once()
    for name, (_, cpu, memory) in ASKED_FOR.items():
        size = requests(stage.resized(pods[name]["metadata"]["name"]))
        assert size.cpu in cpu, name
        assert size.memory in memory, name
    for pod in pods.values():
        event = event_on(stage, pod)
        assert event["type"] == "Normal"
        assert event["involvedObject"]["uid"] == pod["metadata"]["uid"]


def test_a_pod_that_may_never_be_evicted_is_not_evicted_at_any_cost(stage: LiveStage):
    node = stage.node(cpu="1")
    for name in ("one", "two"):
        never = {"cruise.io/eviction-ranking": "never"}
        stage.create(app("Deployment", stage.namespace, name, "300m", "128Mi", node=node, annotations=never))
    stage.running(2)
    stage.measure(dict.fromkeys(("one", "two"), ContainerUse(cores=0.8, mebibytes=100)))
    stage.mark()
    said = stage.once("full")
    [plan] = said["nodes"]
    assert (plan["fits"], plan["reason"], plan["evict"]) == (False, "overcommitted", [])
    # They share the core; those that request too much shrink anyway.
    assert {(verb, resource) for verb, resource, *_ in stage.deeds()} == {("patch", "pods/resize")}
    sizes = [requests(one) for one in stage.pods()]
    assert [size.cpu for size in sizes] == [500, 500]
    assert all(100 <= size.memory <= 110 for size in sizes)


def test_an_invalid_annotation_skips_the_pod_and_is_reported_in_an_event(stage: LiveStage):
    pods = annotated(stage, GARBAGE)
    said = stage.once()
    assert stage.deeds() == []
    assert list_skipped(said) == {one["metadata"]["name"]: "unreadable-annotation" for one in pods.values()}
    for name, told in GARBAGE.items():
        event = event_on(stage, pods[name])
        [key] = told
        assert event["type"] == "Warning"
        assert key in event["message"]
    assert {requests(one) for one in stage.pods()} == {ASKED}


def event_on(stage: LiveStage, pod: Json) -> Json:
    """Wait for the Event on a pod that cruise has written; there is but one."""

    def look() -> list[Json]:
        return [
            one
            for one in stage.admin.items("events", stage.namespace)
            if one["involvedObject"]["name"] == pod["metadata"]["name"]
            and "cruise" in (one.get("reportingComponent") or one.get("source", {}).get("component", ""))
        ]

    [only] = wait_until(look, "there is an Event")
    return only
