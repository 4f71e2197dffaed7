"""`cruise scan` of several contexts: one report even if a cluster is unreachable, and its Slack summary."""

import json
from pathlib import Path

import pytest
import yaml

from tests.e2e.live.measured import MeasuredStage, list_refused
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering


@pytest.fixture
def kubeconfig(measured: MeasuredStage, tmp_path: Path) -> str:
    """A kubeconfig with the cluster under two names, and one that is unreachable."""
    stated = yaml.safe_load(measured.stage.plane.kubeconfig().read_text())
    [context] = stated["contexts"]
    gone = {"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}}
    stated["clusters"].append(gone)
    stated["contexts"] = [
        {**context, "name": "prod-eu"},
        {"name": "gone", "context": {**context["context"], "cluster": "gone"}},
        {**context, "name": "prod-us"},
    ]
    stated["current-context"] = "gone"
    path = tmp_path / "several"
    path.write_text(yaml.safe_dump(stated))
    return str(path)


def test_all_contexts_are_one_report_and_one_that_is_gone_is_named(measured: MeasuredStage, kubeconfig: str):
    command = ("scan", "--all-contexts", "--history", "1h", "--format", "json")
    ended = measured.command(*command, kubeconfig=kubeconfig)
    assert ended.code == 1
    assert "1 of 3 clusters could not be read: gone" in ended.err
    report = json.loads(ended.out)
    assert [one["context"] for one in report["clusters"]] == ["prod-eu", "prod-us"]
    [failed] = report["failed"]
    assert "cannot be reached" in failed["message"]
    for one in report["clusters"]:
        workloads = {row["workload"] for row in measured.own(one["waste"]["workloads"])}
        assert workloads == {"Deployment/web", "StatefulSet/db"}
    *rows, total = report["summary"]
    assert total["requested"]["cpuMillicores"] == 2 * rows[0]["requested"]["cpuMillicores"]
    assert measured.stage.writes() == []


def test_one_context_is_an_ordinary_scan(measured: MeasuredStage, kubeconfig: str):
    ended = measured.command(
        "scan", "--context", "prod-us", "--history", "1h", "--format", "json", kubeconfig=kubeconfig
    )
    assert ended.code == 0, ended.err
    assert {one["workload"] for one in measured.own(json.loads(ended.out)["waste"]["workloads"])} == {
        "Deployment/web",
        "StatefulSet/db",
    }
    said = list_refused(measured.command("scan", "--context", "prod-uk", kubeconfig=kubeconfig))
    assert "no context prod-uk; did you mean prod-us or prod-eu?" in said


def test_the_summary_is_posted_to_slack(measured: MeasuredStage, kubeconfig: str):
    received: list[str] = []

    def accept(request: ReceivedHttpRequest) -> HttpAnswer:
        received.append(request.text)
        return HttpAnswer(body=b"ok")

    with answering(accept) as url:
        names = ("--context", "prod-eu", "--context", "prod-us")
        more = {"kubeconfig": kubeconfig, "notify_url": url, "notify_format": "slack"}
        ended = measured.command("scan", *names, "--slack", "--history", "1h", **more)
    assert ended.code == 0, ended.err
    assert "prod-eu" in ended.out
    [message] = [json.loads(text) for text in received]
    assert message["text"].startswith("cruise scan of 2 clusters: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--context", "prod-eu", "--all-contexts"], "--context and --all-contexts are both given"),
        (["--context", "prod-eu", "--snapshot", "cluster.json"], "--snapshot is a file, and --context reads a live"),
        (["--all-contexts", "--prometheus-url", "http://127.0.0.1:1"], "--prometheus-url is for one cluster"),
        (["--slack"], "--slack needs the address of a Slack webhook"),
    ],
)
def test_contradictions_are_one_line(measured: MeasuredStage, kubeconfig: str, arguments: list[str], said: str):
    assert said in list_refused(measured.command("scan", *arguments, kubeconfig=kubeconfig))
