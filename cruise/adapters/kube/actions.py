"""The four writes to a cluster, each with preconditions, published recommendations, and policy objects.

| action | request | precondition |
|---|---|---|
| resize | strategic merge on `pods/resize` | the pod's uid and resourceVersion, in the patch |
| evict | Eviction | the pod's uid and resourceVersion |
| taint, untaint | merge patch of all taints | the node's resourceVersion |

`responses.ERROR_MAPPINGS` has the rejections of the server.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, assert_never
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.access import check_access
from cruise.adapters.kube.client import APPLY, MERGE_PATCH, STRATEGIC_MERGE, KubernetesClient
from cruise.adapters.kube.kinds import get_policy_path
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.actions import Action, EvictPod, ResizePod, TaintNode, UntaintNode
from cruise.domain.preflight import RequiredAccess
from cruise.domain.records import WorkloadRecommendation
from cruise.domain.rightsizing_policies import POLICY_GROUP, PolicyStatus, RightsizingPolicy, get_policy_plural
from cruise.domain.scheduling import Taint
from cruise.domain.written_policies import PolicyOwnership
from cruise.errors import ConflictError, NotFoundError
from cruise.kube_json.objects.rightsizing_policies import build_policy_status
from cruise.kube_json.patches import VPA_API_VERSION, JsonObject, build_resize_patch, build_vpa, build_vpa_status

# Kubelets and controllers change other parts of nodes all the time.
_TAINT_ATTEMPTS = 5
_SPEC = "f:spec"


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


class _ManagedFields(msgspec.Struct, frozen=True, rename="camel"):
    manager: str = ""
    fields_v1: dict[str, Any] = msgspec.field(default_factory=dict, name="fieldsV1")


class _PolicyMetadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    resource_version: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    managed_fields: tuple[_ManagedFields, ...] = ()


class _StoredPolicy(msgspec.Struct, frozen=True):
    metadata: _PolicyMetadata


class PolicyObjectWriter:
    """Implements `interfaces.http.view.PolicyObjectPort`; the namespace of a ClusterRightsizingPolicy is empty."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    async def list_missing_access(self, namespace: str, verbs: tuple[str, ...]) -> list[str]:
        """Return which of the verbs cruise itself lacks. Raises RefusedError, ThrottledError, UnavailableError."""
        plural = get_policy_plural(namespace)
        needed = [RequiredAccess(verb, plural, POLICY_GROUP, namespace=namespace) for verb in verbs]
        allowed = await check_access(self._client, needed)
        return [one.verb for one, is_allowed in zip(needed, allowed, strict=True) if not is_allowed]

    async def read_ownership(self, namespace: str, name: str) -> PolicyOwnership | None:
        """Return who maintains a policy, None if there is none. Raises RefusedError and UnavailableError."""
        try:
            answer = await self._client.get(get_policy_path(namespace, name))
        except NotFoundError:
            return None
        found = decode_answer(answer, _StoredPolicy, RightsizingPolicy(namespace, name).title).metadata
        managers = frozenset(one.manager for one in found.managed_fields if _SPEC in one.fields_v1)
        return PolicyOwnership(found.uid, found.resource_version, {**found.annotations, **found.labels}, managers)

    async def apply(
        self, namespace: str, name: str, document: Mapping[str, Any], before: PolicyOwnership | None
    ) -> None:
        """Apply a policy, unless it changed since it was read; fields of other managers are not taken over.

        Raises ConflictError, NotFoundError if the kind is not served, RefusedError, ThrottledError, UnavailableError.
        """
        if before is not None:
            metadata = {**document["metadata"], **_build_preconditions(before)}
            document = {**document, "metadata": metadata}
        path = get_policy_path(namespace, name)
        await self._client.send("PATCH", path, document, content_type=APPLY, repeatable=before is None)

    async def delete(self, namespace: str, name: str, before: PolicyOwnership) -> None:
        """Delete a policy, unless it changed since it was read. Raises as `apply` does."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": _build_preconditions(before)}
        await self._client.send("DELETE", get_policy_path(namespace, name), options)


def _build_preconditions(before: PolicyOwnership) -> Mapping[str, str]:
    return {"uid": before.uid, "resourceVersion": before.resource_version}
