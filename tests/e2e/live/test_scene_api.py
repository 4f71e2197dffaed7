"""The API of a running `cruise serve`, asked and written to as a person's scripts would."""

import json
import urllib.request
from urllib.error import HTTPError

import pytest

from tests.controlplane.api import Json, until
from tests.e2e.live.measured import Measured, measure
from tests.e2e.live.programs import Running
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import Stage

TOKEN = "correct horse"
FAST = {"pass_interval": "4s"}


@pytest.fixture
def measured(stage: Stage) -> Measured:
    return measure(stage)


def ask(running: Running, method: str, path: str, body: Json | None = None, token: str = TOKEN) -> tuple[int, Json]:
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(running.address + path, sent, {"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_what_is_asked_is_answered_and_what_is_written_steers(measured: Measured, tmp_path):
    stage = measured.stage
    (tmp_path / "token").write_text(TOKEN)
    override = f"/api/v1/overrides/{stage.namespace}/Deployment/web"
    with stage.serving("resize", api_token_file=str(tmp_path / "token"), **FAST) as running:
        # Nothing is sized while cruise is paused, so the override is there before the first write.
        assert ask(running, "PUT", "/api/v1/pause") == (200, {"paused": True})
        assert ask(running, "PUT", override, {"mode": "off"})[0] == 200
        assert ask(running, "PUT", override, {"mode": "of"})[0] == 422
        assert ask(running, "PUT", override, {"mode": "off"}, token="wrong")[0] == 401
        until(lambda: ask(running, "GET", "/api/v1/nodes")[0] == 200, "a pass was made")
        stage.mark()
        assert ask(running, "DELETE", "/api/v1/pause") == (200, {"paused": False})
        db = stage.resized(stage.pod("db")["metadata"]["name"])
        until(lambda: requests(stage.pod("db")).cpu < 300, "db is sized")
        status = ask(running, "GET", "/api/v1/status")[1]
        assert (status["mode"], status["leader"], status["paused"]) == ("resize", True, False)
        assert {job["name"] for job in status["jobs"]} >= {"statistics", "node pass", "node load"}
        page = ask(running, "GET", "/api/v1/nodes")[1]
        holds = {hold["pod"]: hold["reason"] for plan in page["items"] for hold in plan["hold"]}
        for web in stage.pods("web"):
            assert holds[web["metadata"]["name"]] == "mode-off"
            assert requests(web).cpu == 700
        path = f"/api/v1/pods/{stage.namespace}/{db['metadata']['name']}"
        explained = ask(running, "GET", path)[1]
        assert "done" in {one["verdict"] for one in explained["past"]["outcomes"]}
        lines = ask(running, "GET", "/api/v1/outcomes")[1]["items"]
        assert {line["pod"] for line in lines if line["verdict"] == "done"} == {db["metadata"]["name"]}
        assert ask(running, "DELETE", override)[0] == 204
        until(lambda: all(requests(web).cpu < 300 for web in stage.pods("web")), "web is sized")
        assert ask(running, "GET", "/api/v1/openapi.json")[1]["info"]["title"] == "cruise"


def test_a_pause_from_elsewhere_goes_through_the_api(measured: Measured, tmp_path):
    stage = measured.stage
    (tmp_path / "token").write_text(TOKEN)
    nowhere = {"database_url": "", "data_dir": str(tmp_path / "nothing")}
    with stage.serving("resize", api_token_file=str(tmp_path / "token"), **FAST) as running:
        through = ("--server", running.address, "--token-file", str(tmp_path / "token"))
        paused = measured.command("pause", *through, mode="resize", **nowhere)
        assert paused.code == 0, paused.err
        assert f"Paused, in {running.address}." in paused.out
        assert ask(running, "GET", "/api/v1/pause")[1] == {"paused": True}
        assert (
            measured.command("resume", *through, "--format", "json", mode="resize", **nowhere).json["paused"] is False
        )
        until(lambda: requests(stage.pod("db")).cpu < 300, "db is sized")


def test_without_a_token_file_the_api_only_reads(measured: Measured):
    with measured.stage.serving("observe", **FAST) as running:
        status, said = ask(running, "PUT", "/api/v1/pause")
        assert status == 403
        assert "api_token_file" in said["error"]
        assert ask(running, "GET", "/api/v1/pause") == (200, {"paused": False})
        assert ask(running, "GET", "/nowhere")[0] == 404


def test_metrics_tell_of_jobs_outcomes_and_the_cluster(measured: Measured):
    stage = measured.stage
    with stage.serving("resize", **FAST) as running:
        first_words = ('cruise_outcomes_total{action="resize"', 'cruise_job_runs_total{job="node pass"}')
        until(lambda: all(one in running.get("/metrics")[1] for one in first_words), "a pass is counted with a resize")
        text = running.get("/metrics")[1]
    for line in (
        "cruise_leader 1.0",
        'cruise_mode{mode="resize"} 1.0',
        'cruise_job_failures_total{job="node pass"} 0.0',
        'cruise_allocatable{resource="cpu",unit="core"}',
        "cruise_statistics_age_seconds",
        "cruise_watch_lag_seconds",
        "cruise_paused 0.0",
    ):
        assert line in text, line
