"""The page of pending pods and their packing plan."""

from dataclasses import replace

import pytest

from cruise.interfaces.packing.table import describe_proof
from tests.interfaces.dashboard.test_pages import browser, sign_in
from tests.interfaces.http.api_scene import ApiScene, make_busy_scene
from tests.interfaces.packing.packing_plans import PLAN


@pytest.fixture
async def scene() -> ApiScene:
    return await make_busy_scene()


async def test_without_pods_that_wait_it_says_what_would_follow(scene):
    async with browser(scene) as page:
        shown = (await page.get("/pending")).text
    assert "No pod is pending" in shown and "There is no packing plan yet" in shown


async def test_a_plan_is_shown_with_its_proof_its_progress_and_what_it_leaves_out(scene):
    await scene.store.write_packing_plan(PLAN)
    async with browser(scene) as page:
        shown = (await page.get("/pending")).text
    assert describe_proof(PLAN.proposal) in shown
    assert f"stage {PLAN.stage} of {len(PLAN.proposal.stages)}" in shown
    assert all(one.pod in shown for one in PLAN.proposal.unplaced)
    assert ("no plan places it" in shown) == any(one.impossible for one in PLAN.proposal.unplaced)


async def test_pods_that_wait_are_listed_by_priority(scene):
    snapshot = await scene.snapshot()
    first, second = snapshot.pods[0], snapshot.pods[1]
    waiting = (replace(first, node=None, priority=5), replace(second, node=None, priority=1000))

    class Waiting(ApiScene):
        async def snapshot(self):
            return replace(snapshot, pods=(*waiting, *snapshot.pods[2:]))

    async with browser(Waiting(scene.world, scene.store, done=scene.done)) as page:
        shown = (await page.get("/pending")).text
    assert "2 pods without a node" in shown
    assert shown.index(second.name) < shown.index(first.name)


async def test_a_plan_is_shown_to_callers_who_may_get_all_pods(scene):
    await scene.store.write_packing_plan(PLAN)
    async with browser(scene, known=True) as page:
        await sign_in(page, "tenant")
        shown = (await page.get("/pending")).text
    assert "A packing plan covers all namespaces" in shown
    assert all(one.pod not in shown for one in PLAN.proposal.unplaced)
