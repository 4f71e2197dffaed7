"""Pods that are skipped on a real control plane, one for each reason."""

from typing import Any

from tests.controlplane.api import Json, wait_until
from tests.controlplane.behaviour import KubeletBehaviour
from tests.controlplane.manifests import container, pod_template, workload
from tests.e2e.live.manifests import app, autoscaler
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.1, mebibytes=100)
ASKED = {"cpu": "500m", "memory": "512Mi"}
RESTARTS = [{"resourceName": name, "restartPolicy": "RestartContainer"} for name in ("cpu", "memory")]


def deployment(stage: LiveStage, name: str, node: str, one: Json, **spec: Any) -> Json:
    """A Deployment of one container that is stated whole."""
    here = {"kubernetes.io/hostname": node}
    return workload("Deployment", stage.namespace, name, pod_template(name, one, nodeSelector=here, **spec))


def autoscaled_on_both(stage: LiveStage, name: str) -> Json:
    """An HPA that targets the utilisation of CPU and memory."""
    made = autoscaler(stage.namespace, name)
    [cpu] = made["spec"]["metrics"]
    made["spec"]["metrics"] = [cpu, {"type": "Resource", "resource": {**cpu["resource"], "name": "memory"}}]
    return made


def test_each_skipped_pod_has_its_own_reason(stage: LiveStage):
    ns = stage.namespace
    new = stage.node("new", cpu="8", memory="16Gi", extended={"example.com/gpu": "2"})
    old = stage.node("old", kubelet_version="v1.32.0", declared_features=())
    # Resizes containers, and no pods as a whole.
    middle = stage.node("middle", cpu="8", memory="16Gi", kubelet_version="v1.35.0", declared_features=())
    gpu = {"example.com/gpu": "1"}
    stage.create(
        app("Deployment", ns, "guaranteed", "500m", "512Mi", ASKED, node=new),
        deployment(stage, "best-effort", new, container()),
        deployment(stage, "extended-resources", new, container(requests={**ASKED, **gpu}, limits=gpu)),
        deployment(stage, "resize-restarts", new, container(requests=ASKED, resizePolicy=RESTARTS)),
        deployment(stage, "pod-level-resources", middle, container(), resources={"requests": ASKED}),
        app("Deployment", ns, "managed-by-hpa", "500m", "512Mi", node=new),
        autoscaled_on_both(stage, "managed-by-hpa"),
        app("Deployment", ns, "resize-unsupported", "500m", "512Mi", node=old),
        app("Deployment", ns, "no-statistics", "500m", "512Mi", node=new),
        app("Deployment", ns, "terminating", "500m", "512Mi", node=new, terminationGracePeriodSeconds=600),
    )
    stage.kubelet.behave(KubeletBehaviour(termination_seconds=600), ns, labels={"app": "terminating"})
    stage.running(9)
    reasons = {one["metadata"]["labels"]["app"] for one in stage.pods()}
    stage.measure(dict.fromkeys(reasons - {"no-statistics"}, USE))
    leaving = stage.pod("terminating")
    stage.admin.delete("deployments.apps", ns, "terminating")
    wait_until(lambda: stage.pod("terminating")["metadata"].get("deletionTimestamp"), "it is terminating")
    before = {one["metadata"]["name"]: one["spec"] for one in stage.pods()}
    stage.mark()

    said = stage.once("full", allow_extended_resources="false")
    assert list_skipped(said) == {one["metadata"]["name"]: one["metadata"]["labels"]["app"] for one in stage.pods()}
    assert leaving["metadata"]["name"] in list_skipped(said)
    assert stage.deeds() == []
    assert {one["metadata"]["name"]: one["spec"] for one in stage.pods()} == before


def test_a_workload_created_within_the_hour_is_skipped(stage: LiveStage):
    stage.node()
    stage.create(app("Deployment", stage.namespace, "web", "500m", "512Mi"))
    [pod] = stage.running(1)
    stage.measure({"web": USE})
    stage.mark()
    said = stage.once(new_workload_age="1h")
    assert list_skipped(said) == {pod["metadata"]["name"]: "new-workload"}
    assert stage.deeds() == []
