import csv
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest
import yaml

from cruise.backtest.backtest import ReplayConfiguration
from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.replay.policy import ReplayOptions
from cruise.cli import main
from cruise.cli.program import repeat_multi_value_options
from cruise.cli.work.replay import ReplayRequest, replay_locally
from cruise.errors import UnavailableError
from tests.cli.terminal import completions, run_on_terminal
from tests.cli.test_cli import alone, error_line, run

__all__ = ["alone"]

STEPS = 24
QUICK = ("as-requested", "oracle", "cruise")


@pytest.fixture
def trace(tmp_path):
    return str(write_trace(tmp_path / "shop-a"))


def write_trace(directory, pods=("web-7d9-a", "web-7d9-b", "api-5c8-a"), memory=True):
    """Two hours of use, a sample every five minutes; the first pod spikes once."""
    directory.mkdir()
    rows = [f"{pod},{pod.partition('-')[0]},2000,4294967296" for pod in pods]
    (directory / "series.csv").write_text(
        "\n".join(["series,workload,cpu_request_millicores,memory_request_bytes", *rows]) + "\n"
    )
    cpu = [
        [100 * (at + 1) + 7 * step + 900 * (step == 12 and at == 0) for at in range(len(pods))] for step in range(STEPS)
    ]
    write_usage(directory / "cpu_millicores.csv.gz", pods, cpu)
    if memory:
        write_usage(directory / "memory_bytes.csv.gz", pods, [[10**9 + at for at in range(len(pods))]] * STEPS)
    return directory


def write_usage(path, pods, rows):
    lines = [",".join(["t", *pods])]
    lines += [",".join(map(str, [300 * step, *row])) for step, row in enumerate(rows)]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))


def answer(capsys, *arguments):
    """Run the command with few policies as JSON; returns the document."""
    assert main(["backtest", *arguments, "--policy", *QUICK, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


# ---- what it answers ----


def test_one_trace_is_one_document_by_the_contract(capsys, trace):
    found = answer(capsys, "--trace", trace)
    assert found["trace"] == "shop-a"
    assert list(found["policies"]) == [name for name in POLICIES if name in QUICK]
    for policy in found["policies"].values():
        assert 0 <= policy["cpu"]["relativeSlack"] <= 1
        assert policy["cpu"]["starvedShare"] == 0
        assert 0 <= policy["memory"]["relativeSlack"] <= 1
        assert policy["memory"]["oomPer1000ContainerDays"] == 0
        assert policy["resizesPerContainerDay"] >= 0
        assert policy["evictionsPer1000PodDays"] == 0
        assert (policy["nodesMean"], policy["nodesPeak"]) == (1, 1)


def test_the_figures_are_those_of_what_was_requested(capsys, trace):
    slack = answer(capsys, "--trace", trace)["policies"]["as-requested"]["cpu"]["relativeSlack"]
    used = sum(100 * (at + 1) + 7 * step for at in range(3) for step in range(STEPS)) + 900
    assert slack == pytest.approx(1 - used / (3 * 2000 * STEPS), abs=1e-3)


def test_the_same_question_has_the_same_answer_to_the_byte(capsys, trace):
    answers = []
    for _ in range(2):
        assert main(["backtest", "--trace", trace, "--seed", "3", "--format", "json"]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


def test_without_policy_all_are_there_in_their_order(capsys, trace):
    assert main(["backtest", "--trace", trace, "--format", "json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["policies"]) == list(POLICIES)


@pytest.mark.parametrize("joined", [True, False])
def test_several_traces_are_a_list_however_they_are_given(capsys, tmp_path, joined):
    first, second = (str(write_trace(tmp_path / name)) for name in ("one", "two"))
    given = ["--trace", first, second] if joined else ["--trace", first, "--trace", second]
    assert [one["trace"] for one in answer(capsys, *given)["traces"]] == ["one", "two"]


def test_two_processes_return_the_same_bytes(capsys, tmp_path):
    traces = [str(write_trace(tmp_path / name)) for name in ("one", "two")]
    answers = []
    for jobs in ("1", "2"):
        assert main(["backtest", "--trace", *traces, "--policy", *QUICK, "--jobs", jobs, "--format", "json"]) == 0
        answers.append(capsys.readouterr())
    assert answers[0] == answers[1]
    assert answers[0].err == ""


@dataclass(frozen=True)
class Deadly:
    """A recording that ends the process that reads it, as the kernel does where memory is short."""

    label: str = "deadly"

    def read(self, on_progress, say):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_crashed_worker_is_reported_in_one_line():
    wanted = ReplayRequest(
        [Deadly()], [ReplayConfiguration("vpa", "vpa", ReplayOptions())], None, with_time_lines=False
    )
    with pytest.raises(UnavailableError, match=r"a worker process died, .* fewer --jobs"):
        replay_locally(wanted, 2)


def test_half_of_the_series_by_name(capsys, trace):
    tune, report = (answer(capsys, "--trace", trace, "--half", half) for half in ("tune", "report"))
    assert (tune["containers"], report["containers"]) == (2, 1)
    assert tune["terms"]["half"] == "tune"


def test_nodes_of_another_size(capsys, trace):
    found = answer(capsys, "--trace", trace, "--node-cpu", "2500m", "--node-memory", "8Gi")
    assert found["node"] == {"cpuMillicores": 2500, "memoryBytes": 8 << 30}
    assert found["policies"]["as-requested"]["nodesPeak"] == 3


def test_terms_reach_the_replay(capsys, trace, monkeypatch):
    monkeypatch.setenv("CRUISE_PRICE_CORE_HOUR", "0.02")
    monkeypatch.setenv("CRUISE_PRICE_GIBIBYTE_HOUR", "0.005")
    monkeypatch.setenv("CRUISE_PRICE_OOM_KILL", "3")
    monkeypatch.setenv("CRUISE_CURRENCY", "€")
    found = answer(
        capsys, "--trace", trace, "--pod-creation", "start", "--risk", "0.01", "--seed", "7", "--policy", "cruise-risk"
    )
    assert found["terms"] == {
        "passSeconds": 300,
        "podCreation": "start",
        "seed": 7,
        "risk": 0.01,
        "half": None,
        "prices": {"coreHour": 0.02, "gibibyteHour": 0.005},
        "rules": "default",
        "objectivePrices": {
            "coreHour": 0.02,
            "gibibyteHour": 0.005,
            "starvedMinute": 0.01,
            "oomKill": 3.0,
            "eviction": 0.05,
            "resize": 0.0002,
        },
        "hpa": None,
        "currency": "€",
    }


def test_hpas_scale_the_workloads_of_a_trace(capsys, trace):
    found = answer(capsys, "--trace", trace, "--hpa", "30%", "--policy", "as-requested", "vpa")
    assert found["terms"]["hpa"] == "30%"
    unchanged, vpa = (found["policies"][name]["autoscaling"] for name in ("as-requested", "vpa"))
    assert unchanged["replicaMinutes"] == unchanged["unchangedReplicaMinutes"] == vpa["unchangedReplicaMinutes"] > 0
    assert vpa["workloadMinutes"] == unchanged["workloadMinutes"]


def test_cruise_decides_by_the_present_settings(capsys, trace, monkeypatch):
    usual = answer(capsys, "--trace", trace)["policies"]
    monkeypatch.setenv("CRUISE_NEW_WORKLOAD_AGE", "1d")
    patient = answer(capsys, "--trace", trace)["policies"]
    assert usual["cruise"]["resizesPerContainerDay"] > 0
    assert patient["cruise"]["resizesPerContainerDay"] == 0
    assert patient["oracle"] == usual["oracle"]


def test_rules_of_the_first_design_are_chosen_by_an_option_or_a_setting(capsys, trace, monkeypatch):
    chosen = answer(capsys, "--trace", trace, "--rules", "seeds")
    assert chosen["terms"]["rules"] == "seeds"
    monkeypatch.setenv("CRUISE_RULES", "seeds")
    assert answer(capsys, "--trace", trace) == chosen
    assert main(["backtest", "--trace", trace, "--policy", "as-requested"]) == 0
    assert "risk 0.001, rules seeds" in " ".join(capsys.readouterr().out.split()).replace(";", ",")
    assert answer(capsys, "--trace", trace, "--rules", "default")["terms"]["rules"] == "default"


def test_without_memory_its_figures_are_null(capsys, tmp_path):
    found = answer(capsys, "--trace", str(write_trace(tmp_path / "cpu-only", memory=False)))
    assert found["policies"]["cruise"]["memory"]["relativeSlack"] is None


def test_as_table_yaml_and_csv(capsys, trace):
    given = ["backtest", "--trace", trace, "--policy", *QUICK]
    assert main(given) == 0
    table = capsys.readouterr().out
    assert table.startswith("shop-a: 3 containers, 2 hours, a sample every 5 min;")
    assert all(re.search(rf"^{name} ", table, re.MULTILINE) for name in QUICK)
    assert main([*given, "-f", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == answer(capsys, "--trace", trace)
    assert main([*given, "-f", "csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {line["policy"] for line in lines} == set(QUICK)


def test_the_page_is_written_next_to_the_answer(capsys, trace, tmp_path):
    page = tmp_path / "report.html"
    found = answer(capsys, "--trace", trace, "--html", str(page))
    assert found["trace"] == "shop-a"
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "node-000 from 2024-01-01" in text
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert main(["backtest", "--trace", trace, "--policy", *QUICK, "--format", "html"]) == 0
    assert capsys.readouterr().out == text


def test_another_node_can_be_watched(capsys, trace):
    watch = ["--node-cpu", "2500m", "--show-node", "node-002", "--format", "html"]
    assert main(["backtest", "--trace", trace, "--policy", "as-requested", *watch]) == 0
    text = capsys.readouterr().out
    assert "node-002 from" in text
    assert "No pod ran" not in text
    watch = ["--show-node", "node-777", "--format", "html"]
    assert main(["backtest", "--trace", trace, "--policy", "as-requested", *watch]) == 2
    out, err = capsys.readouterr()
    assert err == "cruise: --show-node: no pod ran on node node-777\n"
    assert "No pod ran on node node-777" in out


# ---- what it refuses ----


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--policy", "autoplot"], "--policy: no policy is called autoplot; did you mean autopilot?"),
        (["--policy", "xyz"], "--policy: no policy is called xyz; there are as-requested, "),
        (["--policy", "cruise", "oracel"], "did you mean oracle"),
        (["--node-cpu", "0"], '--node-cpu: "0" is below 10m, the smallest request; write e.g. 500m'),
        (["--node-cpu", "-4"], '--node-cpu: "-4" is negative'),
        (["--node-cpu", "16000"], '--node-cpu: "16000" is more than any node has (at most 2048); did you mean 16?'),
        (["--node-cpu", "many"], '--node-cpu: "many" is not a quantity'),
        (["--node-memory", "64"], '--node-memory: "64" is below 16Mi, the smallest request; write e.g. 512Mi'),
        (["--node-memory", "64Gb"], '--node-memory: "64Gb" is not a quantity'),
        (["--policy", "vpa", "--risk", "1e-2"], "--risk is for policy cruise-risk"),
        (["--against", "x.toml", "--risk", "1e-2"], "--risk is for policy cruise-risk"),
        (["--policy", "vpa", "oracle", "--rules", "seeds"], "--rules is for policies of cruise"),
        (["--show-node", "node-002"], "--show-node is for the HTML page"),
        (["--show-node", "node-002", "--format", "json"], "--show-node is for the HTML page"),
        (["--risk", "0"], "--risk: 0 is not between 0 and 1"),
        (["--risk", "1"], "--risk: 1 is not between 0 and 1"),
        (["--risk", "nan"], "--risk: nan is not between 0 and 1"),
        (["--risk", "low"], "invalid value for '--risk'"),
        *(
            (["--hpa", text], f'--hpa: "{text}" is no target of utilization; write a whole percentage up to 1000, ')
            for text in ("", "%", "seventy", "0", "70.5%", "1001", "\uff17\uff10")
        ),
        (["--hpa", "snapshot"], "--hpa snapshot needs --snapshot FILE"),
        (["--seed", "-1"], "invalid value for '--seed'"),
        (["--pod-creation", "late"], "'late' is not one of"),
        (["--half", "third"], "'third' is not one of"),
        (["--format", "xml"], "'xml' is not one of"),
        (["--show-node", "worker-3"], "--show-node: no simulated node is called worker-3; names are node-000"),
        (["--jobs", "-1"], "invalid value for '--jobs'"),
        (["--jobs", "2", "--scheduler", "tcp://localhost:1"], "--jobs and --scheduler are both given"),
        (["--days", "0"], "invalid value for '--days'"),
        (["--days", "99999"], "invalid value for '--days'"),
        (["--days", "1.5"], "invalid value for '--days'"),
        (["--days", "7"], "--days needs --prometheus-url"),
        (["--now", "2026-01-01T00:00:00Z"], "--now needs --prometheus-url"),
        (["--snapshot", "cluster.json"], "--snapshot needs --prometheus-url"),
        (["--prometheus-url", "http://localhost:9"], "--trace and --prometheus-url are both given; choose one source"),
        (
            ["--html", "/nowhere/report.html"],
            "--html: /nowhere/report.html cannot be written: No such file or directory",
        ),
        (["--html", "/"], "--html: / cannot be written: Is a directory"),
        (["--config", "/nowhere/cruise.toml"], "/nowhere/cruise.toml"),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(capsys, trace, options, expected):
    assert expected in error_line(capsys, "backtest", "--trace", trace, *options)


def test_a_source_is_needed(capsys):
    assert error_line(capsys, "backtest").startswith("nothing to replay: add --trace DIR…, or --prometheus-url URL")
    assert "option '--trace' requires an argument" in error_line(capsys, "backtest", "--trace")
    assert "unexpected extra argument" in error_line(capsys, "backtest", "traces/a")


def test_times_of_prometheus_are_read_before_a_query(capsys):
    line = error_line(capsys, "backtest", "--prometheus-url", "http://localhost:9", "--now", "yesterday")
    assert line.startswith('--now: "yesterday" is not a time')


def test_a_price_alone_is_rejected(capsys, trace, monkeypatch):
    monkeypatch.setenv("CRUISE_PRICE_CORE_HOUR", "0.02")
    assert "price_core_hour and price_gibibyte_hour belong together" in error_line(capsys, "backtest", "--trace", trace)


def test_a_server_that_cannot_be_reached_is_a_failure(capsys):
    arguments = ["backtest", "--prometheus-url", "http://127.0.0.1:9", "--days", "1"]
    assert "127.0.0.1:9" in error_line(capsys, *arguments, code=1)


def test_a_bad_trace_is_reported_before_the_first_is_replayed(capsys, trace, tmp_path):
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in error_line(capsys, "backtest", "--trace", trace, str(tmp_path / "empty"))
    assert "/nowhere" in error_line(capsys, "backtest", "--trace", trace, "/nowhere")


def test_a_half_with_nothing_in_it_is_rejected(capsys, tmp_path):
    alone_there = str(write_trace(tmp_path / "one", pods=("web-7d9-a",)))
    assert "--half report: one has one series only" in error_line(
        capsys, "backtest", "--trace", alone_there, "--half", "report"
    )


# ---- how it is used ----


@pytest.mark.parametrize(
    ("given", "expected", "open_at_end"),
    [
        (["--trace", "a", "b", "--seed", "3"], ["--trace", "a", "--trace", "b", "--seed", "3"], None),
        (["--trace", "a", "--policy", "x", "y"], ["--trace", "a", "--policy", "x", "--policy", "y"], "--policy"),
        (["--trace=a", "b"], ["--trace=a", "--trace", "b"], "--trace"),
        (["-f", "json", "--trace", "a"], ["-f", "json", "--trace", "a"], "--trace"),
        (["--trace", "a", "--", "b"], ["--trace", "a", "--", "b"], None),
        (["stray"], ["stray"], None),
        ([], [], None),
    ],
)
def test_options_of_several_values_are_repeated(given, expected, open_at_end):
    assert repeat_multi_value_options(given, ("--trace", "--policy")) == (expected, open_at_end)


def test_policies_are_completed_the_first_and_the_next():
    expected = [name for name in POLICIES if name.startswith("cruise")]
    assert completions("cruise backtest --policy cru") == expected
    assert completions("cruise backtest --policy vpa cru") == expected
    assert "--half" in completions("cruise backtest --ha")


def test_help_has_examples_groups_and_every_policy():
    shown = run("backtest", "--help").stdout
    assert " cruise backtest --trace traces/bitbrains" in shown.partition("Examples:")[2]
    for group in ("What is replayed", "The simulated cluster", "The report"):
        assert f"─ {group} ─" in shown
    assert [name for name in POLICIES if not re.search(rf"\b{name}\b", shown)] == []


def test_progress_of_two_processes_is_one(trace):
    command = [sys.executable, "-m", "cruise", "backtest", "--trace", trace, "--policy", *QUICK, "--format", "json"]
    output, seen = run_on_terminal([*command, "--jobs", "2"])
    assert json.loads(output)["trace"] == "shop-a"
    assert b"shop-a: " in seen


def test_progress_is_shown_on_a_terminal_and_nowhere_else(trace):
    command = [sys.executable, "-m", "cruise", "backtest", "--trace", trace, "--policy", *QUICK, "--format", "json"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""
    output, seen = run_on_terminal(command)
    assert json.loads(output)["trace"] == "shop-a"
    assert b"shop-a: " in seen
    assert b"left" in seen
