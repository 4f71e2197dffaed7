"""From a pod's direct owner to the topmost controller: the workload that usage and overrides belong to."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from sys import intern

from cruise.domain.annotations import NAMESPACE_NAME, is_read_by_decisions
from cruise.domain.cluster import WorkloadRef
from cruise.domain.cluster_policies import get_foreign_group
from cruise.errors import BadInputError
from cruise.kube_json.objects.containers import SharedValues
from cruise.kube_json.refusals import name_object_in_errors
from cruise.kube_json.wire.pod_json import OwnerReference
from cruise.kube_json.wire.storage_json import PriorityClassObject

OwnerKey = tuple[str, str, str]
"""Namespace, kind and name of a ReplicaSet or Job."""

INTERMEDIATE_KINDS = frozenset({"ReplicaSet", "Job"})
"""Controllers that are usually controlled themselves."""

# The label by which a controller distinguishes its ReplicaSets' pods, and the controller's kind.
_TEMPLATE_HASH_LABELS = (("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout"))


_DEPLOYMENT_CONFIG_LABEL = "deploymentconfig"

# Of these kinds other API groups have lookalikes: what is looked up, or concluded, is about Kubernetes' own alone.
_NOT_TO_BE_MISTAKEN = INTERMEDIATE_KINDS | {"Node"}
# A CronJob's Jobs have its name and the minute that they were due, since 1970.
_OF_CRON_JOB = re.compile(r"(.+)-[0-9]{8}")


def is_foreign_api_group(api_version: str) -> bool:
    """Tell whether an API version is of a group that is not Kubernetes' own; one that is not stated is."""
    return bool(get_foreign_group(api_version))


def qualify_kind(api_version: str, kind: str) -> str:
    """Return a kind, that of a lookalike with its API group as kubectl writes it: `Job.batch.volcano.sh`."""
    if kind not in _NOT_TO_BE_MISTAKEN or not is_foreign_api_group(api_version):
        return kind
    return f"{kind}.{api_version.rpartition('/')[0]}"


@dataclass(frozen=True, slots=True)
class OwnerIndex:
    """The controllers of ReplicaSets and Jobs: None for one without any, no entry for one that was not seen.

    `cron_jobs` has the namespaces and names of the CronJobs.
    """

    controllers: Mapping[OwnerKey, WorkloadRef | None] = field(default_factory=dict)
    cron_jobs: Container[tuple[str, str]] = ()

    def find_workload(
        self, namespace: str, kind: str | None, name: str | None, labels: Mapping[str, str]
    ) -> WorkloadRef | None:
        """Return the workload of a pod whose controller is `kind`/`name`; None for bare and static pods.

        Of a ReplicationController the pod's label tells the DeploymentConfig. Where a ReplicaSet was not seen, the
        pod's template hash gives the Deployment's name; where a Job was not, its own name that of a CronJob which is
        there.
        """
        if kind is None or name is None or kind == "Node":
            return None
        if kind == "ReplicationController":
            return _of_deployment_config(name, labels)
        if kind in INTERMEDIATE_KINDS:
            key = (namespace, kind, name)
            if key in self.controllers:
                return self.controllers[key] or WorkloadRef(kind, name)
            if kind == "ReplicaSet":
                return _by_template_hash(name, labels)
            found = _OF_CRON_JOB.fullmatch(name)
            if found is not None and (namespace, found[1]) in self.cron_jobs:
                return WorkloadRef("CronJob", found[1])
        return WorkloadRef(kind, name)


NO_OWNERS = OwnerIndex()


def _by_template_hash(replica_set: str, labels: Mapping[str, str]) -> WorkloadRef:
    for label, kind in _TEMPLATE_HASH_LABELS:
        suffix = f"-{labels.get(label, '')}"
        if len(suffix) > 1 and len(replica_set) > len(suffix) and replica_set.endswith(suffix):
            return WorkloadRef(kind, replica_set.removesuffix(suffix))
    return WorkloadRef("ReplicaSet", replica_set)


def _of_deployment_config(replication_controller: str, labels: Mapping[str, str]) -> WorkloadRef:
    """Return OpenShift's DeploymentConfig where a pod's label names it: each rollout has its ReplicationController."""
    config = labels.get(_DEPLOYMENT_CONFIG_LABEL, "")
    number = replication_controller.removeprefix(f"{config}-")
    if config and number != replication_controller and number.isdecimal():
        return WorkloadRef("DeploymentConfig", config)
    return WorkloadRef("ReplicationController", replication_controller)


def find_controller(references: tuple[OwnerReference, ...] | None) -> OwnerReference | None:
    """Return the owner that controls an object."""
    return next((reference for reference in references or () if reference.controller), None)


def read_pod_identity(kind: str | None, pod_name: str, node: str | None) -> str:
    """Return what identifies a pod among those of its workload: a StatefulSet's ordinal, a DaemonSet's node."""
    if kind == "DaemonSet":
        return node or ""
    if kind == "StatefulSet":
        ordinal = pod_name.rpartition("-")[2]
        return ordinal if ordinal.isdecimal() else ""
    return ""


# Annotations and labels: trimmed to what decisions read, equal maps shared.

_NOTHING: Mapping[str, str] = {}


def keep_read_annotations(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the annotations that decisions read."""
    if not annotations:
        return _NOTHING
    kept = {key: text for key, text in annotations.items() if is_read_by_decisions(key)}
    return kept or _NOTHING


def add_namespace_name_label(labels: Mapping[str, str] | None, namespace: str) -> Mapping[str, str]:
    """Return a namespace's labels with the one that the API server gives to each."""
    return {NAMESPACE_NAME: namespace} | dict(labels or {})


@dataclass(frozen=True, slots=True)
class SharedStringMaps:
    """Keeps one copy of equal maps of strings: replicas share their labels and annotations."""

    _known: SharedValues[tuple[tuple[str, str], ...], Mapping[str, str]] = field(default_factory=SharedValues)

    def labels(self, labels: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the labels as they are."""
        return self._shared(labels) if labels else _NOTHING

    def annotations(self, annotations: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the annotations that decisions read."""
        kept = keep_read_annotations(annotations)
        return self._shared(kept) if kept else kept

    def _shared(self, entries: Mapping[str, str]) -> Mapping[str, str]:
        key = tuple(entries.items())
        known = self._known.get(key)
        if known is None:
            interned = tuple([(intern(name), intern(value)) for name, value in key])
            known = self._known.store(interned, dict(interned))
        return known


# Priority classes, and what they give to pods that state no priority.

_NEVER = "Never"
_POLICIES = (_NEVER, "PreemptLowerPriority")


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A priority, and whether pods of it preempt others; the default is for pods that name no class."""

    name: str
    priority: int
    preempts: bool = True
    is_default: bool = False


SYSTEM_CLASSES = {
    name: PriorityClass(name, priority)
    for name, priority in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))
}
"""Classes that every cluster has."""


def decode_priority_class(document: PriorityClassObject) -> PriorityClass:
    """Return a priority class. Raises BadInputError that names class, place and fix."""
    name = document.metadata.name
    with name_object_in_errors("PriorityClass", None, name):
        preempts = read_preemption_policy(document.preemption_policy, "preemptionPolicy")
    return PriorityClass(intern(name), document.value, preempts, bool(document.global_default))


def read_preemption_policy(policy: str | None, place: str) -> bool:
    """Tell whether a policy lets a pod preempt. Raises BadInputError that names `place`."""
    if policy and policy not in _POLICIES:
        raise BadInputError(f'{place}: "{policy}" is no policy; write one of {", ".join(_POLICIES)}')
    return policy != _NEVER


def find_priority_class(name: str, classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """Return the class of a pod that states no priority: the one that it names, for an empty name the default."""
    if name:
        return classes.get(name) or SYSTEM_CLASSES.get(name)
    # Of several defaults the API server takes the one with the lowest priority.
    defaults = [one for one in classes.values() if one.is_default]
    return min(defaults, key=lambda one: (one.priority, one.name), default=None)
