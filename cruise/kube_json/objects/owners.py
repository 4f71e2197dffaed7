"""From a pod's direct owner to the topmost controller: the workload that usage and overrides belong to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cruise.domain.cluster import WorkloadRef
from cruise.kube_json.wire.pod_json import OwnerReference

OwnerKey = tuple[str, str, str]
"""Namespace, kind and name of a ReplicaSet or Job."""

INTERMEDIATE_KINDS = frozenset({"ReplicaSet", "Job"})
"""Controllers that are usually controlled themselves."""

# The label by which a controller distinguishes its ReplicaSets' pods, and the controller's kind.
_TEMPLATE_HASH_LABELS = (("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout"))


@dataclass(frozen=True, slots=True)
class Owners:
    """The controllers of ReplicaSets and Jobs: None for one without any, no entry for one that was not seen."""

    controllers: Mapping[OwnerKey, WorkloadRef | None] = field(default_factory=dict)

    def workload_of(
        self, namespace: str, kind: str | None, name: str | None, labels: Mapping[str, str]
    ) -> WorkloadRef | None:
        """Return the workload of a pod whose controller is `kind`/`name`; None for bare and static pods.

        Where a ReplicaSet was not seen, the pod's template hash gives the Deployment's name.
        """
        if kind is None or name is None or kind == "Node":
            return None
        if kind in INTERMEDIATE_KINDS:
            key = (namespace, kind, name)
            if key in self.controllers:
                return self.controllers[key] or WorkloadRef(kind, name)
            if kind == "ReplicaSet":
                return _by_template_hash(name, labels)
        return WorkloadRef(kind, name)


NO_OWNERS = Owners()


def _by_template_hash(replica_set: str, labels: Mapping[str, str]) -> WorkloadRef:
    for label, kind in _TEMPLATE_HASH_LABELS:
        suffix = f"-{labels.get(label, '')}"
        if len(suffix) > 1 and len(replica_set) > len(suffix) and replica_set.endswith(suffix):
            return WorkloadRef(kind, replica_set.removesuffix(suffix))
    return WorkloadRef("ReplicaSet", replica_set)


def controller_of(references: tuple[OwnerReference, ...] | None) -> OwnerReference | None:
    """Return the owner that controls an object."""
    return next((reference for reference in references or () if reference.controller), None)


def identity_of(kind: str | None, pod_name: str, node: str | None) -> str:
    """Return what identifies a pod among those of its workload: a StatefulSet's ordinal, a DaemonSet's node."""
    if kind == "DaemonSet":
        return node or ""
    if kind == "StatefulSet":
        ordinal = pod_name.rpartition("-")[2]
        return ordinal if ordinal.isdecimal() else ""
    return ""
