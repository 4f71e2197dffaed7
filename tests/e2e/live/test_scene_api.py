"""The API of a running `cruise serve`, read and written as by a script."""

import json
import ssl
import urllib.request
from collections.abc import Sequence
from urllib.error import HTTPError

import pytest

from cruise.interfaces.http.view import collect_namespace_values
from tests.controlplane.api import Api, Json, wait_until
from tests.deploy.installing import documents
from tests.e2e.live.measured import MeasuredStage, measure
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.test_scene_revert import passes_of

TOKEN = "correct horse battery staple of 43 bytes"
FAST = {"pass_interval": "2s"}
GOES_ON = {"paused": False, "since": None, "by": None}
UNVERIFIED = ssl._create_unverified_context()


@pytest.fixture
def measured(stage: LiveStage) -> MeasuredStage:
    return measure(stage)


def ask(
    running: RunningProgram, method: str, path: str, body: Json | None = None, token: str = TOKEN
) -> tuple[int, Json]:
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(running.address + path, sent, {"Authorization": f"Bearer {token}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10, context=UNVERIFIED) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_what_is_asked_is_answered_and_what_is_written_steers(measured: MeasuredStage, tmp_path):
    stage = measured.stage
    (tmp_path / "token").write_text(TOKEN)
    web_pause = f"/api/v1/pause/{stage.namespace}/Deployment/web"
    with stage.serving("resize", api_token_file=str(tmp_path / "token"), **FAST) as running:
        # Nothing is sized while cruise is paused, so the pause of web is there before the first write.
        code, pause = ask(running, "PUT", "/api/v1/pause")
        assert (code, pause["paused"], pause["by"]) == (200, True, "API token")
        assert ask(running, "PUT", web_pause)[0] == 200
        assert ask(running, "PUT", f"{web_pause}s")[0] == 404
        assert ask(running, "PUT", web_pause, token="wrong")[0] == 401
        wait_until(lambda: ask(running, "GET", "/api/v1/nodes")[0] == 200, "a pass was made")
        stage.mark()
        assert ask(running, "DELETE", "/api/v1/pause") == (200, GOES_ON)
        db = stage.resized(stage.pod("db")["metadata"]["name"])
        wait_until(lambda: requests(stage.pod("db")).cpu < 300, "db is sized")
        status = ask(running, "GET", "/api/v1/status")[1]
        assert (status["mode"], status["leader"], status["paused"]) == ("resize", True, False)
        assert {job["name"] for job in status["jobs"]} >= {"statistics", "node pass", "node load"}
        page = ask(running, "GET", "/api/v1/nodes")[1]
        holds = {hold["pod"]: hold["reason"] for plan in page["items"] for hold in plan["hold"]}
        for web in stage.pods("web"):
            assert holds[web["metadata"]["name"]] == "mode-observe"
            assert requests(web).cpu == 700
        path = f"/api/v1/pods/{stage.namespace}/{db['metadata']['name']}"

        def verdicts() -> set[str]:
            return {one["result"] for one in ask(running, "GET", path)[1]["history"]["outcomes"]}

        # The server has the sizes a moment before the outcome is stored.
        wait_until(lambda: "done" in verdicts(), "the outcome is told")
        lines = ask(running, "GET", "/api/v1/audit")[1]["items"]
        assert {line["pod"] for line in lines if line["result"] == "done"} == {db["metadata"]["name"]}
        assert ask(running, "DELETE", web_pause)[0] == 204
        wait_until(lambda: all(requests(web).cpu < 300 for web in stage.pods("web")), "web is sized")
        back = ask(running, "PUT", f"/api/v1/reverts/{stage.namespace}/Deployment/web")[1]["pods"]
        assert {one["state"] for one in back} == {"restored"}
        passes = passes_of(running)
        wait_until(lambda: passes_of(running) >= passes + 2, "two more passes were made")
        assert {requests(web).cpu for web in stage.pods("web")} == {700}
        assert ask(running, "GET", "/api/v1/openapi.json")[1]["info"]["title"] == "cruise"


def account(admin: Api, namespace: str, name: str, roles: Sequence[str], sees: Sequence[str] = ()) -> str:
    """A token of an account with some of deploy/rbac/api.yaml's roles, that may get the pods of some namespaces."""
    rbac, one = "rbac.authorization.k8s.io", {"namespace": namespace, "name": name}
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": one})
    subject = {"kind": "ServiceAccount", **one}
    bindings = [("ClusterRoleBinding", {"name": f"{namespace}-{name}-{role}"}, role) for role in roles]
    bindings += [("RoleBinding", {"namespace": seen, "name": f"{namespace}-{name}"}, "view") for seen in sees]
    for kind, metadata, role in bindings:
        reference = {"apiGroup": rbac, "kind": "ClusterRole", "name": role}
        binding = {"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": metadata}
        admin.create({**binding, "roleRef": reference, "subjects": [subject]})
    return admin.service_account_token(namespace, name)


def test_callers_are_authenticated_by_the_api_server_and_see_their_namespaces(measured: MeasuredStage):
    stage, admin, own = measured.stage, measured.stage.admin, measured.stage.namespace
    for one in documents("rbac/api.yaml"):
        admin.apply(one)
    team = account(admin, own, "team", ["cruise-reader"], [own])
    others = account(admin, own, "others", ["cruise-reader"], ["default"])
    stranger = account(admin, own, "stranger", [])
    boss = account(admin, own, "boss", ["cruise-admin", "view"])
    with stage.serving("resize", api_authentication="kubernetes", http_tls="on", **FAST) as running:
        wait_until(lambda: ask(running, "GET", "/api/v1/nodes", token=boss)[0] == 200, "a pass was made")
        assert ask(running, "GET", "/api/v1/status", token="no token of this server's")[0] == 401
        assert ask(running, "GET", "/api/v1/status", token=stranger)[0] == 403
        assert running.get("/metrics")[0] == 401
        assert ask(running, "GET", "/metrics", token=team)[0] == 403

        def seen(token: str) -> set[str]:
            return collect_namespace_values(ask(running, "GET", "/api/v1/nodes", token=token)[1])

        assert (seen(boss) >= {own}, seen(team), seen(others)) == (True, {own}, set())
        pod = f"/api/v1/pods/{own}/{stage.pod('db')['metadata']['name']}"
        assert [ask(running, "GET", pod, token=token)[0] for token in (team, others)] == [200, 403]
        # Who reads does not write, and who writes is known.
        assert ask(running, "PUT", "/api/v1/pause", token=team)[0] == 403
        web_pause = f"/api/v1/pause/{own}/Deployment/web"
        assert ask(running, "PUT", web_pause, token=team)[0] == 403
        assert ask(running, "PUT", web_pause, token=boss)[0] == 200
        [line] = ask(running, "GET", "/api/v1/user-actions", token=team)[1]["items"]
        name = f"system:serviceaccount:{own}:boss"
        assert (line["caller"], line["kind"], line["workload"]) == (name, "pause-workload", "Deployment/web")
        assert ask(running, "GET", "/api/v1/user-actions", token=others)[1]["items"] == []
        [event] = [one for one in admin.items("events", own) if one["reason"] == "PauseWorkload"]
        assert event["message"] == f"{name} paused this workload: cruise does not change its pods"
        assert event["involvedObject"]["name"] == "web"
        for secret in (team, others, stranger, boss):
            assert secret not in running.log


def test_a_pause_from_another_process_uses_the_api(measured: MeasuredStage, tmp_path):
    stage = measured.stage
    (tmp_path / "token").write_text(TOKEN)
    nowhere = {"database_url": "", "data_dir": str(tmp_path / "nothing")}
    with stage.serving("resize", api_token_file=str(tmp_path / "token"), **FAST) as running:
        through = ("--server", running.address, "--token-file", str(tmp_path / "token"))
        paused = measured.command("pause", *through, mode="resize", **nowhere)
        assert paused.code == 0, paused.err
        assert f"Paused, in {running.address}." in paused.out
        assert ask(running, "GET", "/api/v1/pause")[1]["paused"] is True
        assert (
            measured.command("resume", *through, "--format", "json", mode="resize", **nowhere).json["paused"] is False
        )
        wait_until(lambda: requests(stage.pod("db")).cpu < 300, "db is sized")


def test_without_a_token_file_the_api_only_reads(measured: MeasuredStage):
    with measured.stage.serving("observe", **FAST) as running:
        status, said = ask(running, "PUT", "/api/v1/pause")
        assert status == 403
        assert "api_token_file" in said["error"]
        assert ask(running, "GET", "/api/v1/pause") == (200, GOES_ON)
        assert ask(running, "GET", "/nowhere")[0] == 404


def test_metrics_cover_jobs_outcomes_and_the_cluster(measured: MeasuredStage):
    stage = measured.stage
    with stage.serving("resize", **FAST) as running:
        first_words = ('cruise_actions_total{action="resize"', 'cruise_job_runs_total{job="node pass"}')
        wait_until(
            lambda: all(one in running.get("/metrics")[1] for one in first_words), "a pass is counted with a resize"
        )
        text = running.get("/metrics")[1]
    for line in (
        "cruise_leader 1.0",
        'cruise_mode{mode="resize"} 1.0',
        'cruise_job_failures_total{job="node pass"} 0.0',
        'cruise_allocatable_resources{resource="cpu",unit="core"}',
        "cruise_statistics_age_seconds",
        "cruise_watch_lag_seconds",
        "cruise_paused 0.0",
    ):
        assert line in text, line
