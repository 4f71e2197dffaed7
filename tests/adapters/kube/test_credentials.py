import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cruise.adapters.kube.client import KubernetesClient, KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.credentials import (
    Credentials,
    CredentialSource,
    KubeconfigCredentials,
    ServiceAccountCredentials,
)
from cruise.errors import BadInputError, RefusedError, UnavailableError
from tests.adapters.kube.answering_server import PreparedAnswer, answer_in_order, kubeconfig, run_answering_server
from tests.adapters.kube.relay import run_through_proxy
from tests.controlplane.api import Api
from tests.controlplane.control_plane import ControlPlane

PLUGIN = "client.authentication.k8s.io/v1"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@asynccontextmanager
async def connected(account: CredentialSource, max_age_seconds: float = 60) -> AsyncIterator[KubernetesClient]:
    credentials = Credentials(account, max_age_seconds)
    client = KubernetesClient(credentials, requests_per_second=1000, burst=1000, timeout_seconds=10)
    try:
        yield client
    finally:
        await client.close()


async def user_of(client: KubernetesClient) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    name: str = json.loads(await client.send("POST", WHO, review))["status"]["userInfo"]["username"]
    return name


def rewritten(control_plane: ControlPlane, place: Path, user: Mapping[str, Any], **cluster: Any) -> Path:
    """The admin's kubeconfig with another user entry, and more on its cluster."""
    config = yaml.safe_load(control_plane.kubeconfig().read_text())
    config["users"][0]["user"] = dict(user)
    config["clusters"][0]["cluster"] |= cluster
    place.write_text(json.dumps(config))
    return place


def account_directory(control_plane: ControlPlane, directory: Path, token: str) -> Path:
    (directory / "token").write_text(token)
    (directory / "ca.crt").write_bytes(control_plane.ca_file.read_bytes())
    return directory


@pytest.fixture
def inside(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's environment."""
    host, _, port = control_plane.address.removeprefix("https://").rpartition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)


def new_account(admin: Api, namespace: str, name: str) -> str:
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}})
    return admin.service_account_token(namespace, name)


async def test_reads_the_service_account_and_its_rotated_token(
    control_plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, inside: None
):
    directory = account_directory(control_plane, tmp_path, new_account(admin, namespace, "one"))
    async with connected(ServiceAccountCredentials(directory), max_age_seconds=0.1) as client:
        assert client.in_cluster
        assert await user_of(client) == f"system:serviceaccount:{namespace}:one"
        (directory / "token").write_text(new_account(admin, namespace, "two") + "\n")
        await asyncio.sleep(0.2)
        assert await user_of(client) == f"system:serviceaccount:{namespace}:two"


async def test_reads_a_rejected_token_again_although_it_is_new(
    control_plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, inside: None
):
    directory = account_directory(control_plane, tmp_path, "expired")
    async with connected(ServiceAccountCredentials(directory)) as client:
        with pytest.raises(RefusedError) as refused:
            await user_of(client)
        assert refused.value.cause == "Unauthorized"
        (directory / "token").write_text(new_account(admin, namespace, "one"))
        await asyncio.sleep(1.1)
        assert await user_of(client) == f"system:serviceaccount:{namespace}:one"


async def test_a_token_that_cannot_be_read_for_a_while_is_used_as_it_was(
    control_plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path, inside: None
):
    directory = account_directory(control_plane, tmp_path, new_account(admin, namespace, "one"))
    async with connected(ServiceAccountCredentials(directory), max_age_seconds=0.1) as client:
        await user_of(client)
        (directory / "token").unlink()
        await asyncio.sleep(0.2)
        assert await user_of(client) == f"system:serviceaccount:{namespace}:one"


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
async def test_reports_an_incomplete_service_account(
    control_plane: ControlPlane, tmp_path: Path, inside: None, missing: str
):
    directory = account_directory(control_plane, tmp_path, "x")
    (directory / missing).write_text("")
    with pytest.raises(BadInputError) as error:
        await Credentials(ServiceAccountCredentials(directory)).load()
    assert str(directory) in str(error.value)


async def test_a_token_file_is_read_again(control_plane: ControlPlane, admin: Api, namespace: str, tmp_path: Path):
    token = tmp_path / "token"
    token.write_text(new_account(admin, namespace, "one") + "\n")
    place = rewritten(control_plane, tmp_path / "config", {"tokenFile": "token"})
    async with connected(KubeconfigCredentials(str(place)), max_age_seconds=0.1) as client:
        assert not client.in_cluster
        assert await user_of(client) == f"system:serviceaccount:{namespace}:one"
        token.write_text(new_account(admin, namespace, "two"))
        await asyncio.sleep(0.2)
        assert await user_of(client) == f"system:serviceaccount:{namespace}:two"


@pytest.mark.parametrize(("life", "calls"), [(None, 1), (timedelta(hours=1), 1), (timedelta(seconds=1), 3)])
async def test_a_credential_plugin_runs_again_only_when_its_credential_expires(
    control_plane: ControlPlane, tmp_path: Path, life: timedelta | None, calls: int
):
    status = {"token": control_plane.token("admin")}
    if life is not None:
        status["expirationTimestamp"] = (datetime.now(UTC) + life).isoformat()  # noqa: TID251 - as a plugin does
    (tmp_path / "answer").write_text(json.dumps({"apiVersion": PLUGIN, "kind": "ExecCredential", "status": status}))
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho x >> {tmp_path}/calls\ncat {tmp_path}/answer\n")
    plugin.chmod(0o755)
    user = {
        "exec": {"apiVersion": PLUGIN, "command": str(plugin), "args": ["--x"], "env": [{"name": "A", "value": "b"}]}
    }
    place = rewritten(control_plane, tmp_path / "config", user)
    async with connected(KubeconfigCredentials(str(place)), max_age_seconds=0.1) as client:
        for _ in range(3):
            assert await user_of(client) == "admin"
            await asyncio.sleep(0.2)
    assert (tmp_path / "calls").read_text().count("x") == calls


def certificate_for(
    name: str, organisation: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )
    now = datetime.now(UTC)  # noqa: TID251 - certificates hold for real time
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(issuer[1] if issuer else key, hashes.SHA256())
    )
    return built, key


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


async def test_client_certificates_and_their_renewal(tmp_path: Path):
    authority = certificate_for("tests", "tests", None)
    (tmp_path / "ca.crt").write_bytes(pem(authority[0]))
    with ControlPlane(api_server_flags=[f"--client-ca-file={tmp_path / 'ca.crt'}"]) as control_plane:
        for name in ("one", "two", "three"):
            certificate, key = certificate_for(name, "system:masters", authority)
            (tmp_path / f"{name}.crt").write_bytes(pem(certificate))
            (tmp_path / f"{name}.key").write_bytes(key_pem(key))
        files = {"client-certificate": "tls.crt", "client-key": "tls.key"}
        place = rewritten(control_plane, tmp_path / "config", files)

        def use(name: str) -> None:
            for ending in ("crt", "key"):
                (tmp_path / f"tls.{ending}").write_bytes((tmp_path / f"{name}.{ending}").read_bytes())

        use("one")
        async with connected(KubeconfigCredentials(str(place)), max_age_seconds=0.1) as client:
            watched = {"watch": "true", "timeoutSeconds": "5"}
            async with client.stream_lines("/api/v1/namespaces", watched) as lines:
                assert await anext(lines)
                for name in ("one", "two", "three"):
                    use(name)
                    await asyncio.sleep(0.2)
                    assert await user_of(client) == name
        data = {
            "client-certificate-data": base64.b64encode((tmp_path / "two.crt").read_bytes()).decode(),
            "client-key-data": base64.b64encode((tmp_path / "two.key").read_bytes()).decode(),
        }
        async with connect_to_kubernetes(KubernetesSettings(rewritten(control_plane, place, data))) as client:
            assert await user_of(client) == "two"


async def test_sends_impersonation_headers(control_plane: ControlPlane, tmp_path: Path):
    admin = {"token": control_plane.token("admin")}
    place = rewritten(control_plane, tmp_path / "config", {**admin, "as": "jane", "as-uid": "7"})
    async with connect_to_kubernetes(KubernetesSettings(place)) as client:
        assert await user_of(client) == "jane"
    rewritten(control_plane, place, {**admin, "as": "jane", "as-groups": ["a", "b"]})
    with pytest.raises(BadInputError, match="as-groups"):
        async with connect_to_kubernetes(KubernetesSettings(place)):
            pass


async def test_a_server_whose_certificate_is_anothers(control_plane: ControlPlane, tmp_path: Path):
    other = certificate_for("another", "another", None)
    (tmp_path / "ca.crt").write_bytes(pem(other[0]))
    user = {"token": control_plane.token("admin")}
    place = tmp_path / "config"
    rewritten(control_plane, place, user, **{"certificate-authority": "ca.crt"})
    async with connect_to_kubernetes(KubernetesSettings(place)) as client:
        with pytest.raises(UnavailableError, match="is not accepted: self-signed certificate"):
            await client.get("/version")
    rewritten(control_plane, place, user, **{"tls-server-name": "elsewhere.example.com"})
    async with connect_to_kubernetes(KubernetesSettings(place)) as client:
        with pytest.raises(UnavailableError, match="certificate"):
            await client.get("/version")
    rewritten(control_plane, place, user, **{"tls-server-name": "kubernetes.default.svc"})
    async with connect_to_kubernetes(KubernetesSettings(place)) as client:
        assert b"gitVersion" in await client.get("/version")
    insecure: dict[str, Any] = {"insecure-skip-tls-verify": True, "certificate-authority": "ca.crt"}
    rewritten(control_plane, place, user, **insecure)
    async with connect_to_kubernetes(KubernetesSettings(place)) as client:
        assert b"gitVersion" in await client.get("/version")


async def test_a_running_process_keeps_its_cluster(control_plane: ControlPlane, tmp_path: Path):
    place = rewritten(control_plane, tmp_path / "config", {"token": control_plane.token("admin")})
    config = json.loads(place.read_text())
    async with run_answering_server(answer_in_order(PreparedAnswer())) as (elsewhere, url):
        async with connected(KubeconfigCredentials(str(place)), max_age_seconds=0.1) as client:
            assert await user_of(client) == "admin"
            config["clusters"].append({"name": "other", "cluster": {"server": url}})
            config["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "admin"}})
            config["current-context"] = "other"
            place.write_text(json.dumps(config))
            await asyncio.sleep(0.2)
            assert await user_of(client) == "admin"
            config["clusters"][0]["cluster"]["server"] = url
            place.write_text(json.dumps(config))
            await asyncio.sleep(0.2)
            assert await user_of(client) == "admin"
    assert elsewhere.asked == []


async def test_a_proxy_that_the_kubeconfig_names(tmp_path: Path):
    async with run_answering_server(answer_in_order(PreparedAnswer())) as (proxy, url):
        config = json.loads(kubeconfig(tmp_path, "http://k8s.example.com:8080").read_text())
        config["clusters"][0]["cluster"]["proxy-url"] = url.replace("http://", "http://jane:s%40cret@")
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        async with connect_to_kubernetes(KubernetesSettings(tmp_path / "kubeconfig")) as client:
            await client.get("/version")
    [asked] = proxy.asked
    assert asked.path == "http://k8s.example.com:8080/version"
    assert asked.headers["proxy-authorization"] == f"Basic {base64.b64encode(b'jane:s@cret').decode()}"


async def test_tls_passes_through_a_proxy_to_the_server(control_plane: ControlPlane, tmp_path: Path):
    async with run_through_proxy(control_plane) as (proxy, url):
        cluster = {
            "server": "https://k8s.example.com:6443",
            "proxy-url": url,
            "tls-server-name": "kubernetes.default.svc",
        }
        user = {"token": control_plane.token("admin")}
        async with connect_to_kubernetes(
            KubernetesSettings(rewritten(control_plane, tmp_path / "config", user, **cluster))
        ) as client:
            assert await user_of(client) == "admin"
            async with client.stream_lines("/api/v1/namespaces", {"watch": "true"}) as lines:
                assert await anext(lines)
    assert set(proxy.tunnels) == {"CONNECT k8s.example.com:6443 HTTP/1.1"}


async def test_a_proxy_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with run_answering_server(answer_in_order(PreparedAnswer())) as (proxy, url):
        monkeypatch.setenv("HTTP_PROXY", url)
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
        async with connect_to_kubernetes(
            KubernetesSettings(kubeconfig(tmp_path, "http://k8s.example.com:8080"))
        ) as client:
            await client.get("/version")
        async with connect_to_kubernetes(KubernetesSettings(kubeconfig(tmp_path, url))) as client:
            await client.get("/direct")
    assert [asked.path for asked in proxy.asked] == ["http://k8s.example.com:8080/version", "/direct"]
