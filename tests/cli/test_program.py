"""`kubectl cruise`, its completion, and the files for krew and k9s."""

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cruise import __version__
from cruise.cli import program
from cruise.cli.program import app
from cruise.domain.annotations import OVERRIDES
from scripts.krew import ARCHIVE, MANIFEST, make

ROOT = Path(__file__).parents[2]
K9S = yaml.safe_load((ROOT / "deploy/k9s/plugins.yaml").read_text())["plugins"]


@pytest.mark.parametrize(
    ("arguments", "rest", "environment"),
    [
        (["check", "--context", "prod", "-f", "json"], ["check", "-f", "json"], {"CRUISE_KUBE_CONTEXT": "prod"}),
        (["scan", "--context=a", "--context", "b"], ["scan", "--context", "a", "--context", "b"], {}),
        (["--kubeconfig=/k", "scan"], ["scan"], {"CRUISE_KUBECONFIG": "/k"}),
        (["scan", "--", "--context", "x"], ["scan", "--", "--context", "x"], {}),
        (["scan"], ["scan"], {}),
    ],
)
def test_the_cluster_is_chosen_as_kubectl_does_it(arguments, rest, environment):
    found: dict[str, str] = {}
    assert program.apply_kubectl_options(arguments, found) == rest
    assert found == environment


def plugged(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["kubectl-cruise", *arguments])
    return program.run_plugin()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("CRUISE_", "KUBE", "_TYPER", "_CRUISE")):
            monkeypatch.delenv(name)
    for name in ("CRUISE_KUBE_CONTEXT", "CRUISE_KUBECONFIG", "_CRUISE_COMPLETE", "_TYPER_COMPLETE_ARGS"):
        # Set and removed again, so that monkeypatch restores what a test sets.
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)


def test_its_help_and_its_complaints_have_its_name(monkeypatch, capsys):
    assert plugged(monkeypatch, "scan", "--help") == 0
    assert "Usage: kubectl cruise scan" in capsys.readouterr().out
    assert plugged(monkeypatch, "scan", "--colour") == 2
    assert "see kubectl cruise scan --help" in capsys.readouterr().err


def test_what_kubectl_s_options_lack_is_said(monkeypatch, capsys, tmp_path):
    assert plugged(monkeypatch, "scan", "--context") == 2
    assert capsys.readouterr().err == "cruise: option '--context' needs a value; see kubectl cruise --help\n"
    config = tmp_path / "config"
    config.write_text(
        yaml.safe_dump(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    assert plugged(monkeypatch, "scan", "--kubeconfig", str(config), "--context", "there") == 2
    assert "there" in capsys.readouterr().err


def test_the_entry_points_are_those_that_kubectl_looks_for():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-cruise"] == "cruise.cli.program:main"
    assert scripts["kubectl_complete-cruise"] == "cruise.cli.program:complete"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sca"], ["scan\tReport"]),
        (["--context", "prod", "expo"], ["export\t"]),
        (["scan", "--format", "h"], ["html"]),
        (["scan", "--snapsh"], ["--snapshot\t"]),
        (["scan", "--snapshot", ""], []),
    ],
)
def test_completions_are_as_kubectl_reads_them(arguments, expected):
    found = program.list_completions(arguments)
    assert len(found) == len(expected)
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)


def test_the_last_line_of_completions_shows_whether_files_are_meant(monkeypatch, capsys):
    for word, directive in (("sca", ":4"), ("zzz", ":0")):
        monkeypatch.setattr(sys, "argv", ["kubectl_complete-cruise", word])
        assert program.print_completions() == 0
        assert capsys.readouterr().out.splitlines()[-1] == directive


def commands_in(one: dict[str, Any]) -> list[list[str]]:
    """The words of cruise's commands in one plugin of k9s, as a shell would split them."""
    words = [one["command"], *one["args"]]
    if words[:2] == ["sh", "-c"]:
        words = list(shlex.shlex(words[2], posix=True, punctuation_chars=True))
        words = words[: words.index("2")]
    if words[:2] == ["kubectl", "cruise"]:
        return [program.apply_kubectl_options(words[2:], {})]
    return [words[words.index("--") + 2 :]] if "--" in words else []


@pytest.mark.parametrize("name", K9S)
def test_every_command_line_of_k9s_parses(name):
    found = commands_in(K9S[name])
    root = typer.main.get_command(app)
    for command, *arguments in found:
        root.commands[command].make_context(command, list(arguments))  # type: ignore[attr-defined]
    assert found or name == "cruise-leave-alone"
    assert "$CONTEXT" in str(K9S[name]["args"]), "what is shown may be another cluster than kubectl's current one"
    assert K9S[name].get("confirm") or name in ("cruise-explain", "cruise-export"), "what writes asks first"


def test_a_skipped_workload_gets_an_annotation_that_cruise_reads():
    annotation, _, value = K9S["cruise-leave-alone"]["args"][-1].partition("=")
    override = OVERRIDES[annotation.removeprefix("cruise.io/")]
    assert override.write(override.read(value)) == value


def test_the_keys_of_k9s_differ():
    keys = [one["shortCut"] for one in K9S.values()]
    assert len(set(keys)) == len(keys)


def test_krew_gets_an_archive_and_a_manifest_that_belong_together(tmp_path):
    for _ in range(2):
        make("https://downloads.example.com/kubectl-cruise.tar.gz", tmp_path)
    manifest = yaml.safe_load((tmp_path / MANIFEST).read_text())
    [platform] = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256((tmp_path / ARCHIVE).read_bytes()).hexdigest()
    assert manifest["spec"]["version"] == f"v{__version__}"
    assert not re.search(r"\b(VERSION|URI|SHA256|HOMEPAGE)\b", (tmp_path / MANIFEST).read_text())
    with tarfile.open(tmp_path / ARCHIVE) as tar:
        assert {one.name for one in tar} == {one["from"] for one in platform["files"]}
        tar.extractall(tmp_path / "in", filter="data")
    launcher = tmp_path / "in" / platform["bin"]
    without = subprocess.run([launcher], env={"PATH": "/bin"}, capture_output=True, text=True, check=False)
    assert (without.returncode, without.stderr.count("\n")) == (1, 1)
    assert "needs uv" in without.stderr
    (tmp_path / "uv").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "uv").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/bin:/usr/bin"}
    ran = subprocess.run([launcher, "scan", "a b"], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == f"tool run --quiet --from cruise=={__version__} kubectl-cruise scan a b\n"
