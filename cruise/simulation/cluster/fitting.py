"""Which nodes have room for a pod, and how kube-scheduler scores them: arrays with one entry a node."""

import numpy as np

from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.resources import Resources
from cruise.simulation.cluster.state import DEFAULT_SCORED


def has_room(
    pods_left: Int64Array, free_cpu_millicores: Int64Array, free_memory_bytes: Int64Array, need: Resources
) -> BoolArray:
    """Tell which nodes pass NodeResourcesFit for CPU, memory and the number of pods.

    As in kube-scheduler, a pod that requests nothing of a resource is not kept out by its shortage.
    """
    fits: BoolArray = pods_left > 0
    if need.cpu_millicores:
        fits &= free_cpu_millicores >= need.cpu_millicores
    if need.memory_bytes:
        fits &= free_memory_bytes >= need.memory_bytes
    return fits


def as_scored(need: Resources) -> Resources:
    """Return what the scores, not the filters, take a container for: a default of what it does not request."""
    return Resources(
        need.cpu_millicores or DEFAULT_SCORED.cpu_millicores, need.memory_bytes or DEFAULT_SCORED.memory_bytes
    )


def least_allocated(
    allocatable_cpu: Int64Array | int,
    scored_cpu: Int64Array,
    allocatable_memory: Int64Array | int,
    scored_memory: Int64Array,
) -> Int64Array:
    """Return LeastAllocated: the mean free share of CPU and memory with the pod on board, 0 to 100, whole."""
    return (_free_share(allocatable_cpu, scored_cpu) + _free_share(allocatable_memory, scored_memory)) // 2


def _free_share(allocatable: Int64Array | int, used: Int64Array) -> Int64Array:
    free = np.maximum(allocatable - used, 0) * 100
    share: Int64Array = free // np.maximum(allocatable, 1)
    return share
