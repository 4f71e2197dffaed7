"""What a container's heap may need: its memory is not cut below that, whatever it uses now.

A process reads the bound of its heap once, at its start. So the limit of a running container whose heap is a share of
its limit stays, and that of a new one leaves the heap at least the largest known use.
"""

import math
from typing import NamedTuple

from cruise.domain.arrays import UNBOUNDED
from cruise.domain.cluster import Container, QosClass
from cruise.domain.heaps import HeapBound, HeapRuntime
from cruise.domain.policy import HeapBoundPolicy, Policy
from cruise.domain.resources import round_up_to_mebibytes


class HeapFloor(NamedTuple):
    """What memory is not cut below, in bytes; a smaller request or limit stays.

    `may_add_limit`: whether a container without a limit may get one: it would reduce a heap that is a share of it. A
    request that grows is not cut again up to `kept_request_bytes`: the floor of a heap that is a share of it grows too.
    """

    request_bytes: int = 0
    limit_bytes: int = 0
    may_add_limit: bool = True
    kept_request_bytes: int = 0


NO_HEAP_FLOOR = HeapFloor()


def get_heap_bound(container: Container, policy: Policy) -> HeapBound | None:
    """Return the bound of a container's heap, None if there is none or settings ignore it."""
    applies = policy.rules.heap_bounds and policy.heap_bounds is not HeapBoundPolicy.IGNORE
    return container.heap if applies else None


def compute_running_heap_floor(container: Container, qos: QosClass, policy: Policy) -> HeapFloor:
    """Return the floor of a running container; its limit at the start may have been smaller than the present one."""
    heap = get_heap_bound(container, policy)
    if heap is None:
        return NO_HEAP_FLOOR
    memory = compute_heap_memory(heap, container)
    limit = UNBOUNDED if heap.follows_size else memory
    request = _get_request_floor(heap, memory, limit, qos, policy)
    kept_request = UNBOUNDED if request and heap.follows_size else request
    return HeapFloor(request, limit, not heap.follows_size, kept_request)


def compute_created_heap_floor(container: Container, known_use: int, qos: QosClass, policy: Policy) -> HeapFloor:
    """Return the floor of a container in creation, given the largest known use of its workload.

    The request's is for the container's present limit.
    """
    heap = get_heap_bound(container, policy)
    if heap is None:
        return NO_HEAP_FLOOR
    limit = compute_min_limit_for_heap(heap, known_use) if heap.is_known else UNBOUNDED
    memory = compute_heap_memory(heap, container)
    request = _get_request_floor(heap, memory, limit, qos, policy)
    if heap.request_share:
        request = max(request, math.ceil(known_use / heap.request_share))
    return HeapFloor(request, limit, not heap.follows_size)


def compute_heap_memory(heap: HeapBound, container: Container) -> int:
    """Return what the process of a container may take with the container's present limit and request; 0 if unknown."""
    return heap.compute_memory(container.limits.memory_bytes or 0, container.requests.memory_bytes or 0)


def compute_heap_excess_over_limit(heap: HeapBound, container: Container) -> int:
    """Return what a process may take if that is more than its container's memory limit, else 0.

    Go counts all of its memory, so its limit may be as large as the container's.
    """
    limit, memory = container.limits.memory_bytes or 0, compute_heap_memory(heap, container)
    if heap.runtime is HeapRuntime.GO and heap.compute_heap(limit, container.requests.memory_bytes or 0) <= limit:
        return 0
    return memory if heap.is_stated and heap.is_known and memory > limit > 0 else 0


def compute_min_limit_for_heap(heap: HeapBound, known_use: int) -> int:
    """Return the least limit with which a process starts that may need `known_use` bytes of heap."""
    least = heap.compute_memory(0, 0)
    if not heap.limit_share:
        return least
    is_small = heap.small_limit_share and known_use <= heap.min_bytes
    share = max(heap.limit_share, heap.small_limit_share if is_small else 0.0)
    return max(least, round_up_to_mebibytes(min(math.ceil(known_use / share), UNBOUNDED)))


def _get_request_floor(heap: HeapBound, memory: int, limit: int, qos: QosClass, policy: Policy) -> int:
    if qos is QosClass.GUARANTEED:
        return limit
    return memory if heap.holds_request and policy.heap_bounds is HeapBoundPolicy.KEEP else 0
