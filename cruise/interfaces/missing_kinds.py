"""Kinds of objects that a snapshot file does not have, and what is therefore not judged."""

from collections.abc import Iterator

from cruise.domain.cluster import Snapshot

# What is judged by objects that any cluster may have, by kind: the name that kubectl prints them by, and what it is.
_OF_ANY_CLUSTER = {
    "PodDisruptionBudget": ("poddisruptionbudgets", "disruption budgets"),
    "HorizontalPodAutoscaler": ("horizontalpodautoscalers", "HPAs"),
    "LimitRange": ("limitranges", "LimitRanges"),
    "ResourceQuota": ("resourcequotas", "quotas"),
    "Namespace": ("namespaces", "annotations and labels of namespaces"),
}
_OF_OWNERS = {
    "ReplicaSet": "replicasets",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
    "CronJob": "cronjobs",
}
_OF_VOLUMES = {
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PersistentVolume": "persistentvolumes",
    "StorageClass": "storageclasses",
    "CSINode": "csinodes",
}


def missing_kinds_words(snapshot: Snapshot, file: str) -> str:
    """Say in one line which kinds a file lacks that matter for its pods; empty where it lacks none."""
    if snapshot.listed_kinds is None:
        return ""
    missing = dict(_missing(snapshot, snapshot.listed_kinds))
    if not missing:
        return ""
    subjects = ", ".join(dict.fromkeys(missing.values()))
    return f"{file} has no {', '.join(missing)}: {subjects} are not judged; if there are any, print them too"


def _missing(snapshot: Snapshot, listed: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the name of each kind that is missing, and what it is about."""
    for kind, (name, about) in _OF_ANY_CLUSTER.items():
        if kind not in listed:
            yield name, about
    owners = {pod.owner_kind for pod in snapshot.pods}
    owners |= {pod.workload.kind for pod in snapshot.pods if pod.workload is not None}
    for kind, name in _OF_OWNERS.items():
        if kind in owners and kind not in listed:
            yield name, "annotations and templates of workloads"
    if any(pod.constraints.claims for pod in snapshot.pods):
        for kind, name in _OF_VOLUMES.items():
            if kind not in listed:
                yield name, "volumes"
