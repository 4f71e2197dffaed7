"""The certificate in a Secret of a real API server, with concurrent writers."""

import asyncio
import base64
import time
from datetime import UTC, datetime, timedelta

import pytest

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.webhook_tls.certificate_keeper import (
    AUTHORITIES,
    CERTIFICATE,
    KEY,
    NEXT_KEY,
    CertificateKeeper,
    TlsSecret,
)
from cruise.errors import BadInputError, ConflictError
from tests.controlplane.api import Api

FILES = {CERTIFICATE: b"certificate", KEY: b"key", AUTHORITIES: b"authorities"}
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def stored(admin: Api, namespace: str) -> dict[str, bytes]:
    data = admin.read("secrets", namespace, "tls").get("data") or {}
    return {name: base64.b64decode(text) for name, text in data.items()}


def make_secret(admin: Api, namespace: str, **data: str) -> None:
    metadata = {"namespace": namespace, "name": "tls"}
    admin.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


async def test_creates_a_missing_secret(client: KubernetesClient, admin: Api, namespace: str):
    place = TlsSecret(client, namespace, "tls")
    kept = await place.read()
    assert (kept.is_empty, kept.version) == (True, "")
    await place.write(FILES, kept.version)
    assert stored(admin, namespace) == FILES
    assert (await place.read()).files == FILES
    with pytest.raises(ConflictError):
        await place.write({CERTIFICATE: b"late"}, kept.version)


async def test_fills_an_empty_secret_and_keeps_its_other_keys(client: KubernetesClient, admin: Api, namespace: str):
    make_secret(admin, namespace, note=base64.b64encode(b"mine").decode())
    place = TlsSecret(client, namespace, "tls")
    kept = await place.read()
    assert kept.is_empty
    await place.write(FILES | {NEXT_KEY: b"next"}, kept.version)
    assert stored(admin, namespace) == FILES | {NEXT_KEY: b"next", "note": b"mine"}
    await place.write(FILES, (await place.read()).version)
    assert stored(admin, namespace) == FILES | {"note": b"mine"}


async def test_a_write_after_another_write_is_a_conflict(client: KubernetesClient, admin: Api, namespace: str):
    make_secret(admin, namespace)
    one, two = TlsSecret(client, namespace, "tls"), TlsSecret(client, namespace, "tls")
    kept = await one.read()
    await two.write(FILES, (await two.read()).version)
    with pytest.raises(ConflictError):
        await one.write({CERTIFICATE: b"other"}, kept.version)
    assert stored(admin, namespace) == FILES


async def test_reports_a_secret_without_a_certificate(client: KubernetesClient, admin: Api, namespace: str):
    make_secret(admin, namespace, **{CERTIFICATE: "eA==", KEY: "eA=="})
    keeper = CertificateKeeper(TlsSecret(client, namespace, "tls"), ["x"], _publish, time.monotonic)
    with pytest.raises(BadInputError, match=f"^Secret {namespace}/tls: tls.crt contains no certificate"):
        await keeper.start(NOW)


async def _publish(bundle: bytes) -> None:
    """Ignore the call."""


async def test_replicas_that_start_at_once_serve_the_same(client: KubernetesClient, admin: Api, namespace: str):
    bundles: set[bytes] = set()

    async def publish(bundle: bytes) -> None:
        bundles.add(bundle)

    keepers = [
        CertificateKeeper(
            TlsSecret(client, namespace, "tls"), ["x"], publish, time.monotonic, propagation_time=timedelta(0)
        )
        for _ in range(4)
    ]
    await asyncio.gather(*(keeper.start(NOW) for keeper in keepers))
    assert bundles == {stored(admin, namespace)[AUTHORITIES]}
    later = NOW + timedelta(days=21)
    for _ in range(3):
        await asyncio.gather(*(keeper.step(later) for keeper in keepers))
    assert {keeper.expires_at for keeper in keepers} == {later + timedelta(days=30)}
    assert NEXT_KEY not in stored(admin, namespace)
