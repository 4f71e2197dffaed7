"""The annotations of a pod that are overrides."""

from collections.abc import Mapping

from cruise.domain.annotations import is_override
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.run_operators import WORKLOAD_GROUP

Annotations = tuple[tuple[str, str], ...]


def select_overrides(pod: Pod, snapshot: ClusterSnapshot) -> Annotations:
    """Return a pod's overrides, without the records that admission leaves on every pod."""
    annotations = _add_job_annotations(pod, snapshot) if pod.owner_kind == "Job" else pod.annotations
    return tuple(sorted(item for item in annotations.items() if is_override(item[0]))) if annotations else ()


def _add_job_annotations(pod: Pod, snapshot: ClusterSnapshot) -> Mapping[str, str]:
    """Return the annotations of a pod and of its Job, if the pod belongs to another workload that users named."""
    if pod.workload is None or pod.workload.kind != WORKLOAD_GROUP:
        return pod.annotations
    found = snapshot.workloads.get((pod.namespace, WorkloadRef("Job", pod.owner_name or "")))
    return pod.annotations if found is None else {**found.annotations, **pod.annotations}
