"""Objects that are read singly, besides those that decisions follow: the user, registrations, quotas."""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.cluster_policies import ResourceQuota
from cruise.domain.preflight import HelmRelease
from cruise.errors import DECODE_ERRORS, NotFoundError, RefusedError, UnavailableError
from cruise.kube_json.objects.quantities import decode_quotas

# What the API server can do, judged by what it serves: its version is for people to read.

_POD_LEVEL_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
# The groups of which something is read or written; older servers lack some.
_GROUPS = (
    "apps/v1",
    "autoscaling/v2",
    "batch/v1",
    "coordination.k8s.io/v1",
    "policy/v1",
)


@dataclass(frozen=True, slots=True)
class ApiDiscovery:
    """What is served: verbs by `group/version/resource`, such as `v1/pods/resize`.

    `pod_level_resize`: kubelets declare that they resize the requests of a pod as a whole.
    """

    version: tuple[int, int]
    git_version: str
    verbs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    pod_level_resize: bool = False

    @property
    def can_resize_pods(self) -> bool:
        """Tell whether running pods can be resized at all."""
        return self.serves("v1/pods/resize", "patch")

    @property
    def can_evict_pods(self) -> bool:
        """Tell whether pods can be evicted with regard to their budgets."""
        return self.serves("v1/pods/eviction", "create")

    def serves(self, resource: str, verb: str) -> bool:
        """Tell whether a resource is served with a verb, whatever RBAC allows."""
        return verb in self.verbs.get(resource, frozenset())


class _ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class _ApiResource(msgspec.Struct, frozen=True):
    name: str
    verbs: tuple[str, ...] = ()


class _ApiResourceList(msgspec.Struct, frozen=True):
    resources: tuple[_ApiResource, ...] = ()


class _NodeFeaturesStatus(msgspec.Struct, frozen=True, rename="camel"):
    declared_features: tuple[str, ...] | None = None


class _NodeFeatures(msgspec.Struct, frozen=True):
    status: _NodeFeaturesStatus = _NodeFeaturesStatus()


class _NodeFeaturesList(msgspec.Struct, frozen=True):
    items: tuple[_NodeFeatures, ...] | None = None


async def discover_api(client: KubernetesClient) -> ApiDiscovery:
    """Read what the server serves. Raises Refused, Throttled, Unavailable."""
    try:
        version = msgspec.json.decode(await client.get("/version"), type=_ServerVersion)
        verbs = _verbs("v1", await client.get("/api/v1"))
        for group in _GROUPS:
            try:
                verbs |= _verbs(group, await client.get(f"/apis/{group}"))
            except NotFoundError:
                # Not served at that version: nothing to add.
                continue
        return ApiDiscovery(
            version=(_number(version.major), _number(version.minor)),
            git_version=version.git_version,
            verbs=verbs,
            pod_level_resize=await _a_node_declares(client, _POD_LEVEL_RESIZE),
        )
    except DECODE_ERRORS as error:
        raise UnavailableError(f"the API server's discovery documents cannot be read: {error}") from error


async def _a_node_declares(client: KubernetesClient, feature: str) -> bool:
    """Ask one node: nodes differ only while they are upgraded, and the server refuses what one of them cannot do."""
    try:
        nodes = msgspec.json.decode(await client.get("/api/v1/nodes", {"limit": "1"}), type=_NodeFeaturesList)
    except RefusedError:
        return False
    return any(feature in (node.status.declared_features or ()) for node in nodes.items or ())


def _verbs(group: str, body: bytes) -> dict[str, frozenset[str]]:
    served = msgspec.json.decode(body, type=_ApiResourceList).resources
    return {f"{group}/{one.name}": frozenset(one.verbs) for one in served}


def _number(text: str) -> int:
    """Read a version's part; some providers write `33+`."""
    digits = re.match(r"\d+", text)
    return int(digits.group()) if digits else 0


_QUOTAS = "/api/v1/resourcequotas"
_DEPLOYMENTS = "/apis/apps/v1/deployments"
_OF_SERVE = {"labelSelector": "app.kubernetes.io/name=cruise,app.kubernetes.io/component=serve"}
# As the API server's own cache has them: so fresh is good enough, and costs etcd nothing.
_FROM_CACHE = {"resourceVersion": "0"}
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@dataclass(frozen=True, slots=True)
class WebhookRegistration:
    """A MutatingWebhookConfiguration: the CAs (PEM) of its webhooks, and whether pods are created without them too."""

    ca_bundles: tuple[bytes, ...]
    fails_open: bool


class _UserInfo(msgspec.Struct):
    username: str = ""


class _SelfSubjectReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _SelfSubjectReview(msgspec.Struct):
    status: _SelfSubjectReviewStatus = msgspec.field(default_factory=_SelfSubjectReviewStatus)


class _RegisteredClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str | None = None


class _RegisteredWebhook(msgspec.Struct, rename="camel"):
    client_config: _RegisteredClientConfig = msgspec.field(default_factory=_RegisteredClientConfig)
    failure_policy: str | None = None


class _RegisteredConfiguration(msgspec.Struct):
    webhooks: list[_RegisteredWebhook] | None = None


class _DeploymentMetadata(msgspec.Struct):
    namespace: str = ""
    annotations: dict[str, str] | None = None


class _Deployment(msgspec.Struct):
    metadata: _DeploymentMetadata = msgspec.field(default_factory=_DeploymentMetadata)


class _Deployments(msgspec.Struct):
    items: list[_Deployment] | None = None


async def find_helm_release(client: KubernetesClient, namespace: str) -> HelmRelease | None:
    """Return the Helm release that `cruise serve` is part of, the one of `namespace` before others.

    None where it is not there, or came another way. Raises Refused, Throttled, Unavailable.
    """
    answer = await client.get(_DEPLOYMENTS, _OF_SERVE)
    found = decode_answer(answer, _Deployments, "the Deployments of cruise").items or []
    for one in sorted(found, key=lambda one: one.metadata.namespace != namespace):
        notes = one.metadata.annotations or {}
        if name := notes.get("meta.helm.sh/release-name"):
            return HelmRelease(name, notes.get("meta.helm.sh/release-namespace", one.metadata.namespace))
    return None


async def read_own_user_name(client: KubernetesClient) -> str | None:
    """Return the name under which the API server knows cruise, None where it does not say.

    Raises Refused, Throttled, Unavailable.
    """
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await client.send("POST", _REVIEWS, body, repeatable=True)
    except NotFoundError:
        return None
    return decode_answer(answer, _SelfSubjectReview, "the review of cruise's user").status.user_info.username or None


async def read_quotas(client: KubernetesClient) -> Mapping[str, tuple[ResourceQuota, ...]]:
    """Return what the quotas of each namespace leave. Raises BadInputError, Refused, Throttled, Unavailable."""
    return decode_quotas(await client.get(_QUOTAS, _FROM_CACHE))


async def read_webhook_registration(client: KubernetesClient, name: str) -> WebhookRegistration | None:
    """Return how a webhook is registered, None where it is not. Raises Refused, Throttled, Unavailable."""
    try:
        answer = await client.get(f"{_WEBHOOKS}/{quote(name, safe='')}")
    except NotFoundError:
        return None
    webhooks = decode_answer(answer, _RegisteredConfiguration, f"webhook configuration {name}").webhooks or []
    try:
        bundles = tuple(b64decode(one.client_config.ca_bundle or "", validate=True) for one in webhooks)
    except (ValueError, NotBase64) as error:
        raise UnavailableError(f"the caBundle of {name} is not base64: {error}") from error
    return WebhookRegistration(bundles, all(one.failure_policy == "Ignore" for one in webhooks))
