"""Which namespaces are sized: those that settings list and select, except the excluded ones."""

from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Policy


def explain_skipped_namespace(namespace: str, snapshot: ClusterSnapshot, policy: Policy) -> ReasonCode | None:
    """Return why the pods of a namespace are skipped, None if settings include it."""
    if policy.excludes_namespace(namespace):
        return ReasonCode.EXCLUDED_NAMESPACE
    labels = snapshot.storage_and_namespaces.namespace_labels.get(namespace, {})
    return None if policy.includes_namespace(namespace, labels) else ReasonCode.NAMESPACE_NOT_INCLUDED
