"""Traces of node autoscalers that no watched object shows: Karpenter's NodePools, cluster-autoscaler's status."""

import asyncio

import msgspec

from cruise.adapters.kube.http.answers import decoded
from cruise.adapters.kube.http.client import KubeClient
from cruise.domain.cluster import NodeAutoscaler
from cruise.errors import CruiseError, NotFound, Refused
from cruise.kube_json.objects.node_autoscaling import KARPENTER_GROUP, STATUS_NAME, STATUS_NAMESPACE

_NODE_POOLS = f"/apis/{KARPENTER_GROUP}/v1/nodepools"
_STATUS = f"/api/v1/namespaces/{STATUS_NAMESPACE}/configmaps/{STATUS_NAME}"
_ASK_SECONDS = 60.0


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Metadata(msgspec.Struct):
    name: str = ""


class _Status(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


async def ask_for_node_autoscaler(client: KubeClient) -> NodeAutoscaler | None:
    """Return the node autoscaler that has left a trace; None where there is none, or none that may be read.

    Raises Throttled, Unavailable.
    """
    pools = await _read(client, _NODE_POOLS)
    if pools is not None and decoded(pools, _List, "the list of NodePools").items:
        return NodeAutoscaler.KARPENTER
    status = await _read(client, _STATUS)
    if status is not None and decoded(status, _Status, f"ConfigMap {STATUS_NAME}").metadata.name == STATUS_NAME:
        return NodeAutoscaler.CLUSTER_AUTOSCALER
    return None


async def _read(client: KubeClient, path: str) -> bytes | None:
    try:
        return await client.get(path)
    except (NotFound, Refused):
        return None


class AskedNodeAutoscaler:
    """What `ask_for_node_autoscaler` said last; `asked` is set once it was tried."""

    def __init__(self, client: KubeClient) -> None:
        self.seen: NodeAutoscaler | None = None
        self.asked = asyncio.Event()
        self._client = client

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            try:
                self.seen = await ask_for_node_autoscaler(self._client)
            except CruiseError:
                # The watches of the same server say what is wrong with it.
                pass
            self.asked.set()
            await asyncio.sleep(_ASK_SECONDS)
