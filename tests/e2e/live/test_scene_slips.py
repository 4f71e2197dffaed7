"""Mistakes in settings and annotations: namespace patterns, units and container names that match nothing."""

from functools import partial

import pytest

from tests.controlplane.api import Json, wait_until
from tests.controlplane.namespaces import own_namespace
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import ObservedSize, requests
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse

SYSTEM = "kube-system"
REQUESTED = ObservedSize(700, 1024)
USE = ContainerUse(cores=0.1, mebibytes=300, peak_mebibytes=400)
SLIPS = {
    "half-a-byte": {"cruise.io/memory-max": "512m"},
    "bytes": {"cruise.io/memory-max": "512"},
    "half-a-millicore": {"cruise.io/cpu-max": "0.5m"},
    "no-such-container": {"cruise.io/memory-min.TYPO": "256Mi"},
    "no-such-container-at-all": {"cruise.io/cpu-max.ap": "200m"},
}


def requested(namespace: str, name: str, annotations: dict[str, str] | None = None) -> Json:
    return app("Deployment", namespace, name, "700m", "1Gi", {"memory": "2Gi"}, annotations=annotations)


def requests_by_app(pods: list[Json]) -> dict[str, ObservedSize]:
    return {one["metadata"]["labels"]["app"]: requests(one) for one in pods}


@pytest.mark.parametrize("mode", ["resize", "full"])
def test_namespaces_that_a_pattern_excludes_are_not_written_nor_kube_system(stage: LiveStage, mode: str):
    ns, system_app = stage.namespace, f"dns-{stage.namespace}"
    platform = f"openshift-{ns}"
    stage.node(cpu="16", memory="16Gi")
    with own_namespace(stage.admin, platform):
        places = ((ns, "web"), (platform, "etcd"), (SYSTEM, system_app))
        try:
            stage.create(*(requested(*place) for place in places))
            for place, name in places:
                wait_until(partial(running, stage, place, name), f"{name} runs")
            stage.measure({name: USE for _, name in places}, elsewhere=(platform, SYSTEM))
            stage.mark()
            said = stage.once(mode, excluded_namespaces="openshift-*,ops")
            written = {target.partition("/")[0] for _, _, target, _ in stage.deeds()}
            sizes = {place: requests(stage.admin.items("pods", place, f"app={name}")[0]) for place, name in places}
        finally:
            stage.admin.delete("deployments.apps", SYSTEM, system_app)
    assert written == {ns}
    assert sizes[ns] != REQUESTED
    assert sizes[platform] == sizes[SYSTEM] == REQUESTED
    assert {pod.rpartition("-")[0].rpartition("-")[0]: reason for pod, reason in list_skipped(said).items()} == {
        "etcd": "excluded-namespace",
        system_app: "excluded-namespace",
    }


def running(stage: LiveStage, namespace: str, name: str) -> bool:
    """Return whether the only pod of an app runs."""
    pods = stage.admin.items("pods", namespace, f"app={name}")
    return len(pods) == 1 and pods[0]["status"].get("phase") == "Running"


def test_slips_in_annotations_leave_pods_as_they_are_and_new_ones_as_their_templates(stage: LiveStage):
    ns = stage.namespace
    stage.node(cpu="16", memory="16Gi")
    stage.create(requested(ns, "web"), *(requested(ns, name, slip) for name, slip in SLIPS.items()))
    stage.running(1 + len(SLIPS))
    stage.measure(dict.fromkeys(("web", *SLIPS), USE))
    stage.mark()
    said = stage.once("resize")
    web = stage.pod("web")["metadata"]["name"]
    assert stage.deeds() == [("patch", "pods/resize", f"{ns}/{web}", 200)]
    assert set(list_skipped(said).values()) == {"unreadable-annotation"}
    assert len(list_skipped(said)) == len(SLIPS)
    after = requests_by_app(stage.pods())
    assert after.pop("web").memory >= 300
    assert after == dict.fromkeys(SLIPS, REQUESTED)
    with stage.reviewing():
        stage.admin.delete_all("pods", ns, grace=0)

        def anew() -> dict[str, ObservedSize] | None:
            found = requests_by_app(stage.pods())
            return found if len(found) == 1 + len(SLIPS) else None

        created = wait_until(anew, "there are new pods")
    assert created.pop("web") != REQUESTED
    assert created == dict.fromkeys(SLIPS, REQUESTED)
