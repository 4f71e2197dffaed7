"""`cruise serve` with unusable configuration: one line that names the fix, immediately."""

import socket
from pathlib import Path

import pytest

from cruise.cli import main
from tests.adapters.kube.answering_server import kubeconfig

PROMETHEUS = "http://127.0.0.1:9"
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {token: secret}}]
"""


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("CRUISE_PROMETHEUS_URL", PROMETHEUS)
    monkeypatch.setenv("CRUISE_HTTP_ADDRESS", "127.0.0.1:0")
    monkeypatch.setenv("CRUISE_LOG_LEVEL", "error")
    return monkeypatch


def error_line(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    assert main(["serve", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    [line] = err.splitlines()
    return line


@pytest.mark.parametrize("once", [[], ["--once"]])
def test_a_prometheus_that_is_required_has_to_be_named(capsys, settings, once):
    settings.delenv("CRUISE_PROMETHEUS_URL")
    settings.setenv("CRUISE_USAGE_SOURCE", "prometheus")
    assert error_line(capsys, *once) == (
        "cruise: no Prometheus server is known; set prometheus_url, e.g. http://prometheus.monitoring:9090"
    )


@pytest.mark.parametrize("once", [[], ["--once"]])
def test_a_kubeconfig_that_does_not_exist(capsys, settings, once):
    settings.setenv("CRUISE_KUBECONFIG", "/nowhere/config")
    assert "kubeconfig /nowhere/config does not exist" in error_line(capsys, *once)


def test_without_any_cluster(capsys):
    assert "no cluster is configured" in error_line(capsys)


def test_an_api_token_file_that_does_not_exist(capsys, settings):
    settings.setenv("CRUISE_API_TOKEN_FILE", "/nowhere/token")
    assert error_line(capsys).startswith("cruise: api_token_file /nowhere/token does not exist; ")


@pytest.mark.parametrize("token", ["", "x", "x" * 31])
def test_a_token_that_is_too_short(capsys, settings, tmp_path, token):
    (tmp_path / "token").write_text(f"{token}\n")
    settings.setenv("CRUISE_API_TOKEN_FILE", str(tmp_path / "token"))
    said = error_line(capsys)
    assert f"has {len(token)} bytes; it needs at least 32; write a random one" in said
    assert "xx" not in said


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "cruise.example:0"])
def test_other_machines_are_not_let_in_unknown(capsys, settings, address):
    settings.setenv("CRUISE_HTTP_ADDRESS", address)
    said = error_line(capsys)
    assert f"http_address {address} is open to other machines" in said
    assert "set api_authentication to kubernetes, or api_token_file, or http_address to 127.0.0.1:8080" in said


def test_a_port_that_is_taken(capsys, settings, tmp_path):
    settings.setenv("CRUISE_KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings.setenv("CRUISE_HTTP_ADDRESS", f"127.0.0.1:{taken.getsockname()[1]}")
        assert "another process listens there already" in error_line(capsys)


def test_a_document_is_what_one_pass_gives(capsys):
    assert "--format json is for --once" in error_line(capsys, "--format", "json")


def test_one_pass_waits_neither_for_a_database_nor_for_an_api_server(capsys, settings, tmp_path):
    (tmp_path / "config").write_text(KUBECONFIG)
    settings.setenv("CRUISE_KUBECONFIG", str(tmp_path / "config"))
    settings.setenv("CRUISE_DATABASE_URL", "postgresql://cruise:hunter2@127.0.0.1:9/cruise")
    line = error_line(capsys, "--once", code=1)
    assert "Postgres at 127.0.0.1:9/cruise: nothing listens there" in line
    assert "hunter2" not in line


def test_help_has_examples(capsys):
    assert main(["serve", "--help"]) == 0
    assert "serve --once" in capsys.readouterr().out
