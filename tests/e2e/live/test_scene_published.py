"""Sizes as VerticalPodAutoscalers on a real control plane: cruise makes its own, and touches none of a user."""

import pytest

from tests.controlplane.api import Api, ApiError, Json, until
from tests.deploy.installing import SERVE, documents, empowered, remove
from tests.e2e.live.custom_kinds import create_vertical, vertical_autoscalers
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import Stage
from tests.e2e.live.usage import Use

KIND = "verticalpodautoscalers.autoscaling.k8s.io"


def vpas(admin: Api, namespace: str) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in admin.items(KIND, namespace)}


def test_sizes_are_shown_as_vpas_that_go_with_their_workloads(stage: Stage):
    ns, admin = stage.namespace, stage.admin
    stage.node(cpu="8", memory="16Gi")
    stage.create(app("Deployment", ns, "web", "700m", "1Gi"), app("Deployment", ns, "own", "700m", "1Gi"))
    stage.running(2)
    stage.measure({"web": Use(cores=0.1, mebibytes=100, peak_cores=0.2), "own": Use(cores=0.1, mebibytes=100)})
    with vertical_autoscalers(admin):
        create_vertical(admin, ns, "own", "Off")
        before = vpas(admin, ns)["own"]
        rights = documents("rbac/publish.yaml")
        for one in rights:
            admin.apply(one)
        try:
            with stage.serving("resize", pass_interval="2s", publish_vpas="off"):
                until(lambda: "status" in vpas(admin, ns).get("cruise-deployment-web", {}), "sizes are shown")
        finally:
            for one in rights:
                remove(admin, one)
        found = vpas(admin, ns)
        assert set(found) == {"own", "cruise-deployment-web"}
        assert found["own"] == before
        shown = found["cruise-deployment-web"]
        assert shown["spec"]["updatePolicy"] == {"updateMode": "Off"}
        assert shown["spec"]["recommenders"] == [{"name": "cruise"}]
        [container] = shown["status"]["recommendation"]["containerRecommendations"]
        assert set(container) == {"containerName", "lowerBound", "target", "upperBound", "uncappedTarget"}
        assert 150 <= int(container["target"]["cpu"].removesuffix("m")) <= 240
        assert [one["type"] for one in shown["status"]["conditions"]] == ["RecommendationProvided", "LowConfidence"]
        assert {one["manager"] for one in shown["metadata"]["managedFields"]} == {"cruise"}
        for subresource in (None, "status"):
            with pytest.raises(ApiError, match="VerticalPodAutoscalers of users are left alone"):
                empowered(admin, SERVE).patch(KIND, ns, "own", {"spec": {"x": 1}}, "merge", subresource)
        admin.delete("deployments.apps", ns, "web")
        until(lambda: set(vpas(admin, ns)) == {"own"}, "what was shown went with its workload")
