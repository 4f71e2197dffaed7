"""What the pods of DaemonSets take of a node, also of one that is yet to come."""

from collections.abc import Mapping

from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.usage import StatisticsTable


def belongs_to_node(pod: Pod) -> bool:
    """Tell whether a pod is there for its node's sake, so that it does not keep the node in use."""
    return pod.mirror or pod.owner_kind == "DaemonSet"


def daemon_requests(snapshot: Snapshot, statistics: StatisticsTable) -> Mapping[tuple[str, str], Resources]:
    """Return what a pod of each DaemonSet may come to ask for, by namespace and workload.

    For each container that is what its template states, or the largest peak that was seen on any node: a node
    autoscaler takes the pods of one node as what the next will have.
    """
    found: dict[tuple[str, str], dict[str, Resources]] = {
        (namespace, str(ref)): {name: one.resources for name, one in (workload.requests or {}).items()}
        for (namespace, ref), workload in snapshot.workloads.items()
        if ref.kind == "DaemonSet"
    }
    for key, row in statistics.row_of_workload.items() if found else ():
        containers = found.get((key.namespace, key.workload))
        if containers is not None:
            peak = Resources(int(statistics.cpu_peak_millicores[row]), int(statistics.memory_peak_bytes[row]))
            containers[key.container] = containers.get(key.container, NO_RESOURCES).at_least(peak)
    return {key: sum(containers.values(), NO_RESOURCES) for key, containers in found.items()}
