"""Certificates of the webhook: issued with their own CA, or read from files."""

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cruise.errors import BadInputError

# A new certificate must also be valid on machines whose clocks are behind.
_BACKDATED = timedelta(hours=1)
_OWN_AUTHORITY = "cruise webhook CA"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A server's certificate (PEM, followed by its chain) and private key (PEM).

    `names` are its hosts and addresses; `is_own` if cruise issued it.
    """

    certificate: bytes
    key: bytes
    not_before: datetime
    not_after: datetime
    names: tuple[str, ...]
    is_own: bool

    @property
    def renewal_due(self) -> datetime:
        """When two thirds of its lifetime are over."""
        return self.not_after - (self.not_after - self.not_before - _BACKDATED) / 3


def make_key_pair(names: Sequence[str], now: datetime, lifetime: timedelta) -> tuple[KeyPair, bytes]:
    """Issue a certificate for `names`, and return it with the certificate (PEM) of its own CA.

    The key of the CA is used once and not stored.
    """
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    # Each CA has its own name, because verifiers find a CA by name and two are trusted during a renewal.
    authority = _create_name(f"{_OWN_AUTHORITY} {x509.random_serial_number():040x}"[:60])
    validity = (now - _BACKDATED, now + lifetime)
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority_certificate = (
        _create_builder(authority, authority, authority_key.public_key(), validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_create_key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _create_builder(_create_name(names[0][:64]), authority, key.public_key(), validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_create_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_create_general_name(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = serialization.Encoding.PEM
    return read_key_pair(
        certificate.public_bytes(pem), key_pem, "a new certificate"
    ), authority_certificate.public_bytes(pem)


def read_key_pair(certificate: bytes, key: bytes, place: str) -> KeyPair:
    """Read a certificate and its key (PEM). Raises BadInputError that names `place` if they do not match."""
    try:
        chain = x509.load_pem_x509_certificates(certificate)
    except ValueError as error:
        raise BadInputError(f"{place}: tls.crt contains no certificate in PEM format") from error
    leaf = chain[0]
    if _public_bytes(_read_key(key, place).public_key()) != _public_bytes(leaf.public_key()):
        raise BadInputError(f"{place}: tls.key is not the key of tls.crt; use both files of one certificate")
    issuers = leaf.issuer.get_attributes_for_oid(NameOID.COMMON_NAME)
    return KeyPair(
        certificate,
        key,
        leaf.not_valid_before_utc,
        leaf.not_valid_after_utc,
        _read_names(leaf),
        is_own=bool(issuers) and str(issuers[0].value).startswith(_OWN_AUTHORITY),
    )


def check_validity(pair: KeyPair, place: str, now: datetime) -> None:
    """Raise BadInputError if the certificate has expired or is not valid yet."""
    if now >= pair.not_after:
        raise BadInputError(f"{place}: tls.crt expired at {pair.not_after:%Y-%m-%d %H:%M} UTC; renew it")
    if now < pair.not_before:
        raise BadInputError(f"{place}: tls.crt is valid only from {pair.not_before:%Y-%m-%d %H:%M} UTC")


def create_server_context_without_certificate() -> ssl.SSLContext:
    """Return a server context without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def accept_client_certificates(context: ssl.SSLContext, authorities: Path) -> None:
    """Accept clients with a certificate of one of these CAs, and clients without any, such as probes.

    Raises BadInputError.
    """
    try:
        context.load_verify_locations(authorities)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or "it contains no certificates"
        raise BadInputError(
            f"webhook_client_ca_file {authorities}: {reason}; it must contain CA certificates in PEM format"
        ) from error
    context.verify_mode = ssl.CERT_OPTIONAL


def set_served_certificate(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Use a certificate for new connections; existing ones are unchanged."""
    # The library reads only files, and the private key must not be on a disk.
    descriptor = os.memfd_create("cruise-tls")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(pair.certificate.rstrip() + b"\n" + pair.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        raise BadInputError(f"the certificate cannot be served: {error.reason or error}") from error
    finally:
        os.close(descriptor)


def split_bundle(bundle: bytes) -> list[bytes]:
    """Return the certificates of a bundle, each as PEM."""
    try:
        found = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []
    return [certificate.public_bytes(serialization.Encoding.PEM) for certificate in found]


def is_issued_by(authority: bytes, pair: KeyPair) -> bool:
    """Return whether a CA (PEM) issued the pair's certificate."""
    leaf = x509.load_pem_x509_certificate(pair.certificate)
    try:
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _create_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, validity: tuple[datetime, datetime]
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity[0])
        .not_valid_after(validity[1])
    )


def _create_key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _create_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _create_general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _read_names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress))


def _read_key(key: bytes, place: str) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(key, password=None)
    except TypeError as error:
        raise BadInputError(f"{place}: tls.key is encrypted; store it without a password") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadInputError(f"{place}: tls.key contains no private key in PEM format") from error


def _public_bytes(key: object) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined,no-any-return]
