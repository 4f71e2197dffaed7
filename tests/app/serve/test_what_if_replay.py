"""What-if runs on the data of a real Prometheus, each in a separate process with limits."""

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from cruise.app.serve.what_if_replay import WhatIfRunner, get_most_common_node_size
from cruise.backtest.recordings.prometheus import SCRAPE_DELAY_SECONDS
from cruise.backtest.recordings.recording import UsageRecording
from cruise.domain.backtest import ComparedMetric
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.users import Caller, WhatIfProposal, WhatIfRun, WhatIfStage
from cruise.errors import BadInputError, ThrottledError
from cruise.settings import load_settings
from tests.builders import make_node
from tests.interfaces.dashboard.test_pages import browser, sign_in
from tests.interfaces.http.api_scene import ApiScene, make_busy_scene
from tests.simulation.scenes import START

ANN = Caller("ann")
NOWHERE = "http://127.0.0.1:9"
RISKIER = WhatIfProposal({"headroom": "shared-max"})


@dataclass
class AtTheEnd(ApiScene):
    """A cluster at the end of the recorded day."""

    at: datetime = START

    def now(self) -> datetime:
        return self.at


async def made(server: str, recording: UsageRecording, **more: Any) -> tuple[WhatIfRunner, AtTheEnd]:
    scene = await make_busy_scene()
    end = datetime.fromtimestamp(recording.start + 86_400 - recording.step_seconds + SCRAPE_DELAY_SECONDS, UTC)
    view = AtTheEnd(scene.world, scene.store, scene.policy, done=scene.done, at=end)
    settings = load_settings({"CRUISE_PROMETHEUS_URL": server, "CRUISE_PROMETHEUS_STEP": "5m"})
    return WhatIfRunner(settings, view, **more), view


async def ended(running: WhatIfRunner) -> WhatIfRun:
    while (last := running.get_last()) is not None and last.stage is WhatIfStage.RUNNING:
        await asyncio.sleep(0.1)
    assert last is not None
    return last


async def test_a_policy_of_a_workload_is_replayed_next_to_the_present_ones(day_server, recorded_day):
    running, _ = await made(day_server, recorded_day)
    one = recorded_day.containers[0]
    stays = WhatIfProposal({"mode": "off"}, one.namespace, one.workload)
    async with running:
        began = await running.begin(stays, ANN)
        assert (began.stage, began.caller) == (WhatIfStage.RUNNING, "ann")
        with pytest.raises(ThrottledError, match="another replay is running"):
            await running.begin(RISKIER, ANN)
        last = await ended(running)
    assert last.error == "" and last.comparison is not None
    found = last.comparison
    assert found.containers == 4 and 0 < found.days <= 1
    # What is left alone keeps what it requested, which is more than it needs.
    slack, writes = found.figures[ComparedMetric.CPU_SLACK], found.figures[ComparedMetric.RESIZES]
    assert slack.current > slack.reference and slack.delta == pytest.approx(slack.current - slack.reference)
    assert writes.current < writes.reference


async def test_a_setting_of_the_cluster_is_replayed_from_its_form_to_its_table(day_server, recorded_day):
    running, view = await made(day_server, recorded_day)
    view.what_if_runs = running
    async with running, browser(view, known=True) as page:
        form = {"form_token": await sign_in(page, "administrator"), "to": "policies"}
        wrong = await page.post("/forms/put/what-if", data={**form, "setting.memory_risk": "much"})
        assert wrong.status_code == 422 and "much" in wrong.text
        blank = await page.post("/forms/put/what-if", data={**form, "setting.memory_risk": " "})
        assert blank.status_code == 422 and "setting is proposed" in blank.text
        begun = await page.post("/forms/put/what-if", data={**form, "setting.headroom": "shared-max"})
        assert begun.status_code == 303
        shown = (await page.get("/policies")).text
        assert "forms/delete/what-if" in shown and 'hx-trigger="every 2s"' in shown
        await ended(running)
        shown = (await page.get("/policies")).text
        assert "headroom: shared-max" in shown and "CPU slack %" in shown and "every 2s" not in shown
        document = (await page.get("/api/v1/what-if", headers={"Authorization": "Bearer administrator"})).json()
        assert document["stage"] == "done" and document["containers"] == 4
        assert set(document["figures"]) >= {"cpu-slack", "cpu-starved", "oom-kills", "resizes"}


async def test_it_can_be_cancelled_and_ends_with_serve(day_server, recorded_day):
    running, _ = await made(day_server, recorded_day)
    async with running:
        await running.begin(RISKIER, ANN)
        await asyncio.sleep(0.5)
        await running.cancel()
        assert (await ended(running)).stage is WhatIfStage.CANCELLED
        await running.begin(RISKIER, ANN)
        task = running._running
    assert task is not None and task.done() and (await ended(running)).stage is WhatIfStage.CANCELLED


async def test_what_takes_too_long_or_too_much_memory_fails_in_one_line(day_server, recorded_day):
    for bound, said in (({"longest_seconds": 0.2}, "longer than"), ({"memory_bytes": 1 << 20}, "1 MiB")):
        running, _ = await made(day_server, recorded_day, **bound)
        async with running:
            await running.begin(RISKIER, ANN)
            last = await ended(running)
        assert last.stage is WhatIfStage.FAILED and said in last.error


async def test_a_server_without_the_days_is_said_to_be_one(recorded_day):
    running, _ = await made(NOWHERE, recorded_day)
    async with running:
        await running.begin(RISKIER, ANN)
        last = await ended(running)
    assert last.stage is WhatIfStage.FAILED and "127.0.0.1:9" in last.error


@pytest.mark.parametrize(
    ("key", "said"),
    [("memory_rsk", "did you mean memory_risk?"), ("http_address", "did you mean"), ("mode", "not a setting that")],
)
async def test_only_rules_can_be_tried(recorded_day, key, said):
    running, _ = await made(NOWHERE, recorded_day)
    with pytest.raises(BadInputError, match=said.replace("?", r"\?")):
        await running.begin(WhatIfProposal({key: "1"}), ANN)
    assert running.get_last() is None


async def test_without_history_the_page_says_what_to_do_and_the_api_too():
    scene = await make_busy_scene()
    async with browser(scene, known=True) as page:
        await sign_in(page, "administrator")
        for path in ("/policies", "/policies/shop/Deployment/web"):
            shown = (await page.get(path)).text
            assert "There is no recorded usage to replay." in shown and "forms/put/what-if" not in shown
        answer = await page.get("/api/v1/what-if", headers={"Authorization": "Bearer administrator"})
    assert answer.status_code == 503 and "prometheus_url" in answer.json()["error"]


def test_the_usual_node_is_the_most_frequent_one():
    small, large = make_node("a", cpu=4000), make_node("b", cpu=8000)
    assert (
        get_most_common_node_size(ClusterSnapshot(nodes=(small, large, replace(large, name="c")))) == large.allocatable
    )
    with pytest.raises(BadInputError):
        get_most_common_node_size(ClusterSnapshot())
