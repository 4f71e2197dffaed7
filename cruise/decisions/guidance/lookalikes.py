"""Workloads of one kind and name that belong to different API groups: statistics do not tell them apart."""

from cruise.domain.api_groups import foreign_group
from cruise.domain.cluster import Snapshot, WorkloadRef


def lookalikes(snapshot: Snapshot) -> frozenset[tuple[str, WorkloadRef]]:
    """Return the namespaces and workloads that stand for several, by who controls their pods and what is listed."""
    groups: dict[tuple[str, WorkloadRef], set[str]] = {}
    for pod in snapshot.pods:
        if pod.owner_group and pod.workload is not None:
            groups.setdefault((pod.namespace, pod.workload), set()).add(pod.owner_group)
    if not groups:
        return frozenset()
    for key in groups.keys() & snapshot.workloads.keys():
        groups[key].add(foreign_group(snapshot.workloads[key].api_version))
    for pod in snapshot.pods:
        if not pod.owner_group and pod.workload is not None and (pod.namespace, pod.workload) in groups:
            groups[pod.namespace, pod.workload].add("")
    return frozenset(key for key, found in groups.items() if len(found) > 1)
