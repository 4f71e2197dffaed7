"""The policies page and the form for one workload."""

from dataclasses import replace

import pytest

from cruise.domain.annotations import Overrides
from cruise.domain.cluster import WorkloadRef
from cruise.domain.overrides import format_settings, parse_overrides
from cruise.interfaces.dashboard.policies import build_form_fields, get_container_overrides, list_annotation_overrides
from tests.interfaces.dashboard.test_pages import browser, sign_in
from tests.interfaces.http.api_scene import ApiScene, make_busy_scene


@pytest.fixture
async def scene() -> ApiScene:
    return await make_busy_scene()


async def test_annotations_are_listed_and_those_that_cannot_be_read_are_named(scene):
    snapshot = replace(
        await scene.snapshot(),
        namespace_annotations={"shop": {"cruise.io/mode": "observe"}, "bank": {"cruise.io/cpu-max": "lots"}, "x": {}},
    )
    bank, shop = list_annotation_overrides(snapshot)
    assert (bank.namespace, bank.workload, dict(bank.settings)) == ("bank", "", {})
    assert "cpu-max" in bank.error
    assert (shop.namespace, dict(shop.settings), shop.error) == ("shop", {"mode": "observe"}, "")


async def test_the_form_shows_what_is_stored_and_keeps_what_is_of_single_containers(scene):
    found = parse_overrides({"cruise.io/cpu-max": "2", "cruise.io/memory-max.app": "1Gi"})
    assert isinstance(found, Overrides)
    await scene.store.put_override("shop", WorkloadRef("Deployment", "web"), found)
    assert {one.setting: one.value for one in build_form_fields(format_settings(found)) if one.value} == {
        "cpu-max": "2"
    }
    assert dict(get_container_overrides(found)) == {"memory-max.app": "1Gi"}
    async with browser(scene, known=True) as page:
        await sign_in(page, "administrator")
        shown = (await page.get("/policies/shop/Deployment/web")).text
    assert 'name="setting.cpu-max" value="2"' in shown
    assert 'name="setting.memory-max.app" value="1Gi"' in shown


async def test_of_a_workload_that_is_not_there_nothing_is_shown(scene):
    async with browser(scene) as page:
        assert (await page.get("/policies/shop/Deployment/none")).status_code == 404
