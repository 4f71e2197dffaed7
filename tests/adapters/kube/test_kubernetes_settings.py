import json
import os
from pathlib import Path
from typing import Any

import pytest

from cruise.adapters.kube.client import KubernetesSettings, connect_to_kubernetes, find_credentials, find_own_namespace
from cruise.adapters.kube.credentials import KubeconfigCredentials, ServiceAccountCredentials
from cruise.errors import BadInputError
from tests.adapters.kube.answering_server import kubeconfig

SERVER = "https://127.0.0.1:1"


def get_error(error: pytest.ExceptionInfo[BadInputError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


async def test_uses_a_configured_kubeconfig_inside_a_cluster(tmp_path: Path):
    (tmp_path / "token").write_text("x")
    place = kubeconfig(tmp_path, SERVER)
    account = find_credentials(place, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, tmp_path)
    assert isinstance(account, KubeconfigCredentials)


def test_uses_the_service_account_inside_a_cluster(tmp_path: Path):
    (tmp_path / "token").write_text("x")
    inside = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBECONFIG": str(kubeconfig(tmp_path, SERVER))}
    assert isinstance(find_credentials(None, inside, tmp_path), ServiceAccountCredentials)


async def test_outside_of_a_cluster_the_files_that_kubectl_uses(tmp_path: Path):
    listed = f"{tmp_path / 'missing'}{os.pathsep}{kubeconfig(tmp_path, SERVER)}"
    account = find_credentials(None, {"KUBECONFIG": listed}, tmp_path / "no-account")
    assert (await account.read(force=True)).server == SERVER


def test_without_any_cluster(tmp_path: Path):
    with pytest.raises(BadInputError, match="no cluster is configured") as error:
        find_credentials(None, {"KUBECONFIG": str(tmp_path / "missing")}, tmp_path)
    assert str(tmp_path / "missing") in get_error(error)


@pytest.mark.parametrize("name", ["missing", "."])
def test_reports_a_missing_kubeconfig(tmp_path: Path, name: str):
    with pytest.raises(BadInputError, match="does not exist"):
        find_credentials(tmp_path / name)


CONTEXT = {"name": "x", "context": {"cluster": "c", "user": "u"}}
CLUSTER = {"name": "c", "cluster": {"server": SERVER}}
USER: dict[str, Any] = {"name": "u", "user": {}}
PLUGIN = "client.authentication.k8s.io/v1"


def config(**changed: Any) -> str:
    whole = {"clusters": [CLUSTER], "users": [USER], "contexts": [CONTEXT], "current-context": "x", **changed}
    return json.dumps({key: value for key, value in whole.items() if value is not None})


def user(**entries: Any) -> str:
    return config(users=[{"name": "u", "user": entries}])


def cluster(**entries: Any) -> str:
    return config(clusters=[{"name": "c", "cluster": {"server": SERVER, **entries}}])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        "a: [",
        "\x00",
        "{}",
        config(**{"current-context": None}),
        config(**{"current-context": "y"}),
        config(contexts=[]),
        config(contexts=None),
        config(contexts="x"),
        config(contexts=[{"name": "x"}]),
        config(clusters=[]),
        config(clusters=[{"name": "c"}]),
        config(clusters=[{"name": "c", "cluster": None}]),
        config(clusters=[CLUSTER, CLUSTER, {"cluster": 1}]),
        cluster(**{"certificate-authority": "/nowhere/ca.crt"}),
        cluster(**{"certificate-authority-data": "!"}),
        cluster(**{"certificate-authority-data": "bm9uc2Vuc2U="}),
        user(**{"client-certificate": "/nowhere/tls.crt", "client-key": "/nowhere/tls.key"}),
        user(**{"client-certificate-data": "bm9uc2Vuc2U=", "client-key-data": "bm9uc2Vuc2U="}),
        user(tokenFile="/nowhere/token"),
        user(exec={"apiVersion": PLUGIN, "command": "/nowhere/plugin"}),
        user(exec={"apiVersion": PLUGIN, "command": "false"}),
        user(exec={"apiVersion": PLUGIN, "command": "echo", "args": ["nonsense"]}),
        user(exec={"apiVersion": PLUGIN, "command": "echo", "args": ["{}"]}),
        user(exec={"apiVersion": PLUGIN}),
        user(exec="nonsense"),
        user(**{"auth-provider": {"name": "oidc"}}),
    ],
)
async def test_kubeconfigs_that_cannot_be_used(tmp_path: Path, text: str, capfd: pytest.CaptureFixture[str]):
    place = tmp_path / "config"
    place.write_text(text)
    with pytest.raises(BadInputError) as error:
        async with connect_to_kubernetes(KubernetesSettings(place)):
            pass
    assert str(place) in get_error(error) or SERVER in get_error(error)
    # Python's own message would not say what to fix.
    assert "NoneType" not in get_error(error)
    assert "object" not in get_error(error) or "Expected object" in get_error(error)
    assert capfd.readouterr() == ("", "")


async def test_rejects_a_rate_of_zero(tmp_path: Path):
    with pytest.raises(BadInputError, match="kube_requests_per_second"):
        async with connect_to_kubernetes(KubernetesSettings(kubeconfig(tmp_path, SERVER), requests_per_second=0)):
            pass


async def test_a_kubeconfig_that_is_no_text(tmp_path: Path):
    place = tmp_path / "config"
    place.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError) as error:
        async with connect_to_kubernetes(KubernetesSettings(place)):
            pass
    assert str(place) in get_error(error)


def test_finds_its_namespace(tmp_path: Path):
    assert find_own_namespace("stated", tmp_path) == "stated"
    assert find_own_namespace(None, tmp_path) == "cruise"
    (tmp_path / "namespace").write_text("platform\n")
    assert find_own_namespace(None, tmp_path) == "platform"
    (tmp_path / "namespace").write_text("\n")
    assert find_own_namespace(None, tmp_path) == "cruise"
