"""The workload page: current pods, and sizes over time."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.actions import ActionResult, ContainerTarget, Outcome, ReasonCode, ResizePod
from cruise.domain.cluster import ContainerRole, WorkloadRef
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, ResourceName
from cruise.interfaces.dashboard.workload import get_amounts_over_time
from cruise.interfaces.http.cluster_summary import ClusterSummaryCache
from cruise.interfaces.http.workload import WorkloadDetails, read_workload_details
from tests.builders import make_amounts
from tests.interfaces.dashboard.test_pages import browser, sign_in
from tests.interfaces.http.api_scene import NOW, ApiScene, make_busy_scene

MEMORY = ResourceName.MEMORY


@pytest.fixture
async def scene() -> ApiScene:
    return await make_busy_scene()


async def found_in(scene: ApiScene) -> WorkloadDetails:
    return await read_workload_details(
        scene, await ClusterSummaryCache(scene).get_newest(), "shop", "Deployment/web", ""
    )


def resized(
    found: WorkloadDetails, hours: int, before: tuple[int, int | None], after: tuple[int, int | None]
) -> Outcome:
    """A resize of the chosen pod some hours ago: memory request and limit in MiB."""

    def target(request: int, limit: int | None) -> ContainerTarget:
        return ContainerTarget("app", ContainerRole.MAIN, make_amounts(100, request), make_amounts(None, limit))

    pod = found.selected
    action = ResizePod(
        pod.namespace, pod.name, pod.uid, pod.node, pod.workload, (target(*after),), NO_RESOURCES, ReasonCode.RIGHTSIZED
    )
    at = NOW - timedelta(hours=hours)
    return Outcome(at, action, ActionResult.DONE, ReasonCode.RIGHTSIZED, before=(target(*before),))


async def test_a_chart_draws_requests_and_limits_as_they_were(scene):
    found = await found_in(scene)
    container = replace(found.selected.containers[0], requests=make_amounts(100, 300), limits=make_amounts(None, 600))
    outcomes = [resized(found, 2, (200, 400), (300, 600)), resized(found, 4, (500, None), (200, 400))]
    found = replace(found, outcomes=outcomes, original=None)
    times = [NOW - timedelta(hours=hours) for hours in (5, 4, 3, 2, 1, 0)]
    requests = get_amounts_over_time(found, container, times, MEMORY, lambda one: one.requests)
    assert [one and one / MEBIBYTE for one in requests] == [500, 200, 200, 300, 300, 300]
    limits = get_amounts_over_time(found, container, times, MEMORY, lambda one: one.limits)
    assert [one and one / MEBIBYTE for one in limits] == [None, 400, 400, 600, 600, 600]


async def test_what_was_not_on_record_is_not_drawn_and_what_never_changed_is_drawn_since_the_pod_is_there(scene):
    found = await found_in(scene)
    container = replace(found.selected.containers[0], requests=make_amounts(100, 300), limits=make_amounts(None, 600))
    created = NOW - timedelta(hours=2)
    found = replace(found, original=None, outcomes=(), selected=replace(found.selected, created_at=created))
    times = [NOW - timedelta(hours=hours) for hours in (3, 2, 1, 0)]
    assert list(get_amounts_over_time(found, container, times, MEMORY, lambda one: one.limits)) == [
        None,
        *[600.0 * MEBIBYTE] * 3,
    ]
    unknown = replace(resized(found, 1, (1, 1), (300, 600)), before=())
    found = replace(found, outcomes=[unknown])
    assert list(get_amounts_over_time(found, container, times, MEMORY, lambda one: one.limits)) == [
        None,
        None,
        *[600.0 * MEBIBYTE] * 2,
    ]


async def test_a_reverted_pod_has_the_sizes_everywhere_that_it_was_put_back_to(scene):
    before = await found_in(scene)
    async with browser(scene, known=True) as page:
        token = await sign_in(page, "administrator")
        old = (await page.get("/workloads/shop/Deployment/web")).text
        await page.post("/forms/put/reverts/shop/Deployment/web", data={"form_token": token})
        shown = (await page.get("/workloads/shop/Deployment/web")).text
        why = (await page.get(f"/workloads/shop/Deployment/web/why/{before.selected.name}")).text
    pods = [one for one in (await scene.world.snapshot()).pods if one.workload == WorkloadRef("Deployment", "web")]
    requests = {one.containers[0].requests.cpu_millicores for one in pods}
    [request] = requests
    assert f"<b>{request}m</b></td>" in shown and f"requests {request}m" in why
    assert "mode observe" in shown and "mode full" not in shown
    assert re.search(rf"<b>{len(pods) * request}m <small>CPU", shown) or f"<b>{len(pods) * request / 1000:g}" in shown
    assert "mode full" in old


async def test_how_the_risk_of_the_pods_node_was_kept_is_on_its_page(scene):
    [pod, *_] = [one for one in (await scene.world.snapshot()).pods if one.workload == WorkloadRef("Deployment", "web")]
    scene.done = replace(scene.done, observed_risks={ResourceName.CPU: ObservedRisk(0.07, 0.4, 1000, 50)})
    async with browser(scene) as page:
        answer = await page.get(f"/workloads/shop/Deployment/web/why/{pod.name}")
    assert answer.status_code == 200
    assert "stated risk 7.00 %" in answer.text
