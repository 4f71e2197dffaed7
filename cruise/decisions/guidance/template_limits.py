"""What a pod template states as memory limits, whatever cruise has made of them on the pod since."""

from collections.abc import Mapping

from cruise.domain.cluster import Pod, Snapshot, WorkloadRef
from cruise.domain.revisions import originals_of


def template_limits_of(pod: Pod, snapshot: Snapshot) -> Mapping[str, int] | None:
    """Return the memory limits that a pod's template states, by container; None where that is not known.

    The template itself says so where its kind is read. Only for others does the annotation count that admission left:
    who may write it into a template may as well write the limit there.
    """
    limits = None if pod.workload is None else workload_limits_of(pod.namespace, pod.workload, snapshot)
    return noted_limits_of(pod) if limits is None else limits


def workload_limits_of(namespace: str, ref: WorkloadRef, snapshot: Snapshot) -> Mapping[str, int] | None:
    """Return what a workload's own template states; None where it is not known."""
    workload = snapshot.workloads.get((namespace, ref))
    return None if workload is None else workload.memory_limits


def noted_limits_of(pod: Pod) -> Mapping[str, int] | None:
    """Return what admission noted on a pod; None where that is nothing, or cannot be read."""
    noted = originals_of(pod)
    if not noted:
        return None
    limits = {name: limits.memory_bytes for name, (_, limits) in noted.items()}
    return {name: limit for name, limit in limits.items() if limit is not None}
