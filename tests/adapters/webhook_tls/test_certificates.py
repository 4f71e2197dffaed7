"""Certificates that a strict client accepts, and unusable certificates with their messages."""

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from cruise.adapters.webhook_tls.certificates import (
    check_validity,
    create_server_context_without_certificate,
    is_issued_by,
    make_key_pair,
    read_key_pair,
    set_served_certificate,
    split_bundle,
)
from cruise.errors import BadInputError

NOW = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251 - TLS itself looks at the real clock
NAMES = ("cruise-webhook.cruise.svc", "localhost", "127.0.0.1")
MONTH = timedelta(days=30)


def made(names=NAMES, now=NOW, lifetime=MONTH):
    return make_key_pair(names, now, lifetime)


def handshake(context: ssl.SSLContext, authority: bytes, name: str) -> bytes:
    """Connect as a strict client does; return the certificate that was shown."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            context.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    server = threading.Thread(target=serve)
    server.start()
    client = ssl.create_default_context(cadata=authority.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        with ours, client.wrap_socket(ours, server_hostname=name) as connection:
            shown = connection.getpeercert(binary_form=True)
            assert shown is not None
            return shown
    finally:
        server.join()


@pytest.mark.parametrize("name", NAMES)
def test_a_strict_client_accepts_it_under_each_of_its_names(name):
    pair, authority = made()
    context = create_server_context_without_certificate()
    set_served_certificate(context, pair)
    assert handshake(context, authority, name)


def test_another_name_or_another_authority_is_not_accepted():
    pair, authority = made()
    context = create_server_context_without_certificate()
    set_served_certificate(context, pair)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, authority, "other.cruise.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, made()[1], NAMES[0])


def test_a_new_connection_gets_the_new_certificate():
    first, old = made()
    second, new = made()
    context = create_server_context_without_certificate()
    set_served_certificate(context, first)
    both = old + new
    shown = handshake(context, both, NAMES[0])
    set_served_certificate(context, second)
    assert handshake(context, both, NAMES[0]) != shown


def test_a_certificate_is_short_lived_and_valid_for_late_clocks():
    pair, authority = made()
    assert (pair.not_before, pair.not_after) == (NOW - timedelta(hours=1), NOW + MONTH)
    assert pair.renewal_due == NOW + timedelta(days=20)
    assert pair.names == NAMES
    assert pair.is_own
    certificate = x509.load_pem_x509_certificate(authority)
    assert certificate.not_valid_after_utc == NOW + MONTH
    assert certificate.subject != x509.load_pem_x509_certificate(made()[1]).subject


def test_an_authority_vouches_for_its_own_alone():
    pair, authority = made()
    assert is_issued_by(authority, pair)
    assert not is_issued_by(made()[1], pair)
    assert not is_issued_by(pair.certificate, pair)


def test_certificates_of_others_are_not_taken_for_cruises_own():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "someone")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + MONTH)
        .sign(key, hashes.SHA256())
    )
    pair = read_key_pair(certificate.public_bytes(serialization.Encoding.PEM), pem_of(key), "here")
    assert not pair.is_own
    assert pair.names == ()


def pem_of(key, password: bytes | None = None):
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def test_reports_invalid_keys_in_one_line():
    pair, authority = made()
    other = ec.generate_private_key(ec.SECP256R1())
    rows = [
        (b"", pair.key, "tls.crt contains no certificate"),
        (pair.key, pair.key, "tls.crt contains no certificate"),
        (pair.certificate[:200], pair.key, "tls.crt contains no certificate"),
        (pair.certificate, b"", "tls.key contains no private key"),
        (pair.certificate, pair.certificate, "tls.key contains no private key"),
        (pair.certificate, pem_of(other), "tls.key is not the key of tls.crt"),
        (pair.certificate, pem_of(rsa.generate_private_key(65537, 2048)), "tls.key is not the key of tls.crt"),
        (authority, pair.key, "tls.key is not the key of tls.crt"),
        (pair.certificate, pem_of(other, b"secret"), "tls.key is encrypted"),
    ]
    for certificate, key, words in rows:
        with pytest.raises(BadInputError, match=f"^/tls: {words}") as refused:
            read_key_pair(certificate, key, "/tls")
        assert "\n" not in str(refused.value)


def test_reports_a_certificate_that_is_expired_or_not_valid_yet():
    pair, _ = made()
    check_validity(pair, "/tls", NOW)
    with pytest.raises(BadInputError, match=r"^/tls: tls\.crt expired at"):
        check_validity(pair, "/tls", NOW + MONTH)
    with pytest.raises(BadInputError, match="valid only from"):
        check_validity(pair, "/tls", NOW - timedelta(hours=2))


def test_splits_a_bundle_into_certificates():
    one, two = made()[1], made()[1]
    assert split_bundle(one + two) == [one, two]
    assert split_bundle(b"") == []
    assert split_bundle(b"nonsense") == []


def test_no_key_is_left_on_a_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    set_served_certificate(create_server_context_without_certificate(), made()[0])
    assert list(tmp_path.iterdir()) == []
