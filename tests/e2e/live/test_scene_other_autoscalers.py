"""Resources that another autoscaler sizes or scales on are never written."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.api import Api, wait_until
from tests.e2e.live.custom_kinds import create_engine, create_vertical, engines, vertical_autoscalers
from tests.e2e.live.faults import ApiServerProxy
from tests.e2e.live.manifests import app, autoscaler, sidecar
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.sizes import ObservedSize, requests
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse

USE = ContainerUse(cores=0.1, mebibytes=100)
FAST = {"pass_interval": "2s"}


@pytest.fixture
def with_engines(admin: Api) -> Iterator[None]:
    with engines(admin):
        yield


def holds(serving: RunningProgram) -> dict[str, str]:
    """Why the last pass holds pods, by pod."""
    status, body = serving.get("/api/v1/nodes")
    if status != 200:
        return {}
    return {hold["pod"]: hold["reason"] for plan in json.loads(body)["items"] for hold in plan["hold"]}


def behind_an_engine(stage: LiveStage, selector: str, *names: str) -> None:
    """Run and measure Deployments on one node, with an Engine that an HPA scales and whose scale has a selector."""
    stage.node(cpu="16", memory="32Gi")
    stage.create(*(app("Deployment", stage.namespace, name, "700m", "1Gi") for name in names))
    create_engine(stage.admin, stage.namespace, "main", selector)
    scaler = autoscaler(stage.namespace, "main")
    scaler["spec"]["scaleTargetRef"] = {"apiVersion": "scenes.example.com/v1", "kind": "Engine", "name": "main"}
    stage.create(scaler)
    stage.running(len(names))
    stage.measure(dict.fromkeys(names, USE))


def test_an_engines_hpa_keeps_its_cpu_and_a_vpa_that_appears_keeps_its_pods(stage: LiveStage, with_engines: None):
    ns, admin = stage.namespace, stage.admin
    # Nothing in the pod shows that it belongs to the Engine, except the Engine's own scale.
    behind_an_engine(stage, "app=pistons", "pistons", "rival", "free")
    stage.mark()
    with stage.serving("resize", **FAST) as serving:
        wait_until(lambda: all(requests(stage.pod(one)).cpu < 300 for one in ("rival", "free")), "these two are sized")
        wait_until(lambda: requests(stage.pod("pistons")).memory < 1024, "its memory is sized")
        assert requests(stage.pod("pistons")).cpu == 700
        with vertical_autoscalers(admin):
            create_vertical(admin, ns, "rival")
            rival = stage.pod("rival")["metadata"]["name"]
            wait_until(lambda: holds(serving).get(rival) == "managed-by-other-autoscaler", "the VPA is seen")
            stage.mark()
            # All three would have to grow now.
            admin.patch(
                "namespaces", None, ns, {"metadata": {"annotations": {"cruise.io/cpu-min": "450m"}}}, kind="merge"
            )
            wait_until(lambda: requests(stage.pod("free")).cpu >= 450, "what nobody else sizes has grown")
            after = {target for verb, resource, target, _ in stage.deeds()}
            assert after == {f"{ns}/{stage.pod('free')['metadata']['name']}"}, after
            assert requests(stage.pod("rival")).cpu < 300
            assert requests(stage.pod("pistons")).cpu == 700
            explained = stage.command("explain", f"{ns}/{rival}", mode="resize")
            assert "another autoscaler sizes it (VPA rival)" in " ".join(explained.out.split())


def test_nothing_is_written_to_pods_that_a_scale_may_select_before_it_was_answered(
    stage: LiveStage, with_engines: None
):
    behind_an_engine(stage, "app=pistons", "pistons", "free")
    stage.mark()
    both = {stage.pod(name)["metadata"]["name"] for name in ("pistons", "free")}
    with ApiServerProxy(stage.plane.address, stage.plane.ca_file) as proxy:
        proxy.late = "/scale"
        kubeconfig = proxy.kubeconfig(Path(stage.settings("resize")["kubeconfig"]))
        try:
            with stage.serving("resize", kubeconfig=str(kubeconfig), **FAST) as serving:
                held = dict.fromkeys(both, "lookup-pending")
                wait_until(lambda: held.items() <= holds(serving).items(), "both are held")
                assert not stage.deeds()
                proxy.released.set()
                answered_at = time.monotonic()
                wait_until(lambda: requests(stage.pod("free")).cpu < 300, "what it does not select is sized")
                wait_until(lambda: requests(stage.pod("pistons")).memory < 1024, "its memory is sized")
                print(f"all sized {time.monotonic() - answered_at:.1f} s after the scale was answered")
                assert requests(stage.pod("pistons")).cpu == 700
        finally:
            proxy.released.set()


def test_a_scale_without_a_selector_keeps_the_cpu_of_its_namespace_and_is_named_by_check(
    stage: LiveStage, with_engines: None
):
    behind_an_engine(stage, "", "pistons", "free")
    with stage.serving("resize", **FAST):
        pods = ("pistons", "free")
        wait_until(lambda: all(requests(stage.pod(one)).memory < 1024 for one in pods), "memory is sized")
        assert {requests(stage.pod(one)).cpu for one in pods} == {700}
    checked = " ".join(stage.command("check", mode="resize").out.split())
    assert f"1 scale cannot be read: {stage.namespace}/Engine/main (its scale has no selector)" in checked


def test_what_a_vpa_leaves_of_a_pod_is_sized_and_nothing_else_written(stage: LiveStage):
    ns, proxy = stage.namespace, sidecar("proxy", "700m", "1Gi")
    stage.node(cpu="16", memory="32Gi")
    for name in ("one", "two"):
        stage.create(app("Deployment", ns, name, "700m", "1Gi", initContainers=[proxy]))
    stage.running(2)
    stage.measure({(name, one): USE for name in ("one", "two") for one in ("app", "proxy")})
    stage.mark()
    with vertical_autoscalers(stage.admin):
        create_vertical(stage.admin, ns, "one", policies=[{"containerName": "proxy", "mode": "Off"}])
        create_vertical(stage.admin, ns, "two", policies=[{"containerName": "*", "controlledResources": ["cpu"]}])
        said = stage.once("full")
        name = stage.pod("one")["metadata"]["name"]
        explained = " ".join(stage.command("explain", f"{ns}/{name}", mode="full").out.split())
    assert not list_skipped(said), said
    one, two = stage.pod("one"), stage.pod("two")
    assert requests(one) == ObservedSize(700, 1024)
    assert requests(one, "proxy").cpu < 300
    assert requests(one, "proxy").memory < 300
    for container in ("app", "proxy"):
        assert requests(two, container).cpu == 700
        assert requests(two, container).memory < 300
    assert "not sized: cpu and memory of app (VPA one)" in explained
    assert {(verb, resource, code) for verb, resource, _, code in stage.deeds()} == {("patch", "pods/resize", 200)}
