"""What a container's heap may grow to, by the settings of its runtime: JVM, Go, Node.js or .NET."""

import math
from dataclasses import dataclass
from enum import StrEnum

from cruise.domain.resources import MEBIBYTE


class HeapRuntime(StrEnum):
    """A runtime that manages its own heap."""

    JVM = "JVM"
    GO = "Go"
    NODE = "Node.js"
    DOTNET = ".NET"


@dataclass(frozen=True, slots=True)
class RuntimeOverhead:
    """What a process takes besides its heap: a constant, and a share of the heap."""

    base_bytes: int
    heap_share: float


# Measured with full heaps of 128 MiB to 4 GiB: docs/evidence/heaps.md.
RUNTIME_OVERHEADS = {
    HeapRuntime.JVM: RuntimeOverhead(128 * MEBIBYTE, 0.04),
    HeapRuntime.GO: RuntimeOverhead(16 * MEBIBYTE, 0.0),
    HeapRuntime.NODE: RuntimeOverhead(72 * MEBIBYTE, 0.18),
    # Not measured.
    HeapRuntime.DOTNET: RuntimeOverhead(128 * MEBIBYTE, 0.04),
}


@dataclass(frozen=True, slots=True)
class HeapBound:
    """What a container's settings let its heap grow to; read once, when the process starts.

    `fixed_bytes` is a stated size, 0 for none. `limit_share` and `request_share` are shares of the container's memory
    limit and request at its start: at least `min_bytes` (of a small limit at most `small_limit_share`) and at most
    `max_bytes`. The process takes up to `extra_bytes` besides the runtime's overhead. `is_known` is False if a setting
    cannot be read. `is_stated`: an option states the bound; else it is the default of a runtime that image or
    command suggest. `holds_request` indicates that the request is not cut below it either: the process takes all of the
    heap, whatever it needs. `source` names option and place.
    """

    runtime: HeapRuntime
    source: str
    fixed_bytes: int = 0
    limit_share: float = 0.0
    request_share: float = 0.0
    min_bytes: int = 0
    small_limit_share: float = 0.0
    max_bytes: int = 0
    extra_bytes: int = 0
    is_known: bool = True
    is_stated: bool = True
    holds_request: bool = True

    @property
    def follows_size(self) -> bool:
        """Whether another limit or request may change the heap of the next process; that of a running one stays."""
        return self.limit_share > 0 or self.request_share > 0 or not self.is_known

    def compute_heap(self, limit_bytes: int, request_bytes: int) -> int:
        """Return the largest heap of a process that starts with a memory limit and request (0: none), 0 if unknown."""
        shared = 0
        if self.limit_share and limit_bytes:
            least = min(self.min_bytes, int(limit_bytes * self.small_limit_share))
            shared = max(int(limit_bytes * self.limit_share), least)
            shared = min(shared, self.max_bytes) if self.max_bytes else shared
        return max(self.fixed_bytes, shared, int(request_bytes * self.request_share))

    def compute_memory(self, limit_bytes: int, request_bytes: int) -> int:
        """Return what the process may take, in whole MiB: its heap and its overhead; 0 if unknown."""
        heap = self.compute_heap(limit_bytes, request_bytes)
        if not heap:
            return 0
        overhead = RUNTIME_OVERHEADS[self.runtime]
        total = heap + overhead.base_bytes + math.ceil(heap * overhead.heap_share) + self.extra_bytes
        return -(-total // MEBIBYTE) * MEBIBYTE
