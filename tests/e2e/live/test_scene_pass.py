"""One pass over pods of every kind: resized, or skipped with a reason, and a pending pod is bound."""

import pytest

from tests.controlplane.api import Json, wait_until
from tests.controlplane.manifests import budget, container, pod, pod_template, workload
from tests.e2e.live.manifests import app, autoscaler, run_of_cron_job, sidecar
from tests.e2e.live.sizes import MIB, ObservedSize, counted, limits, requests, statuses_of
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.2, peak_mebibytes=150, waiting=0.05)
SMALL = ContainerUse(cores=0.02, mebibytes=20, peak_cores=0.03, peak_mebibytes=24)
RESIZED = ("web", "db", "agent", "report", "meshed", "scaled", "guarded")
LEFT_ALONE = {"exact": "guaranteed", "bare": "no-controller"}


def one_of_each(stage: LiveStage, node: str) -> None:
    ns = stage.namespace
    stage.create(
        app("Deployment", ns, "web", "700m", "1Gi", {"cpu": "1", "memory": "1Gi"}),
        app("StatefulSet", ns, "db", "500m", "1Gi"),
        app("DaemonSet", ns, "agent", "300m", "256Mi"),
        app("Deployment", ns, "meshed", "400m", "512Mi", initContainers=[sidecar("proxy", "300m", "256Mi")]),
        app("Deployment", ns, "exact", "200m", "128Mi", {"cpu": "200m", "memory": "128Mi"}),
        app("Deployment", ns, "scaled", "400m", "512Mi"),
        autoscaler(ns, "scaled"),
        app("Deployment", ns, "guarded", "400m", "512Mi"),
        budget(ns, "guarded", "guarded", min_available=1),
        pod(ns, "bare", container(requests={"cpu": "100m", "memory": "64Mi"})),
    )
    run_of_cron_job(
        stage.admin, ns, "report", pod_template("report", container(requests={"cpu": "400m", "memory": "256Mi"}))
    )


@pytest.mark.parametrize("mode", ["resize", "full"])
def test_one_pass_over_one_of_each(stage: LiveStage, mode: str):
    node = stage.node(cpu="4", memory="8Gi")
    one_of_each(stage, node)
    stage.running(9)
    stage.create(app("Deployment", stage.namespace, "late", "1", "256Mi"))
    stage.pending("late")
    apps = (*RESIZED, *LEFT_ALONE)
    stage.measure({name: USE for name in apps} | {("meshed", "proxy"): SMALL})
    before = {one["metadata"]["labels"]["app"]: one for one in stage.pods()}
    stage.mark()
    said = stage.once(mode, memory_limits="always")

    after = {name: stage.resized(before[name]["metadata"]["name"]) for name in apps}
    for name in RESIZED:
        size = requests(after[name])
        # An HPA targets the utilisation of its CPU: a smaller request would start more pods.
        assert size.cpu == 400 if name == "scaled" else 105 <= size.cpu <= 210, name
        # Up to its own peak and a tenth.
        assert 100 <= size.memory <= 165, name
        assert limits(after[name]).memory == 300, name
        assert {one["restartCount"] for one in statuses_of(after[name]).values()} == {0}
    assert 20 <= requests(after["meshed"], "proxy").cpu <= 30
    assert {name: after[name]["spec"] for name in LEFT_ALONE} == {name: before[name]["spec"] for name in LEFT_ALONE}
    [plan] = [plan for plan in said["nodes"] if plan["node"] == node]
    assert plan["fits"] is True
    reasons = {hold["pod"]: hold["reason"] for hold in plan["hold"]}
    assert reasons == {before[name]["metadata"]["name"]: reason for name, reason in LEFT_ALONE.items()}

    late = wait_until(
        lambda: next((one for one in stage.pods("late") if one["spec"].get("nodeName")), None), "late is bound"
    )
    assert requests(late) == ObservedSize(1000, 256)
    taken = counted(stage.pods(), node)
    assert taken.cpu <= 4000
    assert taken.memory * MIB <= 8 * 2**30
    # No pod was evicted, and nothing else was written.
    assert {one["metadata"]["uid"] for one in stage.pods()} == {one["metadata"]["uid"] for one in before.values()}
    assert {(verb, resource, code) for verb, resource, _, code in stage.deeds()} == {("patch", "pods/resize", 200)}
    names = [before[name]["metadata"]["name"] for name in RESIZED]
    assert sorted(target for _, _, target, _ in stage.deeds()) == sorted(f"{stage.namespace}/{name}" for name in names)
    as_agreed(stage, before)

    stage.mark()
    stage.once(mode)
    assert stage.deeds() == [], "a second pass has nothing to do"


def as_agreed(stage: LiveStage, before: dict[str, Json]) -> None:
    """See that requests carry cruise's name, and that each resize is one patch, fenced on its pod's uid."""
    asked = stage.events()
    assert {one.user_agent.partition("/")[0] for one in asked} == {"cruise"}
    writes = [one for one in asked if one.resource == "pods/resize"]
    assert all("fieldManager=cruise" in one.request_uri for one in writes)
    uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in before.values()}
    assert [one.request_object["metadata"]["uid"] for one in writes] == [uids[one.object_ref.name] for one in writes]


@pytest.mark.parametrize("mode", ["observe", "initial"])
def test_a_mode_without_resizes_writes_nothing(stage: LiveStage, mode: str):
    stage.node()
    stage.create(workload("Deployment", stage.namespace, "web", pod_template("web", container(requests={"cpu": "1"}))))
    [before] = stage.running(1)
    stage.measure({"web": USE})
    stage.mark()
    stage.once(mode)
    assert stage.writes() == []
    # It has looked, though.
    assert {one.resource for one in stage.events() if one.verb in ("list", "watch")} >= {"pods", "nodes"}
    assert stage.pod("web")["spec"] == before["spec"]
