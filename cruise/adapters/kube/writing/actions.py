"""The four writes on a cluster, each fenced on what it was decided about.

| action | request | fence |
|---|---|---|
| resize | strategic merge on `pods/resize` | the pod's uid and resourceVersion, in the patch |
| evict | Eviction | the pod's uid and resourceVersion, as preconditions |
| taint, untaint | merge patch of all taints | the node's resourceVersion |

What the server may say against each is in `translation.MEANINGS`.
"""

from typing import assert_never
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.http.answers import decoded
from cruise.adapters.kube.http.client import MERGE_PATCH, STRATEGIC_MERGE, KubeClient
from cruise.domain.actions import Action, EvictPod, ResizePod, TaintNode, UntaintNode
from cruise.domain.scheduling import Taint
from cruise.errors import Conflict
from cruise.kube_json.patches.resize_patch import resize_patch

JsonObject = dict[str, object]

# Kubelets and controllers change nodes all the time, mostly something else than the taints.
_TAINT_TRIES = 5


async def perform(client: KubeClient, action: Action) -> None:
    """Do one action. Raises Conflict, NotFound, Refused, Throttled, Unavailable."""
    match action:
        case ResizePod():
            path = f"{_pod(action.namespace, action.pod)}/resize"
            # The sizes are absolute and the pod is that very one: the same patch twice is as good as once. Fenced on a
            # version it is a conflict the second time, which would hide that it was done.
            repeatable = not action.version
            await client.send("PATCH", path, resize_patch(action), content_type=STRATEGIC_MERGE, repeatable=repeatable)
        case EvictPod():
            # Never repeated: a pod that is gone would then look as if it had been deleted otherwise.
            await client.send("POST", f"{_pod(action.namespace, action.pod)}/eviction", _eviction(action))
        case TaintNode():
            await _set_taint(client, action.node, action.taint, wanted=True)
        case UntaintNode():
            await _set_taint(client, action.node, action.taint, wanted=False)
        case _:
            assert_never(action)


class _NodeMetadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    resource_version: str


class _NodeSpec(msgspec.Struct, frozen=True):
    taints: tuple[JsonObject, ...] | None = None


class _Node(msgspec.Struct, frozen=True):
    metadata: _NodeMetadata
    spec: _NodeSpec = _NodeSpec()


async def _set_taint(client: KubeClient, name: str, own: Taint, *, wanted: bool) -> None:
    """Put on or take off a taint of cruise's own, whatever others do to the node's taints meanwhile."""
    path = f"/api/v1/nodes/{quote(name)}"
    for attempt in range(_TAINT_TRIES):
        node = decoded(await client.get(path), _Node, f"Node {name}")
        taints = node.spec.taints or ()
        others = [taint for taint in taints if (taint.get("key"), taint.get("effect")) != (own.key, own.effect.value)]
        if (len(others) < len(taints)) == wanted:
            return
        ours: JsonObject = {"key": own.key, "value": own.value, "effect": own.effect.value}
        patch = {
            "metadata": {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version},
            "spec": {"taints": [*others, ours] if wanted else others or None},
        }
        try:
            await client.send("PATCH", path, patch, content_type=MERGE_PATCH)
        except Conflict:
            if attempt + 1 == _TAINT_TRIES:
                raise
        else:
            return


def _eviction(action: EvictPod) -> JsonObject:
    preconditions = {"uid": action.uid} | ({"resourceVersion": action.version} if action.version else {})
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": action.namespace, "name": action.pod},
        "deleteOptions": {"preconditions": preconditions},
    }


def _pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"
