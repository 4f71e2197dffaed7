"""The policies page and the form for one workload."""

import re
from dataclasses import replace
from html import unescape

import pytest
import yaml

from cruise.domain.annotations import Overrides, UnreadableAnnotations
from cruise.domain.cluster import WorkloadRef
from cruise.domain.overrides import format_settings, parse_overrides
from cruise.domain.policy import Mode
from cruise.domain.rightsizing_policies import PolicySelector, RightsizingPolicy
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.domain.users import Access, Caller, PodAccess
from cruise.domain.written_policies import PolicyScope
from cruise.interfaces.dashboard.policies import list_annotation_overrides
from cruise.interfaces.dashboard.policy_form import build_form_fields, get_container_overrides
from cruise.interfaces.http.policies import build_policy_entry, list_visible_policies
from cruise.interfaces.http.view import NamespaceVisibility
from cruise.kube_json.objects.rightsizing_policies import build_written_policy
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


async def test_the_form_shows_the_policy_of_the_workload_and_keeps_what_is_of_single_containers(scene):
    found = parse_overrides({"cruise.io/cpu-max": "2", "cruise.io/memory-max.app": "1Gi"})
    assert isinstance(found, Overrides)
    document = build_written_policy(PolicyScope("shop", WorkloadRef("Deployment", "web")), found)
    scene.policy_objects.put(document, "kubectl-client-side-apply")
    assert {one.setting: one.value for one in build_form_fields(format_settings(found)) if one.value} == {
        "cpu-max": "2"
    }
    assert dict(get_container_overrides(found)) == {"memory-max.app": "1Gi"}
    async with browser(scene, known=True) as page:
        await sign_in(page, "administrator")
        shown = (await page.get("/policies/shop/Deployment/web")).text
    assert 'name="setting.cpu-max" value="2"' in shown
    assert 'name="setting.memory-max.app" value="1Gi"' in shown
    # Somebody else applies it, so the form shows YAML only.
    assert "This form does not write" in shown and "Delete the policy" not in shown
    [manifest] = re.findall(r"<pre[^>]*>(apiVersion: cruise.io.*?)</pre>", unescape(shown), re.DOTALL)
    assert yaml.safe_load(manifest)["spec"] == document["spec"]
    assert "<th></th>" not in shown


EVERYWHERE = NamespaceVisibility(Caller("administrator"), None)


class ShopOnly:
    """Grants the pods of the namespace `shop`."""

    async def authorize(self, caller: Caller, access: Access) -> bool:
        return access == PodAccess("shop")


async def test_policy_objects_are_listed_as_far_as_their_namespaces_are_visible(scene):
    labels = LabelSelector((LabelRequirement("team", SelectorOperator.IN, ("a", "b")),))
    broken = RightsizingPolicy("bank", "broken", overrides=UnreadableAnnotations("spec.mode: is wrong"))
    stated = Overrides(mode=Mode.RESIZE)
    policies = (
        RightsizingPolicy("", "all", PolicySelector(namespaces=frozenset({"sh*"})), stated),
        broken,
        RightsizingPolicy("shop", "web", PolicySelector(frozenset({"Deployment"}), pod_labels=labels), stated),
    )
    snapshot = replace(await scene.snapshot(), rightsizing_policies=policies)
    rows = [build_policy_entry(one) for one in await list_visible_policies(snapshot, EVERYWHERE)]
    assert [(one.namespace, one.name, one.selects) for one in rows] == [
        ("", "all", "sh*"),
        ("bank", "broken", "all"),
        ("shop", "web", "Deployment; labels team In (a, b)"),
    ]
    assert [one.problem for one in rows] == ["", "spec.mode: is wrong", ""]
    assert [dict(one.settings) for one in rows] == [{"mode": "resize"}, {}, {"mode": "resize"}]
    of_shop = await list_visible_policies(snapshot, NamespaceVisibility(Caller("tenant"), ShopOnly()))
    assert [one.name for one in of_shop] == ["web"]


async def test_of_a_workload_that_is_not_there_nothing_is_shown(scene):
    async with browser(scene) as page:
        assert (await page.get("/policies/shop/Deployment/none")).status_code == 404
