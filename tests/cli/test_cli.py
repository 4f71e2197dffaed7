import csv
import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cruise import __version__
from cruise.cli import main
from tests.builders import (
    make_container_json,
    make_deployment_json,
    make_list_json,
    make_namespace_json,
    make_node_json,
    make_pod_json,
    make_replica_set_json,
    make_usage_item_json,
    make_usage_json,
)

POD = "web-7d9f8b6c5d-x2x4z"
OTHER = "web-7d9f8b6c5d-b9k2d"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No setting of this machine's reaches a test."""
    for name in [name for name in os.environ if name.startswith("CRUISE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


def write_files(directory: Path, snapshot=None, usage=None) -> list[str]:
    """Write both files; returns the options that name them."""
    objects = [
        make_node_json(),
        make_node_json("n2"),
        make_pod_json(POD, containers=[make_container_json(cpu="2", memory="1Gi", memory_limit="2Gi")]),
        make_pod_json(OTHER, annotations={"cruise.io/mode": "fulll"}),
        make_deployment_json(),
        make_replica_set_json(),
        make_namespace_json(),
    ]
    (directory / "cluster.json").write_text(json.dumps(snapshot or make_list_json(*objects)))
    (directory / "usage.json").write_text(
        json.dumps(usage or make_usage_json(make_usage_item_json(POD), make_usage_item_json(OTHER)))
    )
    return ["--snapshot", str(directory / "cluster.json"), "--usage", str(directory / "usage.json")]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "cruise", *arguments], capture_output=True, text=True, check=False, timeout=240
    )


def error_line(capsys, *arguments: str, code: int = 2) -> str:
    """Run a command that must fail with one line on standard error, and nothing on standard output."""
    assert main(arguments) == code
    out, err = map(str, capsys.readouterr())
    assert out == ""
    assert err.startswith("cruise: ")
    assert err.count("\n") == 1
    return err.removeprefix("cruise: ").rstrip("\n")


# ---- the program ----


def test_the_version_and_the_help_of_every_command(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cruise {__version__}\n"
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for command in ("plan", "explain", "scan"):
        assert f" {command} " in overview
        assert main([command, "--help"]) == 0
        assert f"cruise {command} " in capsys.readouterr().out


def test_every_command_has_examples_in_its_help(capsys):
    for command in ("plan", "explain", "scan"):
        main([command, "--help"])
        assert f" cruise {command} " in capsys.readouterr().out.partition("Examples:")[2]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["pla"], "no such command 'pla'"),
        (["plan"], "missing option '--snapshot'; see cruise plan --help"),
        (["plan", "--snapshot", "x", "--usage", "y", "--format", "yaml"], "'yaml' is not one of"),
        (["plan", "--snapshot", "x", "--usage", "y", "--colour"], "no such option"),
        (["plan", "--snapshot", "x", "--usage", "y", "--mode", "off"], "'off' is not one of"),
        (["explain"], "missing argument"),
        (["scan", "--snapshot", "x", "--history", "1y"], "'1y' is not one of"),
        (
            ["pack", "--snapshot", "x", "--seed", "x"],
            "invalid value for '--seed': must be a valid integer; see cruise pack",
        ),
        (["pack", "--snapshot", "x", "--work", "0"], "'--work': must be greater than or equal to 1; see cruise pack"),
        (["scan", "--snapshot", "x", "--context", "prod"], "--snapshot is a file, and --context reads a live cluster"),
        (["scan", "--usage", "x", "--all-contexts"], "--usage is a file, and --context reads a live cluster"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(capsys, arguments, expected):
    assert expected in error_line(capsys, *arguments)


def test_python_dash_m_is_the_same_program():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"cruise {__version__}\n")


def test_the_program_starts_without_numpy():
    script = "import sys; import cruise.cli.program; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# ---- plan ----


def test_plan_prints_one_json_document(capsys, files):
    assert main(["plan", *files, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("cruise: note: ")
    assert err.count("\n") == 1
    nodes = json.loads(out)["nodes"]
    assert [node["node"] for node in nodes] == ["n1", "n2"]
    assert [target["cpuMillicores"] for target in nodes[0]["targets"]] == [200]
    assert nodes[0]["hold"] == [{"namespace": "shop", "pod": OTHER, "reason": "unreadable-annotation"}]


def test_plan_reads_gzip_and_standard_input(tmp_path, files):
    plain = Path(files[1]).read_bytes()
    (tmp_path / "cluster.json.gz").write_bytes(gzip.compress(plain))
    zipped = run("plan", "--snapshot", str(tmp_path / "cluster.json.gz"), *files[2:], "--format", "json")
    piped = subprocess.run(
        [sys.executable, "-m", "cruise", "plan", "--snapshot", "-", *files[2:], "--format", "json"],
        input=plain,
        capture_output=True,
        check=False,
    )
    assert zipped.stdout == piped.stdout.decode() != ""


def test_plan_prints_a_table_by_default(capsys, files):
    assert main(["plan", *files]) == 0
    out = capsys.readouterr().out
    assert "mode full; nothing was contacted" in out
    assert "2.10 → 0.30" in out
    assert max(map(len, out.splitlines())) <= 80


def test_plan_of_one_node_shows_every_container(capsys, files):
    assert main(["plan", *files, "--node", "n1"]) == 0
    out = capsys.readouterr().out
    assert "n2" not in out
    assert "2,000m → 200m" in out
    assert "skipped: unreadable-annotation" in out


def test_plan_repeats_node_and_rejects_unknown_ones(capsys, files):
    assert main(["plan", *files, "--node", "n2", "--node", "n1", "--format", "json"]) == 0
    assert [node["node"] for node in json.loads(capsys.readouterr().out)["nodes"]] == ["n1", "n2"]
    assert error_line(capsys, "plan", *files, "--node", "n3") == (
        "--node: the snapshot has no node n3; did you mean n2 or n1?"
    )


def test_the_mode_caps_as_the_clusters(capsys, files):
    assert main(["plan", *files, "--mode", "observe", "--format", "json"]) == 0
    [node, _] = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["targets"], node["resize"]) == ([], [])
    assert {hold["reason"] for hold in node["hold"]} == {"mode-observe", "unreadable-annotation"}


def test_statistics_are_evaluated_at_now(capsys, files):
    assert main(["plan", *files, "--now", "2026-01-01T13:00:00Z", "--format", "json"]) == 0
    [node, _] = json.loads(capsys.readouterr().out)["nodes"]
    assert {hold["reason"] for hold in node["hold"]} == {"stale-statistics", "unreadable-annotation"}


def test_settings_reach_the_plan_and_the_environment_wins(capsys, files, tmp_path, monkeypatch):
    config = tmp_path / "cruise.toml"
    config.write_text('max_age = "2h"\nexcluded_namespaces = ["shop"]\n')
    late = ["--now", "2026-01-01T13:00:00Z", "--format", "json", "--config", str(config)]
    assert main(["plan", *files, *late]) == 0
    [node, _] = json.loads(capsys.readouterr().out)["nodes"]
    assert {hold["reason"] for hold in node["hold"]} == {"excluded-namespace"}
    monkeypatch.setenv("CRUISE_EXCLUDED_NAMESPACES", "ops")
    assert main(["plan", *files, *late]) == 0
    assert len(json.loads(capsys.readouterr().out)["nodes"][0]["targets"]) == 1


def test_a_wrong_setting_is_rejected_before_anything_is_read(capsys, monkeypatch):
    monkeypatch.setenv("CRUISE_MAXAGE", "5m")
    assert "did you mean CRUISE_MAX_AGE" in error_line(capsys, "plan", "--snapshot", "x", "--usage", "y")


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("tomorrow", "is not a time"),
        ("2026-01-01T12:00:00", "has no time zone"),
        ("", "is not a time"),
        ("0001-01-01T00:00:00+14:00", "is not a time"),
        ("9999-12-31T23:59:59Z", "is not a time"),
    ],
)
def test_an_invalid_time_is_rejected(capsys, files, now, expected):
    assert expected in error_line(capsys, "plan", *files, "--now", now)


def broken(directory: Path, snapshot: str | None = None, usage: str | None = None) -> list[str]:
    options = write_files(directory)
    if snapshot is not None:
        Path(options[1]).write_text(snapshot)
    if usage is not None:
        Path(options[3]).write_text(usage)
    return options


@pytest.mark.parametrize("command", [["plan"], ["scan"], ["explain", f"shop/{POD}"]])
def test_bad_files_are_one_line_and_exit_2_for_every_command(capsys, tmp_path, command):
    whole = json.dumps(make_list_json(make_node_json(), make_pod_json(POD)))
    for snapshot in (
        whole[:-30],
        "",
        "[]",
        "not JSON",
        json.dumps(make_list_json(make_node_json(memory="1.5Gx"))),
        json.dumps(make_list_json(make_pod_json(POD, node="gone"))),
        json.dumps(make_list_json(make_node_json(), make_pod_json(POD), make_pod_json(POD))),
    ):
        assert "cluster.json" in error_line(capsys, *command, *broken(tmp_path, snapshot))
    for item in (
        make_usage_item_json(POD, cpu_base=-1),
        make_usage_item_json("stranger-1"),
        make_usage_item_json(POD, container="unknown"),
    ):
        usage = json.dumps(
            make_usage_json(make_usage_item_json(POD), item)
            if item["container"] == "unknown"
            else make_usage_json(item)
        )
        assert "usage.json" in error_line(capsys, *command, *broken(tmp_path, usage=usage))
    nan = json.dumps(make_usage_json(make_usage_item_json(POD, cpu_base=float("nan"))))
    assert "usage.json" in error_line(capsys, *command, *broken(tmp_path, usage=nan))


def test_missing_files_and_directories_are_named(capsys, files, tmp_path):
    assert error_line(capsys, "plan", "--snapshot", "/nowhere.json", *files[2:]) == "/nowhere.json: no such file"
    assert "is a directory" in error_line(capsys, "plan", "--snapshot", str(tmp_path), *files[2:])


def test_a_clock_in_the_future_is_rejected(capsys, files):
    assert "usage.json" in error_line(capsys, "plan", *files, "--now", "2025-12-31T00:00:00Z")


@pytest.mark.parametrize("width", ["80", "160"])
@pytest.mark.parametrize("command", [["plan"], ["scan"], ["explain", f"shop/{POD}"]])
def test_lines_of_tables_end_with_their_last_character(capsys, files, monkeypatch, command, width):
    monkeypatch.setenv("COLUMNS", width)
    assert main([*command, *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert [line for line in lines if line.endswith(" ")] == []


# ---- explain ----


def test_explain_answers_from_files(capsys, files):
    assert main(["explain", f"shop/{POD}", *files]) == 0
    out = capsys.readouterr().out
    assert "resize planned" in out
    assert "max(0, peak 200m − base 50m) = 150m" in out
    assert main(["explain", f"shop/{OTHER}", *files, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["skipped"]["reason"] == "unreadable-annotation"
    assert "fulll" in document["skipped"]["detail"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web", '"web" is not NAMESPACE/POD'),
        ("shop/", "is not NAMESPACE/POD"),
        ("a/b/c", "is not NAMESPACE/POD"),
        ("shop/web-7d9f8b6c5d-x2x4y", f"did you mean {POD}"),
        ("shpo/web", "no pod in namespace shpo; did you mean shop?"),
    ],
)
def test_explain_rejects_pods_that_are_not_there(capsys, files, name, expected):
    assert expected in error_line(capsys, "explain", name, *files)


def test_explain_rejects_usage_without_a_snapshot(capsys, files):
    assert "--usage needs --snapshot" in error_line(capsys, "explain", "shop/web", *files[2:])


def test_explain_without_files_needs_a_store(capsys, files, tmp_path, monkeypatch):
    monkeypatch.setenv("CRUISE_DATA_DIR", str(tmp_path / "nothing"))
    assert "no database under" in error_line(capsys, "explain", f"shop/{POD}")
    assert "no database under" in error_line(capsys, "explain", f"shop/{POD}", *files[:2])
    for option in (("--rules", "seeds"), ("--mode", "resize")):
        assert f"{option[0]} needs the cluster or --snapshot" in error_line(capsys, "explain", f"shop/{POD}", *option)
    assert not (tmp_path / "nothing").exists()


def test_explain_fails_with_1_where_the_database_does_not_answer(capsys, monkeypatch):
    monkeypatch.setenv("CRUISE_DATABASE_URL", "postgresql://cruise:hush@127.0.0.1:1/cruise")
    complaint = error_line(capsys, "explain", f"shop/{POD}", code=1)
    assert "127.0.0.1:1" in complaint
    assert "hush" not in complaint


# ---- scan ----


def test_scan_reports_in_every_format(capsys, files):
    assert main(["scan", *files]) == 0
    assert "Reclaimable" in capsys.readouterr().out
    assert main(["scan", *files, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["waste"]["totals"]["requested"]["cpuMillicores"] == 2100
    assert main(["scan", *files, "--format", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == document
    assert main(["scan", *files, "--format", "csv"]) == 0
    sections = [row["section"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert sections == ["coverage", "coverage", "waste"]
    assert main(["scan", *files, "--format", "html"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")


def test_scan_writes_to_a_file_in_the_format_of_its_name(capsys, files, tmp_path):
    for name, start in (
        ("r.html", "<!doctype"),
        ("r.json", "{"),
        ("r.csv", "section,"),
        ("r.yml", "at: "),
        ("r.txt", "2 nodes"),
    ):
        assert main(["scan", *files, "--output", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text().startswith(start)
    assert main(["scan", *files, "--output", str(tmp_path / "r.html"), "--format", "json"]) == 0
    json.loads((tmp_path / "r.html").read_text())
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_scan_rejects_what_it_cannot_write_to(capsys, files, tmp_path):
    assert "cannot be written" in error_line(capsys, "scan", *files, "-o", str(tmp_path / "no" / "where.html"))
    assert "cannot be written" in error_line(capsys, "scan", *files, "-o", str(tmp_path))


def test_scan_writes_into_a_pipe_or_a_device_directly(files):
    done = run("scan", *files, "--format", "json", "--output", "/dev/stdout")
    assert done.returncode == 0
    json.loads(done.stdout)
    assert run("scan", *files, "--output", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()


def test_a_scan_for_mail_is_html_and_nothing_else(capsys, files, tmp_path):
    assert main(["scan", *files, "--email-ready", "-o", str(tmp_path / "mail.html")]) == 0
    assert "<script" not in (tmp_path / "mail.html").read_text()
    assert main(["scan", *files, "--email-ready", "--format", "html"]) == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")
    said = error_line(capsys, "scan", *files, "--email-ready", "--format", "csv")
    assert said == "--email-ready is html, and --format is csv; remove one of them"


def test_prices_change_the_estimate(capsys, files):
    main(["scan", *files, "--format", "json", "--price-cpu-core-hour", "1", "--price-gib-hour", "0"])
    totals = json.loads(capsys.readouterr().out)["waste"]["totals"]
    assert totals["reclaimableMonthlyCost"] == pytest.approx(totals["reclaimable"]["cpuMillicores"] / 1000 * 730)


def test_a_price_that_is_no_number_is_rejected(capsys, files):
    assert "a price is a number" in error_line(capsys, "scan", *files, "--price-gib-hour", "inf")


def test_scan_requires_one_source_of_usage(capsys, files):
    assert "no usage" in error_line(capsys, "scan", *files[:2])
    both = [*files, "--prometheus-url", "http://127.0.0.1:9"]
    assert "choose one" in error_line(capsys, "scan", *both)


# ---- output ----


def test_a_reader_that_has_had_enough_is_no_failure(files):
    for arguments in (["plan", "--format", "json"], ["plan", "--node", "n1"], ["scan"]):
        command = [sys.executable, "-m", "cruise", arguments[0], *files, *arguments[1:]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert (process.stderr.read(), process.wait(timeout=240)) == (b"", 0)


def test_a_full_disk_is_a_failure_in_one_line(files):
    for arguments in (["plan", "--format", "json"], ["scan"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "cruise", arguments[0], *files, *arguments[1:]],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (done.returncode, done.stderr) == (1, "cruise: output: No space left on device\n")


def test_closed_standard_output_is_a_failure_in_one_line(files):
    line = f"exec {sys.executable} -m cruise plan {' '.join(files)} --format json >&-"
    done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "cruise: standard output is closed\n")


def test_files_get_no_colour_and_terminals_may_refuse_it(files):
    assert "\x1b" not in run("plan", *files).stdout
    script = "import pty, sys; pty.spawn([sys.executable, '-m', 'cruise', *sys.argv[1:]])"
    colourful = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    shown = {
        name: subprocess.run(
            [sys.executable, "-c", script, "plan", *files],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environment,
            check=True,
        ).stdout
        for name, environment in (("colour", colourful), ("none", {**colourful, "NO_COLOR": "1"}))
    }
    assert b"\x1b[32m" in shown["colour"]
    assert b"\x1b[32m" not in shown["none"]
