"""The audit page."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.domain.actions import ActionResult, ContainerTarget, Outcome, ReasonCode, ResizeCause, ResizePod
from cruise.domain.cluster import ContainerRole
from cruise.domain.resources import NO_RESOURCES
from cruise.domain.users import UserAction, UserActionKind
from cruise.interfaces.reasons import CAUSE_DESCRIPTIONS
from tests.builders import make_amounts
from tests.interfaces.dashboard.test_pages import browser, sign_in
from tests.interfaces.http.api_scene import NOW, ApiScene, make_busy_scene


@pytest.fixture
async def scene() -> ApiScene:
    return await make_busy_scene()


def lines(page: str) -> int:
    return int(re.findall(r"(\d+) lines?", page)[0])


async def test_what_was_done_is_found_by_words_and_by_how_it_ended(scene):
    outcomes = len(scene.done.outcomes)
    assert outcomes
    pod = scene.done.outcomes[0].action.pod
    async with browser(scene) as page:
        assert lines((await page.get("/actions")).text) == outcomes
        assert lines((await page.get("/actions", params={"text": f"SHOP {pod}"})).text) == 1
        assert lines((await page.get("/actions", params={"result": "done"})).text) == outcomes
        none = (await page.get("/actions", params={"result": "refused"})).text
        assert "No action matches" in none and lines(none) == 0
        assert (await page.get("/actions", params={"result": "so-so"})).status_code == 422


async def test_a_continuing_condition_shows_how_often_and_since_when(scene):
    held = replace(scene.done.outcomes[0], result=ActionResult.SKIPPED, reason=ReasonCode.HOURLY_EVICTION_BUDGET_SPENT)
    await scene.store.record_outcomes([replace(held, first_at=held.at - timedelta(hours=2), count=25)])
    async with browser(scene) as page:
        assert "25 times, first 2h ago" in (await page.get("/actions", params={"result": "skipped"})).text
        [line] = [one for one in (await page.get("/api/v1/audit")).json()["items"] if one["result"] == "skipped"]
    assert (line["count"], line["firstAt"] < line["at"]) == (25, True)


async def test_user_actions_on_cruise_are_listed_below(scene):
    await scene.store.record_user_action(UserAction(NOW, "alice@example.com", UserActionKind.PAUSE))
    async with browser(scene) as page:
        shown = (await page.get("/actions")).text
    assert "alice@example.com" in shown and 'data-label="Action">pause</td>' in shown


async def test_without_a_session_there_is_no_button(scene):
    async with browser(scene) as page:
        assert "<button" not in (await page.get("/actions")).text.replace(
            "<noscript><button>Show</button></noscript>", ""
        )


async def test_the_button_stops_and_resumes_all_writes(scene):
    async with browser(scene, known=True) as page:
        form = {"form_token": await sign_in(page, "administrator"), "to": "actions"}
        stopped = await page.post("/forms/put/pause", data=form)
        assert (stopped.status_code, stopped.headers["location"]) == (303, "../../actions")
        assert await scene.store.is_paused()
        assert "cruise is paused" in (await page.get("/actions")).text
        await page.post("/forms/delete/pause", data=form)
        assert not await scene.store.is_paused()
    assert [(one.caller, one.kind) for one in scene.announced] == [
        ("administrator", UserActionKind.PAUSE),
        ("administrator", UserActionKind.RESUME),
    ]


async def test_a_resize_shows_what_it_found_what_it_wrote_and_its_cause(scene):
    [pod, *_] = sorted((await scene.world.snapshot()).pods, key=lambda one: one.name)
    target = ContainerTarget("app", ContainerRole.MAIN, make_amounts(130, 270), make_amounts(None, 540))
    action = ResizePod(
        pod.namespace, pod.name, pod.uid, pod.node, pod.workload, (target,), NO_RESOURCES, ReasonCode.RIGHTSIZED,
        ResizeCause.OVER_REQUESTED,
    )  # fmt: skip
    before = ContainerTarget("app", ContainerRole.MAIN, make_amounts(500, 512), make_amounts(None, 1024))
    lines = [
        Outcome(NOW, action, ActionResult.DONE, ReasonCode.RIGHTSIZED, before=(before,)),
        Outcome(NOW - timedelta(hours=1), action, ActionResult.DONE, ReasonCode.RIGHTSIZED),
    ]
    await scene.store.record_outcomes(lines)
    async with browser(scene) as page:
        for path in ("/actions", f"/workloads/shop/{pod.workload}"):
            shown = (await page.get(path)).text
            assert "cpu 500m → 130m, memory 512Mi → 270Mi, memory limit 1024Mi → 540Mi" in shown
            assert "cpu 130m, memory 270Mi, memory limit 540Mi" in shown
            assert (
                CAUSE_DESCRIPTIONS[ResizeCause.OVER_REQUESTED].replace("'", "&#39;") in shown
                and "over-requested" in shown
            )
        [line, *_] = (await page.get("/api/v1/audit")).json()["items"]
    assert line["cause"] == "over-requested"
    [change] = line["containers"]
    assert (change["before"]["cpuMillicores"], change["after"]["cpuMillicores"]) == (500, 130)
    assert change["before"]["cpuLimitMillicores"] is None
