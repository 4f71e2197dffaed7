"""What the API server serves, and objects that no watch shows: cruise's user, Helm release, node autoscalers."""

import asyncio
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.autoscalers import NodeAutoscalerKind, NodePool, ResourceQuota
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.preflight import HelmRelease
from cruise.domain.reasons import ReasonDetailCode
from cruise.errors import DECODE_ERRORS, BadInputError, CruiseError, NotFoundError, RefusedError, UnavailableError
from cruise.kube_json.objects.node import KARPENTER_GROUP, STATUS_NAME, STATUS_NAMESPACE, decode_node, decode_node_pool
from cruise.kube_json.objects.quantities import decode_quotas
from cruise.kube_json.reading.stream import ListPage, StreamDecoder
from cruise.kube_json.wire.object_json import NodeClaimObject, NodePoolObject

_POD_LEVEL_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
# The groups that cruise uses; older servers lack some.
_GROUPS = (
    "apps/v1",
    "autoscaling/v2",
    "batch/v1",
    "coordination.k8s.io/v1",
    "policy/v1",
)


@dataclass(frozen=True, slots=True)
class ApiDiscovery:
    """The served verbs by `group/version/resource`, such as `v1/pods/resize`.

    `pod_level_resize`: kubelets declare that they can resize pod-level resources. The version is only for display.
    """

    version: tuple[int, int]
    git_version: str
    verbs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    pod_level_resize: bool = False

    @property
    def can_resize_pods(self) -> bool:
        """Whether running pods can be resized."""
        return self.serves("v1/pods/resize", "patch")

    @property
    def can_evict_pods(self) -> bool:
        """Whether pods can be evicted within their PodDisruptionBudgets."""
        return self.serves("v1/pods/eviction", "create")

    def serves(self, resource: str, verb: str) -> bool:
        """Return whether a resource is served with a verb, regardless of RBAC."""
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


class _ApiGroupVersion(msgspec.Struct, frozen=True):
    version: str


class _ApiGroup(msgspec.Struct, frozen=True):
    versions: tuple[_ApiGroupVersion, ...] = ()


class _NodeFeaturesStatus(msgspec.Struct, frozen=True, rename="camel"):
    declared_features: tuple[str, ...] | None = None


class _NodeFeatures(msgspec.Struct, frozen=True):
    status: _NodeFeaturesStatus = _NodeFeaturesStatus()


class _NodeFeaturesList(msgspec.Struct, frozen=True):
    items: tuple[_NodeFeatures, ...] | None = None


async def discover_api(client: KubernetesClient) -> ApiDiscovery:
    """Read what the server serves. Raises RefusedError, ThrottledError and UnavailableError."""
    try:
        version = msgspec.json.decode(await client.get("/version"), type=_ServerVersion)
        verbs = _decode_verbs("v1", await client.get("/api/v1"))
        for group in _GROUPS:
            try:
                verbs |= _decode_verbs(group, await client.get(f"/apis/{group}"))
            except NotFoundError:
                continue
        return ApiDiscovery(
            version=(_parse_version_part(version.major), _parse_version_part(version.minor)),
            git_version=version.git_version,
            verbs=verbs,
            pod_level_resize=await _is_declared_by_a_node(client, _POD_LEVEL_RESIZE),
        )
    except DECODE_ERRORS as error:
        raise UnavailableError(f"the API server's discovery documents cannot be read: {error}") from error


async def find_served_version(client: KubernetesClient, group: str, plural: str, preferred: str) -> str | None:
    """Return a version in which the server has a kind, if possible the preferred one; None if it has none.

    Raises RefusedError, ThrottledError and UnavailableError.
    """
    try:
        served = decode_answer(await client.get(f"/apis/{group}"), _ApiGroup, f"API group {group}").versions
    except NotFoundError:
        return None
    for one in sorted((one.version for one in served), key=lambda version: version != preferred):
        try:
            answer = await client.get(f"/apis/{group}/{one}")
        except NotFoundError:
            continue
        if any(found.name == plural for found in decode_answer(answer, _ApiResourceList, f"{group}/{one}").resources):
            return one
    return None


async def _is_declared_by_a_node(client: KubernetesClient, feature: str) -> bool:
    """Return whether the first node declares a feature; nodes differ only during an upgrade."""
    try:
        nodes = msgspec.json.decode(await client.get("/api/v1/nodes", {"limit": "1"}), type=_NodeFeaturesList)
    except RefusedError:
        return False
    return any(feature in (node.status.declared_features or ()) for node in nodes.items or ())


def _decode_verbs(group: str, body: bytes) -> dict[str, frozenset[str]]:
    served = msgspec.json.decode(body, type=_ApiResourceList).resources
    return {f"{group}/{one.name}": frozenset(one.verbs) for one in served}


def _parse_version_part(text: str) -> int:
    """Parse a part of a version; some providers write `33+`."""
    digits = re.match(r"\d+", text)
    return int(digits.group()) if digits else 0


_QUOTAS = "/api/v1/resourcequotas"
_DEPLOYMENTS = "/apis/apps/v1/deployments"
_SERVE_SELECTOR = {"labelSelector": "app.kubernetes.io/name=cruise,app.kubernetes.io/component=serve"}
# From the API server's cache, without a read of etcd.
_FROM_CACHE = {"resourceVersion": "0"}
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@dataclass(frozen=True, slots=True)
class WebhookRegistration:
    """The CA bundles (PEM) of a webhook configuration, and whether all its webhooks have failurePolicy Ignore."""

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
    """Return the Helm release of `cruise serve`, preferably the one in `namespace`; None if there is none.

    Raises RefusedError, ThrottledError and UnavailableError.
    """
    answer = await client.get(_DEPLOYMENTS, _SERVE_SELECTOR)
    found = decode_answer(answer, _Deployments, "the Deployments of cruise").items or []
    for one in sorted(found, key=lambda one: one.metadata.namespace != namespace):
        annotations = one.metadata.annotations or {}
        if name := annotations.get("meta.helm.sh/release-name"):
            return HelmRelease(name, annotations.get("meta.helm.sh/release-namespace", one.metadata.namespace))
    return None


async def read_own_user_name(client: KubernetesClient) -> str | None:
    """Return cruise's user name at the API server, None if the server does not report it.

    Raises RefusedError, ThrottledError and UnavailableError.
    """
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await client.send("POST", _REVIEWS, body, repeatable=True)
    except NotFoundError:
        return None
    return decode_answer(answer, _SelfSubjectReview, "the review of cruise's user").status.user_info.username or None


async def read_quotas(client: KubernetesClient) -> Mapping[str, tuple[ResourceQuota, ...]]:
    """Return the quotas by namespace. Raises BadInputError, RefusedError, ThrottledError and UnavailableError."""
    return decode_quotas(await client.get(_QUOTAS, _FROM_CACHE))


async def read_webhook_registration(client: KubernetesClient, name: str) -> WebhookRegistration | None:
    """Return the registration of a webhook, None if there is none.

    Raises RefusedError, ThrottledError and UnavailableError.
    """
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


T = TypeVar("T", NodePoolObject, NodeClaimObject)

_KARPENTER = f"/apis/{KARPENTER_GROUP}/v1"
_STATUS = f"/api/v1/namespaces/{STATUS_NAMESPACE}/configmaps/{STATUS_NAME}"
_POLL_SECONDS, _RETRY_SECONDS = 60.0, 2.0
_POOLS, _CLAIMS = StreamDecoder(NodePoolObject), StreamDecoder(NodeClaimObject)


class _AutoscalerMetadata(msgspec.Struct):
    name: str = ""


class _AutoscalerStatus(msgspec.Struct):
    metadata: _AutoscalerMetadata = msgspec.field(default_factory=_AutoscalerMetadata)


@dataclass(frozen=True, slots=True)
class NodeAutoscalerObjects:
    """The detected node autoscaler, and Karpenter's NodePools and NodeClaims."""

    autoscaler: NodeAutoscalerKind | None = None
    pools: tuple[NodePool, ...] = ()
    claims: tuple[Node, ...] = ()

    def combine(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return the snapshot with these objects; an autoscaler that it already has stays."""
        autoscaler = snapshot.node_autoscaler or self.autoscaler
        return replace(snapshot, node_autoscaler=autoscaler, node_pools=self.pools, node_claims=self.claims)


async def read_node_autoscaler_objects(client: KubernetesClient) -> NodeAutoscalerObjects:
    """Return the objects that exist and may be read. Raises ThrottledError and UnavailableError."""
    pool_list = await _read(client, f"{_KARPENTER}/nodepools")
    pools = [] if pool_list is None else list(_decode_pools(pool_list))
    if pools:
        claim_list = await _read(client, f"{_KARPENTER}/nodeclaims")
        claims = () if claim_list is None else tuple(_decode_claims(claim_list))
        return NodeAutoscalerObjects(NodeAutoscalerKind.KARPENTER, tuple(pools), claims)
    status = await _read(client, _STATUS)
    if (
        status is not None
        and decode_answer(status, _AutoscalerStatus, f"ConfigMap {STATUS_NAME}").metadata.name == STATUS_NAME
    ):
        return NodeAutoscalerObjects(NodeAutoscalerKind.CLUSTER_AUTOSCALER)
    return NodeAutoscalerObjects()


def _decode_pools(body: bytes) -> Iterator[NodePool]:
    """Yield NodePools; an unreadable one is unusable, with the reason."""
    page = _decode_page(_POOLS, body)
    for document in page.items:
        try:
            yield decode_node_pool(document)
        except BadInputError as error:
            yield NodePool(document.metadata.name, unusable_reason=ReasonDetailCode.POOL_UNREADABLE.create(error))
    for unreadable in page.unreadable:
        yield NodePool(unreadable.name, unusable_reason=ReasonDetailCode.POOL_UNREADABLE.create(unreadable.problem))


def _decode_claims(body: bytes) -> Iterator[Node]:
    """Yield NodeClaims, without unreadable ones."""
    for document in _decode_page(_CLAIMS, body).items:
        with suppress(BadInputError):
            yield decode_node(document)


def _decode_page(decoder: StreamDecoder[T], body: bytes) -> ListPage[T]:
    try:
        return decoder.decode_page(body)
    except BadInputError as error:
        raise UnavailableError(str(error)) from error


async def _read(client: KubernetesClient, path: str) -> bytes | None:
    try:
        return await client.get(path)
    except (NotFoundError, RefusedError):
        return None


class NodeAutoscalerPoller:
    """The latest objects of node autoscalers; `answered` is set after the first answer."""

    def __init__(self, client: KubernetesClient) -> None:
        self.objects = NodeAutoscalerObjects()
        self.answered = asyncio.Event()
        self._client = client

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            try:
                self.objects = await read_node_autoscaler_objects(self._client)
            except CruiseError:
                # The watches of the same server report the problem.
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self.answered.set()
                await asyncio.sleep(_POLL_SECONDS)
