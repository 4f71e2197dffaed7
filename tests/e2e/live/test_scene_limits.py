"""Limits, directions and container policies on a real API server, verified by its audit log."""

from typing import Any

from tests.controlplane.api import Json, wait_until
from tests.controlplane.manifests import container
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import ObservedSize, containers_of, limits, requests
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.4, mebibytes=300, peak_cores=0.5, peak_mebibytes=400)
BOUND = {"cpu": "2", "memory": "2Gi"}
PROXY = container("proxy", requests={"cpu": "500m", "memory": "256Mi"}, restartPolicy="Always")
# Requests, limits and annotations by workload; all use the same.
WORKLOADS: dict[str, tuple[str, str, dict[str, str] | None, dict[str, str]]] = {
    "plain": ("1", "1Gi", None, {}),
    "bound": ("1", "1Gi", BOUND, {"cruise.io/cpu-limits": "keep", "cruise.io/memory-limits.app": "never"}),
    "raise": ("300m", "1Gi", {"cpu": "500m"}, {"cruise.io/cpu-limits.app": "raise"}),
    "always": ("1", "1Gi", None, {"cruise.io/memory-limits.app": "always"}),
    "grow": ("1", "1Gi", None, {"cruise.io/direction": "grow"}),
    "shrink": ("100m", "1Gi", {"memory": "2Gi"}, {"cruise.io/direction.app": "shrink"}),
    "sidecar": ("1", "1Gi", None, {"cruise.io/mode.proxy": "off"}),
}


def written(stage: LiveStage) -> dict[str, dict[str, Json]]:
    """The resources that resizes stated, by workload and container, as the audit log has them."""
    found: dict[str, dict[str, Json]] = {}
    for event in stage.events():
        if (event.verb, event.resource) == ("patch", "pods/resize"):
            assert event.code == 200
            spec: Any = event.request_object["spec"]
            name = event.target.rpartition("/")[2].rsplit("-", 2)[0]
            for one in (*spec.get("containers", ()), *spec.get("initContainers", ())):
                found.setdefault(name, {})[one["name"]] = one["resources"]
    return found


def test_no_container_gets_a_limit_or_a_change_that_was_not_asked_for(stage: LiveStage):
    stage.node(cpu="16", memory="64Gi")
    for name, (cpu, memory, bound, told) in WORKLOADS.items():
        more: dict[str, Any] = {"initContainers": [PROXY]} if name == "sidecar" else {}
        stage.create(app("Deployment", stage.namespace, name, cpu, memory, bound, annotations=told, **more))
    before = {one["metadata"]["labels"]["app"]: one for one in stage.running(len(WORKLOADS))}
    stage.measure(dict.fromkeys(WORKLOADS, USE))
    stage.mark()
    stage.once("resize")
    after = {name: stage.pod(name) for name in WORKLOADS}
    patches = written(stage)
    # By default nothing is limited that its template did not limit.
    for name in ("plain", "sidecar"):
        assert not patches[name]["app"].get("limits"), name
        assert limits(after[name]) == ObservedSize(0, 0), name
        assert requests(after[name]).cpu in range(400, 551), name
    assert set(patches["sidecar"]) == {"app"}
    assert requests(after["sidecar"], "proxy") == ObservedSize(500, 256)
    # What is kept stays, next to a request that shrinks.
    assert limits(after["bound"]) == ObservedSize(2000, 2048)
    assert requests(after["bound"]).cpu in range(400, 551)
    # 1.5 x the peak.
    assert limits(after["raise"]) == ObservedSize(750, 0)
    assert limits(after["always"]).cpu == 0
    assert limits(after["always"]).memory in range(800, 810)
    # One direction only: the first would shrink, the second would grow in CPU and shrinks in memory.
    assert "grow" not in patches
    assert requests(after["shrink"]).cpu == 100
    assert requests(after["shrink"]).memory in range(300, 441)
    assert {one["status"]["qosClass"] for one in (*before.values(), *after.values())} == {"Burstable"}
    assert all(set(containers_of(before[name])) == set(containers_of(after[name])) for name in WORKLOADS)


def test_one_namespace_is_tried_by_its_name_or_by_a_label(stage: LiveStage):
    stage.node(cpu="8", memory="16Gi")
    stage.create(app("Deployment", stage.namespace, "web", "1", "1Gi"))
    [pod] = stage.running(1)
    stage.measure({"web": USE})
    stage.mark()
    left_out = {pod["metadata"]["name"]: "namespace-not-included"}
    assert list_skipped(stage.once("resize", included_namespaces="another,team-*")) == left_out
    assert list_skipped(stage.once("resize", namespace_selector="cruise=on")) == left_out
    assert not stage.deeds()
    stage.admin.patch("namespaces", None, stage.namespace, {"metadata": {"labels": {"cruise": "on"}}}, kind="merge")
    said = stage.once("resize", namespace_selector="cruise=on", included_namespaces=stage.namespace)
    assert not list_skipped(said)
    assert requests(stage.resized(pod["metadata"]["name"])).cpu in range(400, 551)


def test_new_pods_keep_protected_sizes(stage: LiveStage):
    stage.node(cpu="8", memory="16Gi")
    kept = {"cruise.io/cpu-limits": "keep", "cruise.io/direction": "shrink"}
    stage.create(app("StatefulSet", stage.namespace, "kept", "300m", "1Gi", BOUND, annotations=kept))
    stage.create(app("StatefulSet", stage.namespace, "free", "300m", "1Gi", BOUND))
    stage.running(2)
    stage.measure(dict.fromkeys(("kept", "free"), USE))
    stage.once("initial")
    with stage.reviewing("initial"):
        for name in ("kept-0", "free-0"):
            stage.admin.delete("pods", stage.namespace, name, grace=0)

        def look() -> list[Json] | None:
            pods = stage.pods()
            return pods if len(pods) == 2 and all(requests(one).memory < 1024 for one in pods) else None

        created = {one["metadata"]["name"]: one for one in wait_until(look, "both are sized")}
    # By default no CPU limit is left, and the request rises to the peak.
    assert limits(created["free-0"]).cpu == 0
    assert requests(created["free-0"]).cpu in range(500, 551)
    assert limits(created["kept-0"]).cpu == 2000
    assert requests(created["kept-0"]).cpu == 300
