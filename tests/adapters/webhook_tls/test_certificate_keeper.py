"""The certificate's life cycle: issued once for all replicas, published before use, renewed in two steps."""

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from cruise.adapters.webhook_tls.certificate_keeper import (
    AUTHORITIES,
    CERTIFICATE,
    KEY,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    CertificateKeeper,
    StoredCertificate,
)
from cruise.adapters.webhook_tls.certificates import is_issued_by, make_key_pair, read_key_pair, split_bundle
from cruise.errors import BadInputError, ConflictError, NotFoundError, UnavailableError

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
NAMES = ("cruise-webhook.cruise.svc", "localhost")
DAY = timedelta(days=1)


class InMemoryStorage:
    """A place in memory, with versions as a Secret has them."""

    name = "Secret cruise/cruise-webhook-tls"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.version = 0
        self.writes = 0
        self.away = False

    async def read(self) -> StoredCertificate:
        if self.away:
            raise UnavailableError("no answer")
        kept = StoredCertificate(dict(self.files), str(self.version))
        # Others have their turn between a reading and the writing after it.
        await asyncio.sleep(0)
        return kept

    async def write(self, files: Mapping[str, bytes], version: str) -> None:
        if version != str(self.version):
            raise ConflictError("changed")
        self.files = dict(files)
        self.version += 1
        self.writes += 1


class Callers:
    """Those who call: what they trust, and since when by a clock that the test turns."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.trusted: list[bytes] = []
        self.problem: Exception | None = None

    async def publish(self, bundle: bytes) -> bool:
        if self.problem is not None:
            raise self.problem
        changed = not self.trusted or self.trusted[-1] != bundle
        if changed:
            self.trusted.append(bundle)
        return changed

    def trust(self, files: Mapping[str, bytes]) -> bool:
        """Return whether what is published vouches for the certificate in use."""
        pair = read_key_pair(files[CERTIFICATE], files[KEY], "here")
        return any(is_issued_by(one, pair) for one in split_bundle(self.trusted[-1]))


def create_keeper(storage: InMemoryStorage, callers: Callers, names=NAMES) -> CertificateKeeper:
    return CertificateKeeper(
        storage, names, callers.publish, lambda: callers.seconds, propagation_time=timedelta(seconds=10)
    )


async def test_the_first_replica_makes_it_and_the_others_take_it():
    storage, callers = InMemoryStorage(), Callers()
    keepers = [create_keeper(storage, callers) for _ in range(3)]
    await asyncio.gather(*(keeper.start(NOW) for keeper in keepers))
    assert storage.writes == 1
    assert len(callers.trusted) == 1
    assert callers.trust(storage.files)
    assert set(storage.files) == {CERTIFICATE, KEY, AUTHORITIES}
    assert {keeper.expires_at for keeper in keepers} == {NOW + 30 * DAY}
    assert [keeper.unpublished_reason for keeper in keepers] == [None] * 3


async def test_a_renewal_publishes_the_ca_before_the_certificate_is_used():
    storage, callers = InMemoryStorage(), Callers()
    keeper, other = create_keeper(storage, callers), create_keeper(storage, callers)
    await keeper.start(NOW)
    await other.start(NOW)
    first = dict(storage.files)
    await keeper.step(NOW + 20 * DAY - timedelta(seconds=1))
    assert storage.files == first

    await keeper.step(NOW + 20 * DAY)
    assert storage.files[CERTIFICATE] == first[CERTIFICATE]
    assert {NEXT_CERTIFICATE, NEXT_KEY} < set(storage.files)
    assert len(split_bundle(callers.trusted[-1])) == 2
    following = storage.files[NEXT_CERTIFICATE]

    callers.seconds = 9.9
    await keeper.step(NOW + 20 * DAY)
    await other.step(NOW + 20 * DAY)
    assert storage.files[CERTIFICATE] == first[CERTIFICATE]

    callers.seconds = 10.0
    await keeper.step(NOW + 20 * DAY)
    assert storage.files[CERTIFICATE] == following
    assert keeper.expires_at == NOW + 50 * DAY
    # The other one still serves the old certificate, which is trusted until the next renewal.
    assert other.expires_at == NOW + 30 * DAY
    assert split_bundle(callers.trusted[-1])[0] == first[AUTHORITIES]
    await other.step(NOW + 20 * DAY)
    assert other.expires_at == NOW + 50 * DAY
    assert callers.trust(storage.files)


async def test_callers_trust_the_served_certificate_in_any_order_of_events():
    storage, callers = InMemoryStorage(), Callers()
    keepers = [create_keeper(storage, callers) for _ in range(2)]
    for keeper in keepers:
        await keeper.start(NOW)
    expiries = set()
    for hours in range(0, 24 * 100, 7):
        callers.seconds = hours * 3600.0
        await asyncio.gather(*(keeper.step(NOW + timedelta(hours=hours)) for keeper in keepers))
        assert callers.trust(storage.files)
        assert len(split_bundle(callers.trusted[-1])) <= 2
        for keeper in keepers:
            assert keeper.expires_at is not None
            assert keeper.expires_at > NOW + timedelta(hours=hours)
            expiries.add(keeper.expires_at)
    assert len(expiries) == 5


async def test_uses_no_certificate_before_its_ca_is_published():
    storage, callers = InMemoryStorage(), Callers()
    keeper = create_keeper(storage, callers)
    await keeper.start(NOW)
    first = storage.files[CERTIFICATE]
    callers.problem = UnavailableError("the API server is away")
    for day in (20, 21, 22):
        callers.seconds += 3600
        await keeper.step(NOW + day * DAY)
        assert storage.files[CERTIFICATE] == first
    callers.problem = None
    await keeper.step(NOW + 23 * DAY)
    callers.seconds += 10
    await keeper.step(NOW + 23 * DAY)
    assert storage.files[CERTIFICATE] != first
    assert callers.trust(storage.files)


async def test_is_not_ready_until_the_ca_is_published():
    storage, callers = InMemoryStorage(), Callers()
    callers.problem = UnavailableError("the API server is away")
    keeper = create_keeper(storage, callers)
    assert keeper.unpublished_reason == "the certificate is not published yet"
    await keeper.start(NOW)
    assert keeper.unpublished_reason == "the API server is away"
    callers.problem = None
    await keeper.step(NOW)
    assert keeper.unpublished_reason is None
    # Later failures are no reason to be taken out: those who call know what they need.
    callers.problem = UnavailableError("the API server is away")
    await keeper.step(NOW)
    assert keeper.unpublished_reason is None


async def test_is_ready_without_a_webhook_configuration():
    storage, callers = InMemoryStorage(), Callers()
    callers.problem = NotFoundError("no such configuration")
    keeper = create_keeper(storage, callers)
    await keeper.start(NOW)
    assert keeper.unpublished_reason is None


async def test_publishes_the_ca_again_if_it_was_replaced():
    storage, callers = InMemoryStorage(), Callers()
    keeper = create_keeper(storage, callers)
    await keeper.start(NOW)
    callers.trusted.append(b"somebody else's")
    await keeper.step(NOW)
    assert callers.trusted[-1] == storage.files[AUTHORITIES]


async def test_replaces_an_expired_certificate_of_cruise_immediately():
    storage, callers = InMemoryStorage(), Callers()
    await create_keeper(storage, callers).start(NOW)
    keeper = create_keeper(storage, callers)
    await keeper.start(NOW + 31 * DAY)
    assert keeper.expires_at == NOW + 61 * DAY
    assert callers.trust(storage.files)


async def test_names_that_are_missing_lead_to_a_renewal():
    storage, callers = InMemoryStorage(), Callers()
    await create_keeper(storage, callers).start(NOW)
    keeper = create_keeper(storage, callers, (*NAMES, "127.0.0.1"))
    await keeper.start(NOW)
    callers.seconds = 10
    await keeper.step(NOW)
    assert read_key_pair(storage.files[CERTIFICATE], storage.files[KEY], "x").names == (*NAMES, "127.0.0.1")
    assert callers.trust(storage.files)


async def test_keeps_serving_while_the_storage_is_unavailable():
    storage, callers = InMemoryStorage(), Callers()
    keeper = create_keeper(storage, callers)
    await keeper.start(NOW)
    storage.away = True
    await keeper.step(NOW + 25 * DAY)
    assert keeper.expires_at == NOW + 30 * DAY
    storage.away = False
    await keeper.step(NOW + 25 * DAY)
    callers.seconds = 10
    await keeper.step(NOW + 25 * DAY)
    assert keeper.expires_at == NOW + 55 * DAY


def given(names=NAMES, now=NOW, lifetime=30 * DAY) -> dict[str, bytes]:
    """Files that cruise did not make."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody's")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    written = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {CERTIFICATE: pem, KEY: written, AUTHORITIES: pem}


async def test_serves_a_certificate_of_another_issuer_and_does_not_renew_it():
    storage, callers = InMemoryStorage(), Callers()
    storage.files = given()
    keeper = create_keeper(storage, callers)
    await keeper.start(NOW)
    assert keeper.unpublished_reason is None
    storage.files = given(now=NOW + 25 * DAY)
    await keeper.step(NOW + 29 * DAY)
    assert keeper.expires_at == NOW + 55 * DAY
    await keeper.step(NOW + 60 * DAY)
    assert (storage.writes, callers.trusted) == (0, [])


async def test_keeps_the_certificate_if_the_new_one_is_invalid():
    storage, callers = InMemoryStorage(), Callers()
    storage.files = given()
    keeper = create_keeper(storage, callers)
    await keeper.start(NOW)
    context: ssl.SSLContext = keeper.context
    storage.files = given() | {KEY: given()[KEY]}
    await keeper.step(NOW)
    assert keeper.expires_at == NOW + 30 * DAY
    assert keeper.context is context


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({KEY: b"x"}, "tls.crt is missing"),
        ({CERTIFICATE: b"x"}, "tls.key is missing"),
        ({CERTIFICATE: b"x", KEY: b"y"}, "tls.crt contains no certificate"),
    ],
)
async def test_an_invalid_certificate_ends_the_start(files, words):
    storage = InMemoryStorage()
    storage.files = files
    with pytest.raises(BadInputError, match=f"{storage.name}: {words}"):
        await create_keeper(storage, Callers()).start(NOW)


async def test_an_expired_certificate_of_others_ends_the_start():
    storage = InMemoryStorage()
    storage.files = given(lifetime=DAY)
    with pytest.raises(BadInputError, match="expired at 2026-01-02"):
        await create_keeper(storage, Callers()).start(NOW + DAY)


async def test_a_staged_certificate_that_is_broken_is_not_put_in_use():
    storage, callers = InMemoryStorage(), Callers()
    keeper = create_keeper(storage, callers)
    await keeper.start(NOW)
    await keeper.step(NOW + 20 * DAY)
    in_use = storage.files[CERTIFICATE]
    storage.files[NEXT_KEY] = make_key_pair(NAMES, NOW, DAY)[0].key
    callers.seconds = 100
    await keeper.step(NOW + 20 * DAY)
    assert storage.files[CERTIFICATE] == in_use


async def test_without_publish_waits_for_the_certificate_and_does_not_issue_it():
    storage, callers = InMemoryStorage(), Callers()
    server = CertificateKeeper(storage, NAMES, None, lambda: callers.seconds)
    with pytest.raises(UnavailableError, match=r"tls.crt and tls.key are missing"):
        await server.start(NOW)
    assert (storage.writes, server.unpublished_reason) == (0, "the certificate is not published yet")
    await create_keeper(storage, callers).start(NOW)
    await server.start(NOW)
    assert (server.expires_at, server.unpublished_reason) == (NOW + 30 * DAY, None)
    # Due for renewal, by another.
    await server.step(NOW + 25 * DAY)
    assert (storage.writes, len(callers.trusted)) == (1, 1)


async def test_serves_a_certificate_that_others_renew():
    storage, callers = InMemoryStorage(), Callers()
    keeper = create_keeper(storage, callers)
    server = CertificateKeeper(storage, NAMES, None, lambda: callers.seconds)
    await keeper.start(NOW)
    await server.start(NOW)
    served = set()
    for hours in range(0, 24 * 100, 5):
        callers.seconds = hours * 3600.0
        await keeper.step(NOW + timedelta(hours=hours))
        # A kubelet brings it up to two turns later.
        if hours % 15 == 0:
            await server.step(NOW + timedelta(hours=hours))
        assert server.expires_at is not None
        assert server.expires_at > NOW + timedelta(hours=hours)
        served.add(server.expires_at)
    assert len(served) == 5
