"""`cruise backtest` from a real Prometheus, for days with and without data."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from cruise.backtest.recordings.prometheus import SCRAPE_DELAY_SECONDS
from cruise.backtest.recordings.recording import UsageRecording
from cruise.cli import main
from tests.cli.test_cli import alone, error_line

__all__ = ["alone"]


@pytest.fixture(autouse=True)
def five_minutes(monkeypatch, alone):
    monkeypatch.setenv("CRUISE_PROMETHEUS_STEP", "5m")


def end_of(recording: UsageRecording) -> datetime:
    return datetime.fromtimestamp(recording.start + 86_400 - recording.step_seconds + SCRAPE_DELAY_SECONDS, UTC)


def asked(server: str, end: datetime, *more: str) -> list[str]:
    return ["backtest", "--prometheus-url", server, "--days", "1", "--now", end.isoformat(), *more]


def test_the_last_day_is_replayed_as_any_trace(capsys, day_server, recorded_day):
    given = asked(day_server, end_of(recorded_day), "--policy", "as-requested", "cruise", "--format", "json")
    answers = []
    for _ in range(2):
        assert main(given) == 0
        out, err = capsys.readouterr()
        assert err == ""
        answers.append(out)
    assert answers[0] == answers[1]
    found = json.loads(answers[0])
    assert (found["trace"], found["containers"], found["stepSeconds"]) == ("prometheus", 4, recorded_day.step_seconds)
    assert list(found["policies"]) == ["as-requested", "cruise"]
    for policy in found["policies"].values():
        assert policy["memory"]["relativeSlack"] is not None
        assert policy["containerDays"] > 0


def test_days_of_which_the_server_has_nothing_are_one_line(capsys, day_server, recorded_day):
    line = error_line(capsys, *asked(day_server, end_of(recorded_day) - timedelta(days=400)))
    assert line.startswith(f"Prometheus at {day_server} has no ")


def test_a_step_that_does_not_divide_a_pass_is_reported_in_one_line(capsys, day_server, recorded_day, monkeypatch):
    monkeypatch.setenv("CRUISE_PROMETHEUS_STEP", "7m")
    assert "prometheus_step is 420 s" in error_line(capsys, *asked(day_server, end_of(recorded_day)))


def test_a_snapshot_that_does_not_exist_is_one_line(capsys, day_server, recorded_day):
    arguments = asked(day_server, end_of(recorded_day), "--snapshot", "/nowhere/cluster.json")
    assert error_line(capsys, *arguments).startswith("/nowhere/cluster.json")


def test_policies_are_replayed_with_the_hpas_of_the_snapshot(capsys, day_server, recorded_day, tmp_path):
    of_workload = recorded_day.containers[0]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": of_workload.workload.name}
    utilization = {"type": "Utilization", "averageUtilization": 20}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": utilization}}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"namespace": of_workload.namespace, "name": "app"},
        "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 9, "metrics": [metric]},
        "status": {"currentReplicas": 2, "desiredReplicas": 2, "observedGeneration": 1},
    }
    file, policies = tmp_path / "cluster.json", ["as-requested", "cruise"]
    file.write_text(json.dumps({"kind": "List", "items": [hpa]}))
    given = asked(day_server, end_of(recorded_day), "--snapshot", str(file), "--hpa", "snapshot", "--format", "json")
    assert main([*given, "--policy", *policies]) == 0
    found = json.loads(capsys.readouterr().out)["policies"]
    assert list(found) == policies
    day = 24 * 60
    for policy in found.values():
        autoscaling = policy["autoscaling"]
        assert autoscaling["workloadMinutes"] == day and 2 * day <= autoscaling["replicaMinutes"] <= 9 * day
    assert found["as-requested"]["autoscaling"]["scaleEvents"] > 0
    assert found["cruise"]["autoscaling"]["differingMinutes"] == 0
