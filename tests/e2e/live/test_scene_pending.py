"""A pending pod whose own requests fit no node is shrunk in place and bound."""

import pytest

from tests.controlplane.api import Json, wait_until
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import ObservedSize, limits, requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.15, mebibytes=100, peak_cores=0.2, peak_mebibytes=150)


def bound(stage: LiveStage, pod: Json) -> Json:
    """Wait until a pod is on a node."""

    def look() -> Json | None:
        found = stage.admin.read("pods", stage.namespace, pod["metadata"]["name"])
        return found if found["spec"].get("nodeName") else None

    return wait_until(look, "the pod is bound")


@pytest.mark.parametrize("predecessor", ["gone", "running"])
def test_an_unschedulable_pod_is_shrunk_to_its_workloads_peak_and_bound(stage: LiveStage, predecessor: str):
    node = stage.node(cpu="4")
    stage.create(app("Deployment", stage.namespace, "web", "5", "16Gi", replicas=1))
    pod = stage.pending("web")
    owner = pod["metadata"]["ownerReferences"][0]["name"]
    # What the workload uses is known from a pod of its ReplicaSet that ran here before.
    former = (f"{owner}-bcdfg", "app", USE, node)
    if predecessor == "running":
        stage.create(app("Deployment", stage.namespace, "other", "3", "1Gi"))
        stage.running(1, "other")
    stage.measure({"other": USE}, former=[former])
    stage.mark()
    stage.once()
    placed = bound(stage, pod)
    assert placed["metadata"]["uid"] == pod["metadata"]["uid"]
    assert requests(placed) == ObservedSize(200, 150)
    assert limits(placed) == limits(pod)
    assert {(verb, resource, code) for verb, resource, _, code in stage.deeds()} == {("patch", "pods/resize", 200)}


def test_an_unschedulable_pod_without_statistics_is_skipped(stage: LiveStage):
    stage.node(cpu="4")
    stage.create(app("Deployment", stage.namespace, "web", "5", "1Gi"))
    pod = stage.pending("web")
    stage.create(app("Deployment", stage.namespace, "other", "1", "1Gi"))
    stage.running(1, "other")
    stage.measure({"other": USE})
    stage.mark()
    said = stage.once()
    assert requests(stage.pod("web")) == requests(pod)
    assert f"{stage.namespace}/{pod['metadata']['name']}" not in {target for _, _, target, _ in stage.deeds()}
    assert pod["metadata"]["name"] in str(said)
    assert "no-statistics" in str(said)
