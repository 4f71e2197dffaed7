"""From a pod's direct owner to the topmost controller: the workload that usage and overrides belong to."""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from cruise.domain.api_groups import foreign_group
from cruise.domain.cluster import WorkloadRef
from cruise.kube_json.wire.pod_json import OwnerReference

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


def is_of_another(api_version: str) -> bool:
    """Tell whether an API version is of a group that is not Kubernetes' own; one that is not stated is."""
    return bool(foreign_group(api_version))


def kind_in(api_version: str, kind: str) -> str:
    """Return a kind, that of a lookalike with its API group as kubectl writes it: `Job.batch.volcano.sh`."""
    if kind not in _NOT_TO_BE_MISTAKEN or not is_of_another(api_version):
        return kind
    return f"{kind}.{api_version.rpartition('/')[0]}"


@dataclass(frozen=True, slots=True)
class Owners:
    """The controllers of ReplicaSets and Jobs: None for one without any, no entry for one that was not seen.

    `cron_jobs` has the namespaces and names of the CronJobs.
    """

    controllers: Mapping[OwnerKey, WorkloadRef | None] = field(default_factory=dict)
    cron_jobs: Container[tuple[str, str]] = ()

    def workload_of(
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


NO_OWNERS = Owners()


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
