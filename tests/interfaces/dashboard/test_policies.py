"""What applies where, and the form of one workload."""

from dataclasses import replace

import pytest

from cruise.domain.annotations import Overrides
from cruise.domain.cluster import WorkloadRef
from cruise.domain.overrides import parse_overrides, settings_of
from cruise.interfaces.dashboard.policies import annotated_of, fields_of, others_of
from tests.interfaces.dashboard.test_pages import browser, sign_in
from tests.interfaces.http.api_scene import Scene, busy_scene


@pytest.fixture
async def scene() -> Scene:
    return await busy_scene()


async def test_annotations_are_listed_and_those_that_cannot_be_read_are_named(scene):
    snapshot = replace(
        await scene.snapshot(),
        namespace_annotations={"shop": {"cruise.io/mode": "observe"}, "bank": {"cruise.io/cpu-max": "lots"}, "x": {}},
    )
    bank, shop = annotated_of(snapshot)
    assert (bank.namespace, bank.workload, dict(bank.settings)) == ("bank", "", {})
    assert "cpu-max" in bank.wrong
    assert (shop.namespace, dict(shop.settings), shop.wrong) == ("shop", {"mode": "observe"}, "")


async def test_the_form_shows_what_is_stored_and_keeps_what_is_of_single_containers(scene):
    found = parse_overrides({"cruise.io/cpu-max": "2", "cruise.io/memory-max.app": "1Gi"})
    assert isinstance(found, Overrides)
    await scene.store.put_override("shop", WorkloadRef("Deployment", "web"), found)
    assert {one.setting: one.value for one in fields_of(settings_of(found)) if one.value} == {"cpu-max": "2"}
    assert dict(others_of(found)) == {"memory-max.app": "1Gi"}
    async with browser(scene, known=True) as page:
        await sign_in(page, "administrator")
        shown = (await page.get("/policies/shop/Deployment/web")).text
    assert 'name="setting.cpu-max" value="2"' in shown
    assert 'name="setting.memory-max.app" value="1Gi"' in shown


async def test_of_a_workload_that_is_not_there_nothing_is_shown(scene):
    async with browser(scene) as page:
        assert (await page.get("/policies/shop/Deployment/none")).status_code == 404
