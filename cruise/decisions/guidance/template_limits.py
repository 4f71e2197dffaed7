"""What a pod template states as memory limits, whatever cruise has made of them on the pod since."""

import json
from collections.abc import Mapping
from functools import lru_cache

from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Pod, Snapshot, WorkloadRef
from cruise.domain.quantity import QuantityError, parse_memory_bytes


def template_limits_of(pod: Pod, snapshot: Snapshot) -> Mapping[str, int] | None:
    """Return the memory limits that a pod's template states, by container; None where that is not known.

    The template itself says so where its kind is read. Only for others does the annotation count that admission left:
    whoever may write it into a template may as well write the limit there.
    """
    limits = None if pod.workload is None else workload_limits_of(pod.namespace, pod.workload, snapshot)
    return noted_limits_of(pod) if limits is None else limits


def workload_limits_of(namespace: str, ref: WorkloadRef, snapshot: Snapshot) -> Mapping[str, int] | None:
    """Return what a workload's own template states; None where it is not known."""
    workload = snapshot.workloads.get((namespace, ref))
    return None if workload is None else workload.memory_limits


def noted_limits_of(pod: Pod) -> Mapping[str, int] | None:
    """Return what admission noted on a pod; None where that is nothing, or cannot be read."""
    noted = pod.annotations.get(ORIGINAL_RESOURCES)
    return None if noted is None else _noted_limits(noted)


# The pods of a workload have the same text.
@lru_cache(maxsize=4096)
def _noted_limits(text: str) -> Mapping[str, int] | None:
    """Read the memory limits of the annotation; None where it cannot be read, or names no container."""
    try:
        containers = json.loads(text)
        limits = {name: one.get("limits", {}).get("memory") for name, one in containers.items()}
        found = {name: parse_memory_bytes(limit) for name, limit in limits.items() if limit is not None}
    except (ValueError, AttributeError, TypeError, QuantityError):
        return None
    return found if limits else None
