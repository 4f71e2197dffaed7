"""A pod whose usage another pod also exposes is skipped, and its neighbor is sized."""

from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.2, peak_mebibytes=150, waiting=0.05)
SPOOFED = ContainerUse(cores=3.0, mebibytes=4000)


def test_a_pod_with_spoofed_usage_is_skipped_and_its_neighbour_is_sized(stage: LiveStage) -> None:
    node = stage.node(cpu="4", memory="8Gi")
    for name in ("victim", "web"):
        stage.create(app("Deployment", stage.namespace, name, "700m", "1Gi"))
    stage.running(2)
    stage.measure({"victim": USE, "web": USE}, impostors={"victim": SPOOFED})
    [victim], [web] = stage.pods("victim"), stage.pods("web")
    stage.mark()
    said = stage.once("full")
    [plan] = [plan for plan in said["nodes"] if plan["node"] == node]
    assert [(hold["pod"], hold["reason"]) for hold in plan["hold"]] == [
        (victim["metadata"]["name"], "implausible-usage")
    ]
    assert 105 <= requests(stage.resized(web["metadata"]["name"])).cpu <= 210
    # Nothing else was tried.
    assert [(verb, resource, name) for verb, resource, name, _ in stage.deeds()] == [
        ("patch", "pods/resize", f"{stage.namespace}/{web['metadata']['name']}")
    ]
