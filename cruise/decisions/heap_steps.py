"""Shows what a container's heap may take, and what its memory is not cut below."""

from dataclasses import dataclass

from cruise.decisions.pod_policy.heap_floors import compute_heap_memory, compute_running_heap_floor, get_heap_bound
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.cluster import Container, QosClass
from cruise.domain.heaps import HeapRuntime
from cruise.domain.policy import Policy


@dataclass(frozen=True, slots=True)
class HeapStep:
    """The bound of a heap and what follows from it, in bytes.

    `source` is the option and its place, or the runtime's default. `memory` is what the process may take, 0 if
    that is unknown. A present request that is larger is not cut below `request_floor`, nor a limit below `limit_floor`:
    None where the limit is unchanged while the process runs.
    """

    runtime: HeapRuntime
    source: str
    is_stated: bool
    memory: int
    request_floor: int
    limit_floor: int | None


def build_heap_step(container: Container, qos: QosClass, policy: Policy) -> HeapStep | None:
    """Return the step of a running container, None without a bound."""
    heap = get_heap_bound(container, policy)
    if heap is None:
        return None
    floor, memory = compute_running_heap_floor(container, qos, policy), compute_heap_memory(heap, container)
    limit = None if floor.limit_bytes >= UNBOUNDED else floor.limit_bytes
    request = min(floor.request_bytes, container.requests.memory_bytes or 0)
    return HeapStep(heap.runtime, heap.source, heap.is_stated, memory, request, limit)
