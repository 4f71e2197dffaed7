"""The four writes to a cluster, each with preconditions, published recommendations, and statuses of policies.

| action | request | precondition |
|---|---|---|
| resize | strategic merge on `pods/resize` | the pod's uid and resourceVersion, in the patch |
| evict | Eviction | the pod's uid and resourceVersion |
| taint, untaint | merge patch of all taints | the node's resourceVersion |

`responses.ERROR_MAPPINGS` has the rejections of the server.
"""

from datetime import datetime
from typing import assert_never
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.client import APPLY, MERGE_PATCH, STRATEGIC_MERGE, KubernetesClient
from cruise.adapters.kube.kinds import get_policy_path
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.actions import Action, EvictPod, ResizePod, TaintNode, UntaintNode
from cruise.domain.records import WorkloadRecommendation
from cruise.domain.rightsizing_policies import PolicyStatus, RightsizingPolicy
from cruise.domain.scheduling import Taint
from cruise.errors import ConflictError
from cruise.kube_json.patches import VPA_API_VERSION, JsonObject, build_resize_patch, build_vpa, build_vpa_status
from cruise.kube_json.policy_documents import build_policy_status

# Kubelets and controllers change other parts of nodes all the time.
_TAINT_ATTEMPTS = 5


async def perform_action(client: KubernetesClient, action: Action) -> None:
    """Send one action, whose turn under the rate limit the writer has waited for.

    Raises ConflictError, NotFoundError, RefusedError, ThrottledError and UnavailableError.
    """
    match action:
        case ResizePod():
            path = f"{_pod_path(action.namespace, action.pod)}/resize"
            # The patch is idempotent. With a resourceVersion, a repetition would be a conflict, which would hide that
            # the first one succeeded.
            repeatable = not action.resource_version
            await client.send(
                "PATCH",
                path,
                build_resize_patch(action),
                content_type=STRATEGIC_MERGE,
                repeatable=repeatable,
                urgent=True,
            )
        case EvictPod():
            # Never repeated: the second answer would be NotFound, as if another client had deleted the pod.
            path = f"{_pod_path(action.namespace, action.pod)}/eviction"
            await client.send("POST", path, _build_eviction(action), urgent=True)
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


async def _set_taint(client: KubernetesClient, name: str, taint: Taint, *, wanted: bool) -> None:
    """Add or remove a taint, and keep the taints that others set meanwhile."""
    path = f"/api/v1/nodes/{quote(name)}"
    for attempt in range(_TAINT_ATTEMPTS):
        node = decode_answer(await client.get(path), _TaintedNode, f"Node {name}")
        taints = node.spec.taints or ()
        others = [one for one in taints if (one.get("key"), one.get("effect")) != (taint.key, taint.effect.value)]
        if (len(others) < len(taints)) == wanted:
            return
        added: JsonObject = {"key": taint.key, "value": taint.value, "effect": taint.effect.value}
        patch = {
            "metadata": {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version},
            "spec": {"taints": [*others, added] if wanted else others or None},
        }
        try:
            await client.send("PATCH", path, patch, content_type=MERGE_PATCH, urgent=True)
        except ConflictError:
            if attempt + 1 == _TAINT_ATTEMPTS:
                raise
        else:
            return


def _build_eviction(action: EvictPod) -> JsonObject:
    preconditions = {"uid": action.uid} | (
        {"resourceVersion": action.resource_version} if action.resource_version else {}
    )
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": action.namespace, "name": action.pod},
        "deleteOptions": {"preconditions": preconditions},
    }


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"


class VpaPublisher:
    """Publishes recommendations as VerticalPodAutoscalers with an `update_mode`."""

    def __init__(self, client: KubernetesClient, update_mode: str) -> None:
        self._client = client
        self._update_mode = update_mode

    async def wait_for_write_turn(self) -> None:
        """Wait for the rate limit of the object's write."""
        await self._client.wait_for_turn()

    async def publish(self, recommendation: WorkloadRecommendation, since: datetime, *, exists: bool) -> None:
        """Create the object, or apply it if cruise's own `exists`, and then its status.

        Raises ConflictError if another client owns the object or changed it, NotFoundError if the kind is not served,
        RefusedError, ThrottledError and UnavailableError.
        """
        collection = f"/apis/{VPA_API_VERSION}/namespaces/{quote(recommendation.namespace)}/verticalpodautoscalers"
        path = f"{collection}/{quote(recommendation.name)}"
        document = build_vpa(recommendation, self._update_mode)
        if exists:
            await self._client.send("PATCH", path, document, content_type=APPLY, repeatable=True, urgent=True)
        else:
            # Not applied: apply would take over an object that another client created meanwhile.
            await self._client.send("POST", collection, document, urgent=True)
        status = build_vpa_status(recommendation, since)
        await self._client.send("PATCH", f"{path}/status", status, content_type=APPLY, repeatable=True)


class PolicyStatusWriter:
    """Writes the status of policy objects."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    async def write_status(self, policy: RightsizingPolicy, status: PolicyStatus, now: datetime) -> None:
        """Apply one policy's status, with its uid as precondition.

        Raises ConflictError, NotFoundError, RefusedError, ThrottledError and UnavailableError.
        """
        document = build_policy_status(policy, status, now)
        path = f"{get_policy_path(policy.namespace, policy.name)}/status"
        await self._client.send("PATCH", path, document, content_type=APPLY, repeatable=True)
