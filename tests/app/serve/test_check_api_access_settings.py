"""Checks before `serve` starts: allowed callers per address, and the served certificate."""

import asyncio
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cruise.app.http_server import serve_http
from cruise.app.process import get_current_time
from cruise.app.serve.connections import build_request_guard_rules, check_api_access_settings, open_api_tls_context
from cruise.errors import BadInputError
from cruise.interfaces.http.health import send_response
from cruise.interfaces.http.request_guard import StaticTokenAuthority
from cruise.settings import Settings
from cruise.settings.loading import load_settings
from cruise.settings.value_types import ApiAuthentication, HttpTlsChoice
from tests.adapters.kube.answering_server import PreparedAnswer, create_client

KUBERNETES = ApiAuthentication.KUBERNETES
DAY = timedelta(days=1)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "[::1]"])
def test_on_its_own_machine_nothing_has_to_be_set(host: str):
    check_api_access_settings(Settings(http_address=f"{host}:8080"))


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "10.0.0.1", "localhost.example"])
def test_outside_the_machine_callers_are_authenticated_or_it_does_not_start(host: str, tmp_path: Path):
    address = f"{host}:8080"
    with pytest.raises(
        BadInputError, match="set api_authentication to kubernetes, or api_token_file, or http_address to"
    ):
        check_api_access_settings(Settings(http_address=address))
    (tmp_path / "token").write_text("x" * 32)
    check_api_access_settings(Settings(http_address=address, api_token_file=tmp_path / "token"))
    check_api_access_settings(Settings(http_address=address, api_authentication=KUBERNETES))


def test_two_ways_of_authentication_contradict_each_other():
    with pytest.raises(BadInputError, match="keep one"):
        load_settings({"CRUISE_API_AUTHENTICATION": "kubernetes", "CRUISE_API_TOKEN_FILE": "token"})


async def test_what_is_open_follows_from_where_it_listens(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("x" * 32)
    async with create_client(tmp_path, lambda asked: PreparedAnswer()) as (client, _):

        def opened(**settings: object) -> tuple[bool, bool]:
            rules = build_request_guard_rules(Settings(**settings), client)  # type: ignore[arg-type]
            return rules.allows_anonymous_reads, rules.allows_anonymous_metrics

        assert opened() == (True, True)
        assert opened(api_token_file=token) == (True, True)
        assert opened(api_token_file=token, http_address="0.0.0.0:1") == (False, False)
        assert opened(api_token_file=token, http_address="0.0.0.0:1", metrics_allow_anonymous=True) == (False, True)
        assert opened(api_authentication=KUBERNETES) == (False, False)
        assert isinstance(
            build_request_guard_rules(Settings(api_token_file=token), client).authority, StaticTokenAuthority
        )
        hosts = build_request_guard_rules(Settings(http_allowed_hosts=frozenset({"Cruise.example"})), client).hosts
        own = ("cruise.cruise.svc", "cruise.cruise.svc.cluster.local:8080", "localhost")
        assert all(map(hosts.allows_host, ("cruise.example:443", *own)))
        assert not hosts.allows_host("cruise.cruise.svc.evil.example")


async def shown(context: ssl.SSLContext, address: str = "127.0.0.1") -> x509.Certificate:
    """The certificate that a server shows which is made with a context."""

    async def app(scope, receive, send):
        await send_response(scope, send, 200, b"ok")

    async with serve_http(app, address, 0, tls=context) as port:
        pem = await asyncio.to_thread(ssl.get_server_certificate, (address, port))
    return x509.load_pem_x509_certificate(pem.encode())


async def test_it_creates_its_own_certificate_if_others_can_reach_it(tmp_path: Path):
    settings = Settings(http_address="0.0.0.0:1", data_dir=tmp_path)
    for _ in range(2):
        # The second start finds it.
        async with open_api_tls_context(settings) as context:
            assert context is not None
            found = await shown(context)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName)[0] == "cruise.cruise.svc"
    assert (tmp_path / "http-tls" / "tls.key").stat().st_mode & 0o077 == 0


async def test_a_certificate_of_the_operators_is_read_again(tmp_path: Path):
    def put() -> int:
        key, now = ec.generate_private_key(ec.SECP256R1()), get_current_time()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody else")])
        made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + DAY)
        signed = made.sign(key, hashes.SHA256())
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        (tmp_path / "tls.key").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
        (tmp_path / "tls.crt").write_bytes(signed.public_bytes(pem))
        return signed.serial_number

    first = put()
    async with open_api_tls_context(Settings(http_tls_dir=tmp_path), timedelta(seconds=0.01)) as context:
        assert context is not None
        assert (await shown(context)).serial_number == first
        second = put()
        while (await shown(context)).serial_number != second:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(http_tls=HttpTlsChoice.OFF, http_address="0.0.0.0:1"),
        Settings(http_tls=HttpTlsChoice.OFF, http_tls_dir=Path("/nowhere")),
    ],
)
async def test_without_tls_there_is_no_certificate(settings: Settings):
    async with open_api_tls_context(settings) as context:
        assert context is None
