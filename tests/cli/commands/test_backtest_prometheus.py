"""`cruise backtest` from a real Prometheus: the days that fill it, and days of which it has nothing."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.recordings import make_recording
from cruise.backtest.recordings.prometheus import SETTLE_SECONDS
from cruise.backtest.recordings.recording import Recording
from cruise.cli import main
from tests.cli.test_cli import alone, refusal
from tests.recorded_metrics import prometheus_with

__all__ = ["alone"]

STEP = 300


@pytest.fixture(scope="module")
def recording() -> Recording:
    return make_recording(4, 1, STEP, seed=3)


@pytest.fixture(scope="module")
def server(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus_with(recording, tmp_path_factory.mktemp("day")) as url:
        yield url


@pytest.fixture(autouse=True)
def five_minutes(monkeypatch, alone):
    monkeypatch.setenv("CRUISE_PROMETHEUS_STEP", "5m")


def end_of(recording: Recording) -> datetime:
    return datetime.fromtimestamp(recording.start + 86_400 - STEP + SETTLE_SECONDS, UTC)


def asked(server: str, end: datetime, *more: str) -> list[str]:
    return ["backtest", "--prometheus-url", server, "--days", "1", "--now", end.isoformat(), *more]


def test_the_last_day_is_replayed_as_any_trace(capsys, server, recording):
    given = asked(server, end_of(recording), "--policy", "as-requested", "cruise", "--format", "json")
    answers = []
    for _ in range(2):
        assert main(given) == 0
        out, err = capsys.readouterr()
        assert err == ""
        answers.append(out)
    assert answers[0] == answers[1]
    found = json.loads(answers[0])
    assert (found["trace"], found["containers"], found["stepSeconds"]) == ("prometheus", 4, STEP)
    assert list(found["policies"]) == ["as-requested", "cruise"]
    for policy in found["policies"].values():
        assert policy["memory"]["relativeSlack"] is not None
        assert policy["containerDays"] > 0


def test_days_of_which_the_server_has_nothing_are_one_line(capsys, server, recording):
    line = refusal(capsys, *asked(server, end_of(recording) - timedelta(days=400)))
    assert line.startswith(f"Prometheus at {server} has no ")


def test_a_step_that_no_pass_can_be_made_of_is_one_line(capsys, server, recording, monkeypatch):
    monkeypatch.setenv("CRUISE_PROMETHEUS_STEP", "7m")
    assert "prometheus_step is 420 s" in refusal(capsys, *asked(server, end_of(recording)))


def test_a_snapshot_that_is_not_there_is_one_line(capsys, server, recording):
    arguments = asked(server, end_of(recording), "--snapshot", "/nowhere/cluster.json")
    assert refusal(capsys, *arguments).startswith("/nowhere/cluster.json")
