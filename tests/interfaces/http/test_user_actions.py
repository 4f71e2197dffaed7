"""Reverting one workload through the API and through the dashboard's form."""

import pytest

from cruise.domain.cluster import WorkloadRef
from cruise.domain.policy import MemoryLimitPolicy, Mode, Policy
from cruise.domain.users import UserActionKind
from tests.interfaces.dashboard.test_pages import browser, sign_in
from tests.interfaces.http.api_scene import TOKEN, ApiScene, create_api_client, make_busy_scene
from tests.simulation.scenes import pods, run

WEB = WorkloadRef("Deployment", "web")


@pytest.fixture
async def scene(tmp_path) -> ApiScene:
    (tmp_path / "token").write_text(TOKEN)
    scene = await make_busy_scene(tmp_path / "token")
    run(scene.world, 30)
    return scene


async def sizes(scene: ApiScene) -> set[int | None]:
    return {pod.containers[0].requests.cpu_millicores for pod in await pods(scene.world)}


@pytest.mark.parametrize(
    ("memory_limits", "left"),
    [(MemoryLimitPolicy.EXISTING, []), (MemoryLimitPolicy.ALWAYS, ["app: the memory limit cannot be removed"] * 5)],
)
async def test_the_pods_are_reverted_and_the_workload_is_skipped_from_then_on(tmp_path, memory_limits, left):
    (tmp_path / "token").write_text(TOKEN)
    scene = await make_busy_scene(tmp_path / "token", Policy(mode=Mode.FULL, memory_limits=memory_limits))
    run(scene.world, 30)
    assert await sizes(scene) != {500}
    async with create_api_client(scene, TOKEN) as api:
        answered = await api.put("/reverts/shop/Deployment/web")
        found = answered.json()
        assert answered.status_code == 200
        assert [one["state"] for one in found.pop("pods")] == ["restored"] * 5
        assert found == {"namespace": "shop", "kind": "Deployment", "name": "web"}
        lines = (await api.get("/audit", params={"since": "2020-01-01T00:00:00Z"})).json()["items"]
        assert [line["purpose"] for line in lines[:5]] == ["reverted"] * 5
        run(scene.world, 30)
        again = (await api.put("/reverts/shop/Deployment/web")).json()["pods"]
        assert [one["detail"] for one in again] == left
    assert await sizes(scene) == {500}
    assert ("shop", WEB) in await scene.store.read_paused_workloads()
    assert {(one.kind, one.namespace, one.workload) for one in scene.announced} == {
        (UserActionKind.REVERT, "shop", WEB)
    }


async def test_what_has_no_pods_is_not_found_and_nothing_is_stored_for_it(scene):
    async with create_api_client(scene, TOKEN) as api:
        answered = await api.put("/reverts/shop/Deployment/wib")
    assert (answered.status_code, answered.json()) == (404, {"error": "there are no pods of Deployment/wib in shop"})
    assert not await scene.store.read_paused_workloads() and not scene.announced


async def test_it_takes_a_token(scene):
    before = await sizes(scene)
    async with create_api_client(scene) as api:
        assert (await api.put("/reverts/shop/Deployment/web")).status_code == 401
    run(scene.world, 30)
    assert await sizes(scene) == before


@pytest.mark.parametrize("to", ["actions", "workloads/shop/Deployment/web"])
async def test_the_form_and_its_result_are_shown_next_to_resizes(scene, to):
    async with browser(scene, known=True) as page:
        token = await sign_in(page, "administrator")
        shown = (await page.get(f"/{to}")).text
        assert shown.count("forms/put/reverts/shop/Deployment/web") == 1
        form = {"form_token": token, "to": to}
        answer = await page.post("/forms/put/reverts/shop/Deployment/web", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, f"../../../../../{to}")
        after = (await page.get(f"/{to}", params={"text": ""})).text
        assert "its original requests are restored" in after
    run(scene.world, 30)
    assert await sizes(scene) == {500}


async def test_a_read_only_caller_reverts_nothing(scene):
    before = await sizes(scene)
    async with browser(scene, known=True) as page:
        form = {"form_token": await sign_in(page, "reader"), "to": "actions"}
        assert (await page.post("/forms/put/reverts/shop/Deployment/web", data=form)).status_code == 403
    run(scene.world, 30)
    assert await sizes(scene) == before


async def test_without_a_session_the_command_is_shown_instead(scene):
    async with browser(scene) as page:
        shown = (await page.get("/workloads/shop/Deployment/web")).text
        assert "cruise revert --namespace shop --workload Deployment/web" in shown and "forms/put/reverts" not in shown
