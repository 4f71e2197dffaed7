"""What people ask for by annotation, and what cruise does where it cannot read it."""

from collections.abc import Mapping

import pytest

from tests.controlplane.api import Json, until
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import Stage, held
from tests.e2e.live.usage import Use

USE = Use(cores=0.4, mebibytes=300, peak_cores=0.5, peak_mebibytes=400)


def annotated(stage: Stage, annotations: Mapping[str, str], cpu: str = "1", memory: str = "1Gi") -> Json:
    """A pod of a workload whose template has the annotations."""
    stage.node()
    stage.create(app("Deployment", stage.namespace, "web", cpu, memory, annotations=annotations))
    [pod] = stage.running(1)
    stage.measure({"web": USE})
    stage.mark()
    return pod


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"cruise.io/mode": "off"}, "mode-off"),
        ({"cruise.io/mode": "observe"}, "mode-observe"),
        ({"cruise.io/mode": "initial"}, "mode-initial"),
        ({"cruisekube.truefoundry.com/excluded": "true"}, "mode-off"),
    ],
)
def test_who_asks_to_be_left_alone_is(stage: Stage, annotations: Mapping[str, str], reason: str):
    pod = annotated(stage, annotations)
    said = stage.once()
    assert stage.deeds() == []
    assert held(said) == {pod["metadata"]["name"]: reason}


@pytest.mark.parametrize("on", ["workload", "namespace"])
def test_an_annotation_on_the_workload_or_its_namespace_counts_as_well(stage: Stage, on: str):
    pod = annotated(stage, {})
    body = {"metadata": {"annotations": {"cruise.io/mode": "off"}}}
    if on == "workload":
        stage.admin.patch("deployments.apps", stage.namespace, "web", body, kind="merge")
    else:
        stage.admin.patch("namespaces", None, stage.namespace, body, kind="merge")
    said = stage.once()
    assert stage.deeds() == []
    assert held(said) == {pod["metadata"]["name"]: "mode-off"}


@pytest.mark.parametrize(
    ("annotations", "cpu", "memory"),
    [
        ({"cruise.io/cpu-max": "300m"}, range(300, 301), range(300, 401)),
        ({"cruise.io/memory-min": "700Mi"}, range(400, 501), range(700, 701)),
        ({"cruise.io/cpu-min.app": "800m"}, range(800, 801), range(300, 401)),
        ({"cruise.io/resources": "memory"}, range(1000, 1001), range(300, 401)),
        ({"cruise.io/resources": "cpu"}, range(400, 501), range(1024, 1025)),
        ({"cruise.io/headroom-factor": "0"}, range(400, 402), range(300, 301)),
    ],
)
def test_sizes_keep_to_what_is_asked(stage: Stage, annotations: Mapping[str, str], cpu: range, memory: range):
    pod = annotated(stage, annotations)
    stage.once()
    size = requests(stage.resized(pod["metadata"]["name"]))
    assert size.cpu in cpu
    assert size.memory in memory


def test_who_may_never_be_evicted_stays_whatever_it_costs(stage: Stage):
    node = stage.node(cpu="1")
    for name in ("one", "two"):
        never = {"cruise.io/eviction-ranking": "never"}
        stage.create(app("Deployment", stage.namespace, name, "300m", "128Mi", node=node, annotations=never))
    stage.running(2)
    stage.measure(dict.fromkeys(("one", "two"), Use(cores=0.8, mebibytes=100)))
    stage.mark()
    said = stage.once("full")
    [plan] = said["nodes"]
    assert (plan["fits"], plan["reason"], plan["evict"]) == (False, "oversubscribed", [])
    # Nothing grows where not all can; what asks for too much shrinks all the same.
    assert {(verb, resource) for verb, resource, *_ in stage.deeds()} == {("patch", "pods/resize")}
    assert {(requests(one).cpu, requests(one).memory) for one in stage.pods()} == {(300, 100)}


@pytest.mark.parametrize(
    "annotations",
    [
        {"cruise.io/cpu-max": "lots"},
        {"cruise.io/mode": "sometimes"},
        {"cruise.io/memory-max": "1Gi\n2Gi"},
        {"cruise.io/headroom-factor": "NaN"},
        {"cruise.io/resources": "disk"},
        {"cruise.io/cpu-mix": "1"},
    ],
    ids=["quantity", "mode", "two lines", "not a number", "resource", "key"],
)
def test_an_annotation_that_cannot_be_read_leaves_the_pod_alone_and_says_so_in_an_event(
    stage: Stage, annotations: Mapping[str, str]
):
    pod = annotated(stage, annotations)
    said = stage.once()
    assert stage.deeds() == []
    assert held(said) == {pod["metadata"]["name"]: "unreadable-annotation"}
    [event] = until(lambda: events_of(stage, pod), "there is an Event")
    [key] = annotations
    assert event["type"] == "Warning"
    assert key in event["message"]
    assert event["source"]["component"].startswith("cruise") or event["reportingComponent"].startswith("cruise")


def test_what_is_done_is_told_in_an_event_on_the_pod(stage: Stage):
    pod = annotated(stage, {})
    stage.once()
    [event] = until(lambda: events_of(stage, pod), "there is an Event")
    assert event["type"] == "Normal"
    assert event["involvedObject"]["uid"] == pod["metadata"]["uid"]


def events_of(stage: Stage, pod: Json) -> list[Json]:
    """The Events on a pod that cruise has written."""
    return [
        one
        for one in stage.admin.items("events", stage.namespace)
        if one["involvedObject"]["name"] == pod["metadata"]["name"]
        and "cruise" in (one.get("reportingComponent") or one.get("source", {}).get("component", ""))
    ]
