"""Recorded usage as a replay reads it: one regular grid of times, one column a container."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.cluster import WorkloadRef
from cruise.domain.resources import Resources

# Recordings know requests alone. A limit at the request would kill what passes it under every policy that leaves it,
# and VPA's, which keep the proportion, at their targets: what was compared then would be this assumption.
PROVISIONED_LIMIT_OF_REQUEST = 2


@dataclass(frozen=True, slots=True)
class RecordedContainer:
    """One container, alone in its pod: its workload, and what it was provisioned with."""

    namespace: str
    pod: str
    container: str
    workload: WorkloadRef
    requests: Resources

    @property
    def memory_limit_bytes(self) -> int:
        """What its memory is limited to as provisioned, 0 for no limit: the same assumption for every policy."""
        return PROVISIONED_LIMIT_OF_REQUEST * self.requests.memory_bytes


@dataclass(frozen=True, slots=True)
class Recording:
    """Usage of C containers at T times; the matrices have one row a time and one column a container.

    The times are `start`, `start` + `step_seconds` …, in Unix seconds and on the grid of the step; NaN is no sample.
    CPU is the use over the step that ends at the time, memory the working set at the time. `has_memory` is False where
    memory was not recorded: it is zero then, and nothing is said about it.
    """

    name: str
    containers: Sequence[RecordedContainer]
    start: int
    step_seconds: int
    cpu_millicores: Float32Array
    memory_bytes: Float32Array
    has_memory: bool = True

    def workload_containers(self) -> Int64Array:
        """Number the (workload, container name) pairs from 0, and return each container's number."""
        numbers: dict[tuple[str, WorkloadRef, str], int] = {}
        keys = [(one.namespace, one.workload, one.container) for one in self.containers]
        return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)

    @property
    def days(self) -> float:
        """How long the recording is."""
        return len(self.cpu_millicores) * self.step_seconds / 86400
