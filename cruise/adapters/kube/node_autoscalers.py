"""Node autoscalers that no watched object shows: Karpenter's NodePools and cluster-autoscaler's status."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.autoscalers import NodeAutoscalerKind, NodePool
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.reasons import ReasonDetail
from cruise.errors import BadInputError, CruiseError, NotFoundError, RefusedError, UnavailableError
from cruise.kube_json.objects.node import KARPENTER_GROUP, STATUS_NAME, STATUS_NAMESPACE, decode_node, decode_node_pool
from cruise.kube_json.reading.stream import ListPage, StreamDecoder
from cruise.kube_json.wire.object_json import NodeClaimObject, NodePoolObject

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
            yield NodePool(document.metadata.name, unusable_reason=ReasonDetail.POOL_UNREADABLE.create(error))
    for unreadable in page.unreadable:
        yield NodePool(unreadable.name, unusable_reason=ReasonDetail.POOL_UNREADABLE.create(unreadable.problem))


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
