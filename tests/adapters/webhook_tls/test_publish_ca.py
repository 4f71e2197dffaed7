import asyncio
import base64
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.webhook_tls.certificate_keeper import publish_ca
from cruise.errors import NotFoundError
from tests.adapters.kube.test_credentials import certificate_for, pem
from tests.controlplane.api import Api, ApiError, Json

CONFIGURATIONS = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
CA = pem(certificate_for("ca", "one", None)[0])
NEXT_CA = pem(certificate_for("ca", "two", None)[0])


def webhook(name: str, **more: object) -> Json:
    return {
        "name": f"{name}.cruise.io",
        "clientConfig": {"service": {"namespace": "cruise", "name": "cruise-webhook", "path": "/mutate"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothing"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "timeoutSeconds": 3,
        **more,
    }


@pytest.fixture
def name(admin: Api) -> Iterator[str]:
    """A configuration with two webhooks that know no CA."""
    name = "cruise-under-test"
    manifest = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    admin.create({**manifest, "metadata": {"name": name}, "webhooks": [webhook("a"), webhook("b")]})
    yield name
    with suppress(ApiError):
        admin.delete(CONFIGURATIONS, None, name)


def published(admin: Api, name: str) -> list[bytes]:
    webhooks = admin.read(CONFIGURATIONS, None, name)["webhooks"]
    return [base64.b64decode(one["clientConfig"].get("caBundle", "")) for one in webhooks]


async def test_a_ca_is_published_once_and_replaced(client: KubernetesClient, admin: Api, name: str):
    before = admin.read(CONFIGURATIONS, None, name)["webhooks"]
    assert await publish_ca(client, name, CA)
    assert published(admin, name) == [CA, CA]
    version = admin.read(CONFIGURATIONS, None, name)["metadata"]["resourceVersion"]
    assert not await publish_ca(client, name, CA)
    assert admin.read(CONFIGURATIONS, None, name)["metadata"]["resourceVersion"] == version
    assert await publish_ca(client, name, CA + NEXT_CA)
    assert published(admin, name) == [CA + NEXT_CA] * 2
    after = admin.read(CONFIGURATIONS, None, name)["webhooks"]
    for one in after:
        del one["clientConfig"]["caBundle"]
    assert after == before


async def test_restores_the_ca_of_a_webhook(client: KubernetesClient, admin: Api, name: str):
    await publish_ca(client, name, CA)
    patch = {"webhooks": [{"name": "b.cruise.io", "clientConfig": {"caBundle": None}}]}
    admin.patch(CONFIGURATIONS, None, name, patch)
    assert published(admin, name) == [CA, b""]
    assert await publish_ca(client, name, CA)
    assert published(admin, name) == [CA, CA]


async def test_many_replicas_publish_at_once(client: KubernetesClient, admin: Api, name: str):
    assert any(await asyncio.gather(*(publish_ca(client, name, CA) for _ in range(3))))
    assert published(admin, name) == [CA, CA]


async def test_raises_not_found_without_a_configuration(client: KubernetesClient):
    with pytest.raises(NotFoundError):
        await publish_ca(client, "nowhere", CA)
