"""Reads and writes the policy objects of forms; the namespace of a ClusterRightsizingPolicy is empty."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cruise.adapters.kube.access import check_access
from cruise.adapters.kube.client import APPLY, KubernetesClient
from cruise.adapters.kube.kinds import get_policy_path
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.preflight import RequiredAccess
from cruise.domain.rightsizing_policies import POLICY_GROUP, RightsizingPolicy, get_policy_plural
from cruise.domain.written_policies import PolicyOwnership
from cruise.errors import NotFoundError

_SPEC = "f:spec"


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
    """Implements `interfaces.http.view.PolicyObjectPort`."""

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
