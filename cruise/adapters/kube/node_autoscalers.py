"""Node autoscalers as no watched object shows them: Karpenter's NodePools, cluster-autoscaler's status."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.cluster import ClusterSnapshot, Node, NodeAutoscalerKind
from cruise.domain.cluster_policies import NodePool
from cruise.domain.reasons import ReasonDetail
from cruise.errors import BadInputError, CruiseError, NotFoundError, RefusedError, UnavailableError
from cruise.kube_json.objects.node import KARPENTER_GROUP, STATUS_NAME, STATUS_NAMESPACE, decode_node, decode_node_pool
from cruise.kube_json.reading.stream import ListPage, StreamDecoder
from cruise.kube_json.wire.object_json import NodeClaimObject, NodePoolObject

T = TypeVar("T", NodePoolObject, NodeClaimObject)

_KARPENTER = f"/apis/{KARPENTER_GROUP}/v1"
_STATUS = f"/api/v1/namespaces/{STATUS_NAMESPACE}/configmaps/{STATUS_NAME}"
_ASK_SECONDS, _RETRY_SECONDS = 60.0, 2.0
_POOLS, _CLAIMS = StreamDecoder(NodePoolObject), StreamDecoder(NodeClaimObject)


class _AutoscalerMetadata(msgspec.Struct):
    name: str = ""


class _AutoscalerStatus(msgspec.Struct):
    metadata: _AutoscalerMetadata = msgspec.field(default_factory=_AutoscalerMetadata)


@dataclass(frozen=True, slots=True)
class NodeAutoscalerObjects:
    """The node autoscaler that has left a trace, and what Karpenter may order and has ordered."""

    autoscaler: NodeAutoscalerKind | None = None
    pools: tuple[NodePool, ...] = ()
    claims: tuple[Node, ...] = ()

    def combine(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return a snapshot with what was asked for; a node autoscaler that it shows itself stays."""
        seen = snapshot.node_autoscaler or self.autoscaler
        return replace(snapshot, node_autoscaler=seen, node_pools=self.pools, node_claims=self.claims)


async def read_node_autoscaler_objects(client: KubernetesClient) -> NodeAutoscalerObjects:
    """Return the traces that there are and may be read. Raises Throttled, Unavailable."""
    listed = await _read(client, f"{_KARPENTER}/nodepools")
    pools = [] if listed is None else list(_pools(listed))
    if pools:
        ordered = await _read(client, f"{_KARPENTER}/nodeclaims")
        claims = () if ordered is None else tuple(_claims(ordered))
        return NodeAutoscalerObjects(NodeAutoscalerKind.KARPENTER, tuple(pools), claims)
    status = await _read(client, _STATUS)
    if (
        status is not None
        and decode_answer(status, _AutoscalerStatus, f"ConfigMap {STATUS_NAME}").metadata.name == STATUS_NAME
    ):
        return NodeAutoscalerObjects(NodeAutoscalerKind.CLUSTER_AUTOSCALER)
    return NodeAutoscalerObjects()


def _pools(listed: bytes) -> Iterator[NodePool]:
    """Yield NodePools; one that cannot be read orders nothing, and says why."""
    page = _page(_POOLS, listed)
    for document in page.items:
        try:
            yield decode_node_pool(document)
        except BadInputError as error:
            yield NodePool(document.metadata.name, unusable_reason=ReasonDetail.POOL_UNREADABLE.create(error))
    for odd in page.unreadable:
        yield NodePool(odd.name, unusable_reason=ReasonDetail.POOL_UNREADABLE.create(odd.problem))


def _claims(listed: bytes) -> Iterator[Node]:
    """Yield NodeClaims; one that cannot be read says nothing of its machine."""
    for document in _page(_CLAIMS, listed).items:
        with suppress(BadInputError):
            yield decode_node(document)


def _page(decoder: StreamDecoder[T], listed: bytes) -> ListPage[T]:
    try:
        return decoder.page(listed)
    except BadInputError as error:
        raise UnavailableError(str(error)) from error


async def _read(client: KubernetesClient, path: str) -> bytes | None:
    try:
        return await client.get(path)
    except (NotFoundError, RefusedError):
        return None


class NodeAutoscalerPoller:
    """What `ask_for_node_autoscaler` said last; `asked` is set once it was answered."""

    def __init__(self, client: KubernetesClient) -> None:
        self.objects = NodeAutoscalerObjects()
        self.answered = asyncio.Event()
        self._client = client

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            try:
                self.objects = await read_node_autoscaler_objects(self._client)
            except CruiseError:
                # The watches of the same server say what is wrong with it.
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self.answered.set()
                await asyncio.sleep(_ASK_SECONDS)
