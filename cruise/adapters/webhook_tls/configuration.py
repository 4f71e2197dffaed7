"""The CA by which the API server knows cruise's webhook, kept up to date in cruise's own configuration."""

import base64
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.http.answers import decoded
from cruise.adapters.kube.http.client import STRATEGIC_MERGE, KubeClient
from cruise.errors import Conflict

_TRIES = 3


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str | None = None


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: _ClientConfig = _ClientConfig()


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Configuration(msgspec.Struct, frozen=True):
    metadata: _Metadata
    webhooks: tuple[_Webhook, ...] | None = None


async def publish_ca(client: KubeClient, name: str, ca_bundle: bytes) -> bool:
    """Give every webhook of one MutatingWebhookConfiguration this CA (PEM); tell whether any had another.

    Raises NotFound where there is no such configuration, Conflict, Refused, Throttled, Unavailable.
    """
    path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{quote(name)}"
    wanted = base64.b64encode(ca_bundle).decode("ascii")
    for attempt in range(_TRIES):
        found = decoded(await client.get(path), _Configuration, f"webhook configuration {name}")
        stale = [webhook.name for webhook in found.webhooks or () if webhook.client_config.ca_bundle != wanted]
        if not stale:
            return False
        patch = {
            # Others may rewrite the list meanwhile, and a name that is gone from it would be added anew.
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "webhooks": [{"name": webhook, "clientConfig": {"caBundle": wanted}} for webhook in stale],
        }
        try:
            await client.send("PATCH", path, patch, content_type=STRATEGIC_MERGE)
        except Conflict:
            if attempt + 1 == _TRIES:
                raise
        else:
            return True
    raise AssertionError
