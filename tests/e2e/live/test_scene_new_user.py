"""What a new user does first, on a real API server and in a browser; it prints how long each step takes."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.api import Api, Json, wait_until
from tests.deploy.installing import accounts, documents, permissions, remove
from tests.e2e.browser.test_dashboard import Visit, chromium, pytestmark, serious
from tests.e2e.live.custom_kinds import policy_objects
from tests.e2e.live.manifests import app
from tests.e2e.live.measured import USE
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.test_scene_api import TOKEN

__all__ = ["pytestmark"]

FAST = {"pass_interval": "2s"}
# The first screen of a laptop.
SCREEN: Any = {"width": 1280, "height": 800}
CLUSTER_KINDS = (
    *(f"{kind}.rbac.authorization.k8s.io" for kind in ("clusterroles", "clusterrolebindings")),
    *(
        f"{kind}.admissionregistration.k8s.io"
        for kind in ("validatingadmissionpolicies", "mutatingwebhookconfigurations")
    ),
    "customresourcedefinitions.apiextensions.k8s.io",
)


@contextmanager
def timed(steps: dict[str, float], step: str) -> Iterator[None]:
    """Note the seconds of a step."""
    began = time.monotonic()
    yield
    steps[step] = time.monotonic() - began


@pytest.fixture
def other(stage: LiveStage) -> Iterator[str]:
    """A namespace of another team, on a node of its own."""
    name = f"{stage.namespace}-other"
    stage.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    stage.admin.delete("namespaces", None, name)


def observe_others(namespace: str) -> Json:
    """The one object: every namespace but one is observed, so the setting `mode: resize` reaches that one only."""
    others = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [namespace]}]
    spec = {"namespaceSelector": {"matchExpressions": others}, "mode": "observe"}
    metadata = {"name": f"only-{namespace}"}
    return {"apiVersion": "cruise.io/v1alpha1", "kind": "ClusterRightsizingPolicy", "metadata": metadata, "spec": spec}


async def visit_pages(address: str, stage: LiveStage, steps: dict[str, float], original: int) -> None:
    """Why, pause and revert, as a user who is signed in does it."""
    workload = f"workloads/{stage.namespace}/Deployment/web"
    async with chromium() as browser:
        context = await browser.new_context(viewport=SCREEN)
        visit = Visit(await context.new_page(), f"{address}/")
        page = visit.page
        with timed(steps, "why"):
            await visit.open(workload)
            explained = page.locator("#explanation")
            await explained.locator("h3").first.wait_for()
            words = " ".join((await explained.inner_text()).split())
            for expected in ("mode resize", "request", "target", "planned"):
                assert expected in words, words
            assert await serious(visit) == []
        with timed(steps, "pause"):
            await visit.open("sign-in?to=")
            await page.get_by_label("Token").fill(TOKEN)
            await page.get_by_label("Token").press("Enter")
            await page.get_by_role("button", name="Pause all writes").click()
            await page.get_by_text("cruise is paused").wait_for()
        with timed(steps, "revert"):
            await visit.open(workload)
            await page.get_by_text("Revert", exact=True).click()
            await page.get_by_role("button", name="Restore original sizes").click()
            await page.wait_for_url(f"**/{workload}")
            await asyncio.to_thread(
                wait_until, lambda: {requests(one).cpu for one in stage.pods("web")} == {original}, "web is reverted"
            )
            await visit.open(f"policies/{stage.namespace}/Deployment/web")
            await page.get_by_role("button", name="Resume this workload").wait_for()


async def see_the_first_page(address: str, stage: LiveStage) -> None:
    """Mode observe says what could be reclaimed, and that nothing is written."""
    async with chromium() as browser:
        context = await browser.new_context(viewport=SCREEN)
        page = await context.new_page()
        await page.goto(f"{address}/")
        await page.get_by_text("writes nothing to the cluster").wait_for()
        assert await page.locator(".card", has_text="Reclaimable").locator("b").count() > 0
        await page.goto(f"{address}/namespaces/{stage.namespace}")
        await page.get_by_role("link", name="web").first.wait_for()


def cruise_objects(admin: Api) -> set[str]:
    """Objects of the whole cluster that are named after cruise."""
    found = {one["metadata"]["name"] for kind in CLUSTER_KINDS for one in admin.items(kind)}
    return {name for name in found if name.startswith("cruise-") or name.endswith("cruise.io")}


def test_from_observing_to_one_namespace_and_away_again(stage: LiveStage, other: str, tmp_path: Path):
    admin, steps = stage.admin, dict[str, float]()
    # Other scenes share the control plane: their namespace and what else they applied stays.
    installed = [*permissions("full"), *documents("policies.yaml")]
    installed += [one for one in accounts() if one["kind"] != "Namespace"]
    of_others = cruise_objects(admin) - {one["metadata"]["name"] for one in installed}
    (tmp_path / "token").write_text(TOKEN)
    signing_in = {"api_token_file": str(tmp_path / "token"), **FAST}
    node = stage.node(cpu="8", memory="16Gi")
    stage.create(app("Deployment", stage.namespace, "web", "700m", "1Gi", replicas=2))
    stage.create(app("Deployment", other, "theirs", "700m", "1Gi", node=node))
    stage.running(2)
    wait_until(lambda: [one for one in admin.items("pods", other) if one["spec"].get("nodeName")], "theirs is placed")
    stage.measure({"web": USE, "theirs": USE}, elsewhere=[other])
    stage.mark()
    with policy_objects(admin):
        with timed(steps, "observe"), stage.serving("observe", **FAST) as running:
            wait_until(lambda: running.get("/api/v1/nodes")[0] == 200, "a pass was made")
            asyncio.run(see_the_first_page(running.address, stage))
        assert stage.writes() == []
        began = time.monotonic()
        stage.create(observe_others(stage.namespace))
        with stage.serving("resize", **signing_in) as running:
            wait_until(lambda: all(requests(one).cpu < 300 for one in stage.pods("web")), "web is sized")
            steps["one namespace in resize"] = time.monotonic() - began
            assert {target.partition("/")[0] for verb, kind, target, _ in stage.deeds() if kind == "pods"} <= {
                stage.namespace
            }
            asyncio.run(visit_pages(running.address, stage, steps, 700))
        assert {requests(one).cpu for one in admin.items("pods", other)} == {700}
        with timed(steps, "away"):
            remove(admin, observe_others(stage.namespace))
            for one in installed:
                remove(admin, one)
    stage.forget_rights()
    wait_until(lambda: cruise_objects(admin) <= of_others, "nothing of cruise is left")
    for pod in (*stage.pods(), *admin.items("pods", other)):
        assert requests(pod).cpu == 700
        assert not [key for key in pod["metadata"].get("annotations", {}) if "cruise.io" in key]
    assert not [one for one in admin.read("nodes", None, node)["spec"].get("taints", []) if "cruise" in one["key"]]
    print("\n" + "\n".join(f"{step}: {seconds:.1f} s" for step, seconds in steps.items()))
