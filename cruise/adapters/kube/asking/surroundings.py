"""Objects that are read singly, besides those that decisions follow: the user, registrations, quotas."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.http.answers import decoded
from cruise.adapters.kube.http.client import KubeClient
from cruise.domain.preflight import HelmRelease
from cruise.domain.quotas import Quota
from cruise.errors import NotFound, Unavailable
from cruise.kube_json.objects.quotas import decode_quotas

_QUOTAS = "/api/v1/resourcequotas"
_DEPLOYMENTS = "/apis/apps/v1/deployments"
_OF_SERVE = {"labelSelector": "app.kubernetes.io/name=cruise,app.kubernetes.io/component=serve"}
# As the API server's own cache has them: so fresh is good enough, and costs etcd nothing.
_FROM_CACHE = {"resourceVersion": "0"}
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@dataclass(frozen=True, slots=True)
class Registration:
    """A MutatingWebhookConfiguration: the CAs (PEM) of its webhooks, and whether pods are created without them too."""

    bundles: tuple[bytes, ...]
    fails_open: bool


class _UserInfo(msgspec.Struct):
    username: str = ""


class _ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str | None = None


class _Webhook(msgspec.Struct, rename="camel"):
    client_config: _ClientConfig = msgspec.field(default_factory=_ClientConfig)
    failure_policy: str | None = None


class _Configuration(msgspec.Struct):
    webhooks: list[_Webhook] | None = None


class _Metadata(msgspec.Struct):
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Deployment(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Deployments(msgspec.Struct):
    items: list[_Deployment] | None = None


async def release(client: KubeClient, namespace: str) -> HelmRelease | None:
    """Return the Helm release that `cruise serve` is part of, the one of `namespace` before others.

    None where it is not there, or came another way. Raises Refused, Throttled, Unavailable.
    """
    answer = await client.get(_DEPLOYMENTS, _OF_SERVE)
    found = decoded(answer, _Deployments, "the Deployments of cruise").items or []
    for one in sorted(found, key=lambda one: one.metadata.namespace != namespace):
        notes = one.metadata.annotations or {}
        if name := notes.get("meta.helm.sh/release-name"):
            return HelmRelease(name, notes.get("meta.helm.sh/release-namespace", one.metadata.namespace))
    return None


async def who_asks(client: KubeClient) -> str | None:
    """Return the name under which the API server knows cruise, None where it does not say.

    Raises Refused, Throttled, Unavailable.
    """
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await client.send("POST", _REVIEWS, body, repeatable=True)
    except NotFound:
        return None
    return decoded(answer, _Review, "the review of cruise's user").status.user_info.username or None


async def read_quotas(client: KubeClient) -> Mapping[str, tuple[Quota, ...]]:
    """Return what the quotas of each namespace leave. Raises BadInput, Refused, Throttled, Unavailable."""
    return decode_quotas(await client.get(_QUOTAS, _FROM_CACHE))


async def registration(client: KubeClient, name: str) -> Registration | None:
    """Return how a webhook is registered, None where it is not. Raises Refused, Throttled, Unavailable."""
    try:
        answer = await client.get(f"{_WEBHOOKS}/{quote(name, safe='')}")
    except NotFound:
        return None
    webhooks = decoded(answer, _Configuration, f"webhook configuration {name}").webhooks or []
    try:
        bundles = tuple(b64decode(one.client_config.ca_bundle or "", validate=True) for one in webhooks)
    except (ValueError, NotBase64) as error:
        raise Unavailable(f"the caBundle of {name} is not base64: {error}") from error
    return Registration(bundles, all(one.failure_policy == "Ignore" for one in webhooks))
