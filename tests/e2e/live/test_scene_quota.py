"""ResourceQuotas: counted limits stay, and no request is sent that the quota would reject."""

from tests.controlplane.api import wait_until
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import limits, requests
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse

QUOTA = {"limits.cpu": "2", "limits.memory": "2Gi", "requests.cpu": "900m"}


def test_a_pass_keeps_within_the_quota(stage: LiveStage):
    ns = stage.namespace
    stage.node(cpu="64", memory="64Gi")
    stage.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"namespace": ns, "name": "all"},
            "spec": {"hard": QUOTA},
        }
    )

    def used() -> dict[str, str]:
        return dict(stage.admin.read("resourcequotas", ns, "all").get("status", {}).get("used") or {})

    wait_until(used, "the quota counts")
    stage.create(
        app("Deployment", ns, "shrinks", "700m", "512Mi", {"cpu": "1", "memory": "1Gi"}),
        app("Deployment", ns, "grows", "100m", "512Mi", {"cpu": "1", "memory": "1Gi"}),
    )
    stage.running(2)
    stage.measure({"shrinks": ContainerUse(cores=0.1, mebibytes=480), "grows": ContainerUse(cores=0.5, mebibytes=480)})
    before = wait_until(lambda: used() if used().get("limits.cpu") == "2" else None, "both pods count")
    stage.mark()
    said = stage.once("full")

    shrunk = stage.resized(stage.pod("shrinks")["metadata"]["name"])
    # What its neighbour may not have, the node keeps here.
    assert 100 <= requests(shrunk).cpu <= 200
    assert limits(shrunk) == (1000, 1024)
    # Without the rule its limit became the node's 64 CPUs, and no other pod of the namespace could start.
    assert used()["limits.cpu"] == before["limits.cpu"] == "2"
    assert used()["limits.memory"] == before["limits.memory"]
    grows = stage.pod("grows")
    assert requests(grows).cpu == 100
    assert list_skipped(said)[grows["metadata"]["name"]] == "quota-exceeded"
    assert [(verb, resource, code) for verb, resource, _, code in stage.deeds()] == [("patch", "pods/resize", 200)]
