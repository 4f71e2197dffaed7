"""Floors of heaps in columns."""

from collections.abc import Mapping, Sequence

import numpy as np

from cruise.decisions.pod_policy.heap_floors import HeapFloor, compute_running_heap_floor
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.sizing.pod_level_containers import PodLevelContainers
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Container, QosClass
from cruise.domain.policy import Policy

HeapRow = tuple[int, Container, HeapFloor]


def find_heap_floors(
    pods: Sequence[ResizablePod], pod_level: Mapping[int, PodLevelContainers], first: Int64Array, policy: Policy
) -> list[HeapRow]:
    """Return the containers with a bound of their heap, and pods with pod-level resources, with their index."""
    found = [(int(first[index]), pods[index].sized[0], one.get_heap_floor()) for index, one in pod_level.items()]
    at = 0
    # Replicas share their containers.
    known: dict[tuple[int, QosClass], HeapFloor] = {}
    for pod in pods:
        for container in pod.sized:
            if container.heap is not None:
                key = (id(container), pod.pod.qos)
                floor = known.get(key)
                if floor is None:
                    floor = known[key] = compute_running_heap_floor(container, pod.pod.qos, policy)
                found.append((at, container, floor))
            at += 1
    return found


def apply_heap_floors(
    found: Sequence[HeapRow], minimums: Sequence[Int64Array], maximum: Int64Array, adds_limit: BoolArray
) -> Int64Array:
    """Raise the `minimums` of memory requests in place, at most to the present ones, and return the limits' floors.

    `adds_limit`, also changed in place, marks containers without a memory limit that get one.
    """
    limits = np.zeros_like(maximum)
    if found:
        rows = [at for at, _, _ in found]
        limits[rows] = [floor.limit_bytes for _, _, floor in found]
        adds_limit[rows] &= [floor.may_add_limit for _, _, floor in found]
        requests = [min(floor.request_bytes, container.requests.memory_bytes or 0) for _, container, floor in found]
        for values in minimums:
            values[rows] = np.maximum(values[rows], np.minimum(requests, maximum[rows]))
    return limits
