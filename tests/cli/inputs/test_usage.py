"""`cruise scan` against a real Prometheus and against unusual answers."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from cruise.cli import main
from tests.builders import (
    make_container_json,
    make_deployment_json,
    make_list_json,
    make_node_json,
    make_pod_json,
    make_replica_set_json,
)
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering
from tests.prometheus_server import make_blocks, running_prometheus

PODS = ("web-7d9f8b6c5d-x2x4z", "web-7d9f8b6c5d-b9k2d", "web-7d9f8b6c5d-q7w5t")
AT = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)
EMPTY = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'


@pytest.fixture
def snapshot(tmp_path):
    pods = []
    for index, pod in enumerate(PODS):
        killed = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-01-05T11:00:00Z"}
        statuses = [{"name": "app", "restartCount": 2, "lastState": {"terminated": killed}}] if index == 0 else None
        container = make_container_json(cpu="1", memory="1Gi", memory_limit="2Gi")
        pods.append(make_pod_json(pod, containers=[container], container_statuses=statuses))
    path = tmp_path / "cluster.json"
    path.write_text(
        json.dumps(make_list_json(make_node_json(), *pods, make_replica_set_json(), make_deployment_json()))
    )
    return str(path)


def scan(snapshot: str, url: str, *more: str) -> int:
    return main(["scan", "--snapshot", snapshot, "--prometheus-url", url, "--history", "1h", *more])


def nothing(request: ReceivedHttpRequest, warnings: bytes = b"") -> HttpAnswer:
    body = EMPTY.replace(b"matrix", b"vector") if request.path.endswith("/query") else EMPTY
    return HttpAnswer(body=body.replace(b'"data"', warnings + b'"data"'))


def usage(request: ReceivedHttpRequest, mebibytes: int = 100) -> HttpAnswer:
    """Every container uses 200 millicores and the same memory; there is no pressure."""
    if request.path.endswith("/query"):
        return nothing(request)
    found = re.search(r'\b(container_\w+)\{.*pod=~"(.*)"\}\)?$', request.form["query"])
    assert found is not None
    times = range(int(request.form["start"]), int(request.form["end"]) + 1, int(request.form["step"]))
    rows = []
    for pod in filter(re.compile(found.group(2)).fullmatch, PODS):
        if "memory" in found.group(1):
            values = [[at, str(mebibytes * 2**20)] for at in times]
        else:
            values = [[at, str(0.2 * (at - 1.7e9))] for at in times if "pressure" not in found.group(1)]
        metric = {"namespace": "shop", "pod": pod, "container": "app", "id": f"/{pod}", "node": "n1"}
        rows += [{"metric": metric, "values": values}] if values else []
    return HttpAnswer(body=json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}}).encode())


def test_a_report_rests_on_what_the_server_holds(capsys, snapshot):
    with answering(usage) as url:
        assert scan(snapshot, url, "--format", "json", "--now", AT.isoformat()) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err.startswith("cruise: note: ")
    assert document["statisticsSource"] == f"1h of usage from Prometheus at {url}"
    assert (document["basis"]["known"], document["basis"]["pressureKnown"]) == (3, 0)
    assert document["basis"]["historySince"] == "2026-01-05T11:00:00Z"
    assert document["waste"]["totals"]["used"]["cpuMillicores"] == 600
    assert document["atRisk"][0]["kind"] == "oom-killed"


def test_no_more_than_the_requested_history_is_read(snapshot):
    starts = []

    def recorded(request: ReceivedHttpRequest) -> HttpAnswer:
        if "start" in request.form:
            starts.append(int(request.form["start"]))
        return usage(request)

    for history, hours in (("1h", 1), ("1d", 24), ("7d", 168)):
        starts.clear()
        with answering(recorded) as url:
            assert scan(snapshot, url, "--now", AT.isoformat(), "--history", history) == 0
        earliest = datetime.fromtimestamp(min(starts), UTC)
        assert AT - timedelta(hours=hours + 1) <= earliest <= AT - timedelta(hours=hours)


def recommended_mebibytes(capsys, snapshot: str, used_mebibytes: int) -> float:
    """What a scan gives the three pods together, of which one was killed at 2 GiB."""
    with answering(partial(usage, mebibytes=used_mebibytes)) as url:
        assert scan(snapshot, url, "--now", AT.isoformat(), "--format", "json") == 0
    [workload] = json.loads(capsys.readouterr().out)["waste"]["workloads"]
    return float(workload["recommended"]["memoryBytes"] / 2**20)


def test_a_kill_far_below_its_limit_was_the_nodes_and_is_ignored_by_a_scan(capsys, snapshot):
    """As under serve: 100 MiB of 2 GiB."""
    assert recommended_mebibytes(capsys, snapshot, 100) == 300


def test_a_kill_raises_memory_in_a_scan_by_at_most_half(capsys, snapshot):
    """The pod that was killed may peak at 1,200 MiB, and not at its limit; the headroom is there for one of them."""
    assert recommended_mebibytes(capsys, snapshot, 800) == 1200 + 800 + 800


ANSWERS: dict[str, tuple[Callable[[ReceivedHttpRequest], HttpAnswer], str]] = {
    "401": (lambda request: HttpAnswer(401), "requires credentials (401)"),
    "403": (lambda request: HttpAnswer(403), "requires credentials (403)"),
    "404": (lambda request: HttpAnswer(404), "has no query API at this address (404)"),
    "429": (lambda request: HttpAnswer(429, headers={"Retry-After": "9"}), "throttles requests (429); try again later"),
    "503": (lambda request: HttpAnswer(503), "cannot answer at present (503); try again later"),
    "redirect": (lambda request: HttpAnswer(302, headers={"Location": "https://sso.example"}), "redirects to"),
    "html": (lambda request: HttpAnswer(body=b"<html>sign in</html>"), "answered with a web page"),
    "vector": (lambda request: HttpAnswer(body=EMPTY.replace(b"matrix", b"vector")), "answered with a vector"),
    "partial": (
        lambda request: nothing(request, b'"warnings":["store is down"],'),
        "reports an incomplete answer: store is down",
    ),
    "cut": (lambda request: HttpAnswer(body=EMPTY[:20], length=len(EMPTY)), "the answer was incomplete"),
    "hang-up": (lambda request: HttpAnswer(length=None), "cannot be reached"),
    "nothing": (nothing, "has no usage of this cluster's containers in the last 1h"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_any_error_is_one_line_and_exit_2(capsys, snapshot, name):
    respond, expected = ANSWERS[name]
    with answering(respond) as url:
        assert scan(snapshot, url) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("cruise: ")
    assert err.count("\n") == 1
    assert expected in err


def test_a_read_that_fails_once_is_read_again(capsys, snapshot):
    failed: list[ReceivedHttpRequest] = []

    def stumbling(request: ReceivedHttpRequest) -> HttpAnswer:
        if len(failed) < 1 and "memory" in request.form["query"]:
            failed.append(request)
            return HttpAnswer(503)
        return usage(request)

    with answering(stumbling) as url:
        assert scan(snapshot, url, "--now", AT.isoformat(), "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["basis"]["known"] == 3
    assert len(failed) == 1


def test_a_read_that_fails_twice_makes_no_half_report(capsys, snapshot):
    def broken(request: ReceivedHttpRequest) -> HttpAnswer:
        return HttpAnswer(503) if "x2x4z"[-1] in request.form["query"].rpartition("[")[2] else usage(request)

    with answering(broken) as url:
        assert scan(snapshot, url, "--now", AT.isoformat()) == 2
    assert "cannot answer at present (503)" in capsys.readouterr().err


def test_the_settings_reach_the_server(snapshot, monkeypatch, tmp_path):
    seen = []

    def recorded(request: ReceivedHttpRequest) -> HttpAnswer:
        seen.append(request)
        return usage(request)

    (tmp_path / "token").write_text("s3cret\n")
    monkeypatch.setenv("CRUISE_PROMETHEUS_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("CRUISE_PROMETHEUS_HEADERS", "X-Scope-OrgID=team-a")
    monkeypatch.setenv("CRUISE_PROMETHEUS_MATCHERS", 'cluster="prod"')
    with answering(recorded) as url:
        monkeypatch.setenv("CRUISE_PROMETHEUS_URL", url)
        assert main(["scan", "--snapshot", snapshot, "--history", "1h", "--now", AT.isoformat()]) == 0
    assert {request.headers["Authorization"] for request in seen} == {"Bearer s3cret"}
    assert {request.headers["X-Scope-OrgID"] for request in seen} == {"team-a"}
    assert all('cluster="prod"' in request.form["query"] for request in seen)


def test_a_terminal_is_shown_how_far_the_reading_is(snapshot):
    ours, theirs = pty.openpty()
    with answering(usage) as url:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "cruise",
                "scan",
                "--snapshot",
                snapshot,
                "--prometheus-url",
                url,
                "--format",
                "json",
            ],
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=False,
            timeout=120,
        )
    os.close(theirs)
    shown = b""
    with suppress(OSError):
        while piece := os.read(ours, 1 << 16):
            shown += piece
    os.close(ours)
    assert done.returncode == 0, shown.decode()
    assert json.loads(done.stdout)["basis"]["known"] == 3
    assert re.search(r"reading usage.* container-hours", shown.decode())


def write_series(path: Path) -> None:
    """Two hours of a real server's text: 250 millicores and 200 MiB each, waiting a tenth of the time."""
    start = int(AT.timestamp()) - 7200
    series = (
        ("container_cpu_usage_seconds", "counter", lambda at: 0.25 * (at - start)),
        ("container_memory_working_set_bytes", "gauge", lambda at: 200 * 2**20),
        ("container_pressure_cpu_waiting_seconds", "counter", lambda at: 0.1 * (at - start)),
    )
    with path.open("w") as file:
        for name, kind, value in series:
            file.write(f"# TYPE {name} {kind}\n")
            suffix = "_total" if kind == "counter" else ""
            for pod in PODS:
                labels = f'namespace="shop",pod="{pod}",container="app",id="/{pod}",node="n1"'
                for at in range(start, int(AT.timestamp()) + 1, 30):
                    file.write(f"{name}{suffix}{{{labels}}} {value(at)} {at}\n")
        file.write("# EOF\n")


def test_a_real_server_gives_the_same_report(capsys, snapshot, tmp_path):
    make_blocks(write_series, tmp_path / "blocks")
    with running_prometheus(tmp_path / "blocks") as url:
        assert scan(snapshot, url, "--now", AT.isoformat(), "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["basis"]["known"], document["basis"]["pressureKnown"]) == (3, 3)
    used = document["waste"]["totals"]["used"]
    assert used["cpuMillicores"] == pytest.approx(3 * 250 * 1.1, rel=0.01)
    assert used["memoryBytes"] == 3 * 200 * 2**20
