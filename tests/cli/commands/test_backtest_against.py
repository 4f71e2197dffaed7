"""`cruise backtest --against`: its output, when it exits with 1, and every invalid option."""

import json

import pytest

from cruise.cli import main
from tests.cli.commands.test_backtest import trace, write_trace
from tests.cli.test_cli import alone, error_line

__all__ = ["alone", "trace"]


@pytest.fixture
def patient(tmp_path):
    """A configuration that waits for a day, so that nothing is resized."""
    path = tmp_path / "patient.toml"
    path.write_text('new_workload_age = "1d"\n')
    return str(path)


def compared(capsys, *arguments, code=0):
    assert main(["backtest", *arguments, "--format", "json"]) == code
    out, err = capsys.readouterr()
    return json.loads(out), err


def test_a_difference_is_this_configuration_less_the_other(capsys, trace, patient):
    found, err = compared(capsys, "--trace", trace, "--against", patient)
    assert err == ""
    assert list(found["policies"]) == ["cruise", "reference"]
    writes = found["difference"]["figures"]["resizes"]
    assert writes["reference"] == 0
    assert writes["current"] == writes["delta"] == found["policies"]["cruise"]["resizesPerContainerDay"]
    assert writes["low"] <= writes["delta"] <= writes["high"]
    slack = found["difference"]["figures"]["cpuSlack"]
    assert slack["delta"] == pytest.approx(slack["current"] - slack["reference"], abs=1e-5)
    assert found["difference"]["settings"] == [
        {"setting": "new_workload_age", "reference": "1440 min", "current": "30 min"}
    ]
    assert found["difference"]["exceeded"] == []


def test_the_other_file_is_read_without_this_environment(capsys, trace, patient, monkeypatch, tmp_path):
    monkeypatch.setenv("CRUISE_NEW_WORKLOAD_AGE", "1d")
    found, _ = compared(capsys, "--trace", trace, "--against", patient)
    assert found["difference"]["settings"] == []
    assert {figure["delta"] for figure in found["difference"]["figures"].values()} == {0}
    nothing = tmp_path / "nothing.toml"
    nothing.write_text("")
    found, _ = compared(capsys, "--trace", trace, "--against", str(nothing))
    assert found["difference"]["figures"]["resizes"]["delta"] < 0


def test_the_answer_is_the_same_bytes_in_two_processes(capsys, tmp_path, patient):
    traces = [str(write_trace(tmp_path / name)) for name in ("one", "two")]
    answers = [compared(capsys, "--trace", *traces, "--against", patient, "--jobs", jobs) for jobs in ("1", "2")]
    assert answers[0] == answers[1]
    assert [one["trace"] for one in answers[0][0]["traces"]] == ["one", "two"]


def test_a_broken_bound_is_one_line_and_exit_1(capsys, trace, patient):
    found, err = compared(
        capsys, "--trace", trace, "--against", patient, "--max-delta", "oom-kills=0", "resizes=0", code=1
    )
    assert err.startswith("cruise: shop-a: resizes /c·d changes by +")
    assert err.count("\n") == 1
    assert found["difference"]["exceeded"] == ["resizes"]
    figures = found["difference"]["figures"]
    assert (figures["oomKills"]["result"], figures["resizes"]["result"]) == ("within-bound", "exceeded")


def test_a_bound_may_have_to_hold_for_the_whole_interval(capsys, trace, patient):
    writes = compared(capsys, "--trace", trace, "--against", patient)[0]["difference"]["figures"]["resizes"]
    assert writes["high"] > writes["delta"]
    bound = f"resizes={(writes['high'] + writes['delta']) / 2}"
    compared(capsys, "--trace", trace, "--against", patient, "--max-delta", bound)
    _, err = compared(
        capsys, "--trace", trace, "--against", patient, "--max-delta", bound, "--confidence-interval", code=1
    )
    assert "perhaps above the bound" in err


def test_a_bound_on_what_was_not_recorded_is_reported(capsys, tmp_path, patient):
    cpu_only = str(write_trace(tmp_path / "cpu-only", memory=False))
    _, err = compared(capsys, "--trace", cpu_only, "--against", patient, "--max-delta", "oom-kills=0", code=1)
    assert "was not recorded" in err


@pytest.mark.parametrize("width", ["80", "160"])
def test_the_table_fits_its_terminal(capsys, trace, patient, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    assert main(["backtest", "--trace", trace, "--against", patient, "--max-delta", "cpu-slack=-5%"]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(width)
    assert "new_workload_age is 30 min, 1440 min in the reference." in " ".join(lines)
    row = next(line for line in lines if line.startswith("CPU slack %"))
    assert "…" in row and "≤ −5.00" in row


def test_markdown_for_a_pull_request(capsys, trace, patient, tmp_path):
    page = tmp_path / "change.md"
    main(["backtest", "--trace", trace, "--against", patient, "--max-delta", "resizes=0", "--markdown", str(page)])
    text = page.read_text()
    assert "**A bound is exceeded.**" in text
    assert "| `new_workload_age` | `1440 min` | `30 min` |" in text
    assert "| **EXCEEDED** |" in text
    rows = [line for line in text.splitlines() if line.startswith("| CPU slack")]
    assert [row.count("|") for row in rows] == [9]


def test_as_yaml_and_csv(capsys, trace, patient):
    assert main(["backtest", "--trace", trace, "--against", patient, "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("trace,figure,reference,current,delta,low,high,")
    assert [line.split(",")[1] for line in lines[1:]] == [
        "cpuSlack",
        "memorySlack",
        "cpuStarved",
        "oomKills",
        "resizes",
        "ownEvictions",
        "nodes",
    ]
    assert main(["backtest", "--trace", trace, "--against", patient, "--format", "yaml"]) == 0
    assert "\ndifference:\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--max-delta", "oom-kills=0"], "--max-delta needs --against FILE"),
        (["--confidence-interval"], "--confidence-interval needs --against FILE"),
        (["--markdown", "x.md"], "--markdown needs --against FILE"),
        (["--against", "/nowhere.toml"], "/nowhere.toml: cannot be read"),
        (["--against", "PATIENT", "--policy", "vpa"], "--policy compares policies"),
        (["--against", "PATIENT", "--html", "x.html"], "--html compares policies"),
        (["--against", "PATIENT", "--format", "html"], "--format html is not for --against"),
        (
            ["--against", "PATIENT", "--max-delta", "oom-kills"],
            '--max-delta: "oom-kills" has no bound; write e.g. oom-kills=0',
        ),
        (["--against", "PATIENT", "--max-delta", "oom-kill=0"], "there is no metric oom-kill; did you mean oom-kills"),
        (["--against", "PATIENT", "--max-delta", "oom-kills=none"], "none is not a number"),
        (["--against", "PATIENT", "--max-delta", "oom-kills=1%"], "only shares have percentage points"),
        (["--against", "PATIENT", "--max-delta", "cpu-slack=5"], "write 5% for percentage points"),
        (["--against", "PATIENT", "--max-delta", "oom-kills=nan"], "a bound is a finite number"),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(capsys, trace, patient, options, expected):
    given = [patient if option == "PATIENT" else option for option in options]
    assert expected in error_line(capsys, "backtest", "--trace", trace, *given)
