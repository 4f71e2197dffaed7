"""A client CA and client certificates, as an operator creates them for the API server."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """A certificate and its key."""

    certificate: Path
    key: Path


class ClientAuthority:
    """Gives certificates; its own is in `file`."""

    def __init__(self, directory: Path, name: str = "clients") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = directory / f"{name}-ca.crt"
        self.file.write_bytes(certificate.public_bytes(_PEM))

    def client(self, name: str) -> ClientFiles:
        """A certificate for a client of that name."""
        return self._signed(name, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))

    def server(self, name: str, address: str) -> ClientFiles:
        """A certificate for a server at an address, such as a kubelet."""
        names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address(address))])
        return self._signed(name, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), names)

    def _signed(self, name: str, *extensions: x509.ExtensionType) -> ClientFiles:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(name), key.public_key()).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        files = ClientFiles(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        files.certificate.write_bytes(certificate.public_bytes(_PEM))
        form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        files.key.write_bytes(key.private_bytes(_PEM, form, secret))
        return files

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)  # noqa: TID251 - certificates are checked by the real time
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
