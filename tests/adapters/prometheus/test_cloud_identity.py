"""Cloud credentials, against servers that verify the signature or token."""

import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc import jwt
from joserfc.jwk import RSAKey

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.settings import CloudProvider, PrometheusSettings
from cruise.errors import BadInputError, UnavailableError
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering

SUCCESS = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
KEY_ID, SECRET, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session-token"
TOKEN = "token-of-the-provider"
IN_AN_HOUR = datetime.now(UTC) + timedelta(hours=1)  # noqa: TID251


@pytest.fixture(autouse=True)
def no_credentials_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No file, variable or metadata server of the machine gives credentials."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS", "IDENTITY_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def ask(url: str, identity: CloudProvider, *, uses_get: bool = False, region: str | None = "eu-west-1") -> bytes:
    """Send a query whose form and address have characters that a signature must encode."""
    settings = PrometheusSettings(
        f"{url}/workspaces/ws-1", identity=identity, aws_region=region, timeout_seconds=10.0, uses_get=uses_get
    )
    client = PrometheusClient(settings)
    try:
        return client.query_range('sum(rate(a{b=~"c+ d/é"}[5m])) by (e)', 60, 300, 60)
    finally:
        client.close()


def sign(request: ReceivedHttpRequest, secret: str) -> str:
    """Return the signature of a request by the description of Signature Version 4."""
    headers = {name.lower(): " ".join(value.split()) for name, value in request.headers.items()}
    credential, names, _ = (
        part.strip().partition("=")[2] for part in headers["authorization"].removeprefix("AWS4-HMAC-SHA256").split(",")
    )
    _, day, region, service, ending = credential.split("/")
    parts = urlsplit(request.path)
    query = sorted((quote(name, "-_.~"), quote(value, "-_.~")) for name, value in parse_qsl(parts.query, True))
    canonical = [
        request.method,
        quote(parts.path, "/-_.~"),
        "&".join(f"{name}={value}" for name, value in query),
        *(f"{name}:{headers[name]}" for name in names.split(";")),
        "",
        names,
        hashlib.sha256(request.text.encode()).hexdigest(),
    ]
    scope = f"{day}/{region}/{service}/{ending}"
    hashed = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for text in (day, region, service, ending):
        key = hmac.digest(key, text.encode(), "sha256")
    return hmac.digest(key, f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{hashed}".encode(), "sha256").hex()


def verifying(secret: str) -> Callable[[ReceivedHttpRequest], HttpAnswer]:
    """A workspace that answers only what is signed for it."""

    def respond(request: ReceivedHttpRequest) -> HttpAnswer:
        stated = request.get("Authorization")
        scope = f"Credential={KEY_ID}/{request.get('X-Amz-Date')[:8]}/eu-west-1/aps/aws4_request"
        names = set(stated.partition("SignedHeaders=")[2].partition(",")[0].split(";"))
        covered = {"host", "x-amz-date", "x-amz-security-token"} <= names
        signed = hmac.compare_digest(stated.rpartition("Signature=")[2], sign(request, secret))
        if not (scope in stated and covered and signed and request.get("X-Amz-Security-Token") == SESSION):
            return HttpAnswer(403, b'{"message":"The request signature we calculated does not match"}')
        return HttpAnswer(body=SUCCESS)

    return respond


def keys_of_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)


@pytest.mark.parametrize("uses_get", [False, True], ids=["POST", "GET"])
def test_a_workspace_of_aws_accepts_the_signature(monkeypatch: pytest.MonkeyPatch, uses_get: bool):
    keys_of_environment(monkeypatch)
    with answering(verifying(SECRET)) as url:
        assert ask(url, CloudProvider.AWS, uses_get=uses_get) == SUCCESS
    with (
        answering(verifying("another")) as url,
        pytest.raises(BadInputError, match=r"rejected the credentials \(403\)"),
    ):
        ask(url, CloudProvider.AWS, uses_get=uses_get)


def test_a_pod_of_eks_gets_its_credentials_from_the_agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "token").write_text("pod-token")

    def agent(request: ReceivedHttpRequest) -> HttpAnswer:
        if request.get("Authorization") != "pod-token":
            return HttpAnswer(401, b"{}")
        expires = f"{IN_AN_HOUR:%Y-%m-%dT%H:%M:%SZ}"
        keys = {"AccessKeyId": KEY_ID, "SecretAccessKey": SECRET, "Token": SESSION, "Expiration": expires}
        return HttpAnswer(body=json.dumps(keys).encode())

    with answering(agent) as address, answering(verifying(SECRET)) as url:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{address}/v1/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        assert ask(url, CloudProvider.AWS) == SUCCESS


def test_without_credentials_or_a_region_one_line_says_so(monkeypatch: pytest.MonkeyPatch):
    with answering(verifying(SECRET)) as url:
        with pytest.raises(UnavailableError, match="AWS gave no credentials for Prometheus") as refused:
            ask(url, CloudProvider.AWS)
        assert "\n" not in str(refused.value)
        with pytest.raises(BadInputError, match="prometheus_aws_region is not set"):
            ask(url, CloudProvider.AWS, region=None)
        with pytest.raises(UnavailableError, match="Google gave no token for Prometheus") as refused:
            ask(url, CloudProvider.GOOGLE)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("host", ["aps-workspaces", "aps-workspaces-fips"])
def test_the_region_is_in_the_address_of_a_workspace(monkeypatch: pytest.MonkeyPatch, host: str):
    keys_of_environment(monkeypatch)
    url = f"https://{host}.ap-southeast-2.amazonaws.com/workspaces/ws-1"
    PrometheusClient(PrometheusSettings(url, identity=CloudProvider.AWS)).close()


def bearing(token: str) -> Callable[[ReceivedHttpRequest], HttpAnswer]:
    """A server that answers only those who bear a token."""
    return lambda request: (
        HttpAnswer(body=SUCCESS) if request.get("Authorization") == f"Bearer {token}" else HttpAnswer(403, b"{}")
    )


def test_google_exchanges_the_assertion_of_a_service_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    granted: list[str] = []

    def exchange(request: ReceivedHttpRequest) -> HttpAnswer:
        claims = jwt.decode(request.form["assertion"], RSAKey.import_key(pem), ["RS256"]).claims
        assert claims["iss"] == "cruise@example.iam"
        granted.append(claims["scope"])
        return HttpAnswer(body=json.dumps({"access_token": TOKEN, "expires_in": 3600}).encode())

    with answering(exchange) as address, answering(bearing(TOKEN)) as url:
        account = {"type": "service_account", "client_email": "cruise@example.iam", "private_key": pem.decode()}
        (tmp_path / "account.json").write_text(json.dumps({**account, "token_uri": f"{address}/token"}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        assert ask(url, CloudProvider.GOOGLE) == SUCCESS
    assert granted == ["https://www.googleapis.com/auth/monitoring.read"]


def test_azure_gives_a_managed_identity_its_token(monkeypatch: pytest.MonkeyPatch):
    requested: list[str] = []

    def endpoint(request: ReceivedHttpRequest) -> HttpAnswer:
        if request.get("X-Identity-Header") != "secret":
            return HttpAnswer(401, b"{}")
        requested.append(dict(parse_qsl(urlsplit(request.path).query))["resource"])
        answer = {"access_token": TOKEN, "expires_on": str(int(IN_AN_HOUR.timestamp())), "token_type": "Bearer"}
        return HttpAnswer(body=json.dumps({**answer, "resource": requested[-1]}).encode())

    with answering(endpoint) as address, answering(bearing(TOKEN)) as url:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{address}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "secret")
        assert ask(url, CloudProvider.AZURE) == SUCCESS
    assert requested == ["https://prometheus.monitor.azure.com"]
