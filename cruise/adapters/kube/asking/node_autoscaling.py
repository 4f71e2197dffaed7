"""Node autoscalers as no watched object shows them: Karpenter's NodePools, cluster-autoscaler's status."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from cruise.adapters.kube.http.answers import decoded
from cruise.adapters.kube.http.client import KubeClient
from cruise.domain.cluster import Node, NodeAutoscaler, Snapshot
from cruise.domain.details import Detail
from cruise.domain.node_pools import NodePool
from cruise.errors import BadInput, CruiseError, NotFound, Refused, Unavailable
from cruise.kube_json.objects.node import decode_node
from cruise.kube_json.objects.node_autoscaling import KARPENTER_GROUP, STATUS_NAME, STATUS_NAMESPACE
from cruise.kube_json.objects.node_pools import decode_node_pool
from cruise.kube_json.reading.stream import Page, StreamDecoder
from cruise.kube_json.wire.object_json import NodeClaimObject, NodePoolObject

T = TypeVar("T", NodePoolObject, NodeClaimObject)

_KARPENTER = f"/apis/{KARPENTER_GROUP}/v1"
_STATUS = f"/api/v1/namespaces/{STATUS_NAMESPACE}/configmaps/{STATUS_NAME}"
_ASK_SECONDS, _RETRY_SECONDS = 60.0, 2.0
_POOLS, _CLAIMS = StreamDecoder(NodePoolObject), StreamDecoder(NodeClaimObject)


class _Metadata(msgspec.Struct):
    name: str = ""


class _Status(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


@dataclass(frozen=True, slots=True)
class NodeAutoscalerTraces:
    """The node autoscaler that has left a trace, and what Karpenter may order and has ordered."""

    autoscaler: NodeAutoscaler | None = None
    pools: tuple[NodePool, ...] = ()
    claims: tuple[Node, ...] = ()

    def beside(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with what was asked for; a node autoscaler that it shows itself stays."""
        seen = snapshot.node_autoscaler or self.autoscaler
        return replace(snapshot, node_autoscaler=seen, node_pools=self.pools, node_claims=self.claims)


async def ask_for_node_autoscaler(client: KubeClient) -> NodeAutoscalerTraces:
    """Return the traces that there are and may be read. Raises Throttled, Unavailable."""
    listed = await _read(client, f"{_KARPENTER}/nodepools")
    pools = [] if listed is None else list(_pools(listed))
    if pools:
        ordered = await _read(client, f"{_KARPENTER}/nodeclaims")
        claims = () if ordered is None else tuple(_claims(ordered))
        return NodeAutoscalerTraces(NodeAutoscaler.KARPENTER, tuple(pools), claims)
    status = await _read(client, _STATUS)
    if status is not None and decoded(status, _Status, f"ConfigMap {STATUS_NAME}").metadata.name == STATUS_NAME:
        return NodeAutoscalerTraces(NodeAutoscaler.CLUSTER_AUTOSCALER)
    return NodeAutoscalerTraces()


def _pools(listed: bytes) -> Iterator[NodePool]:
    """Yield NodePools; one that cannot be read orders nothing, and says why."""
    page = _page(_POOLS, listed)
    for document in page.items:
        try:
            yield decode_node_pool(document)
        except BadInput as error:
            yield NodePool(document.metadata.name, closed=Detail.POOL_UNREADABLE.of(error))
    for odd in page.unreadable:
        yield NodePool(odd.name, closed=Detail.POOL_UNREADABLE.of(odd.problem))


def _claims(listed: bytes) -> Iterator[Node]:
    """Yield NodeClaims; one that cannot be read says nothing of its machine."""
    for document in _page(_CLAIMS, listed).items:
        with suppress(BadInput):
            yield decode_node(document)


def _page(decoder: StreamDecoder[T], listed: bytes) -> Page[T]:
    try:
        return decoder.page(listed)
    except BadInput as error:
        raise Unavailable(str(error)) from error


async def _read(client: KubeClient, path: str) -> bytes | None:
    try:
        return await client.get(path)
    except (NotFound, Refused):
        return None


class AskedNodeAutoscaler:
    """What `ask_for_node_autoscaler` said last; `asked` is set once it was answered."""

    def __init__(self, client: KubeClient) -> None:
        self.seen = NodeAutoscalerTraces()
        self.asked = asyncio.Event()
        self._client = client

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            try:
                self.seen = await ask_for_node_autoscaler(self._client)
            except CruiseError:
                # The watches of the same server say what is wrong with it.
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self.asked.set()
                await asyncio.sleep(_ASK_SECONDS)
