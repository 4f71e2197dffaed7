"""Objects that are read singly, besides those that decisions follow: the user, autoscalers, registrations, quotas."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.http.answers import decoded
from cruise.adapters.kube.http.client import KubeClient
from cruise.domain.cluster import Quota, WorkloadRef
from cruise.domain.preflight import VerticalAutoscaler
from cruise.errors import NotFound, Unavailable
from cruise.kube_json.objects.quotas import decode_quotas

_QUOTAS = "/api/v1/resourcequotas"
# As the API server's own cache has them: so fresh is good enough, and costs etcd nothing.
_FROM_CACHE = {"resourceVersion": "0"}
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_VERTICAL = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers"
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


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""


class _Target(msgspec.Struct):
    kind: str
    name: str


class _UpdatePolicy(msgspec.Struct, rename="camel"):
    update_mode: str | None = None


class _VerticalSpec(msgspec.Struct, rename="camel"):
    target_ref: _Target | None = None
    update_policy: _UpdatePolicy | None = None


class _Vertical(msgspec.Struct):
    metadata: _Metadata
    spec: _VerticalSpec = msgspec.field(default_factory=_VerticalSpec)


class _Verticals(msgspec.Struct):
    items: list[_Vertical] | None = None


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str | None = None


class _Webhook(msgspec.Struct, rename="camel"):
    client_config: _ClientConfig = msgspec.field(default_factory=_ClientConfig)
    failure_policy: str | None = None


class _Configuration(msgspec.Struct):
    webhooks: list[_Webhook] | None = None


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


async def vertical_autoscalers(client: KubeClient) -> Sequence[VerticalAutoscaler]:
    """Return all VerticalPodAutoscalers; none where there is no such kind. Raises Refused, Throttled, Unavailable."""
    try:
        answer = await client.get(_VERTICAL)
    except NotFound:
        return ()
    return [
        VerticalAutoscaler(
            one.metadata.namespace,
            one.metadata.name,
            WorkloadRef(one.spec.target_ref.kind, one.spec.target_ref.name) if one.spec.target_ref else None,
            (one.spec.update_policy.update_mode if one.spec.update_policy else None) or "",
        )
        for one in decoded(answer, _Verticals, "the list of VerticalPodAutoscalers").items or ()
    ]


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
