"""Find the workload of a pod, and decode annotations, labels and priority classes."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from sys import intern

from cruise.domain.annotations import NAMESPACE_NAME, WORKLOAD, is_read_by_decisions
from cruise.domain.autoscalers import get_foreign_api_group
from cruise.domain.cluster import Pod, WorkloadRef
from cruise.domain.run_to_completion_operators import LASTING_KINDS, find_workload_of_runs, is_storable_name
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import name_object_in_errors
from cruise.kube_json.objects.containers import SharedValues
from cruise.kube_json.wire.pod_json import OwnerReference
from cruise.kube_json.wire.storage_json import PriorityClassObject

_EMPTY: Mapping[str, str] = {}

OwnerKey = tuple[str, str, str]
"""Namespace, kind and name of a ReplicaSet or Job."""

INTERMEDIATE_KINDS = frozenset({"ReplicaSet", "Job"})
"""Controllers that usually have a controller."""

# The pod label with the hash of a ReplicaSet, and the kind of its controller.
_TEMPLATE_HASH_LABELS = (("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout"))


_DEPLOYMENT_CONFIG_LABEL = "deploymentconfig"

# Other API groups have kinds of these names, which must not be confused with Kubernetes' own.
_AMBIGUOUS_KINDS = INTERMEDIATE_KINDS | {"Node"}
# A CronJob's Job has its name and the scheduled minute since 1970.
_CRON_JOB_NAME = re.compile(r"(.+)-[0-9]{8}")


def is_foreign_api_group(api_version: str) -> bool:
    """Return whether an API version belongs to a group that is not Kubernetes' own; an empty one does not."""
    return bool(get_foreign_api_group(api_version))


def qualify_kind(api_version: str, kind: str) -> str:
    """Return the kind, with its API group if the name is ambiguous, as in kubectl: `Job.batch.volcano.sh`."""
    if kind not in _AMBIGUOUS_KINDS or not is_foreign_api_group(api_version):
        return kind
    return f"{kind}.{api_version.rpartition('/')[0]}"


@dataclass(frozen=True, slots=True)
class OwnerIndex:
    """Controllers of ReplicaSets and Jobs: None for one without a controller; unknown ones are absent.

    `cron_jobs` has namespaces and names of CronJobs.
    """

    controllers: Mapping[OwnerKey, WorkloadRef | None] = field(default_factory=dict)
    cron_jobs: Container[tuple[str, str]] = ()

    def find_workload(
        self,
        namespace: str,
        kind: str | None,
        name: str | None,
        labels: Mapping[str, str],
        annotations: Mapping[str, str] = _EMPTY,
        *,
        restarts: bool = True,
    ) -> WorkloadRef | None:
        """Return the workload of a pod with the controller `kind`/`name`; None for static and most bare pods.

        A pod that runs to completion belongs to what lasts beyond its run; `restarts`: its restartPolicy is Always.
        """
        if kind == "Node":
            return None
        owner = None if kind is None or name is None else self._find_topmost(namespace, kind, name, labels)
        if owner is not None and owner.kind in LASTING_KINDS:
            return owner
        found = find_workload_of_runs(
            None if owner is None else (owner.kind, owner.name),
            labels,
            annotations,
            stated=labels.get(WORKLOAD.name) or annotations.get(WORKLOAD.name, ""),
            restarts=restarts,
        )
        return None if found is None else WorkloadRef(*found)

    def find_workload_of(self, pod: Pod) -> WorkloadRef | None:
        """Return the workload of a decoded pod by the owners known now and the annotations kept in memory."""
        return self.find_workload(
            pod.namespace,
            pod.owner_kind,
            pod.owner_name,
            pod.labels,
            pod.annotations,
            restarts=pod.restart_policy == "Always",
        )

    def _find_topmost(self, namespace: str, kind: str, name: str, labels: Mapping[str, str]) -> WorkloadRef:
        """Return the topmost known controller of a pod with the controller `kind`/`name`.

        The pod's label names the DeploymentConfig of a ReplicationController. The name of an unknown ReplicaSet gives
        the Deployment by the pod's template hash, that of an unknown Job the existing CronJob.
        """
        if kind == "ReplicationController":
            return _find_deployment_config(name, labels)
        if kind in INTERMEDIATE_KINDS:
            key = (namespace, kind, name)
            if key in self.controllers:
                return self.controllers[key] or WorkloadRef(kind, name)
            if kind == "ReplicaSet":
                return _find_deployment_by_hash(name, labels)
            found = _CRON_JOB_NAME.fullmatch(name)
            if found is not None and (namespace, found[1]) in self.cron_jobs:
                return WorkloadRef("CronJob", found[1])
        return WorkloadRef(kind, name)


NO_OWNERS = OwnerIndex()


def _find_deployment_by_hash(replica_set: str, labels: Mapping[str, str]) -> WorkloadRef:
    for label, kind in _TEMPLATE_HASH_LABELS:
        suffix = f"-{labels.get(label, '')}"
        if len(suffix) > 1 and len(replica_set) > len(suffix) and replica_set.endswith(suffix):
            return WorkloadRef(kind, replica_set.removesuffix(suffix))
    return WorkloadRef("ReplicaSet", replica_set)


def _find_deployment_config(replication_controller: str, labels: Mapping[str, str]) -> WorkloadRef:
    """Return OpenShift's DeploymentConfig if the pod's label names it; each rollout has a ReplicationController."""
    config = labels.get(_DEPLOYMENT_CONFIG_LABEL, "")
    number = replication_controller.removeprefix(f"{config}-")
    if config and number != replication_controller and number.isdecimal():
        return WorkloadRef("DeploymentConfig", config)
    return WorkloadRef("ReplicationController", replication_controller)


def find_controller(references: tuple[OwnerReference, ...] | None) -> OwnerReference | None:
    """Return the owner that is the controller, if its names can be those of an object."""
    found = next((reference for reference in references or () if reference.controller), None)
    if found is None or (is_storable_name(f"{found.api_version}.{found.kind}") and is_storable_name(found.name)):
        return found
    return None


def read_pod_identity(kind: str | None, pod_name: str, node: str | None) -> str:
    """Return the identity of a pod within its workload: a StatefulSet's ordinal, a DaemonSet's node."""
    if kind == "DaemonSet":
        return node or ""
    if kind == "StatefulSet":
        ordinal = pod_name.rpartition("-")[2]
        return ordinal if ordinal.isdecimal() else ""
    return ""


# Annotations and labels.


def keep_read_annotations(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the annotations that decisions read."""
    if not annotations:
        return _EMPTY
    kept = {key: text for key, text in annotations.items() if is_read_by_decisions(key)}
    return kept or _EMPTY


def add_namespace_name_label(labels: Mapping[str, str] | None, namespace: str) -> Mapping[str, str]:
    """Return a namespace's labels with the name label that the API server adds."""
    return {NAMESPACE_NAME: namespace} | dict(labels or {})


@dataclass(frozen=True, slots=True)
class SharedStringMaps:
    """Shares equal maps of strings: replicas have equal labels and annotations."""

    _known: SharedValues[tuple[tuple[str, str], ...], Mapping[str, str]] = field(default_factory=SharedValues)

    def share_labels(self, labels: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the labels."""
        return self._share(labels) if labels else _EMPTY

    def share_annotations(self, annotations: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the annotations that decisions read."""
        kept = keep_read_annotations(annotations)
        return self._share(kept) if kept else kept

    def _share(self, entries: Mapping[str, str]) -> Mapping[str, str]:
        key = tuple(entries.items())
        known = self._known.get(key)
        if known is None:
            interned = tuple([(intern(name), intern(value)) for name, value in key])
            known = self._known.store(interned, dict(interned))
        return known


# Priority classes.

_NEVER = "Never"
_POLICIES = (_NEVER, "PreemptLowerPriority")


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass; the default applies to pods that name none."""

    name: str
    priority: int
    may_preempt: bool = True
    is_default: bool = False


SYSTEM_CLASSES = {
    name: PriorityClass(name, priority)
    for name, priority in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))
}
"""Classes of every cluster."""


def decode_priority_class(document: PriorityClassObject) -> PriorityClass:
    """Return a PriorityClass; BadInputError names class, place and fix."""
    name = document.metadata.name
    with name_object_in_errors("PriorityClass", None, name):
        preemption_allowed = read_preemption_policy(document.preemption_policy, "preemptionPolicy")
    return PriorityClass(intern(name), document.value, preemption_allowed, bool(document.global_default))


def read_preemption_policy(policy: str | None, place: str) -> bool:
    """Return whether a policy allows preemption; BadInputError names `place`."""
    if policy and policy not in _POLICIES:
        raise BadInputError(f'{place}: "{policy}" is not a policy; write one of {", ".join(_POLICIES)}')
    return policy != _NEVER


def find_priority_class(name: str, classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    """Return the class of a pod that states no priority: the named one, or the default for an empty name."""
    if name:
        return classes.get(name) or SYSTEM_CLASSES.get(name)
    # The API server uses the default with the lowest priority.
    defaults = [one for one in classes.values() if one.is_default]
    return min(defaults, key=lambda one: (one.priority, one.name), default=None)
