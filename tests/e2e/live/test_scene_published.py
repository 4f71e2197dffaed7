"""Published VerticalPodAutoscalers on a real control plane: users' own objects are not changed."""

from pathlib import Path

import pytest

from tests.controlplane.api import Api, ApiError, Json, wait_until
from tests.deploy.installing import SERVE, documents, grant_permissions, remove
from tests.e2e.live.custom_kinds import create_vertical, vertical_autoscalers
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering

KIND = "verticalpodautoscalers.autoscaling.k8s.io"


def vpas(admin: Api, namespace: str) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in admin.items(KIND, namespace)}


def test_sizes_are_shown_as_vpas_that_are_deleted_with_their_workloads(stage: LiveStage):
    ns, admin = stage.namespace, stage.admin
    stage.node(cpu="8", memory="16Gi")
    stage.create(app("Deployment", ns, "web", "700m", "1Gi"), app("Deployment", ns, "own", "700m", "1Gi"))
    stage.running(2)
    stage.measure(
        {"web": ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.2), "own": ContainerUse(cores=0.1, mebibytes=100)}
    )
    with vertical_autoscalers(admin):
        create_vertical(admin, ns, "own", "Off")
        before = vpas(admin, ns)["own"]
        rights = documents("rbac/publish.yaml")
        for one in rights:
            admin.apply(one)
        try:
            with stage.serving("resize", pass_interval="2s", publish_vpas="off"):
                wait_until(lambda: "status" in vpas(admin, ns).get("cruise-deployment-web", {}), "sizes are shown")
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
            with pytest.raises(ApiError, match="cruise may not change VerticalPodAutoscalers of users"):
                grant_permissions(admin, SERVE).patch(KIND, ns, "own", {"spec": {"x": 1}}, "merge", subresource)
        admin.delete("deployments.apps", ns, "web")
        wait_until(lambda: set(vpas(admin, ns)) == {"own"}, "what was shown went with its workload")


def no_resizes(stage: LiveStage) -> list[Json]:
    """A policy of the users' own that refuses every resize in the scene's namespace."""
    kind, metadata = "admissionregistration.k8s.io/v1", {"name": f"no-resizes-{stage.namespace}"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/resize"]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
        "validations": [{"expression": "false", "message": "not on a Friday"}],
    }
    bound = {"policyName": metadata["name"], "validationActions": ["Deny"]}
    return [
        {"apiVersion": kind, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {"apiVersion": kind, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": bound},
    ]


def test_one_pass_publishes_and_notifies_of_what_was_refused(stage: LiveStage, tmp_path: Path):
    ns, admin = stage.namespace, stage.admin
    stage.node(cpu="8", memory="16Gi")
    stage.create(app("Deployment", ns, "web", "700m", "1Gi"))
    [pod] = stage.running(1)
    stage.measure({"web": ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.2)})
    secret = tmp_path / "secret"
    secret.write_text("sixteen characters")
    more = [*documents("rbac/publish.yaml"), *no_resizes(stage)]
    posted: list[str] = []

    def receive(request: ReceivedHttpRequest) -> HttpAnswer:
        posted.append(request.text)
        return HttpAnswer(204)

    with vertical_autoscalers(admin), answering(receive) as url:
        for one in more:
            admin.apply(one)

        def refused() -> bool:
            path = admin.path("pods", ns, pod["metadata"]["name"], "resize") + "?dryRun=All"
            try:
                admin.request("PATCH", path, {"metadata": {"labels": {}}}, "application/merge-patch+json")
            except ApiError as error:
                return "not on a Friday" in error.message
            return False

        try:
            wait_until(refused, "the policy is in force")
            said = stage.once(publish_vpas="off", notify_url=url, notify_secret_file=str(secret))
        finally:
            for one in more:
                remove(admin, one)
        assert set(vpas(admin, ns)) == {"cruise-deployment-web"}
    assert [one["result"] for one in said["outcomes"]] == ["refused"]
    assert (said["published"], said["notices"]) == (1, {"sent": 1, "dropped": 0})
    [message] = posted
    assert ns in message
    assert "not on a Friday" in message
