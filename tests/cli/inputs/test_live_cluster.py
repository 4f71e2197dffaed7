"""Commands that need a cluster without a reachable or usable one."""

from pathlib import Path

import pytest

from cruise.adapters.kube.prometheus_services import PrometheusEndpoint
from cruise.adapters.prometheus.settings import CloudProvider
from cruise.cli import main
from cruise.cli.inputs.live_cluster import build_prometheus_settings
from cruise.settings import Settings

GONE = """
clusters: [{name: gone, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: t}}]
contexts: [{name: gone, context: {cluster: gone, user: nobody}}]
current-context: gone
"""


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    """A user without a cluster, a store or settings."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.setenv("CRUISE_DATA_DIR", str(tmp_path / "nothing"))
    monkeypatch.setenv("COLUMNS", "80")
    yield
    assert not (tmp_path / "nothing").exists()


def error_line(capsys, *arguments: str, code: int = 2) -> str:
    assert main(list(arguments)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("cruise: ")
    assert err.count("\n") == 1
    return str(err)


LIVE = {
    "scan": ["scan", "--prometheus-url", "http://127.0.0.1:1"],
    "check": ["check"],
    "check json": ["check", "--format", "json"],
}


@pytest.mark.parametrize("command", LIVE)
def test_without_a_cluster_the_settings_that_name_one_are_reported(capsys, command):
    said = error_line(capsys, *LIVE[command])
    assert "no cluster is configured" in said
    assert "set kubeconfig, or KUBECONFIG" in said


@pytest.mark.parametrize("command", LIVE)
@pytest.mark.parametrize("content", ["", "clusters: [", "a: b\n", "\x00\x01", "[]"])
def test_an_invalid_kubeconfig_is_one_line(capsys, command, content, monkeypatch, tmp_path):
    (tmp_path / "broken").write_text(content)
    monkeypatch.setenv("CRUISE_KUBECONFIG", str(tmp_path / "broken"))
    assert "kubeconfig" in error_line(capsys, *LIVE[command])


def test_a_server_that_does_not_answer_is_a_failure(capsys, monkeypatch, tmp_path):
    path = tmp_path / "gone"
    path.write_text(GONE)
    monkeypatch.setenv("CRUISE_KUBECONFIG", str(path))
    said = error_line(capsys, "scan", "--prometheus-url", "http://127.0.0.1:1", code=1)
    assert "the API server cannot be reached" in said
    assert main(["check"]) == 1
    assert "API server  the API server cannot be reached at " in capsys.readouterr().out


WRONG = {
    "an unknown mode": (["check", "--mode", "off"], "is not one of"),
    "no address": (["check", "--prometheus-url", "prometheus:9090"], "no cluster is configured"),
    "a time of a live cluster": (["scan", "--now", "2026-01-01T00:00:00Z"], "--now needs --snapshot"),
    "usage twice": (["scan", "--usage", "u", "--prometheus-url", "http://x"], "choose one source"),
    "no terminal": (["revert"], "add --yes without a terminal for confirmation"),
    "nothing to revert from": (["revert", "--yes"], "no database of cruise under"),
    "nothing to pause": (["pause"], "no database of cruise under"),
    "an argument too much": (["resume", "now"], "unexpected extra argument"),
    "another format": (["pause", "--format", "yaml"], "is not one of"),
    "an unknown option": (["revert", "--force"], "no such option"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs_are_one_line_and_exit_2(capsys, name):
    arguments, expected = WRONG[name]
    assert expected in error_line(capsys, *arguments)


@pytest.mark.parametrize("command", ["scan", "check", "pause", "resume", "revert", "explain"])
def test_a_wrong_setting_is_rejected_before_anything_is_contacted(capsys, command, monkeypatch):
    monkeypatch.setenv("CRUISE_MODE", "fast")
    arguments = {"explain": ["explain", "shop/web"], "revert": ["revert", "--yes"]}.get(command, [command])
    assert 'CRUISE_MODE: "fast" is not a mode' in error_line(capsys, *arguments)


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize(
    "signing_in",
    [
        {"prometheus_token_file": Path("/run/token")},
        {"prometheus_user": "cruise", "prometheus_password": "s3cret"},
        {"prometheus_identity": CloudProvider.GOOGLE},
    ],
)
def test_no_secret_is_sent_to_a_discovered_address(signing_in, proxied):
    settings = Settings(
        **signing_in,
        prometheus_headers={"X-Scope-OrgID": "s3cret"},
        prometheus_matchers='cluster="prod"',
    )
    place = PrometheusEndpoint("http://p.team-a.svc:9090", "team-a", "p", {"Authorization": "Bearer of-the-api-server"})
    found = build_prometheus_settings(place, settings, proxied)
    assert (found.token_file, found.user, found.password, found.identity) == (None, None, None, None)
    assert found.headers == place.headers
    assert (found.url, found.matchers, found.uses_get) == (place.url, 'cluster="prod"', proxied)
