"""The four writes on a cluster, each fenced on what it was decided about.

| action | request | fence |
|---|---|---|
| resize | strategic merge on `pods/resize` | the pod's uid and resourceVersion, in the patch |
| evict | Eviction | the pod's uid and resourceVersion, as preconditions |
| taint, untaint | merge patch of all taints | the node's resourceVersion |

What the server may say against each is in `translation.MEANINGS`.
"""

from datetime import datetime
from typing import assert_never
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.client import APPLY, MERGE_PATCH, STRATEGIC_MERGE, KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.actions import Action, EvictPod, ResizePod, TaintNode, UntaintNode
from cruise.domain.records import WorkloadRecommendation
from cruise.domain.scheduling import Taint
from cruise.errors import ConflictError
from cruise.kube_json.patches import VPA_API_VERSION, build_resize_patch, build_vpa, build_vpa_status

JsonObject = dict[str, object]

# Kubelets and controllers change nodes all the time, mostly something else than the taints.
_TAINT_TRIES = 5


async def perform_action(client: KubernetesClient, action: Action) -> None:
    """Do one action. Raises Conflict, NotFoundError, Refused, Throttled, Unavailable."""
    match action:
        case ResizePod():
            path = f"{_pod(action.namespace, action.pod)}/resize"
            # The sizes are absolute and the pod is that very one: the same patch twice is as good as once. Fenced on a
            # version it is a conflict the second time, which would hide that it was done.
            repeatable = not action.version
            await client.send(
                "PATCH", path, build_resize_patch(action), content_type=STRATEGIC_MERGE, repeatable=repeatable
            )
        case EvictPod():
            # Never repeated: a pod that is gone would then look as if it had been deleted otherwise.
            await client.send("POST", f"{_pod(action.namespace, action.pod)}/eviction", _eviction(action))
        case TaintNode():
            await _set_taint(client, action.node, action.taint, wanted=True)
        case UntaintNode():
            await _set_taint(client, action.node, action.taint, wanted=False)
        case _:
            assert_never(action)


class _TaintedNodeMetadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    resource_version: str


class _TaintedNodeSpec(msgspec.Struct, frozen=True):
    taints: tuple[JsonObject, ...] | None = None


class _TaintedNode(msgspec.Struct, frozen=True):
    metadata: _TaintedNodeMetadata
    spec: _TaintedNodeSpec = _TaintedNodeSpec()


async def _set_taint(client: KubernetesClient, name: str, own: Taint, *, wanted: bool) -> None:
    """Put on or take off a taint of cruise's own, whatever others do to the node's taints meanwhile."""
    path = f"/api/v1/nodes/{quote(name)}"
    for attempt in range(_TAINT_TRIES):
        node = decode_answer(await client.get(path), _TaintedNode, f"Node {name}")
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
        except ConflictError:
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


# VerticalPodAutoscalers of cruise's own, created and applied by its field manager.


class VpaPublisher:
    """Publishes recommendations as VerticalPodAutoscalers, which state an `update_mode`."""

    def __init__(self, client: KubernetesClient, update_mode: str) -> None:
        self._client = client
        self._update_mode = update_mode

    async def publish(self, wanted: WorkloadRecommendation, since: datetime, *, is_there: bool) -> None:
        """Create the object, or apply it where cruise's own `is_there`, and then its status.

        Raises Conflict where somebody else has one of that name, or has changed cruise's; NotFoundError where this kind is
        not served; Refused, Throttled, Unavailable.
        """
        place = f"/apis/{VPA_API_VERSION}/namespaces/{quote(wanted.namespace)}/verticalpodautoscalers"
        path = f"{place}/{quote(wanted.name)}"
        document = build_vpa(wanted, self._update_mode)
        if is_there:
            await self._client.send("PATCH", path, document, content_type=APPLY, repeatable=True)
        else:
            # Not applied: that would join an object which somebody has made since.
            await self._client.send("POST", place, document)
        status = build_vpa_status(wanted, since)
        await self._client.send("PATCH", f"{path}/status", status, content_type=APPLY, repeatable=True)
