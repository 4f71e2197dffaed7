"""No secret appears in output, logs or responses, whatever fails."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cruise.cli import main
from tests.controlplane.api import wait_until
from tests.e2e.serve_scene import started
from tests.http_server import HttpAnswer, answering

CANARY = "canary8c1d"
NOWHERE = "http://127.0.0.1:9"


def kubeconfig(directory: Path, server: str, **user: Any) -> str:
    path = directory / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user or {"token": CANARY}}],
            }
        )
    )
    return str(path)


def a_file(directory: Path, name: str, content: str) -> str:
    (directory / name).write_text(content)
    return str(directory / name)


def secrets_in(directory: Path, server: str = NOWHERE, **more: str) -> dict[str, str]:
    """Settings with a canary in each secret, at servers that all fail."""
    return {
        "CRUISE_KUBECONFIG": kubeconfig(directory, server),
        "CRUISE_PROMETHEUS_URL": server,
        "CRUISE_PROMETHEUS_USER": f"user-{CANARY}",
        "CRUISE_PROMETHEUS_PASSWORD": CANARY,
        "CRUISE_PROMETHEUS_HEADERS": f"X-Scope-OrgID={CANARY}",
        "CRUISE_DATABASE_URL": f"postgresql://cruise:{CANARY}@127.0.0.1:9/cruise?connect_timeout=2",
        "CRUISE_API_TOKEN_FILE": a_file(directory, "api-token", f"{CANARY}-of-the-api-that-is-long-enough"),
        "CRUISE_NOTIFY_URL": f"{NOWHERE}/{CANARY}",
        "CRUISE_NOTIFY_SECRET_FILE": a_file(directory, "notify-secret", f"{CANARY}-that-signs-notifications"),
        "CRUISE_KUBE_TIMEOUT": "2s",
        "CRUISE_LOG_LEVEL": "debug",
        **more,
    }


BAD_SETTINGS = {
    "a slash in the database's password": {"CRUISE_DATABASE_URL": f"postgresql://u:{CANARY}/x@db:5432/c"},
    "a bracket in it": {"CRUISE_DATABASE_URL": f"postgresql://u:[{CANARY}]@db/c"},
    "a hash in it": {"CRUISE_DATABASE_URL": f"postgresql://u:1{CANARY}#x@db/c"},
    "digits and a hash in it": {"CRUISE_DATABASE_URL": f"postgresql://{CANARY}:12#x@db/c"},
    "no scheme": {"CRUISE_DATABASE_URL": f"u:{CANARY}@db/c"},
    "an unknown parameter": {"CRUISE_DATABASE_URL": f"postgresql://u@127.0.0.1:9/c?password={CANARY}&sslmode=x"},
    "a password in Prometheus' address": {"CRUISE_PROMETHEUS_URL": f"http://u:{CANARY}@127.0.0.1:9"},
    "notifications in the clear": {"CRUISE_NOTIFY_URL": f"http://hooks.example.com/{CANARY}"},
    "notifications to two places": {"CRUISE_NOTIFY_URL_FILE": f"/{CANARY}"},
    "no address there": {"CRUISE_PROMETHEUS_URL": f"u:{CANARY}@h"},
    "no port there": {"CRUISE_PROMETHEUS_URL": f"http://u:{CANARY}@h:p"},
    "a header that cannot be sent": {"CRUISE_PROMETHEUS_HEADERS": f"X-A={CANARY}\u20ac"},
    "no headers": {"CRUISE_PROMETHEUS_HEADERS": CANARY},
    "a user that Latin-1 lacks": {"CRUISE_PROMETHEUS_USER": f"{CANARY}\u20ac"},
}

ANSWERS = {
    "not signed in": HttpAnswer(401, b'{"kind":"Status","message":"Unauthorized"}'),
    "no rights": HttpAnswer(403, b'{"kind":"Status","message":"forbidden"}'),
    "broken": HttpAnswer(500, b"<html>"),
    "no JSON": HttpAnswer(200, b"\xff\xfe{"),
    "another JSON": HttpAnswer(200, b"[1]"),
    "cut short": HttpAnswer(200, b"{", length=99),
    "elsewhere": HttpAnswer(302, b"", {"Location": f"http://user:{CANARY}@elsewhere.example/"}),
}


NODE = {
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
}
POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "shop", "uid": "1"},
    "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
    "status": {"phase": "Running"},
}


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path):
    """Scan the cluster, and Prometheus alone, in an environment; return all output."""
    snapshot = a_file(tmp_path, "snapshot.json", json.dumps({"kind": "List", "items": [NODE, POD]}))

    def run(environment: Mapping[str, str]) -> str:
        for name in list(os.environ):
            if name.startswith(("CRUISE_", "KUBE")):
                monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert main(["check"]) in (1, 2)
        assert main(["scan", "--snapshot", snapshot]) in (1, 2)
        return "".join(capfd.readouterr())

    return run


@pytest.mark.parametrize("what", BAD_SETTINGS)
def test_a_setting_that_cannot_be_used_is_not_quoted(what: str, checked, tmp_path: Path):
    said = checked(secrets_in(tmp_path) | BAD_SETTINGS[what])
    assert said.strip()
    assert "Traceback" not in said
    assert CANARY not in said


@pytest.mark.parametrize("what", ANSWERS)
def test_servers_that_fail_learn_nothing_of_each_other(what: str, checked, tmp_path: Path):
    with answering(lambda _: ANSWERS[what]) as server:
        said = checked(secrets_in(tmp_path, server))
    assert "Traceback" not in said
    assert CANARY not in said


@pytest.mark.parametrize("content", [f"{CANARY}\n{CANARY}", f"{CANARY}\xff", ""])
def test_a_token_file_that_holds_something_else_is_not_quoted(content: str, checked, tmp_path: Path):
    path = tmp_path / "token"
    path.write_bytes(content.encode("latin-1"))
    environment = secrets_in(tmp_path, CRUISE_PROMETHEUS_TOKEN_FILE=str(path))
    del environment["CRUISE_PROMETHEUS_USER"], environment["CRUISE_PROMETHEUS_PASSWORD"]
    said = checked(environment)
    assert "contains no token" in said
    assert CANARY not in said


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": [f"{{{CANARY}"]}},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "false", "env": [{"name": CANARY}]}},
        {"client-certificate-data": CANARY, "client-key-data": CANARY},
        {"token": f"{CANARY}\n{CANARY}"},
    ],
)
def test_credentials_of_the_api_server_that_cannot_be_used_are_not_quoted(
    user: dict[str, Any], checked, tmp_path: Path
):
    said = checked(secrets_in(tmp_path) | {"CRUISE_KUBECONFIG": kubeconfig(tmp_path, NOWHERE, **user)})
    assert said.strip()
    assert CANARY not in said


def test_a_controller_whose_world_fails_keeps_its_secrets(tmp_path: Path):
    with answering(lambda _: HttpAnswer(500, b'{"kind":"Status","message":"no"}')) as server:
        secrets = secrets_in(tmp_path, server, CRUISE_LOG_FORMAT="json")
        settings = {name.removeprefix("CRUISE_").lower(): value for name, value in secrets.items()}
        with started(settings, tmp_path) as running:
            wait_until(lambda: "waiting" in running.log or "dropped" in running.log, "it says what it waits for")
            answers = [
                running.get(path)[1] for path in ("/metrics", "/healthz", "/readyz", "/api/v1/status", "/api/v1/x")
            ]
            commands = [_command(pid) for pid in [running.process.pid, *_children(running.process.pid)]]
            running.process.send_signal(signal.SIGTERM)
            running.process.wait(30)
    assert any(answers)
    assert "serve" in commands[0]
    assert CANARY not in "".join((running.log, *answers, *commands))


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def _children(pid: int) -> list[int]:
    found = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return found + [grandchild for child in found for grandchild in _children(child)]
