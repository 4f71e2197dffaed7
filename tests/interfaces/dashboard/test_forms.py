"""Dashboard forms: origin, permissions, and rejections by the API."""

import re
from html import unescape

import pytest

from cruise.domain.overrides import format_settings
from cruise.interfaces.dashboard.layout import CONTENT_SECURITY_POLICY
from tests.interfaces.dashboard.test_pages import browser, sign_in
from tests.interfaces.http.api_scene import ApiScene, make_busy_scene

WEB = "policies/shop/Deployment/web"


@pytest.fixture
async def scene() -> ApiScene:
    return await make_busy_scene()


async def test_a_form_of_another_session_changes_nothing(scene):
    async with browser(scene, known=True) as page:
        await sign_in(page, "administrator")
        answer = await page.post("/forms/put/pause", data={"form_token": "guessed"})
    assert answer.status_code == 403 and "another session" in answer.text
    assert not await scene.store.is_paused()


async def test_a_read_only_caller_changes_nothing(scene):
    async with browser(scene, known=True) as page:
        answer = await page.post("/forms/put/pause", data={"form_token": await sign_in(page, "reader")})
    assert answer.status_code == 403
    assert not await scene.store.is_paused()


@pytest.mark.parametrize(
    "path", ["/forms/get/status", "/forms/post/pause", "/forms/put/nothing", "/forms/put/../pause", "/forms/put/"]
)
async def test_every_form_corresponds_to_a_change_of_the_api(scene, path):
    async with browser(scene, known=True) as page:
        answer = await page.post(path, data={"form_token": await sign_in(page, "administrator")})
    assert answer.status_code in (404, 405, 422)
    assert not scene.announced


async def test_a_policy_is_written_as_the_api_would_and_blanks_are_left_out(scene):
    fields = {"setting.mode": "observe", "setting.cpu-max": " 2 ", "setting.memory-max": "", "to": "policies"}
    async with browser(scene, known=True) as page:
        form = {"form_token": await sign_in(page, "administrator"), **fields}
        answer = await page.post(f"/forms/put/{WEB}", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, "../../../../../policies")
        [policy] = scene.policy_objects.read()
        assert format_settings(policy.overrides) == {"mode": "observe", "cpu-max": "2"}
        assert "cpu-max: 2" in (await page.get("/policies")).text
        assert "Delete the policy" in (await page.get(f"/{WEB}")).text
        gone = await page.post(f"/forms/delete/{WEB}", data=form)
        assert gone.status_code == 303 and not scene.policy_objects.read()


async def test_a_policy_that_may_not_be_written_is_shown_as_yaml_with_the_reason_and_the_values(scene):
    scene.policy_objects.missing = {"patch"}
    async with browser(scene, known=True) as page:
        form = {"form_token": await sign_in(page, "administrator"), "setting.mode": "observe"}
        before = await page.get(f"/{WEB}")
        answer = await page.post(f"/forms/put/{WEB}", data=form)
    assert "Show the YAML" in before.text and "rbac.writePolicies" in before.text
    assert answer.status_code == 403 and "rbac.writePolicies" in answer.text
    shown = unescape(answer.text)
    assert "kind: RightsizingPolicy" in shown and "kubectl apply --filename deployment-web.yaml" in shown
    assert "<option selected>observe" in shown
    assert not scene.policy_objects.read() and not scene.announced


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("policies/namespaces/shop", "ClusterRightsizingPolicy namespace-shop"),
        ("policies/namespaces", "ClusterRightsizingPolicy all-namespaces"),
    ],
)
async def test_the_form_of_a_namespace_and_that_of_all_write_cluster_policies(scene, path, title):
    async with browser(scene, known=True) as page:
        form = {"form_token": await sign_in(page, "administrator"), "setting.cpu-max": "2", "to": path}
        before = (await page.get(f"/{path}")).text
        assert f"<code>{title}</code>" in before and "Write the policy" in before
        # Only a workload is paused, and only its settings are replayed.
        assert "Pause this workload" not in before and "Preview" not in before
        refused = await page.post(f"/forms/put/{path}", data={**form, "setting.cpu-min": "3"})
        assert refused.status_code == 422 and "the minimum is above the maximum" in unescape(refused.text)
        assert not scene.policy_objects.read()
        assert (await page.post(f"/forms/put/{path}", data=form)).status_code == 303
        [policy] = scene.policy_objects.read()
        assert (policy.title, format_settings(policy.overrides)) == (title, {"cpu-max": "2"})
        after = unescape((await page.get(f"/{path}")).text)
        assert 'name="setting.cpu-max" value="2"' in after and "kind: ClusterRightsizingPolicy" in after
        assert (await page.post(f"/forms/delete/{path}", data=form)).status_code == 303
        assert not scene.policy_objects.read()


async def test_the_form_of_a_namespace_shows_the_yaml_without_cruises_role(scene):
    scene.policy_objects.missing = {"create"}
    async with browser(scene, known=True) as page:
        form = {"form_token": await sign_in(page, "administrator"), "setting.mode": "observe"}
        answer = await page.post("/forms/put/policies/namespaces/shop", data=form)
        assert (await page.get("/policies/namespaces/none")).status_code == 404
    shown = unescape(answer.text)
    assert answer.status_code == 403 and "cruise may not create clusterrightsizingpolicies" in shown
    assert "kubectl apply --filename namespace-shop.yaml" in shown and "namespaces:" in shown
    assert not scene.policy_objects.read() and not scene.announced


async def test_a_workload_is_paused_and_resumed_by_a_button(scene):
    async with browser(scene, known=True) as page:
        form = {"form_token": await sign_in(page, "administrator"), "to": "policies"}
        assert "Pause this workload" in (await page.get(f"/{WEB}")).text
        assert (await page.post("/forms/put/pause/shop/Deployment/web", data=form)).status_code == 303
        assert "Resume this workload" in (await page.get(f"/{WEB}")).text
        assert "forms/delete/pause/shop/Deployment/web" in (await page.get("/policies")).text
        assert (await page.post("/forms/delete/pause/shop/Deployment/web", data=form)).status_code == 303
    assert not await scene.store.read_paused_workloads()


async def test_what_the_api_refuses_is_said_in_its_words(scene):
    async with browser(scene, known=True) as page:
        form = {"form_token": await sign_in(page, "administrator"), "setting.cpu-min": "lots"}
        answer = await page.post(f"/forms/put/{WEB}", data=form)
    assert answer.status_code == 422 and "cpu-min" in answer.text and "lots" in answer.text
    assert not scene.policy_objects.read()


async def test_a_wrong_value_is_shown_in_its_form_with_the_others_and_the_error_next_to_it(scene):
    sent = {"setting.cpu-min": "lots", "setting.memory-max": "2Gi", "setting.mode": "observe"}
    async with browser(scene, known=True) as page:
        form = {"form_token": await sign_in(page, "administrator"), **sent, "setting.cpu-max.app": "7"}
        answer = await page.post(f"/forms/put/{WEB}", data=form)
    assert answer.status_code == 422 and answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    fields = dict(re.findall(r'<input type="text" name="setting\.([^"]+)" value="([^"]*)"', answer.text))
    assert (fields["cpu-min"], fields["memory-max"], fields["cpu-max.app"]) == ("lots", "2Gi", "7")
    assert "<option selected>observe" in answer.text
    [field] = re.findall(r"<label><span>cpu-min</span>.*?</label>", answer.text, re.DOTALL)
    assert 'aria-invalid="true"' in field and "lots" in field.partition('class="error"')[2]
    assert answer.text.count("aria-invalid") == 1
    # The page stands at the form's address, so its links lead back from there.
    assert 'href="../../../../../workloads"' in answer.text
    assert not scene.policy_objects.read()
